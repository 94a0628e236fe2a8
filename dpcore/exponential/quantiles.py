"""Quantiles chosen with intervals among the cells of one histogram, in one chunk or several.

A quantile with none below it is a cell, 0 away where the requested rank lies in it; one that
divides the rows for others is a place inside a cell. Cells of several chunks are handled in
rounds, one for each depth of the tree of quantiles: a chunk chooses as if the choice were in it,
then a chunk is chosen by masses, which is the same law. Exact sums and ranks stay inside the job.

An interval is a pair of *runs* of cells around the quantile. With t the requested rank and m rows
of *reach*, a pair's distance is the larger of that of t - m from the lower run and that of t + m
from the upper, so a pair closer than m holds the quantile. One pair has distance 0, so with J
pairs P(off by m or more) <= J exp(-g m), by permute-and-flip half of that: of B far pairs whose
coins succeed beside a nearest one, one is chosen with probability B / (1 + B) <= B / 2. So m =
ln(J / (1 - confidence)) / g, or ln(2) / g less. A unit moves the larger of two distances no more
than each of them. Source: derived here; McSherry and Talwar 2007; McKenna and Sheldon 2020.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.exponential.choice import (
    FLOOR,
    Chosen,
    cached_weights,
    chosen_place,
    flipped,
    part_by_mass,
    weighed,
)
from dptrees.dpcore.exponential.plan import ExponentialPlan, Rank
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.rows.columns import pack_many, unpack_many
from dptrees.dpcore.trees.chunks import SPINE, Chunk

# So many runs of a width, before the next ones are twice as wide.
_OF_A_WIDTH = 4
# Beyond all ranks: 2^40 rows, at 2^22 units a row.
_BEYOND = 2**62


def run_edges(cell: int, cells: int) -> Integers:
    """Starts of the runs around a cell, and the end of the last one, (runs + 1,).

    >>> run_edges(2, 20).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15, 19, 20]
    """
    steps = _steps(cells)
    above, below = cell + 1 + steps, cell - steps
    edges = np.concatenate([below[below > 0][::-1], above[above < cells]])
    return np.concatenate([np.zeros(1, np.int64), edges, np.full(1, cells)])


def _steps(cells: int) -> Integers:
    """Distances from a cell at which the runs around it begin."""
    widths = _OF_A_WIDTH * [2**number for number in range(max(1, cells.bit_length()))]
    return np.cumsum([0, *sorted(widths)])


def most_pairs(cells: int) -> int:
    """The most pairs of runs that an interval is chosen among."""
    steps = _steps(cells)
    # So many runs are below a cell and above it at most; each side reaches to its end.
    side = int(np.searchsorted(steps, cells - 1))
    runs = min(cells, 2 * side + 1)
    return runs * (runs + 1) // 2


def reach(plan: ExponentialPlan, place: int) -> int:
    """m, in rows, of a quantile's interval.

    Args:
        plan: which has intervals.
        place: of the quantile, in rising order.
    """
    pairs = most_pairs(plan.cells)
    # Of at most 2^15 pairs, the floor of the weights adds less than 2^-45.
    failure = 1 - plan.confidence - pairs * FLOOR
    bound = pairs / (2 if plan.flips else 1) / failure
    return max(1, math.ceil(log(bound) / float(plan.interval_rate(place))))


def pair_distances(ranks: Integers, quantile: Fraction, rows: int) -> Integers:
    """Distances of all pairs of runs, (pairs,); as many of their units are a row as the quantile's
    denominator says.

    Args:
        ranks: (runs + 1,) how many rows lie below the edges of the runs.
        quantile: the wanted one.
        rows: m.
    """
    scale = quantile.denominator
    away = ranks * scale - quantile.numerator * int(ranks[-1])
    starts, stops = away[:-1].copy(), away[1:].copy()
    starts[0], stops[-1] = -_BEYOND, _BEYOND
    lower, upper = (
        np.maximum(np.maximum(starts - shift, shift - stops), 0)
        for shift in (-rows * scale, rows * scale)
    )
    first, last = np.triu_indices(len(starts))
    return np.asarray(np.maximum(lower[first], upper[last]))


def chosen_ends(
    ranks: Integers,
    edges: Integers,
    plan: ExponentialPlan,
    place: int,
    stream: RandomStream,
) -> tuple[int, int]:
    """The first and the last cell of an interval.

    Args:
        ranks: (runs + 1,) how many rows lie below the edges of the runs.
        edges: of the runs, from `run_edges`.
        plan: of all quantiles.
        place: of the quantile, in rising order.
        stream: of this choice.
    """
    quantile, (first, last) = plan.quantiles[place], np.triu_indices(len(edges) - 1)
    distances = pair_distances(ranks, quantile, reach(plan, place))
    scale = quantile.denominator
    weights = cached_weights(plan.interval_rate(place) / scale).at(distances)
    choose = flipped if plan.flips else weighed
    number = choose(np.maximum(weights, FLOOR), stream).number
    return int(edges[first[number]]), int(edges[last[number] + 1]) - 1


_MIDDLE = Fraction(1, 2)


class ChosenQuantiles(NamedTuple):
    """Positions of quantiles, (quantiles,) each in their order: both rise.

    Attributes:
        cells: that hold them.
        shares: of each cell, below the quantile.
        ends: (2, quantiles) the first and the last cells of their intervals; None: they have none.
    """

    cells: Integers
    shares: Floats
    ends: Integers | None = None


class Cells(NamedTuple):
    """Consecutive cells with their ranks among all rows.

    Attributes:
        first: the first cell.
        ends: (n + 1,) how many rows lie below each, and below the end of the last.
    """

    first: int
    ends: Integers


class QuantileGap(NamedTuple):
    """The rows between two chosen quantiles.

    Attributes:
        first, last: the cells that hold some, or could.
        start, stop: their ranks among all rows.
        low, high: what share of the first cell lies below the part, of the last up to its end.
    """

    first: int
    last: int
    start: int
    stop: int
    low: float = 0.0
    high: float = 1.0


class ChosenCell(NamedTuple):
    """The choice among the cells of a part.

    Attributes:
        mass: as of `dpcore.exponential.choice.Chosen`; 0: nothing is.
        cell: which.
        cut: how many of all rows lie below the quantile.
        share: of the part's rows in the cell, below the quantile.
    """

    mass: int
    cell: int
    cut: int
    share: Fraction


NOTHING = ChosenCell(0, 0, 0, _MIDDLE)


def chosen_quantiles(
    counts: Integers, plan: ExponentialPlan, stream: RandomStream
) -> ChosenQuantiles:
    """Quantiles of one histogram.

    Args:
        counts: (K,) exact, at least 0, of at most 2^40 rows together.
        plan: of the quantiles.
        stream: of these choices, read in their order.
    """
    result = ChosenQuantiles(np.zeros(len(plan.quantiles), np.int64), np.zeros(len(plan.quantiles)))
    cells = Cells(0, np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]))
    waiting = [(plan.first, QuantileGap(0, len(counts) - 1, 0, int(cells.ends[-1])))]
    while waiting:
        rank, part = waiting.pop()
        chosen = choose_among(cells, part, rank, plan, stream)
        lower, upper = sides(part, chosen)
        result.cells[rank.place] = chosen.cell
        result.shares[rank.place] = lower.high
        for side, rows in ((rank.lower, lower), (rank.upper, upper)):
            if side is not None:
                waiting.append((side, rows))
    if not plan.interval_share:
        return result
    return result._replace(ends=_ends(cells.ends, result.cells, plan, stream))


def _ends(
    ranks: Integers, chosen: Integers, plan: ExponentialPlan, stream: RandomStream
) -> Integers:
    """The ends of all intervals, one after the other."""
    ends = np.zeros((2, len(chosen)), np.int64)
    for place, cell in enumerate(chosen.tolist()):
        edges = run_edges(cell, plan.cells)
        ends[:, place] = chosen_ends(ranks[edges], edges, plan, place, stream)
    return ends


def choose_among(
    cells: Cells, part: QuantileGap, rank: Rank, plan: ExponentialPlan, stream: RandomStream
) -> ChosenCell:
    """Choose the cell of a part's quantile among some cells.

    Args:
        cells: these.
        part: the rows that the quantile is of.
        rank: the quantile.
        plan: of all.
        stream: of this choice.
    """
    first = max(part.first, cells.first)
    stop = min(part.last + 1, cells.first + len(cells.ends) - 1)
    if first >= stop:
        return NOTHING
    ends = cells.ends[first - cells.first : stop - cells.first + 1]
    ends = np.clip(ends, part.start, part.stop)
    # The distance of the ranks where cells begin and end above the wanted one; so many of its
    # units are a row.
    scale = rank.part.denominator
    wanted = rank.part.numerator * (part.stop - part.start)
    away = (ends - part.start) * scale - wanted
    if rank.is_last:
        chosen, share = _cell(away, rank, plan, stream), _MIDDLE
    else:
        chosen, share = chosen_place(away[:-1], away[1:], plan.rate(rank), scale, stream)
    if not chosen.mass:
        return NOTHING
    below, above = ends[chosen.number : chosen.number + 2].tolist()
    cut = below + share.numerator * (above - below) // share.denominator
    return ChosenCell(chosen.mass, first + chosen.number, cut, share)


def _cell(away: Integers, rank: Rank, plan: ExponentialPlan, stream: RandomStream) -> Chosen:
    distances = np.maximum(np.maximum(away[:-1], -away[1:]), 0)
    weights = cached_weights(plan.rate(rank) / rank.part.denominator).at(distances)
    choose = flipped if plan.flips else weighed
    return choose(np.maximum(weights, FLOOR), stream)


def sides(part: QuantileGap, found: ChosenCell) -> tuple[QuantileGap, QuantileGap]:
    """The rows of a part below and above what was chosen in it."""
    cell = found.cell
    low = part.low if cell == part.first else 0.0
    high = part.high if cell == part.last else 1.0
    end = low + (high - low) * float(found.share)
    return (
        QuantileGap(part.first, cell, part.start, found.cut, part.low, end),
        QuantileGap(cell, part.last, found.cut, part.stop, end, part.high),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ChunkRequest:
    """A request of a group to its chunks.

    Attributes:
        rows: (chunks,) of each.
        parts: whose quantiles are wanted now, by the places of the quantiles.
        found: what was chosen before.
    """

    rows: Integers
    parts: dict[int, QuantileGap]
    found: ChosenQuantiles

    def to_bytes(self) -> bytes:
        """`read_request` reads it back."""
        whole = [(place, *part[:4]) for place, part in self.parts.items()]
        shares = np.array([part[4:] for part in self.parts.values()], "<f8")
        return pack_many(
            [
                _written(self.rows),
                _written(np.array(whole, np.int64)),
                shares.tobytes(),
                _written(self.found.cells),
                self.found.shares.astype("<f8").tobytes(),
                b"" if self.found.ends is None else _written(self.found.ends),
            ]
        )


def read_request(data: bytes) -> ChunkRequest:
    """The inverse of `Asked.to_bytes`."""
    rows, whole, shares, cells, below, ends = unpack_many(data)
    parts = zip(
        _read(whole).reshape(-1, 5).tolist(),
        np.frombuffer(shares, "<f8").reshape(-1, 2).tolist(),
        strict=True,
    )
    return ChunkRequest(
        rows=_read(rows),
        parts={place: QuantileGap(*numbers, *ends) for (place, *numbers), ends in parts},
        found=ChosenQuantiles(
            _read(cells),
            np.frombuffer(below, "<f8").astype(np.float64),
            _read(ends).reshape(2, -1) if ends else None,
        ),
    )


def answered(
    plan: ExponentialPlan,
    tree: str,
    chunk: Chunk,
    counts: Integers,
    data: bytes,
    key_noise: NoiseSource,
) -> bytes:
    """The answer of a chunk.

    Args:
        plan: of the quantiles.
        tree: its name.
        chunk: which.
        counts: (leaves of the chunk,) exact.
        asked: `Asked.to_bytes`; empty at first: how many rows it has.
        key_noise: the release's source.
    """
    if not data:
        return b"%d" % counts.sum()
    request = read_request(data)
    key_noise = key_noise.for_counts(np.concatenate([counts, _numbers(data)]))
    before = int(request.rows[: chunk.index].sum())
    ends = before + np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    cells = Cells(chunk.start - chunk.key * plan.cells, ends)
    if not request.parts:
        return _written(_ranks_at(_all_edges(plan, request), cells))
    ranks = ranks_by_place(plan)
    results = [
        choose_among(
            cells, part, ranks[place], plan, key_noise.stream(tree, chunk.key, chunk.index, place)
        )
        for place, part in request.parts.items()
    ]
    return pack_many([_packed(each) for each in results])


def next_request(
    plan: ExponentialPlan,
    tree: str,
    key: int,
    answers: Sequence[bytes],
    data: bytes,
    key_noise: NoiseSource,
) -> bytes:
    """Return the next request of a group, `Asked.to_bytes`.

    It has no parts where all quantiles are chosen.

    Args:
        plan: of the quantiles.
        tree: its name.
        key: the code of the key.
        answers: of its chunks, in their order.
        asked: the request that they answer; empty at first.
        key_noise: the release's source.
    """
    if not data:
        rows = np.array([int(each) for each in answers], np.int64)
        quantile_count = len(plan.quantiles)
        none = ChosenQuantiles(np.zeros(quantile_count, np.int64), np.zeros(quantile_count))
        whole = QuantileGap(0, plan.cells - 1, 0, int(rows.sum()))
        return ChunkRequest(rows=rows, parts={plan.first.place: whole}, found=none).to_bytes()
    request, ranks = read_request(data), ranks_by_place(plan)
    key_noise = key_noise.for_counts(_numbers(data, *answers))
    if not request.parts:
        ranks = np.sum([_read(each) for each in answers], axis=0)
        return _with_ends(plan, tree, key, request, ranks, key_noise).to_bytes()
    columns = zip(*(map(_unpacked, unpack_many(each)) for each in answers), strict=True)
    parts: dict[int, QuantileGap] = {}
    for (place, part), found in zip(request.parts.items(), columns, strict=True):
        stream = key_noise.stream(tree, key, SPINE, place)
        chosen = found[part_by_mass([each.mass for each in found], stream)]
        lower, upper = sides(part, chosen)
        request.found.cells[place], request.found.shares[place] = chosen.cell, lower.high
        for side, between in ((ranks[place].lower, lower), (ranks[place].upper, upper)):
            if side is not None:
                parts[side.place] = between
    return ChunkRequest(rows=request.rows, parts=parts, found=request.found).to_bytes()


def _all_edges(plan: ExponentialPlan, request: ChunkRequest) -> Integers:
    """The edges of the runs around every quantile, one after the other, without the last one."""
    edges = [run_edges(cell, plan.cells)[:-1] for cell in request.found.cells.tolist()]
    return np.concatenate(edges)


def _ranks_at(edges: Integers, cells: Cells) -> Integers:
    """Number of rows below edges, for edges of some cells; 0 for other edges."""
    places = edges - cells.first
    mine = (places >= 0) & (places < len(cells.ends) - 1)
    return np.where(mine, cells.ends[np.where(mine, places, 0)], 0)


def _with_ends(
    plan: ExponentialPlan,
    tree: str,
    key: int,
    request: ChunkRequest,
    ranks: Integers,
    key_noise: NoiseSource,
) -> ChunkRequest:
    """Add the ends of intervals, from the ranks at `_all_edges`."""
    ends, start = [], 0
    for place, cell in enumerate(request.found.cells.tolist()):
        edges = run_edges(cell, plan.cells)
        stop = start + len(edges) - 1
        # The first ones are of quantiles.
        stream = key_noise.stream(tree, key, SPINE, len(plan.quantiles) + place)
        around = np.append(ranks[start:stop], request.rows.sum())
        ends.append(chosen_ends(around, edges, plan, place, stream))
        start = stop
    found = request.found._replace(ends=np.array(ends, np.int64).T)
    return ChunkRequest(rows=request.rows, parts={}, found=found)


def ranks_by_place(plan: ExponentialPlan) -> dict[int, Rank]:
    """The quantiles of a plan by their places."""
    return {path[-1].place: path[-1] for path in plan.first.paths()}


def _packed(found: ChosenCell) -> bytes:
    if not found.mass:
        return b""
    return b"%d %d %d %d %d" % (*found[:3], found.share.numerator, found.share.denominator)


def _unpacked(data: bytes) -> ChosenCell:
    if not data:
        return NOTHING
    mass, cell, cut, numerator, denominator = map(int, data.split())
    return ChosenCell(mass, cell, cut, Fraction(numerator, denominator))


def _written(numbers: Integers) -> bytes:
    """Whole numbers, uncompressed: draws depend on messages, and a compressor may change."""
    return np.ascontiguousarray(numbers, "<i8").tobytes()


def _read(data: bytes) -> Integers:
    """The inverse of `_written`."""
    return np.frombuffer(data, "<i8").astype(np.int64)


def _numbers(*messages: bytes) -> Integers:
    """Messages as integers: what is drawn from them gets streams of its own."""
    return np.frombuffer(pack_many(messages), np.uint8).astype(np.int64)
