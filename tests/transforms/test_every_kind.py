"""What every kind of tree keeps, whatever it is: one suite, a plan of each kind.

`test_conservation` plants a loss at each of the steps of these same plans. Each rule here is shown
to fail on a kind that breaks it.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, ZeroNoise
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.questions.messages import Counts, Drawn, Increments, Partial, Place
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.release.plan import ReleasePlan, plan_from_spec
from dptrees.dpcore.release.released import release_rows
from tests.transforms import every_kind
from tests.transforms.every_kind import ROWS

CHOICES = KeyedChoices(key=ReleaseKey(bytes(32)), release="release")

Tables = dict[tuple[str, str, int, int], list[dict[str, Any]]]


@pytest.fixture(params=every_kind.PLANS)
def plan(request: pytest.FixtureRequest) -> ReleasePlan:
    """Trees of every kind, in several chunks."""
    return every_kind.PLANS[request.param]()


def released(
    plan: ReleasePlan,
    key: ReleaseKey,
    rows: pa.Table = ROWS,
    *,
    nonce: bytes = b"",
    size: int = 250,
) -> Tables:
    """All parts of the release of rows in batches of some size; where none, its whole tables."""
    made = release_rows(
        plan, rows.combine_chunks().to_batches(max_chunksize=size), key, nonce=nonce
    )
    places = [
        (each.kind, each.tree, each.key, each.index) for q in plan.questions for each in q.parts()
    ]
    assert len(set(places)) == len(places)
    parts = {place: made.part(*place).to_pylist() for place in places}
    whole = {(name, "", 0, 0): table.to_pylist() for name, table in made.concluded.items()}
    return parts or whole


def universes(plan: ReleasePlan) -> dict[str, Universe]:
    return {each.digest: each for q in plan.questions for each in q.public_tables}  # type: ignore[misc]


def read_questions(plan: ReleasePlan) -> list[tuple[Question, dict[str, Any]]]:
    """The trees as workers read rows with them, and the columns of the rows."""
    questions = [each.with_choices(CHOICES) for each in plan.questions]
    return [(q, {name: ROWS[name].combine_chunks() for name in q.columns}) for q in questions]


def check_places(plan: ReleasePlan) -> None:
    """Places are planned once each, and every partial count is of one of them."""
    for question, columns in read_questions(plan):
        places = list(question.places)
        assert len(set(places)) == len(places) > 0
        increments = question.increments(columns)
        for dense in (True, False):
            counter = question.counter(dense=dense, choices=CHOICES)
            kept = counter.add(increments, ROWS.num_rows)
            partials = list(counter.take())
            assert {partial.place for partial in partials} <= set(places)
            merged = merge_by_place(question, partials)
            assert kept == sum(c.total for p, c in merged.items() if question.place_balance(p) == 0)
            assert all(not partial.data for partial in counter.take())


def merge_by_place(question: Question, partials: list[Partial]) -> dict[Place, Counts]:
    by_place: dict[Place, list[bytes]] = {place: [] for place in question.places}
    for place, data, _ in partials:
        by_place[place].append(data)
    return {place: question.merge(place, parts) for place, parts in by_place.items()}


def check_draws(plan: ReleasePlan, key: ReleaseKey) -> None:
    """The same counts get the same noise, however the rows came; any others, noise of their own."""
    first = released(plan, key)
    assert (
        first
        == released(plan, key, size=7)
        == released(plan, key, ROWS.take(pa.array(np.arange(899, -1, -1))))
    )
    others = (
        released(plan, key, nonce=bytes(16)),
        released(plan, ReleaseKey(bytes(32))),
        released(replace(plan, name="another"), key),
        released(plan, key, ROWS.slice(20)),  # the first few are dropped by some
    )
    for other in others:
        # One or two nodes have the same noise again by chance.
        assert not [place for place in first if first[place] == other[place] and first[place][2:]]


def test_places_are_planned(plan) -> None:
    check_places(plan)
    for question in plan.questions:
        if "chunk_leaves" in field_names(question):
            with pytest.raises(ValueError, match="chunk_leaves: 0 is not at least 1"):
                replace(question, chunk_leaves=0)


def test_the_same_counts_are_drawn_once(plan, key) -> None:
    check_draws(plan, key)
    assert released(plan, key, ROWS.slice(0, 0)).keys() == released(plan, key).keys()


def test_a_plan_comes_back_from_its_specification_and_from_bytes(plan, key) -> None:
    expected, found = released(plan, key), universes(plan)
    read = plan_from_spec(plan.spec(), found.__getitem__, found.__getitem__)
    for question in plan.questions:
        question.prepare()
    for again in (read, pickle.loads(pickle.dumps(plan))):
        assert again == plan and again.digest == plan.digest and again.spec() == plan.spec()
        assert released(again, key) == expected
    # What takes long is taken from the manifest.
    fresh = plan_from_spec(plan.spec(), found.__getitem__, found.__getitem__)
    for question, old in zip(fresh.questions, plan.questions, strict=True):
        question.recall(old.entry())
        assert question.entry() == old.entry()
    assert released(fresh, key) == expected


def listed(increments: Increments) -> list[tuple[Any, int]]:
    """(cell, value), one for each row."""
    cells, values = increments
    names = cells.to_pylist() if isinstance(cells, pa.Array) else cells.tolist()
    return list(zip(names, [1] * len(names) if values is None else values.tolist(), strict=True))


def test_rows_by_themselves_add_what_they_add_together(plan) -> None:
    """And report which rows of the batch they are."""
    for question, columns in read_questions(plan):
        increments, rows = question.row_increments(columns)
        regrouped, together = question.regrouped(increments), question.increments(columns)
        assert sorted(listed(regrouped)) == sorted(listed(together))
        every = listed(increments)
        places = range(ROWS.num_rows) if rows is None else rows.tolist()
        assert len(every) == len(places)
        for number in range(0, len(every), 50):
            alone = {name: each.slice(places[number], 1) for name, each in columns.items()}
            own = increments.select(np.arange(len(every)) == number)
            assert listed(own) == [every[number]]
            assert listed(question.increments(alone)) == listed(question.regrouped(own))
        for place in sorted(set(range(ROWS.num_rows)) - set(places))[::50]:
            alone = {name: each.slice(place, 1) for name, each in columns.items()}
            assert listed(question.increments(alone)) == []
        check_keys(question, increments.cells)


def check_keys(question: Question, cells: Any) -> None:
    """Check that keys rise with cells; keys of nodes are in no order of keys."""
    if isinstance(cells, pa.Array):
        return
    keys = question.cell_keys(np.sort(cells))
    assert (keys is None) == (question.keys is None)
    if keys is not None:
        assert (np.diff(keys) >= 0).all()
        assert set(keys.tolist()) <= set(range(question.key_count))


def test_counts_at_hand_are_those_of_the_rows(plan) -> None:
    """What `release_counts` takes, and what a counter gives."""
    for question, columns in read_questions(plan):
        counter = question.counter(dense=True, choices=CHOICES)
        increments = question.increments(columns)
        counter.add(increments, ROWS.num_rows)
        given: Any
        if question.kind in ("distinct", "selection", "sketch"):
            given = NodeCounts.grouped(increments.cells, increments.values)
        elif isinstance(increments.cells, pa.Array):
            given = question.domain.leaf_counts(columns)  # type: ignore[attr-defined]
        else:
            given = np.zeros(question.dense_cells, np.int64)
            values = 1 if increments.values is None else increments.values
            np.add.at(given, increments.cells, values)
        mine, theirs = (
            {place: each.to_bytes() for place, each in merge_by_place(question, partials).items()}
            for partials in ([*question.split_counts(given, CHOICES)], [*counter.take()])
        )
        assert mine == theirs


def test_without_noise_the_root_is_the_truth(plan, key, monkeypatch) -> None:
    def silent(self: Any, stream: Any, many: int) -> Any:
        return ZeroNoise().sample(stream, many)

    for law in (DiscreteLaplace, DiscreteGaussian):
        monkeypatch.setattr(law, "sample", silent)
    found = released(plan, key)
    for question, columns in read_questions(plan):
        counter = question.counter(dense=True, choices=CHOICES)
        exact = counter.add(question.increments(columns), ROWS.num_rows)
        nodes = [row for place, rows in found.items() for row in rows if place[1] == question.name]
        uncounted = ("selection", "exponential", "distinct", "mean", "sketch")
        if question.kind in uncounted:  # which count no rows
            continue
        roots = [row for row in nodes if row.get("level") == 0]
        assert len(roots) == question.key_count
        # Searches are not exact without noise either, nor are counts that collide in sketches.
        if question.name not in ("thresholds", "sketches"):
            assert sum(row["estimate"] for row in roots) == pytest.approx(exact, abs=1e-6)


# --- kinds that break a rule ---------------------------------------------------------------------


def field_names(value: Any) -> list[str]:
    return [each.name for each in fields(value)]


def planted(**methods: Any) -> ReleasePlan:
    """The plan of an ordered tree, whole in a chunk, that has other methods."""
    plan = every_kind.PLANS["ordered"]()
    (question,) = plan.questions
    kind = type("Planted", (type(question),), methods)
    given = {name: getattr(question, name) for name in field_names(question)}
    return replace(plan, questions=(kind(**given | {"chunk_leaves": 30}),))


def test_a_kind_that_draws_anew_is_found(key) -> None:
    def draw(self: Any, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        fresh = replace(noise, global_digest=os.urandom(32))
        return OrderedQuestion.draw(self, place, counts, fresh)

    with pytest.raises(AssertionError):
        check_draws(planted(draw=draw), key)


def test_a_kind_whose_noise_does_not_hang_on_the_counts_is_found(key) -> None:
    def draw(self: Any, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        class Blind(NoiseSource):
            def for_counts(self, counts: Any) -> NoiseSource:
                return self

        given = {name: getattr(noise, name) for name in field_names(noise)}
        own = Blind(**given | {"global_digest": b"", "nonce": b""})
        return OrderedQuestion.draw(self, place, counts, own)

    with pytest.raises(AssertionError):
        check_draws(planted(draw=draw), key)


def test_a_kind_that_forgets_rows_is_found() -> None:
    class Forgetful:
        is_due = False

        def __init__(self, counter: Any) -> None:
            self._counter = counter

        def add(self, increments: Any, rows: int, /) -> int:
            kept: int = self._counter.add(increments._replace(cells=increments.cells[1:]), rows)
            return kept + 1

        def take(self) -> Iterator[Partial]:
            yield from self._counter.take()

    def counter(self: Any, *, dense: bool, choices: KeyedChoices) -> Forgetful:
        return Forgetful(OrderedQuestion.counter(self, dense=dense, choices=choices))

    with pytest.raises(AssertionError):
        check_places(planted(counter=counter))


def test_a_kind_with_a_place_twice_is_found() -> None:
    with pytest.raises(AssertionError):
        check_places(planted(places=property(lambda self: OrderedQuestion.places.fget(self) * 2)))  # type: ignore[attr-defined]
