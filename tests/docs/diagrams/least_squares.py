"""How least squares makes the noisy counts of a parent and its children agree."""

from __future__ import annotations

from fractions import Fraction

from tests.docs.diagrams.canvas import PICTURES, Canvas

PAGE = PICTURES / "least-squares.svg"
PARENT, CHILDREN = 103, (58, 39)


def drawing() -> str:
    """Return the diagram."""
    # Counts of equal variance: the parent by itself, and the sum of the children with twice of it.
    total = Fraction(2 * PARENT + sum(CHILDREN), 3)
    correction = (total - sum(CHILDREN)) / 2
    estimates = [child + correction for child in CHILDREN]
    assert sum(estimates) == total
    canvas = Canvas(
        800, 350, "Least squares: a noisy parent and two noisy children become consistent."
    )
    canvas.text(30, 34, "Least squares uses every noisy count", "strong", "start")
    canvas.text(190, 68, "noisy counts, variance v each", "noise")
    canvas.text(610, 68, "estimates", "answer")
    for x, style, top, below in (
        (190, "noisy", PARENT, CHILDREN),
        (610, "chosen", total, estimates),
    ):
        for side, value in zip((-85, 85), below, strict=True):
            canvas.line(x, 120, x + side, 170)
            canvas.label(x + side - 48, 170, 96, 40, str(value), style)
        canvas.label(x - 48, 84, 96, 40, str(top), style)
        added = sum(below)
        canvas.text(
            x,
            238,
            f"{below[0]} + {below[1]} = {added}" + ("" if added == top else f", not {top}"),
        )
    canvas.arrow(350, 148, 450, 148)
    canvas.lines(
        30,
        274,
        "Total: the parent has twice the weight of the sum of the children, whose variance is 2 v: "
        f"(2 x {PARENT} + {sum(CHILDREN)}) / 3 = {total}.\n"
        f"Children: each gets half of the difference, ({total} - {sum(CHILDREN)}) / 2 = "
        f"{correction}.\n"
        "The variance of the total falls from v to 2/3 v. No more budget is spent.",
        "soft",
        "start",
    )
    return canvas.drawing()
