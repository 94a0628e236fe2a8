"""Which rows of a unit stay: against a slow choice written apart; bounds, and fairness."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dptrees.dpcore.bounding import row_choice as choice_module
from dptrees.dpcore.bounding.row_choice import RowBounds, RowChoice, TreeBounding
from dptrees.dpcore.bounding.runs import Form, UnitRuns
from dptrees.dpcore.bounding.unit_ids import UnitIds
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.privacy.unit import Neighbors, PrivacyUnit
from dptrees.dpcore.questions.messages import Increments, RowIncrements
from tests.dpcore.bounding.slow_choice import Row, slow_choice
from tests.memory import stays_below

KEY = ReleaseKey(bytes(range(32)))
CHOICES = KeyedChoices(key=KEY, release="release")
CELLS = 5  # under each key
FALSE_ALARM = 1e-6


class Tree:
    """What contribution bounding needs from a question."""

    name = "tree"
    counts_unit_cells = False
    unit_value = None
    counted_periods = None

    def __init__(self, unit: PrivacyUnit, *, keyed: bool = False) -> None:
        self.unit, self.keys, self.is_keyed = unit, object() if keyed else None, keyed

    def unit_increments(self, rows: Any) -> None:
        return None

    def cell_keys(self, cells: Any) -> Any:
        return None if self.keys is None else cells // CELLS

    def regrouped(self, increments: Increments) -> Increments:
        return increments


def make_unit(**bounds: Any) -> PrivacyUnit:
    return PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("person",), **bounds)


def bounded(
    rows: Sequence[Row],
    unit: PrivacyUnit,
    *,
    keyed: bool = False,
    valued: bool = False,
    codes: bool = False,
    batches: int = 1,
    flushes: int = 1,
    shards: int = 4,
) -> Counter[tuple[Any, int]]:
    """The multiset of (cell, value) that stays, by the steps that a pipeline takes."""
    tree: Any = Tree(unit, keyed=keyed)
    bounding = TreeBounding(tree, CHOICES, shards)
    ids, messages = UnitIds(CHOICES), defaultdict(list)
    edges = np.linspace(0, len(rows), batches + 1).astype(int)
    for number in range(batches):
        part = rows[edges[number] : edges[number + 1]]
        people = pa.array([unit for unit, _, _ in part])
        cells: Any = [cell for _, cell, _ in part]
        if cells and isinstance(cells[0], bytes):
            cells = pa.array(cells).cast(pa.large_string())
        else:
            cells = pa.array(cells, pa.uint64()) if codes else np.array(cells, np.int64)
        values = np.array([value for _, _, value in part], np.int64) if valued else None
        if part:
            bounding.add(RowIncrements(Increments(cells, values)), ids.row_ids([people]))
        if number % max(1, batches // flushes) == 0 or number == batches - 1:
            for shard, data, _ in bounding.take():
                messages[shard].append(data)
    kept: Counter[tuple[Any, int]] = Counter()
    received = 0
    for parts in messages.values():
        increments, arrived, _ = bounding.bounded(parts)
        received += arrived
        if increments is not None:
            cells, values = increments
            listed = cells.to_pylist() if isinstance(cells, pa.Array) else cells.tolist()
            listed = [each.encode() if isinstance(each, str) else each for each in listed]
            worth = [1] * len(listed) if values is None else values.tolist()
            kept.update(zip(listed, worth, strict=True))
    assert received <= len(rows) and (received == len(rows) or unit.keys is not None)
    return kept


def slow(rows: Sequence[Row], unit: PrivacyUnit, *, keyed: bool = False) -> Counter[Any]:
    kept = slow_choice(
        rows,
        key=KEY,
        release="release",
        tree="tree",
        most=unit.rows,
        keys=unit.keys,
        per_key=unit.rows_per_key,
        cell_key=(lambda cell: cell // CELLS) if keyed else None,
    )
    found: Counter[Any] = Counter()
    for (_, cell, value), count in kept.items():
        found[cell, value] += count
    return found


def many_rows(seed: int, size: int, units: int, *, valued: bool) -> list[Row]:
    random = np.random.default_rng(seed)
    people = random.zipf(1.5, size) % units
    cells = random.integers(0, 6 * CELLS, size)
    values = random.integers(-3, 4, size) if valued else np.ones(size, int)
    return list(zip(people.tolist(), cells.tolist(), values.tolist(), strict=True))


BOUNDS = [
    {"rows": 1},
    {"rows": 7},
    {"rows": 1000},
    {"rows": 6, "keys": 2},
    {"rows": 6, "rows_per_key": 2},
    {"rows": 9, "keys": 3, "rows_per_key": 2},
    {"rows": 4, "keys": 6, "rows_per_key": 1},
]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_what_stays_is_what_the_slow_choice_keeps(bounds) -> None:
    for valued, keyed in product((False, True), (False, True)):
        rows, unit = many_rows(3, 1500, 40, valued=valued), make_unit(**bounds)
        expected = slow(rows, unit, keyed=keyed)
        assert bounded(rows, unit, keyed=keyed, valued=valued, batches=5, flushes=2) == expected
        assert sum(expected.values()) > 0 and (
            sum(expected.values()) < 1500 or bounds["rows"] == 1000
        ), (valued, keyed)


def test_cells_that_are_texts_or_codes() -> None:
    rows = many_rows(4, 800, 30, valued=False)
    texts = [(unit, f"a very long label {cell}".encode(), 1) for unit, cell, _ in rows]
    assert bounded(texts, make_unit(rows=3), batches=4, flushes=2) == slow(texts, make_unit(rows=3))
    far = [(unit, (cell * 2**58 + cell) % 2**64, 1) for unit, cell, _ in rows]
    assert bounded(far, make_unit(rows=3), codes=True, batches=4) == slow(far, make_unit(rows=3))


def test_units_that_are_texts() -> None:
    rows = many_rows(5, 800, 30, valued=True)
    named = [(f"person number {unit}" * (unit % 5), cell, value) for unit, cell, value in rows]
    assert bounded(named, make_unit(rows=4), valued=True) == slow(named, make_unit(rows=4))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 3 * CELLS - 1), st.integers(-2, 2)), max_size=60
    ),
    bounds=st.sampled_from(BOUNDS),
    layout=st.tuples(st.integers(1, 6), st.integers(1, 4), st.sampled_from([1, 2, 64, 1000])),
    order=st.randoms(use_true_random=False),
    keyed=st.booleans(),
)
def test_it_depends_on_the_multiset_alone(rows, bounds, layout, order, keyed) -> None:
    unit, (batches, flushes, shards) = make_unit(**bounds), layout
    expected = slow(rows, unit, keyed=keyed)
    shuffled = list(rows)
    order.shuffle(shuffled)
    parts = {"batches": batches, "flushes": flushes, "shards": shards}
    assert bounded(shuffled, unit, keyed=keyed, valued=True, **parts) == expected


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_a_unit_more_moves_nothing_of_the_others(bounds) -> None:
    """And adds what the sensitivities are for, and no more."""
    rows, unit = many_rows(6, 1500, 12, valued=False), make_unit(**bounds)
    whole = bounded(rows, unit, keyed=True)
    for gone in range(12):
        without = bounded([row for row in rows if row[0] != gone], unit, keyed=True)
        assert not without - whole
        moved = whole - without
        most, squared = unit.moved(keyed=True)
        by_key: Counter[int] = Counter()
        for (cell, _), count in moved.items():
            by_key[cell // CELLS] += count
        assert sum(moved.values()) <= most
        assert len(by_key) <= (unit.keys or 99)
        assert max(by_key.values(), default=0) <= (unit.rows_per_key or 9999)
        assert sum(count**2 for count in by_key.values()) <= squared


def test_the_bounds_are_reached(monkeypatch) -> None:
    rows = [(0, cell, 1) for cell in range(30) for _ in range(40)]
    unit = make_unit(rows=9, keys=3, rows_per_key=4)
    assert sum(bounded(rows, unit, keyed=True).values()) == unit.moved(keyed=True)[0] == 9
    smallest = choice_module._smallest
    # Off by one: the checks above would see it.
    monkeypatch.setattr(choice_module, "_smallest", lambda g, h, most: smallest(g, h, most + 1))
    assert sum(bounded(rows, unit, keyed=True).values()) == 10
    with pytest.raises(AssertionError):
        test_a_unit_more_moves_nothing_of_the_others({"rows": 7})


def times_kept(keep: Any, rows: int, most: int, trials: int) -> np.ndarray[Any, Any]:
    """How often each of a unit's rows, all in cells of their own, stays, over many units."""
    runs = UnitRuns(
        form=Form.IDS,
        units=UnitIds(CHOICES).row_ids([pa.array(range(trials))])[0],
        codes=np.repeat(np.arange(trials), rows),
        cells=np.tile(np.arange(rows), trials),
        values=None,
        counts=np.ones(rows * trials, np.int64),
    )
    kept = keep(runs).reshape(trials, rows)
    assert (kept.sum(axis=1) == most).all()
    return kept.sum(axis=0)


