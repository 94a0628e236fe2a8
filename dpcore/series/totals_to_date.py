"""Totals of all periods to date: of growing partitions node by node, or by weighted sums.

A partition's shape follows from noisy counts, so each closed temporal node has noise of its own
for every node of the partition: a fixed number, which later runs compute again from the exact
counts and the seed that they carry on. All runs look at parts of one noisy tree for each temporal
node, and so are as private as these trees, however often they look. The state is the exact counts
of the closed nodes that totals consist of (Holland, Camtepe, Thapa, Xue, Appendix A; Epasto et
al., arXiv 2301.05605).

Weighted sums: run t measures y_t = M_t1 x_1 + ... + M_tt x_t with independent noise of equal
size, M the square-root strategy with even columns. Counts follow from the sums of runs 1 to t, x
= M^-1 y, so no estimate changes later. Under rho totals and windows are closer than by a temporal
tree, since noise cancels; under epsilon a temporal tree is better. A run takes over one sealed
state for each binary digit of t - 1 (Fichtenberger, Henzinger, Upadhyay 2023).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.matrices import integer_product
from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.factorised.strategies import ToeplitzStrategy
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import LARGEST_DIVIDED, NoiseSource
from dptrees.dpcore.privacy.sensitivity import weighted_periods_sensitivity
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.questions.messages import (
    Counts,
    Drawn,
    Gathered,
    Part,
    Place,
    ReleasedPart,
    pack_roots,
)
from dptrees.dpcore.questions.question import PublicTable, Question
from dptrees.dpcore.questions.tree_question import AccumulatedTree, Measured, TreeQuestion
from dptrees.dpcore.rows.columns import pack_many, unpack, unpack_many
from dptrees.dpcore.series.question import SeriesQuestion, first_level
from dptrees.dpcore.series.runs import CARRIED, counts_new_units, set_aside
from dptrees.dpcore.series.temporal import Span, TemporalTree, Window, adds_up, windowed
from dptrees.dpcore.specification import Coded
from dptrees.dpcore.trees.chunks import Chunk, saturated_sums
from dptrees.dpcore.trees.forests import Known

# Neither counts of nodes begin so, which are Arrow streams, nor packed ones.
_CARRIED = b"carried on: "
# The level of all periods to date, where they are no node of the temporal tree.
TO_DATE = -1
# What is carried on is filled up to a power of 2 of bytes, at least this one
# (`NoiseSource.padded_size`).
_LEAST_BYTES = 2**16


@dataclass(frozen=True, kw_only=True, eq=False)
class PlaceCounts:
    """The exact counts of one place, of the period; and what all places carry on, at the first.

    Args:
        own: of the period.
        carried: from the run before.
    """

    own: Counts
    carried: bytes

    @property
    def total(self) -> int:
        """Sum the counts of the period's rows; carried counts were balanced in their own run."""
        return self.own.total

    def to_bytes(self) -> bytes:
        return pack_many([self.own.to_bytes(), self.carried])

    def digest(self, key: ReleaseKey, release: str, tree: str, place: Place) -> int:
        content = hashlib.sha256(self.carried).digest()
        carried = key.digest("carried counts", release, tree, *place, content)
        return self.own.digest(key, release, tree, place) + int.from_bytes(carried, "big")


class ClosedNode(NamedTuple):
    """A closed temporal node, with all that gives its noisy counts again.

    Attributes:
        span: the node.
        seeds: `NoiseSource.spec_digest`, `global_digest` and `nonce` of its noise.
        counts: exact, by place.
    """

    span: Span
    seeds: tuple[bytes, bytes, bytes]
    counts: Mapping[Place, bytes]

    def source(self, noise: NoiseSource) -> NoiseSource:
        """The source of its noise.

        Args:
            noise: of a run, under the same key.
        """
        spec, counts, nonce = self.seeds
        return replace(noise, spec_digest=spec, global_digest=counts, own_digest=b"", nonce=nonce)


