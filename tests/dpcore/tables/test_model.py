"""Models of wide tables: products of cliques, compared with the whole joint law."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.tables.estimates import MeasuredTables, PairTable
from dptrees.dpcore.tables.model import TableModel
from dptrees.dpcore.tables.plan import Pair
from dptrees.dpcore.tables.question import measure_tables
from tests.dpcore.tables.tiny_tables import SHAPE, chained_rows, count_rows, make_plan, make_source

COUNTS = count_rows(SHAPE, chained_rows())
GRAPHS: dict[str, list[Pair]] = {
    "none": [],
    "forest": [(0, 1), (2, 3)],
    "chain": [(0, 1), (1, 2), (2, 3)],
    "star": [(1, 3), (0, 1), (1, 2)],
    "two triangles": [(0, 1), (1, 2), (2, 3), (0, 2), (1, 3)],
    "all": [(0, 1), (1, 2), (2, 3), (0, 2), (1, 3), (0, 3)],
}


def measured(pairs: list[Pair], *, grouped: bool = False, noise: int = 0) -> MeasuredTables:
    """Exact counts as if they were released, of some pairs."""
    rng = np.random.default_rng(5)
    columns = tuple(SHAPE.column_counts(COUNTS, column) for column in range(4))
    tables = []
    for first, second in pairs:
        labels = [
            np.minimum(np.arange(SHAPE.sizes[each]), 2)
            if grouped and each != 1
            else np.arange(SHAPE.sizes[each])
            for each in (first, second)
        ]
        counts = np.zeros((labels[0].max() + 1, labels[1].max() + 1), np.int64)
        np.add.at(counts, (labels[0][:, None], labels[1]), SHAPE.pair_counts(COUNTS, first, second))
        counts += rng.integers(-noise, noise + 1, counts.shape)
        tables.append(
            PairTable(
                first=first,
                second=second,
                rows=labels[0],
                columns=labels[1],
                counts=counts,
                amount=Fraction(1, 5),
            )
        )
    return MeasuredTables(plan=make_plan(100), columns=columns, pairs=tuple(tables))


def joint_law(model: TableModel) -> Floats:
    """The counts of every combination of cells of the model, by the product of all cliques."""
    sizes = [cells.number for cells in model.cells]
    joint = np.ones(sizes)
    for clique in model.cliques:
        conditional = clique.joint / np.maximum(clique.joint.sum(axis=-1, keepdims=True), 1e-300)
        axes = np.argsort(clique.members)
        shape = [sizes[column] if column in clique.members else 1 for column in range(4)]
        joint = joint * conditional.transpose(axes).reshape(shape)
    return joint * model.rows


@pytest.mark.parametrize("pairs", GRAPHS.values(), ids=GRAPHS)
def test_pairs_are_those_of_the_joint_law(pairs: list[Pair]) -> None:
    for grouped, noise in itertools.product((False, True), (0, 300)):
        model = TableModel.fitted(measured(pairs, grouped=grouped, noise=noise))
        joint = joint_law(model)
        for first, second in itertools.permutations(range(4), 2):
            others = tuple(each for each in range(4) if each not in (first, second))
            table = joint.sum(axis=others)
            table = table if first < second else table.T
            above, beside = model.cells[first], model.cells[second]
            wanted = table[above.labels][:, beside.labels] * above.inside[:, None] * beside.inside
            assert np.abs(model.pair(first, second) - wanted).max() < 1e-6 * model.rows
            assert np.abs(model.pair(first, second) - model.pair(second, first).T).max() < 1e-3


@pytest.mark.parametrize("pairs", GRAPHS.values(), ids=GRAPHS)
def test_exact_counts_are_found_again(pairs: list[Pair]) -> None:
    model = TableModel.fitted(measured(pairs))
    for column in range(4):
        exact = SHAPE.column_counts(COUNTS, column)
        assert np.abs(model.column(column) - exact).max() < 20
    for pair in pairs:
        exact = SHAPE.pair_counts(COUNTS, *pair)
        # An empty cell has a fiftieth of what independence predicts.
        assert np.abs(model.pair(*pair) - exact).sum() < 0.03 * COUNTS[:6].sum()


def test_a_further_pair_is_closer() -> None:
    """Columns 0 and 3 depend on each other beyond the chain between them."""
    errors = []
    for name in ("chain", "all"):
        model = TableModel.fitted(measured(GRAPHS[name]))
        exact = SHAPE.pair_counts(COUNTS, 0, 3)
        errors.append(np.abs(model.pair(0, 3) - exact).sum())
    assert errors[1] < 0.3 * errors[0]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", ["forest", "two triangles"])
def test_synthetic_rows_have_the_law(name: str, grouped: bool) -> None:
    """Frequencies of all pairs of cells are off by less than 6 standard deviations: of some 140
    counts, 1 in 3 million."""
    model = TableModel.fitted(measured(GRAPHS[name], grouped=grouped))
    rows = 50_000
    columns = model.sample(rows, public_stream("rows"))
    counts = count_rows(SHAPE, columns)
    for pair in SHAPE.pairs:
        wanted = model.pair(*pair) / model.rows
        off = np.abs(SHAPE.pair_counts(counts, *pair) - rows * wanted)
        assert (off <= 6 * np.sqrt(rows * wanted * (1 - wanted)) + 1).all()
    # Shown to fail: of rows whose columns are independent.
    apart = [public_stream(each).uint16(rows).argsort() for each in range(4)]
    counts = count_rows(SHAPE, [own[order] for own, order in zip(columns, apart, strict=True)])
    wanted = model.pair(0, 1) / model.rows
    off = np.abs(SHAPE.pair_counts(counts, 0, 1) - rows * wanted)
    assert (off > 6 * np.sqrt(rows * wanted * (1 - wanted)) + 1).any()


def test_streams_decide_the_rows() -> None:
    model = TableModel.fitted(measured(GRAPHS["chain"]))
    one, two = (model.sample(100, public_stream("same")) for _ in range(2))
    other = model.sample(100, public_stream("other"))
    assert all((a == b).all() for a, b in zip(one, two, strict=True))
    assert any((a != b).any() for a, b in zip(one, other, strict=True))
    assert [each.shape for each in model.sample(0, public_stream("none"))] == [(0,)] * 4


@pytest.mark.parametrize("amount", [Fraction(1, 1000), Fraction(1, 10), 1, 10, 5000])
def test_any_budget_has_a_model(amount: Fraction | int) -> None:
    """Also where the noise is much larger than all counts, or nearly always 0."""
    released = measure_tables(COUNTS, make_plan(amount), make_source(), "t")
    model = TableModel.fitted(released)
    for first, second in SHAPE.pairs:
        table = model.pair(first, second)
        assert np.isfinite(table).all() and table.min() >= 0
        assert abs(table.sum() - model.rows) < 1e-6 * model.rows
    assert all(len(each) == 10 for each in model.sample(10, public_stream("any")))


def test_no_rows_have_a_model() -> None:
    released = measure_tables(np.zeros_like(COUNTS), make_plan(1), make_source(), "t")
    model = TableModel.fitted(replace(released))
    assert np.isfinite(model.pair(0, 3)).all()