def is_uniform(kept: np.ndarray[Any, Any], most: int, trials: int) -> bool:
    """A chi-square test at 1e-6; each row stays with probability most / rows."""
    rows = len(kept)
    share = most / rows
    # The counts of a draw without replacement vary less, alike for all rows.
    variance = trials * share * (1 - share) * rows / (rows - 1)
    statistic = ((kept - trials * share) ** 2).sum() / variance
    return bool(stats.chi2.sf(statistic, rows - 1) > FALSE_ALARM)


def test_each_row_stays_equally_often() -> None:
    choice = RowChoice(RowBounds(rows=3), CHOICES, "tree")
    kept = times_kept(lambda runs: choice.kept(runs, None), 12, 3, 20_000)
    assert is_uniform(kept, 3, 20_000)

    def first(runs: UnitRuns) -> Any:
        return (runs.cells < 3).astype(int)

    def mostly(runs: UnitRuns) -> Any:
        """Fair but for one unit in twenty, which keeps its first rows."""
        return np.where(runs.codes % 20 == 0, first(runs), choice.kept(runs, None))

    assert not is_uniform(times_kept(first, 12, 3, 20_000), 3, 20_000)
    assert not is_uniform(times_kept(mostly, 12, 3, 20_000), 3, 20_000)


def test_each_value_and_each_key_stays_equally_often() -> None:
    units, values = 20_000, 8
    rows = [(unit, 0, value) for unit in range(units) for value in range(values)]
    kept = bounded(rows, make_unit(rows=2), valued=True)
    assert is_uniform(np.array([kept[0, value] for value in range(values)]), 2, units)
    rows = [(unit, CELLS * key, 1) for unit in range(units) for key in range(6)]
    kept = bounded(rows, make_unit(rows=6, keys=2), keyed=True)
    assert is_uniform(np.array([kept[CELLS * key, 1] for key in range(6)]), 2, units)