@dataclass(frozen=True, kw_only=True)
class AccumulatedPeriods(SeriesQuestion):
    """One period of a tree that is released of its period, and of all periods so far.

    Args:
        temporal, period, max_periods: as of `SeriesQuestion`.
        levels: the tree as it is measured at a node of each temporal level.

    Raises:
        ValueError: as `SeriesQuestion`, or a tree that does not accumulate.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(isinstance(each, AccumulatedTree) and each.accumulates for each in self.levels):
            raise ValueError(f"levels: tree {self.name} cannot be released of several periods")

    @staticmethod
    def level_name(name: str, span: int) -> str:
        """Return the name itself: the hash functions of sketches follow from it, and must be the
        same at all temporal levels. Streams of noise are distinguished by
        `NoiseSource.spec_digest`."""
        return name

    @property
    def needs_one_key(self) -> bool:
        # The noise of earlier runs is computed again.
        return True

    @property
    def adds_up(self) -> bool:
        return False

    @property
    def to_date(self) -> Span:
        """All periods so far."""
        return Span(TO_DATE, 1, self.period)

    @property
    def released_spans(self) -> Sequence[Span]:
        return [*self.closing, *([] if len(self._roots) == 1 else [self.to_date])]

    def find_released(self, first: int) -> Span | None:
        """The released span that begins with a period; None where there is none.

        Args:
            first: the period.
        """
        return next((span for span in self.released_spans if span.first == first), None)

    @property
    def _roots(self) -> list[Span]:
        """The temporal nodes that all periods to date are put together from."""
        return self.temporal.roots(self.period)

    @property
    def node_variances(self) -> tuple[float, ...]:
        trees: Any = self.levels
        return tuple(each.node_variance for each in trees)

    def released_tree(self, span: Span) -> Any:
        """The tree as it is released of one of `released_spans`, for the errors of its answers."""
        if span.level != TO_DATE:
            return self.shown(span.level)
        first: Any = self.levels[0]
        return first.together([self.levels[each.level] for each in self._roots])

    # From rows to exact counts

    place_balance = first_level()

    @property
    def carried_places(self) -> Sequence[Place]:
        return self.places[:1] if self.period > 1 else ()

    @property
    def left_places(self) -> Sequence[Place]:
        return self.places[:1] if self.period < self.temporal.periods else ()

    def merge(self, place: Place, partials: Iterable[bytes]) -> Counts:
        carried: list[bytes] = []
        own = self.levels[0].merge(place, set_aside(partials, carried, _CARRIED))
        return PlaceCounts(own=own, carried=b"".join(carried))

    def opened(self, place: Place, sealed: bytes, key: ReleaseKey, *name: bytes | str) -> bytes:
        plain = key.opened(sealed, *self._state_name(place, *name))
        size = int.from_bytes(plain[:8], "little")
        return _CARRIED + plain[8 : 8 + size]

    # From exact counts to what is released

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        return Drawn(sent=counts, kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        unpacked = {place: unpack_many(data) for place, data in sent.items()}
        own = {place: data for place, (data, _) in unpacked.items()}
        before = self._closed_before(unpacked[self.places[0]][1])
        made = [self._closed(span, before, own, noise) for span in self.closing]
        released = [self._measured(node, noise) for node in made]
        parts = [each.tree.gather(group, each.sent, each.noise).released for each in released]
        roots = [node for node in before if node.span.last < made[-1].span.first] + made[-1:]
        if len(roots) > 1:
            earlier = [self._measured(node, noise) for node in roots[:-1]]
            whole = self.released_tree(self.to_date)
            parts.append(whole.gather_together([*earlier, released[-1]]))
        result = self._together(parts)
        if self.left_places:
            result.append(self._sealed(roots, noise))
        return Gathered({}, result)

    def _closed(
        self,
        span: Span,
        before: Sequence[ClosedNode],
        own: Mapping[Place, bytes],
        noise: NoiseSource,
    ) -> ClosedNode:
        """A temporal node that closes with the period.

        Args:
            span: the node.
            before: what had closed.
            own: the counts of the period.
            noise: of this run.
        """
        inside = [node.counts for node in before if node.span.first >= span.first]
        counts = {
            place: self.levels[0].merge(place, [*(each[place] for each in inside), data]).to_bytes()
            for place, data in own.items()
        }
        # Two nodes may hold the same rows, where periods are without any.
        spec = noise.key.digest("temporal node", noise.spec_digest, span.first, span.last)
        return ClosedNode(span, (spec, noise.global_digest, noise.nonce), counts)

    def _measured(self, node: ClosedNode, noise: NoiseSource) -> Measured:
        """The noisy counts of a closed node: the same in this run and in all later ones."""
        tree, source = self.levels[node.span.level], node.source(noise)
        sent = {
            place: tree.draw(place, counts, source).sent for place, counts in node.counts.items()
        }
        return Measured(tree, sent, source)

    def _sealed(self, roots: Sequence[ClosedNode], noise: NoiseSource) -> ReleasedPart:
        """The part that holds the nodes that later runs go on from."""
        (place,) = self.left_places
        nodes = [
            pack_many([*node.seeds, *(node.counts[each] for each in self.places)]) for node in roots
        ]
        whole = pack_many(nodes)
        plain = len(whole).to_bytes(8, "little") + whole
        size = noise.padded_size(len(plain), _LEAST_BYTES, self.name)
        name = self._state_name(place, noise.release, noise.nonce)
        sealed = noise.key.seal(plain.ljust(size, b"\0"), *name)
        table = pa.table({"sealed": pa.array([sealed], pa.large_binary())})
        return ReleasedPart(self._state_part(place), table)

    def _closed_before(self, carried: bytes) -> list[ClosedNode]:
        """The nodes that earlier runs closed, of what the run before sealed."""
        nodes = []
        spans = self.temporal.roots(self.period - 1)
        for span, data in zip(spans, unpack_many(carried), strict=True):
            spec, counts, nonce, *by_place = unpack_many(data)
            own = dict(zip(self.places, by_place, strict=True))
            nodes.append(ClosedNode(span, (spec, counts, nonce), own))
        return nodes

    def finish(self, place: Place, kept: bytes, returned: bytes) -> Sequence[ReleasedPart]:
        return ()

    def conclude(self, notes: Mapping[Part, bytes]) -> Mapping[str, pa.Table]:
        return {}

    def entry(self) -> dict[str, object]:
        """The manifest's description, with the nodes that all periods to date consist of."""
        nodes = [{"first": each.first, "last": each.last} for each in self._roots]
        return super().entry() | {"to_date": nodes}

    def _spec(self, levels: list[dict[str, object]]) -> dict[str, object]:
        return super()._spec(levels) | {"accumulated": True}


