"""The picture of the report page in the README, made anew from the release of `make demo`.

    python -m tests.docs.screenshot

writes docs/report.png: the top of the page and the charts of arrival delays. Needs chromium and
out/flights-2013.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

from tests.chromium import Chromium

PROJECT = Path(__file__).resolve().parents[2]
REPORT = PROJECT / "out" / "flights-2013" / "report.html"
PICTURE = PROJECT / "docs" / "report.png"
WIDTH = 1120
# The charts of one tree follow the top of the page; the sections between are left out.
LEAVE_OUT = """
(() => {
  const sections = [...document.querySelectorAll("section.tree")]
  const section = sections.find((each) => each.querySelector("h2").innerText === "arrival_delay")
  sections.slice(0, sections.indexOf(section)).forEach((each) => each.remove())
  const charts = [...section.querySelectorAll("svg")].slice(0, 2)
  scrollTo(0, 0)
  return Math.max(...charts.map((chart) => chart.getBoundingClientRect().bottom)) + 62
})()
"""


def main() -> None:
    """Take the picture."""
    with tempfile.TemporaryDirectory() as folder:
        browser = Chromium(Path(folder))
        try:
            size = {"width": WIDTH, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.call("Emulation.setDeviceMetricsOverride", **size)
            light = [{"name": "prefers-color-scheme", "value": "light"}]
            browser.call("Emulation.setEmulatedMedia", features=light)
            browser.open(REPORT)
            height = browser.value(LEAVE_OUT)
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}
            taken = browser.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        finally:
            browser.close()
    PICTURE.write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    main()
