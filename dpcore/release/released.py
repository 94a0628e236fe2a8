"""A release as an object that answers queries, made in this process, and a check of its totals.

The steps that a pipeline spreads over workers run in a plain loop: exact counts -> digests ->
draw -> gather -> finish -> conclude. Answers are post-processing: they cost no budget.

All trees of a release read the same rows, so one that holds about none, or far fewer than
another, may have lost them to a policy. How far apart totals may be: let X be a sum of
independent discrete Laplace or Gaussian noise with weights of at most 1 and variance s^2
together. The moment generating function of discrete Laplace noise of variance v at t is 1 / (1 -
v (cosh t - 1)), that of a weighted sum at most the same of the whole variance, as (1 - a)(1 - b)
>= 1 - a - b; that of Gaussian noise is below it, as e^x <= 1 / (1 - x). For t <= 1, cosh t - 1 <=
0.5431 t^2. So by Chernoff's bound, at t = u / (s sqrt(0.5431)),

    P(X > w) <= exp(-t w) / (1 - u^2),        0 < u < 1;

where that t is above 1, s is below 1.36, and t = 1 gives no more than exp(-w) / (1 - u^2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.bounding.row_choice import CountedUnits, TreeBounding
from dptrees.dpcore.bounding.unit_ids import UnitIds, check_unit_types
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource, combine_digests
from dptrees.dpcore.privacy.unit import NullUnits
from dptrees.dpcore.questions.messages import (
    STATE,
    UNIT_SHARDS,
    UNITS,
    Increments,
    Part,
    Partial,
    Place,
    ReleasedPart,
)
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import QUANTILES, ReadPart, Released, Total
from dptrees.dpcore.release.kinds import kind_named
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.series.question import SeriesQuestion


class ReleaseReader:
    """A release as questions and the means to read their answers.

    Args:
        plan: its specification.
        read: gives the rows of a part.
        concluded: the tables of whole trees, by name: "quantiles" where a tree requested any.
    """

    def __init__(
        self, plan: ReleasePlan, read: ReadPart, concluded: Mapping[str, pa.Table]
    ) -> None:
        self.plan, self._read, self.concluded = plan, read, concluded

    @property
    def quantiles(self) -> pa.Table | None:
        """The table of quantiles, None where no tree requested any."""
        return self.concluded.get(QUANTILES)

    def part(self, kind: str, tree: str, key: int, index: int) -> pa.Table:
        """The rows of one part: its kind of table, tree, first key and chunk."""
        return self._read(kind, tree, key, index)

    def tree(self, name: str) -> Released:
        """The answers about one of its trees.

        Raises:
            KeyError: there is none of this name.
        """
        question = self.plan.question(name)
        return kind_named(question.kind).released(question, self._read, self.concluded)


# That a release of trees that hold the same rows is remarked upon.
FALSE_ALARM = 1e-6
# A tree with fewer than this part of another's rows is remarked upon.
FAR_FEWER = 0.5
# Totals within so many standard errors of zero are about zero.
_ABOUT_NONE = 4.0
_CURVATURE = 0.5431


@dataclass(frozen=True, kw_only=True)
class OddTotal:
    """A tree that holds about no rows, or far fewer than another.

    Attributes:
        tree: its total.
        other: the tree with the most rows; None where that is this one.
        is_none: whether its total cannot be distinguished from zero.
    """

    tree: Total
    other: Total | None
    is_none: bool


def odd_totals(totals: Sequence[Total]) -> Iterator[OddTotal]:
    """The trees that hold about no rows, or surely far fewer than the one that holds most.

    Where all trees hold at least half as many rows as each other, and more than the noise hides
    (20 standard errors and 25 rows), a total is reported with a probability of at most
    `FALSE_ALARM`.

    Args:
        totals: of the trees of a release that count rows.

    >>> age, day = Total("age", 48_000.0, 20.0), Total("day", 12.0, 20.0)
    >>> [(odd.tree.name, odd.other.name, odd.is_none) for odd in odd_totals([age, day])]
    [('day', 'age', True)]
    >>> list(odd_totals([age, Total("sex", 47_000.0, 20.0)]))
    []
    """
    if not totals:
        return
    # Both ends of the error of each tree.
    chance = FALSE_ALARM / (2 * len(totals))
    most = max(totals, key=lambda total: total.rows)
    least_of_most = most.rows - error_width(most.std_error, chance)
    for total in totals:
        is_none = total.rows <= _ABOUT_NONE * total.std_error
        above = total.rows + error_width(total.std_error, chance)
        if is_none or above < FAR_FEWER * least_of_most:
            yield OddTotal(tree=total, other=None if total is most else most, is_none=is_none)


def error_width(std_error: float, chance: float) -> float:
    """Bound that the error of a total passes with a probability of at most a chance, at one end.

    Args:
        std_error: of noise as above; 0: there is none.
        chance: below 0.1.

    >>> error_width(0.0, 1e-6), round(error_width(100.0, 1e-6))
    (0.0, 1306)
    """
    if std_error == 0:
        return 0.0
    needed = log(1 / chance)
    # u = 1 - 1 / needed, for which 1 - u^2 is at least 1 / needed.
    exponent = needed + log(needed)
    return max(std_error * math.sqrt(_CURVATURE) / (1 - 1 / needed), 1.0) * exponent


@dataclass(frozen=True, kw_only=True)
class FullEdge:
    """An edge cell that holds most of a tree.

    Attributes:
        tree: the name.
        label: of the cell.
        bound: the key of the configuration that may be wrong, "lower" or "upper".
    """

    tree: str
    label: str
    bound: str


def full_edge(tree: Released) -> FullEdge | None:
    """Return the edge cell that surely holds most of the rows of a clamped tree; None where none.

    Rows beyond a bound are counted in the cell beside it. With a probability of at most
    `FALSE_ALARM` noise alone makes a cell hold more than half. Which cells are looked at:
    `Released.ends`.
    """
    ends = tree.ends()
    if not ends:
        return None
    chance = FALSE_ALARM / 4
    root = tree.top(1, 0)[0]
    for bound, edge in ends:
        known = (root.estimate, root.std_error, edge.estimate, edge.std_error)
        if any(each is None for each in known):
            continue
        total, total_error, rows, error = map(float, known)  # type: ignore[arg-type]
        least = rows - error_width(error, chance)
        if least > 0.5 * (total + error_width(total_error, chance)) and least > 0:
            return FullEdge(tree=tree.question.name, label=edge.shown, bound=bound)
    return None


ExactCounts = dict[Place, bytes]
# A tree, what rows add to it, and how many rows were read for that.
CountedRows = tuple[Question, Increments, int]
# In how many periods units have been counted, by tree and shard; empty where that is not bounded.
ShardUnits = dict[tuple[str, int], CountedUnits]


def release_counts(
    plan: ReleasePlan, counts: Mapping[str, object], key: ReleaseKey, *, nonce: bytes = b""
) -> ReleaseReader:
    """A release of exact counts held in memory, the same as the pipeline's.

    Args:
        plan: the questions.
        counts: of every tree by name: (keys * K,) or (keys, K) exact counts of the leaves; of a
            sparse tree `dpcore.questions.sparse_counts.NodeCounts` of its leaves.
        key: the release key; noise is a pure function of it, the plan and the counts.
        nonce: of the folder whose release is wanted. Without one the same counts always get the
            same noise: nothing averages out, but two releases reveal whether their counts are
                equal.

    Returns:
        the release. The exact counts are not part of it.

    Raises:
        ValueError: counts of a tree are missing, or are none of this tree.
    """
    for question in plan.questions:
        if question.name not in counts:
            raise ValueError(f"counts: there are none of tree {question.name}")
    choices = KeyedChoices(key=key, release=plan.name, nonce=nonce)
    partials = {q.name: q.split_counts(counts[q.name], choices) for q in plan.questions}
    return _released(plan, partials, key, nonce)


class RunBefore(NamedTuple):
    """A run of a series before another one, with what it hands on under seal.

    Attributes:
        release: of the run.
        nonce: of its folder.
    """

    release: ReleaseReader
    nonce: bytes


def release_rows(
    plan: ReleasePlan,
    batches: Iterable[pa.RecordBatch],
    key: ReleaseKey,
    *,
    nonce: bytes = b"",
    before: Sequence[RunBefore] = (),
) -> ReleaseReader:
    """A release of rows held in memory, the same as the pipeline's.

    Args:
        plan: the questions.
        batches: the rows, with all columns that are requested.
        key, nonce: as for `release_counts`.
        before: of a run of a series but the first: the runs that it goes on from, or all before
            it, the last one last.

    Raises:
        ValueError, OverflowError, pyarrow.ArrowException: a column cannot be read as it must be.
        ValueError: the run before is missing, or was made under another key.
    """
    if plan.run is not None and plan.run.period > 1 and not before:
        raise ValueError(f"before: period {plan.run.period} goes on from the run before it")
    choices = KeyedChoices(key=key, release=plan.name, nonce=nonce)
    counters = {q.name: q.counter(dense=True, choices=choices) for q in plan.questions}
    partials: dict[str, list[Partial]] = {question.name: [] for question in plan.questions}
    units: ShardUnits = dict(_earlier_units(before[-1], key)) if before else {}
    reading = _plain_increments if plan.unit.is_row else _bounded_increments
    for question, increments, rows in reading(plan, batches, choices, units):
        counter = counters[question.name]
        counter.add(increments, rows)
        if counter.is_due:
            partials[question.name] += counter.take()
    for name, counter in counters.items():
        partials[name] += counter.take()
    for question in plan.questions:
        if question.is_matched:
            partials[question.name] = list(_matched(question, partials[question.name]))
    for name, carried in _carried(plan, before, key):
        partials[name].append(carried)
    return _released(plan, partials, key, nonce, units)


def _carried(
    plan: ReleasePlan, before: Sequence[RunBefore], key: ReleaseKey
) -> Iterator[tuple[str, Partial]]:
    """The exact counts that a run takes over from earlier ones, by tree."""
    runs = {run.release.plan.run: run for run in before}
    numbered = {run.period: each for run, each in runs.items() if run is not None}
    for question in plan.questions:
        for number in question.state_runs if isinstance(question, SeriesQuestion) else ():
            release, nonce = numbered[number]
            left = release.plan.question(question.name)
            assert isinstance(left, SeriesQuestion)
            for place in left.left_places:
                sealed = _sealed(release.part(STATE, left.name, *place))
                counts = left.opened(place, sealed, key, plan.name, nonce)
                yield left.name, Partial(place, counts)


def _earlier_units(
    before: RunBefore, key: ReleaseKey
) -> Iterator[tuple[tuple[str, int], CountedUnits]]:
    """What a run says of the units that were counted so far, by tree and shard."""
    plan = before.release.plan
    for question in plan.questions:
        for shard in range(UNIT_SHARDS) if question.leaves_units else ():
            sealed = _sealed(before.release.part(UNITS, question.name, 0, shard))
            units = question.opened_units(shard, sealed, key, plan.name, before.nonce)
            yield (question.name, shard), CountedUnits.from_bytes(units)


def _matched(question: Question, partials: Iterable[Partial]) -> Iterator[Partial]:
    for place, own in _by_place(question, partials).items():
        yield from question.match(place, own).partials


def _by_place(question: Question, partials: Iterable[Partial]) -> dict[Place, list[bytes]]:
    received: dict[Place, list[bytes]] = {place: [] for place in question.places}
    for partial in partials:
        received[partial.place].append(partial.data)
    return received


def _sealed(table: pa.Table) -> bytes:
    data: bytes = table["sealed"][0].as_py()
    return data


def _plain_increments(
    plan: ReleasePlan,
    batches: Iterable[pa.RecordBatch],
    choices: KeyedChoices,
    known: ShardUnits | None = None,
) -> Iterator[CountedRows]:
    """Increments of each tree by the rows of each batch."""
    questions = [each.with_choices(choices) for each in plan.questions]
    for batch in batches:
        for question in questions:
            columns = {name: batch.column(name) for name in question.columns}
            yield question, question.increments(columns), batch.num_rows


def _bounded_increments(
    plan: ReleasePlan,
    batches: Iterable[pa.RecordBatch],
    choices: KeyedChoices,
    known: ShardUnits | None = None,
) -> Iterator[CountedRows]:
    """The same of the rows of each privacy unit that stay; what is known of units goes on."""
    known = {} if known is None else known
    unit, ids = plan.unit, UnitIds(choices, plan.unit.type)
    questions = [each.with_choices(choices) for each in plan.questions]
    bounding = {each.name: TreeBounding(each, choices) for each in questions}
    sent: dict[tuple[str, int], list[bytes]] = {}
    families: dict[str, str] = {}
    for batch in batches:
        types = {name: batch.column(name).type for name in unit.columns}
        families = check_unit_types(unit, types, families)
        units = ids.row_ids([batch.column(name) for name in unit.columns])
        for question in questions:
            columns = {name: batch.column(name) for name in question.columns}
            alone = bounding[question.name].add(question.row_increments(columns), units)
            if unit.nulls is NullUnits.OWN:
                yield question, alone, batch.num_rows
    for question in plan.questions:
        for rows in bounding[question.name].take():
            sent.setdefault((question.name, rows.shard), []).append(rows.data)
    for shard, messages in sent.items():
        name = shard[0]
        bounded = bounding[name].bounded(messages, known.get(shard))
        if bounded.units is not None:
            known[shard] = bounded.units
        if bounded.increments is not None:
            yield plan.question(name), bounded.increments, 0


def _released(
    plan: ReleasePlan,
    partials: Mapping[str, Iterable[Partial]],
    key: ReleaseKey,
    nonce: bytes,
    units: Mapping[tuple[str, int], CountedUnits] = MappingProxyType({}),
) -> ReleaseReader:
    digest, exact = 0, {}
    for (tree, shard), known in units.items():
        digest += known.digest(key, plan.name, tree, shard)
    for question in plan.questions:
        received = _by_place(question, partials[question.name])
        merged = {place: question.merge(place, parts) for place, parts in received.items()}
        for place, each in merged.items():
            digest += each.digest(key, plan.name, question.name, place)
        exact[question.name] = {place: each.to_bytes() for place, each in merged.items()}
    noise = NoiseSource(
        key=key,
        release=plan.name,
        spec_digest=plan.digest,
        global_digest=combine_digests(digest),
        nonce=nonce,
    )
    parts: dict[Part, pa.Table] = {}
    largest: dict[str, int] = {}
    for (tree, _), known in units.items():
        largest[tree] = max(largest.get(tree, 0), len(known.units))
    for (tree, shard), known in units.items():
        question = plan.question(tree)
        if question.leaves_units:
            part = question.seal_units(shard, known.to_bytes(), noise, largest[tree])
            parts[part.part] = part.table
    concluded: dict[str, list[pa.Table]] = {}
    for question in plan.questions:
        solved = sorted(
            solve_tree(question, exact[question.name], noise), key=lambda each: each.part
        )
        parts |= {each.part: each.table for each in solved}
        notes = {each.part: each.note for each in solved if each.note}
        for name, table in question.conclude(notes).items():
            concluded.setdefault(name, []).append(table)
    return ReleaseReader(
        plan,
        lambda kind, tree, first, index: parts[Part(kind=kind, tree=tree, key=first, index=index)],
        {name: pa.concat_tables(tables) for name, tables in concluded.items()},
    )


def solve_tree(question: Question, exact: ExactCounts, noise: NoiseSource) -> list[ReleasedPart]:
    """The parts of one tree.

    Args:
        question: the tree.
        exact: the counts of every place, `dpcore.questions.messages.Counts.to_bytes`.
        noise: the release's source.
    """
    exact = _after_rounds(question, exact, noise)
    kept: dict[Place, bytes] = {}
    groups: dict[int, dict[Place, bytes]] = {}
    below: dict[Place, dict[Place, bytes]] = {}
    for place, counts in exact.items():
        drawn = question.draw(place, counts, noise)
        if drawn.kept is not None:
            kept[place] = drawn.kept
        if question.branches:
            below.setdefault(question.branch_place(place), {})[place] = drawn.sent
        else:
            groups.setdefault(question.gathered_by(place), {})[place] = drawn.sent
    for branch, sent in below.items():
        drawn = question.draw_branch(branch, sent, noise)
        assert drawn.kept is not None
        kept[branch] = drawn.kept
        groups.setdefault(question.gathered_by(branch), {})[branch] = drawn.sent
    solved: list[ReleasedPart] = []
    for group, sent in groups.items():
        gathered = [question.gather(group, sent, noise)]
        if question.branches:
            from_spine = gathered[0].returned.items()
            gathered += [question.finish_branch(at, kept[at], sent) for at, sent in from_spine]
            solved += gathered.pop(0).released
        for each in gathered:
            solved += each.released
            for place, returned in each.returned.items():
                solved += question.finish(place, kept[place], returned)
    return solved


def _after_rounds(question: Question, exact: ExactCounts, noise: NoiseSource) -> ExactCounts:
    """Return what every place draws from: its exact counts, or the last request of its group."""
    requests: dict[int, bytes] = {}
    for _ in range(question.rounds):
        answers: dict[int, dict[Place, bytes]] = {}
        for place, counts in exact.items():
            group = question.gathered_by(place)
            reply = question.answer(place, counts, requests.get(group, b""), noise)
            answers.setdefault(group, {})[place] = reply
        requests = {
            group: question.next_request(group, replies, requests.get(group, b""), noise)
            for group, replies in answers.items()
        }
    if not question.rounds:
        return exact
    return {place: requests[question.gathered_by(place)] for place in exact}
