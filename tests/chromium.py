"""A real browser without a window, which tests steer through pipes: its DevTools protocol."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--window-size=1300,2400", "--remote-debugging-pipe"),
)
SECONDS = 180.0

# Run before any script of the page: what the policy refused, and what called alert.
LISTENING = """
window.refused = []; window.alerts = [];
window.alert = (text) => alerts.push(String(text));
document.addEventListener("securitypolicyviolation", (each) =>
  refused.push(each.effectiveDirective + " " + each.blockedURI + " " + each.sample));
window.everything = (root = document) => [...root.querySelectorAll("*")].flatMap((each) =>
  each.shadowRoot ? [each, ...everything(each.shadowRoot)] : [each]);
"""


class Chromium:
    """One browser with one page.

    Args:
        folder: an empty folder for what the browser keeps.
    """

    def __init__(self, folder: Path) -> None:
        assert PROGRAM is not None
        reading, self._sending = os.pipe()
        self._receiving, writing = os.pipe()
        # The browser reads from 3 and writes to 4, which must not be overwritten before.
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (reading, writing)]
        self._process = subprocess.Popen(
            [PROGRAM, *OPTIONS, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=lambda: [os.dup2(end, place) for place, end in enumerate(theirs, 3)],
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (reading, writing, *theirs):
            os.close(end)
        self._numbers, self._received, self._session = itertools.count(1), b"", ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        made = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = made["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{part}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=LISTENING)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._sending, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            assert select.select([self._receiving], [], [], SECONDS)[0], "the browser is silent"
            read = os.read(self._receiving, 1 << 20)
            assert read, "the browser has gone"
            self._received += read
        first, self._received = self._received.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(first)
        return answer

    def open(self, page: Path) -> None:
        """Load a page and wait until its scripts have run."""
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + SECONDS
        while not self.value(expression):
            assert time.monotonic() < end, expression
            time.sleep(0.05)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Move, press or release the mouse."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def complaints(self) -> list[str]:
        """What the policy refused, what failed, what was fetched, what called alert."""
        named = ("Log.entryAdded", "Runtime.exceptionThrown", "Page.javascriptDialogOpening")
        found = [str(each["params"]) for each in self.events if each["method"] in named]
        requests = [each for each in self.events if each["method"] == "Network.requestWillBeSent"]
        addresses = [each["params"]["request"]["url"] for each in requests]
        fetched = [each for each in addresses if not each.startswith(("file:", "data:"))]
        return [*found, *fetched, *self.value("[...refused, ...alerts]")]

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(SECONDS)
        os.close(self._sending)
        os.close(self._receiving)
