"""How the counts of many workers get noise once."""

from __future__ import annotations

from tests.docs.diagrams.canvas import PICTURES, Canvas

PAGE = PICTURES / "noise.svg"


def drawing() -> str:
    """Return the diagram."""
    canvas = Canvas(
        800, 356, "Noise once: workers count, one step adds keyed noise, a retry changes nothing."
    )
    canvas.text(
        30,
        34,
        "Noise is added once, by a function of the exact counts and the key",
        "strong",
        "start",
    )
    for number in range(3):
        y = 66 + 62 * number
        canvas.label(30, y, 100, 44, f"rows {number + 1}")
        canvas.arrow(130, y + 22, 168, y + 22)
        is_retried = number == 2
        canvas.label(170, y, 130, 44, "worker counts", "noisy" if is_retried else "box")
        canvas.line(300, y + 22, 330, y + 22)
    canvas.line(330, 88, 330, 212)
    canvas.arrow(330, 150, 360, 150)
    canvas.label(362, 120, 128, 60, "exact tree\n(never stored)")
    canvas.arrow(490, 150, 520, 150)
    canvas.label(522, 112, 130, 76, "draw:\ncounts + noise", "noisy", "noise")
    canvas.arrow(652, 150, 682, 150)
    canvas.label(684, 112, 92, 76, "estimates,\ntables", "chosen")
    canvas.label(522, 218, 130, 40, "release key", "box")
    canvas.arrow(587, 218, 587, 190)
    canvas.text(235, 268, "fails, runs again:", "noise")
    canvas.text(235, 286, "the same counts", "noise")
    canvas.arrow(235, 254, 235, 234)
    canvas.lines(
        30,
        320,
        "The same counts and key give the same noise. So retries, other engines and a second run "
        "of the same release\nwrite the same bytes, and reveal nothing new.",
        "soft",
        "start",
    )
    return canvas.drawing()
