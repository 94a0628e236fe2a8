"""A small SVG canvas for the diagrams: boxes, text, lines and arrows, in light and dark colors."""

from __future__ import annotations

from html import escape
from pathlib import Path

PICTURES = Path(__file__).resolve().parents[3] / "docs" / "pictures"
_STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de; }
  text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1b1f24; }
  .soft { fill: #57606a; font-size: 13px; }
  .strong { font-weight: 600; }
  .noise { fill: #a03c00; }
  .answer { fill: #0a5a96; }
  .box { fill: #f6f8fa; stroke: #8c959f; }
  .chosen { fill: #d6e8f7; stroke: #0a66a8; stroke-width: 2; }
  .noisy { fill: #fde8d8; stroke: #b34700; }
  .faint { fill: none; stroke: #8c959f; stroke-dasharray: 3 3; }
  .bar { fill: #0a66a8; }
  .second { fill: #b34700; }
  .line { fill: none; stroke: #8c959f; stroke-width: 1.3; }
  .head { fill: #8c959f; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0f141a; stroke: #3b434d; }
    text { fill: #e6edf3; }
    .soft { fill: #a3adb8; }
    .noise { fill: #f5a76c; }
    .answer { fill: #82bdf2; }
    .box { fill: #1b2129; stroke: #6b7580; }
    .chosen { fill: #173a57; stroke: #6cb6ff; }
    .noisy { fill: #472a14; stroke: #f0a35e; }
    .faint { stroke: #6b7580; }
    .bar { fill: #6cb6ff; }
    .second { fill: #f0a35e; }
    .line { stroke: #6b7580; }
    .head { fill: #6b7580; }
  }
"""


class Canvas:
    """One diagram.

    Args:
        width: in pixels.
        height: in pixels.
        title: a sentence for readers who do not see the picture.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size, self._title = (width, height), title
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, style: str = "", anchor: str = "middle") -> None:
        """Write words; y is their baseline."""
        self._add(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{style}">{escape(words)}'
            "</text>"
        )

    def lines(
        self, x: float, y: float, words: str, style: str = "", anchor: str = "middle"
    ) -> None:
        """Write several lines of words, 18 pixels apart; y is the first baseline."""
        for number, line in enumerate(words.split("\n")):
            self.text(x, y + 18 * number, line, style, anchor)

    def box(
        self, x: float, y: float, width: float, height: float, style: str = "box", radius: int = 6
    ) -> None:
        """Draw a rectangle."""
        self._add(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" '
            f'class="{style}"/>'
        )

    def label(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        words: str,
        style: str = "box",
        text: str = "",
    ) -> None:
        """Draw a rectangle with lines of words in its middle."""
        self.box(x, y, width, height, style)
        count = words.count("\n") + 1
        self.lines(x + width / 2, y + height / 2 + 5 - 9 * (count - 1), words, text)

    def circle(self, x: float, y: float, radius: float, style: str = "bar") -> None:
        """Draw a circle."""
        self._add(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" class="{style}"/>')

    def line(self, x: float, y: float, to_x: float, to_y: float, style: str = "line") -> None:
        """Draw a line."""
        self._add(f'<path d="M{x:g} {y:g}L{to_x:g} {to_y:g}" class="{style}"/>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw a horizontal or vertical arrow."""
        self.line(x, y, to_x, to_y)
        across, down = (_sign(to_x - x), _sign(to_y - y))
        back_x, back_y = to_x - 8 * across, to_y - 8 * down
        self._add(
            f'<path d="M{to_x:g} {to_y:g}L{back_x - 4 * down:g} {back_y - 4 * across:g}'
            f'L{back_x + 4 * down:g} {back_y + 4 * across:g}Z" class="head"/>'
        )

    def drawing(self) -> str:
        """Return the SVG."""
        width, height = self._size
        parts = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">\n'
            f"<title>{escape(self._title)}</title>\n<style>{_STYLE}</style>\n"
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" '
            f'class="page"/>\n{parts}\n</svg>\n'
        )

    def _add(self, part: str) -> None:
        self._parts.append(part)


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)
