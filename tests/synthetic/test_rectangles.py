"""The table of random rectangles: sums by brute force, mechanisms that are right without noise."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.rectangles import MECHANISMS, PRODUCTS, Data, draw_rectangles, measured, table_lines


def make_data(shape: tuple[int, int] = (20, 27)) -> Data:
    counts = np.random.default_rng(2).poisson(3.0, shape)
    return Data(name="small", counts=counts)


def test_sums_are_those_of_cells() -> None:
    data = make_data()
    drawn = draw_rectangles(data.counts.shape, 0.5, np.random.default_rng(0))
    found = drawn.sums(data.counts.astype(np.float64))
    (one, two), (three, four) = drawn.sides
    for a, b, c, d, own in list(zip(one, two, three, four, found, strict=True))[:200]:
        assert 0 <= a < b <= 20 and 0 <= c < d <= 27 and b - a <= 10
        assert own == data.counts[a:b, c:d].sum()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_much_budget_gives_the_data(mechanism: str) -> None:
    data = make_data()
    for table in MECHANISMS[mechanism](data, 200.0, np.random.default_rng(1)).values():
        assert table.shape == data.counts.shape
        assert table.sum() == pytest.approx(data.rows, rel=0.01)
        assert np.abs(table - data.counts).mean() < 1.0


def test_a_table_has_every_mechanism_and_product() -> None:
    found, many = {}, Data(name="small", counts=1000 * make_data().counts)
    for product in PRODUCTS:
        found |= measured(many, "adaptive, for counts", product, 2)
    ratios, means, _ = "\n".join(table_lines(found, ["small"], ["small"])).split("\n\n")
    assert ratios.startswith("| over those of adaptive, for counts, count | n epsilon = 100 |")
    cells = ratios.splitlines()[2].split(" | ")
    assert cells[0] == "| adaptive, for counts, estimate" and len(cells) == 5
    assert all(len(set(each.strip(" |").split(", "))) == 1 for each in cells[1:])
    assert means.startswith("| geometric mean | n epsilon = 100 |")
