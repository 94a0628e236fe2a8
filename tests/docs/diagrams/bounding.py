"""How contribution bounding keeps a fixed number of rows of each privacy unit."""

from __future__ import annotations

from tests.docs.diagrams.canvas import PICTURES, Canvas

PAGE = PICTURES / "bounding.svg"
MOST = 3
# The kept rows of each person; in a release a keyed hash chooses them.
PEOPLE = (
    ("Ada", 2, {0, 1}),
    ("Ben", 7, {1, 4, 5}),
    ("Cleo", 1, {0}),
    ("Dan", 4, {0, 2, 3}),
)


def drawing() -> str:
    """Return the diagram."""
    canvas = Canvas(
        800, 330, "Contribution bounding: at most three rows of each person are counted."
    )
    canvas.text(30, 34, "Contribution bounding with max_rows: 3", "strong", "start")
    canvas.text(30, 66, "All rows, by person", "soft", "start")
    canvas.text(520, 66, "Counted rows", "soft", "start")
    for number, (name, rows, kept) in enumerate(PEOPLE):
        y = 96 + 44 * number
        canvas.text(30, y + 5, name, "", "start")
        for row in range(rows):
            canvas.circle(100 + 36 * row, y, 11, "bar" if row in kept else "faint")
        canvas.arrow(380, y, 500, y)
        for place in range(len(kept)):
            canvas.circle(535 + 36 * place, y, 11)
    canvas.text(440, 84, "keyed hash", "soft")
    canvas.text(660, 145, f"at most {MOST} each", "answer", "start")
    canvas.lines(
        30,
        286,
        "A keyed hash of the rows chooses. Without the release key, no one can predict which rows "
        f"are kept.\nAdding or removing a person changes the counts by at most {MOST} rows: the "
        "noise is made for that.",
        "soft",
        "start",
    )
    return canvas.drawing()
