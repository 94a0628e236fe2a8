"""How a partition of two columns grows: only regions with many rows are divided."""

from __future__ import annotations

from random import Random

from tests.docs.diagrams.canvas import PICTURES, Canvas

PAGE = PICTURES / "partition.svg"
SIZE, ROWS, LIMIT = 216, 420, 40
Region = tuple[int, int, int, int]


def drawing() -> str:
    """Return the diagram; in a release each decision and count has noise."""
    rows = _rows()
    canvas = Canvas(800, 372, "A partition of two columns grows where rows are.")
    canvas.text(30, 34, "A partition grows where the rows are", "strong", "start")
    regions: list[Region] = [(0, 0, SIZE, SIZE)]
    for panel, (rounds, words) in enumerate(((2, "first"), (2, "then"), (4, "at the end"))):
        for _ in range(rounds):
            regions = [part for region in regions for part in _divided(region, rows)]
        left, top = 34 + 256 * panel, 60
        for x, y, width, height in regions:
            canvas.box(left + x, top + y, width, height, "box", 0)
        for x, y in rows:
            canvas.circle(left + x, top + y, 1.4)
        canvas.text(left + SIZE / 2, top + SIZE + 22, f"{words}: {len(regions)} regions", "")
    canvas.lines(
        30,
        328,
        f"A region with a noisy count above a limit (here {LIMIT} rows) is halved, along each "
        "column in turn.\nRegions with few rows stay large. Synthetic rows are drawn from the "
        "regions at the end.",
        "soft",
        "start",
    )
    return canvas.drawing()


def _rows() -> list[tuple[int, int]]:
    """Return made-up rows: two groups, and a few everywhere."""
    random = Random(3)
    rows = []
    for number in range(ROWS):
        if number % 12 == 0:
            rows.append((random.randrange(SIZE), random.randrange(SIZE)))
            continue
        x, y, width = ((62, 150, 90), (150, 62, 60))[number % 3 == 0]
        rows.append(tuple(middle + _bell(random, width) for middle in (x, y)))  # type: ignore[arg-type]
    return [(x, y) for x, y in rows if 0 < x < SIZE and 0 < y < SIZE]


def _bell(random: Random, width: int) -> int:
    """Return a number around 0, as a sum of uniform ones."""
    return sum(random.randrange(width) for _ in range(4)) // 2 - width


def _divided(region: Region, rows: list[tuple[int, int]]) -> list[Region]:
    x, y, width, height = region
    inside = sum(x <= row[0] < x + width and y <= row[1] < y + height for row in rows)
    if inside <= LIMIT or min(width, height) < 10:
        return [region]
    if width >= height:
        half = width // 2
        return [(x, y, half, height), (x + half, y, width - half, height)]
    half = height // 2
    return [(x, y, width, half), (x, y + half, width, height - half)]