def test_trees_choose_apart() -> None:
    """Another tree, release or key keeps other rows: no row is favored everywhere."""
    cells, counts = np.arange(1000), np.ones(1000, np.int64)
    units = UnitIds(CHOICES).row_ids([pa.array([1])])[0]
    runs = UnitRuns(
        form=Form.IDS, units=units, codes=0 * cells, cells=cells, values=None, counts=counts
    )
    kept = [
        RowChoice(RowBounds(rows=100), choices, tree).kept(runs, None)
        for choices in (
            CHOICES,
            KeyedChoices(key=KEY, release="another"),
            KeyedChoices(key=ReleaseKey(bytes(32)), release="release"),
        )
        for tree in ("one", "two")
    ]
    for number, one in enumerate(kept):
        for other in kept[:number]:
            # Hypergeometric, of mean 10.
            assert (one * other).sum() < 40


def test_equal_hashes_are_distinguished_by_place(monkeypatch) -> None:
    """However rows are sliced: planted hashes of very few values."""
    hashes = RowChoice._hashes
    monkeypatch.setattr(
        RowChoice, "_hashes", lambda *given: (hashes(*given) >> np.uint64(62)) << np.uint64(62)
    )
    rows = many_rows(8, 3000, 5, valued=True)
    found = []
    for size in (2**16, 1):
        monkeypatch.setattr(choice_module, "_SLICE", size)
        for shards in (1, 3):
            found.append(bounded(rows, make_unit(rows=20), valued=True, shards=shards, batches=3))
    assert all(each == found[0] for each in found)


def test_units_in_slices(monkeypatch) -> None:
    for size in (1, 7, 100):
        monkeypatch.setattr(choice_module, "_SLICE", size)
        monkeypatch.setattr(choice_module, "_MOST_PACKED", 3)
        rows, unit = many_rows(9, 2000, 20, valued=True), make_unit(rows=9, keys=3, rows_per_key=5)
        assert bounded(rows, unit, keyed=True, valued=True) == slow(rows, unit, keyed=True), size


def test_a_unit_of_ten_million_rows() -> None:
    """In one cell; and in as many runs as fit a shard."""
    choice = RowChoice(RowBounds(rows=20, keys=5, rows_per_key=4), CHOICES, "tree")
    units = UnitIds(CHOICES).row_ids([pa.array([1, 2])])[0]
    size = 10_000_000
    for runs, unit_rows in ((3, size // 3), (size // 10, 10)):
        heavy = UnitRuns(
            form=Form.IDS,
            units=units,
            codes=np.append(np.zeros(runs, np.int64), 1),
            cells=np.append(np.arange(runs), 0),
            values=None,
            counts=np.append(np.full(runs, unit_rows), 1),
        )
        kept = choice.kept(heavy, heavy.cells // 2)
        assert kept[-1] == 1 and 4 <= kept[:-1].sum() <= 20
        keep = partial(choice.kept, heavy, heavy.cells // 2)
        assert stays_below(60e6 + 100 * runs, keep)
