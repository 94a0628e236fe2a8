"""A tree that is measured over a series by weighted sums of its periods.

    rows of period t -> exact counts x_t of the period
    + exact counts and noisy sums of all periods before, under seal
    -> the sum y_t = M_t1 x_1 + ... + M_tt x_t, with noise, at every node that is measured
    -> of y_1, ..., y_t: estimates of period t, and of periods 1 to t; each with tables of its own

Noise is drawn once, of the sum of a run. All else is made from noisy sums: the weights of
`PeriodSums.estimate` first, then least squares within the tree, which all sums have in common.

The state of a run is that of a node of the binary tree over periods: the counts and sums of the
periods that it closes. A run takes over one state for each binary digit of t - 1, and the states of
T runs together hold every period log2(T) times at most.

Source: `dpcore.series.period_sums`; least squares of a Kronecker product is the product of both
(`dpcore.series.linear`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dptrees.dpcore.arithmetic.products import integer_product
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import LARGEST_DIVIDED, NoiseSource
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.questions.place import Counts, Drawn, Place, ReleasedPart
from dptrees.dpcore.questions.question import PublicTable, Question
from dptrees.dpcore.questions.root_messages import pack_roots
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.rows.packing import pack_many, unpack, unpack_many
from dptrees.dpcore.series.accumulated import TO_DATE, PlaceCounts
from dptrees.dpcore.series.carried_counts import CARRIED, set_aside
from dptrees.dpcore.series.linear import adds_up, windowed
from dptrees.dpcore.series.period_sums import PeriodSums
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.temporal import Span, TemporalTree
from dptrees.dpcore.series.windows import Window
from dptrees.dpcore.trees.chunks import Chunk
from dptrees.dpcore.trees.exact_sums import saturated_sums
from dptrees.dpcore.trees.linear_forest import Known

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
        and tree.counts_rows
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

    @property
    def error_to_date(self) -> float:
        return self.sums.error_to_date(self.max_periods or 1)

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
        return [self.sums.sensitivities(self.max_periods or 1)]

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
