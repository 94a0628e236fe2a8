"""What a command reports on standard error: lines for a person, or events for a program.

With ``--log-format json`` every line is an object: the time, the level, the event, and what belongs
to it. Nothing of the rows is in an event: names, folders, sentences and seconds alone. Which
events there are, and what belongs to each, docs/operations.md states, which tests follow.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone

from dptrees.pipelines.faults.exit_code import ExitCode
from dptrees.pipelines.faults.outcome import Outcome
from dptrees.pipelines.terminal_text import print_line

FORMATS = ("text", "json")
# Where a scheduler may name a run, beside the option.
RUN_ID = "DPTREES_RUN_ID"
_RUN_ID = re.compile(r"[!-~]{1,200}")


class _Log:
    """The log of this process.

    Attributes:
        is_json: whether it is for a program.
        run: the id of the run, which every event bears; "" of a command that is none.
        before: the handlers of libraries' logs, as they were without.
    """

    is_json = False
    run = ""
    before: list[logging.Handler] | None = None


LOG = _Log()


def run_id(text: str | None = None) -> str:
    """The id of a run: as a scheduler names it, or else one that no other run has.

    Args:
        text: as it is given; None: the environment's, or a new one.

    Raises:
        ValueError: it is no word of at most 200 characters of ASCII.

    >>> run_id("scheduled__2026-11-21T00:00:00+00:00")
    'scheduled__2026-11-21T00:00:00+00:00'
    """
    text = text or os.environ.get(RUN_ID)
    if not text:  # of place and time: drawn at random is noise alone
        place = f"{socket.gethostname()} {os.getpid()} {time.time_ns()}"
        return str(uuid.uuid5(uuid.NAMESPACE_OID, place))
    if not _RUN_ID.fullmatch(text):
        raise ValueError(f"{text!r} must be one word of at most 200 characters of ASCII")
    return text


def use_format(name: str, run: str = "") -> None:
    """Logs in a format from now on.

    Args:
        name: one of `FORMATS`. As JSON, what libraries log is an event, too.
        run: the id of the run.
    """
    LOG.is_json, LOG.run = name == "json", run
    root = logging.getLogger()
    if LOG.before is not None:
        root.handlers[:], LOG.before = LOG.before, None
    if LOG.is_json:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_JsonFormatter())
        handler.setLevel(logging.WARNING)
        # An engine's loggers have levels of their own, and are shown where all logs are.
        handler.addFilter(lambda record: record.levelno >= root.level)
        LOG.before, root.handlers[:] = list(root.handlers), [handler]


def event(name: str, *, level: str = "info", **fields: object) -> None:
    """Report an event to a program; a person does not see it.

    Args:
        name: of the event.
        level: ``info``, ``warning`` or ``error``.
        fields: plain JSON values that belong to it.
    """
    if LOG.is_json:
        print_line(_line(name, level, fields), file=sys.stderr)


def remark(text: str) -> None:
    """Report a remark to a person, or to a program."""
    if LOG.is_json:
        event("remark", level="warning", message=text)
    else:
        print_line(text, file=sys.stderr)


def report_outcome(outcome: Outcome) -> None:
    """Report why a command ends."""
    if LOG.is_json:
        level = "warning" if outcome.code in (ExitCode.STOPPED, ExitCode.TERMINATED) else "error"
        event("ended", level=level, code=int(outcome.code), message=outcome.sentence)
    else:
        print_line(f"dptrees: {outcome.sentence}", file=sys.stderr)


def _line(name: str, level: str, fields: Mapping[str, object]) -> str:
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    entries: dict[str, object] = {"time": now, "level": level, "event": name}
    entries |= {"run": LOG.run} if LOG.run else {}
    # JSON allows DELETE as it is, but a terminal does not show it.
    return json.dumps(entries | dict(fields)).replace("\x7f", "\\u007f")


class _JsonFormatter(logging.Formatter):
    """What a library logs, as an event in one line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"logger": record.name, "message": record.getMessage()}
        return _line("log", record.levelname.lower(), fields)