# Of the weights: the root of their number times this, at most; columns are even to half a percent.
_SCALE_BITS, _STEPS = 2, 2**8
# Of windows whose errors are averaged.
_PLACES = 2**8
# Of what a unit in several periods moves there is a matrix over pairs of periods.
MOST_PERIODS_TOGETHER = 2**12


@dataclass(frozen=True, kw_only=True)
class PeriodSums(Coded):
    """The weighted sums of a series.

    Args:
        periods: T.
        scale, steps: as of `ToeplitzStrategy`.

    >>> sums = PeriodSums.for_periods(365)
    >>> round(sums.mean_error(1), 2), round(sums.mean_error(5), 1), round(sums.mean_error(1, 7), 2)
    (2.69, 12.0, 2.59)
    """

    periods: int
    scale: int
    steps: int

    @classmethod
    def for_periods(cls, periods: int) -> PeriodSums:
        """The sums of so many periods."""
        bits = _SCALE_BITS - (-(periods - 1).bit_length() // 2)
        return cls(periods=periods, scale=2**bits, steps=_STEPS)

    @cached_property
    def strategy(self) -> ToeplitzStrategy:
        """M."""
        return ToeplitzStrategy(cells=self.periods, scale=self.scale, steps=self.steps)

    def sensitivities(self, max_periods: int) -> tuple[int, int]:
        """The factors by which L1 and the squared L2 of one period grow over all sums.

        Args:
            max_periods: in how many periods a unit is counted at most.
        """
        return _sensitivities(self.strategy, max_periods)

    def weights(self, period: int) -> Integers:
        """(period,) what the counts of each period weigh in the sum of a run."""
        return self.strategy.row(period - 1)

    def estimate(self, first: int, last: int) -> Floats:
        """(last,) what the sum of each run weighs in the estimate of a window of periods.

        Args:
            first, last: the periods, both inside.
        """
        wanted = np.zeros(self.periods)
        wanted[first - 1 : last] = 1.0
        return self.strategy.coefficients(wanted)[:last]

    def variance(self, first: int, last: int) -> float:
        """The variance of the estimate of a window, in that of the noise of a sum."""
        weights = self.estimate(first, last)
        return dot(weights, weights)

    def mean_error(self, max_periods: int, window: int | None = None) -> float:
        """The root of the mean variance of totals to date, where the whole budget would give one
        period a variance of 1.

        Args:
            max_periods: in how many periods a unit is counted at most.
            window: as of `mean_variance`.
        """
        _, l2_squared = self.sensitivities(max_periods)
        return math.sqrt(l2_squared * self.mean_variance(window))

    def mean_variance(self, window: int | None = None) -> float:
        """The variance of totals to date, on average over periods, in that of the noise of a sum.

        Args:
            window: of windows of so many periods in their place, at 256 places if there are more.
        """
        if window is None:
            return math.fsum(self.strategy.prefix_variances.tolist()) / self.periods
        places = min(_PLACES, self.periods - window + 1)
        stops = np.linspace(window, self.periods, places).astype(np.int64)
        found = self.strategy.range_variances(stops - window, stops)
        return math.fsum(found.tolist()) / places


@lru_cache(maxsize=16)
def _sensitivities(strategy: ToeplitzStrategy, max_periods: int) -> tuple[int, int]:
    l1 = max_periods * strategy.column_sum
    if max_periods == 1:
        return l1, strategy.column_norm
    return l1, weighted_periods_sensitivity(strategy.column_products, max_periods)


# Leaves of all keys, times periods: what a run may have to take over, 80 MB or so.
MOST_COUNTS = 2**22
_LOW_BITS = 32


def sums_fit(tree: Question, periods: int) -> bool:
    """Whether weighted sums of periods can measure a tree: under rho, of counts that fit into one
    chunk for each key, and that a run can take over.

    Args:
        tree: of one period.
        periods: T.
    """
    return (
        isinstance(tree, TreeQuestion)
        and adds_up(tree)
        and tree.budget is not None
        and tree.budget.measure is Measure.RHO
        and (tree.counts_rows or counts_new_units(tree))
        and tree.forest.chunking.spine.height == 0
        and tree.dense_cells * periods <= MOST_COUNTS
    )


@dataclass(frozen=True, kw_only=True)
class WeightedPeriods(SeriesQuestion):
    """One period of a tree that is measured by weighted sums of periods.

    Args:
        temporal: of periods alone.
        period, max_periods: as of `SeriesQuestion`.
        levels: the tree as it is measured at a sum: its budget is that of the series over the
            squared sensitivity of the sums.
        sums: what periods weigh.

    Raises:
        ValueError: as `SeriesQuestion`, or a tree that no weighted sums measure.
    """

    sums: PeriodSums

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sums.periods != self.temporal.periods or self.temporal.spans != (1,):
            raise ValueError(f"temporal: not the periods of the sums of tree {self.name}")
        if not sums_fit(self.levels[0], self.sums.periods):
            raise ValueError(f"levels: weighted sums of periods cannot measure tree {self.name}")

    @property
    def needs_one_key(self) -> bool:
        # A run takes over what several runs have sealed.
        return True

    @property
    def closing(self) -> list[Span]:
        """Spans of periods that the run releases: its own, and all to date."""
        own = Span(0, self.period, self.period)
        return [own] if self.period == 1 else [own, Span(TO_DATE, 1, self.period)]

    def closed_tree(self, span: Span) -> Any:
        return self._trees[span]

    def released_tree(self, span: Span) -> Any:
        return self._trees[span]

    def shown(self, level: int) -> Any:
        return self._trees[self.closing[0]]

    @cached_property
    def _trees(self) -> dict[Span, TreeQuestion[Any]]:
        """The tree of each released span, with the noise of its estimates."""
        return {span: self._windowed(span.first, span.last) for span in self.closing}

    def _windowed(self, first: int, last: int) -> TreeQuestion[Any]:
        tree: Any = replace(self.levels[0], name=self.name)
        return windowed([tree], [self.sums.variance(first, last)])

    def with_public_tables(self, shared: Callable[[PublicTable], PublicTable]) -> WeightedPeriods:
        copy = super().with_public_tables(shared)
        assert isinstance(copy, WeightedPeriods)
        for span, tree in self.__dict__.get("_trees", {}).items():
            if "widths" in tree.__dict__:
                copy.closed_tree(span).remember_widths(tree.widths)
        return copy

    # Windows of periods

    def mean_error(self, window: int | None = None) -> float:
        return self.sums.mean_error(self.unit_periods, window)

    def window_weights(self, window: Window) -> dict[Span, float]:
        """The weights of released estimates: the total to date at the end less the one before the
        beginning. What came after a window does not matter to it."""
        if window.first == window.last:
            return {Span(0, window.first, window.last): 1.0}
        weights = {Span(TO_DATE, 1, window.last): 1.0}
        if window.first > 1:
            level = 0 if window.first == 2 else TO_DATE
            weights[Span(level, 1, window.first - 1)] = -1.0
        return weights

    def window_tree(self, window: Window) -> TreeQuestion[Any]:
        return self._windowed(window.first, window.last)

    # From rows to exact counts

    @property
    def _blocks(self) -> TemporalTree:
        """The tree over periods that says which run seals what."""
        return TemporalTree.from_fanout(self.temporal.periods, 2)

    @property
    def state_runs(self) -> Sequence[int]:
        return [block.last for block in self._blocks.roots(self.period - 1)]

    @property
    def carried_places(self) -> Sequence[Place]:
        return [place for _ in self.state_runs for place in self.places]

    @property
    def left_places(self) -> Sequence[Place]:
        return self.places if self.period < self.temporal.periods else ()

    def merge(self, place: Place, partials: Iterable[bytes]) -> Counts:
        carried: list[bytes] = []
        own = self.levels[0].merge(place, set_aside(partials, carried))
        blocks = sorted(carried, key=_first_period)
        expected = [block.first for block in self._blocks.roots(self.period - 1)]
        if [_first_period(block) for block in blocks] != expected:
            raise ValueError(f"counts: tree {self.name} does not go on from all periods before")
        return PlaceCounts(own=own, carried=b"".join(block[8:] for block in blocks))

    def opened(self, place: Place, sealed: bytes, key: ReleaseKey, *name: bytes | str) -> bytes:
        return CARRIED + key.opened(sealed, *self._state_name(place, *name))

    # From exact counts to what is released

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        tree, chunk = self._tree, self._chunk(place)
        own, carried = unpack_many(counts)
        period = unpack(own)
        flat, before = np.frombuffer(carried, "<i8"), self.period - 1
        rows = flat.reshape(before, flat.size // max(1, before))
        exact = np.concatenate([rows[:, : period.size].reshape(before, period.size), period[None]])
        weights = self.sums.weights(self.period)
        low, high = (
            integer_product(weights[None], part)[0]
            for part in (exact & (2**_LOW_BITS - 1), exact >> _LOW_BITS)
        )
        summed = saturated_sums(np.stack([low, high]))
        divided = replace(noise, largest=LARGEST_DIVIDED)
        measured = tree.forest.measure(tree.name, chunk, summed, divided)
        levels = [level.reshape(-1) for level in measured if level is not None]
        sums = np.concatenate([np.zeros(0, np.int64), *levels])
        all_sums = np.concatenate([rows[:, period.size :].reshape(before, sums.size), sums[None]])
        sent, kept = [], []
        for span in self.closing:
            forest = self.closed_tree(span).forest
            known = _as_levels(
                _weighted(all_sums, self.sums.estimate(span.first, span.last)), measured
            )
            totals = forest.chunk_totals(chunk, exact[span.first - 1 : span.last].sum(axis=0))
            sent.append(pack_roots(forest.chunk_roots(chunk, known), totals))
            kept.append(pack_many([b"" if each is None else each.tobytes() for each in known]))
        if self.left_places:
            kept.append(self._sealed(place, np.hstack([exact, all_sums]), noise))
        return Drawn(sent=pack_many(sent), kept=pack_many(kept))

    def _sealed(self, place: Place, rows: Integers, noise: NoiseSource) -> bytes:
        """Seal the counts and sums of the periods that the run closes.

        Args:
            place: which.
            rows: (period, n) the counts and the sums of all periods so far.
            noise: of this run.
        """
        first = self._blocks.roots(self.period)[-1].first
        # Every number is as wide as any: the size reveals nothing.
        plain = first.to_bytes(8, "little") + rows[first - 1 :].astype("<i8").tobytes()
        return noise.key.seal(plain, *self._state_name(place, noise.release, noise.nonce))

    def _finished(
        self, span: Span, place: Place, kept: bytes, returned: bytes
    ) -> Sequence[ReleasedPart]:
        rows = self._chunk(place).rows
        known = [
            np.frombuffer(level).reshape(rows, -1) if level else None for level in unpack_many(kept)
        ]
        parts: Sequence[ReleasedPart] = self.closed_tree(span).released_chunk(
            place, known, returned
        )
        return parts

    @property
    def _tree(self) -> TreeQuestion[Any]:
        """The tree as it is measured at a sum."""
        (tree,) = self.levels
        assert isinstance(tree, TreeQuestion)
        return tree

    def _chunk(self, place: Place) -> Chunk:
        chunking = self._tree.forest.chunking
        return chunking[chunking.number(*place)]

    # What it spends, and how it is described

    @property
    def _sensitivities(self) -> list[tuple[int, int]]:
        return [self.sums.sensitivities(self.unit_periods)]

    def entry(self) -> dict[str, object]:
        entry = super().entry()
        del entry["temporal_levels"]
        assert self.budget is not None
        return entry | {"weighted_sums": {self.budget.measure.value: str(self.budget.amount)}}

    def _spec(self, levels: list[dict[str, object]]) -> dict[str, object]:
        return super()._spec(levels) | {"sums": self.sums.spec()}


def _first_period(block: bytes) -> int:
    """The first period of what was carried on from a run."""
    return int.from_bytes(block[:8], "little")


def _weighted(rows: Integers, weights: Floats) -> Floats:
    """(n,) the weighted sum of rows, in their order: the same bits on every processor."""
    result = np.zeros(rows.shape[1])
    for row, weight in zip(rows, weights.tolist(), strict=True):
        result += weight * row
    return result


def _as_levels(flat: Floats, like: Known) -> list[Floats | None]:
    """Values as levels of the sizes of some others; what is None there is None."""
    levels: list[Floats | None] = []
    start = 0
    for level in like:
        if level is None:
            levels.append(None)
        else:
            levels.append(flat[start : start + level.size].reshape(level.shape))
            start += level.size
    return levels
