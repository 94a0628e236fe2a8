"""How a tree answers a cumulative count with few nodes."""

from __future__ import annotations

from itertools import pairwise

from tests.docs.diagrams.canvas import PICTURES, Canvas

PAGE = PICTURES / "tree.svg"
COUNTS = (3, 5, 9, 14, 18, 21, 17, 16, 13, 11, 9, 8, 6, 4, 3, 1)
FANOUT = 4
BELOW = 6


def drawing() -> str:
    """Return the diagram."""
    canvas = Canvas(
        800, 386, "A tree of counts over 16 intervals of ages; three nodes answer a range."
    )
    left, step = 30, 46.25
    canvas.text(30, 34, "A tree over ages: each node counts the rows below it", "strong", "start")

    def middle(first: int, size: int) -> float:
        return left + step * (first + size / 2)

    levels = ((70, 16), (140, FANOUT), (210, 1))
    for (y, size), (below, smaller) in pairwise(levels):
        for first in range(0, 16, smaller):
            parent = first // size * size
            canvas.line(middle(parent, size), y + 34, middle(first, smaller), below)
    for y, size in levels:
        for first in range(0, 16, size):
            is_chosen = (size, first) in ((4, 0), (1, 4), (1, 5))
            width = min(92.0, step - 8) if size == 1 else 92
            canvas.label(
                middle(first, size) - width / 2,
                y,
                width,
                34,
                str(sum(COUNTS[first : first + size])),
                "chosen" if is_chosen else "box",
            )
    for number, count in enumerate(COUNTS):
        canvas.box(left + step * number + 5, 318 - 3 * count, step - 10, 3 * count, "bar", 1)
        if number % 2 == 0:
            canvas.text(left + step * number + 5, 336, str(5 * number), "soft", "middle")
    canvas.text(770, 336, "80", "soft")
    chosen = [sum(COUNTS[:4]), COUNTS[4], COUNTS[5]]
    total = " + ".join(map(str, chosen))
    canvas.text(
        30,
        368,
        f"Rows below 30: {total} = {sum(chosen)}. Three noisy counts answer it, not {BELOW}.",
        "answer",
        "start",
    )
    return canvas.drawing()
