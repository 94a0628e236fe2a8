"""Choices among more cells than a chunk holds: a chunk chooses as if it were in it, then a chunk is
chosen.

A quantile's group sends requests, and each chunk of its cells answers. There is a round for each
depth of the tree of quantiles, one before them for the rows of each chunk, and one behind them for
intervals.

    request   the rows of every chunk, the parts between quantiles that were chosen, and these
    answer    of each part what the chunk chose in it, with the mass of its candidates; when all are
              chosen, how many rows lie below the edges of runs around them

Together that is one choice among all cells, by the law of `dpcore.exponential.choosing` to the bit,
and no vector of them is anywhere. Chunks say exact sums of weights, and the group exact ranks:
both stay inside the job, as exact counts of the roots of chunks do in every tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.exponential.choice import part_by_mass
from dptrees.dpcore.exponential.choosing import (
    NOTHING,
    Cells,
    ChosenCell,
    ChosenQuantiles,
    QuantileGap,
    choose_among,
    sides,
)
from dptrees.dpcore.exponential.intervals import chosen_ends, run_edges
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.exponential.ranks import Rank
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.rows.packing import pack_many, unpack_many
from dptrees.dpcore.trees.chunks import Chunk
from dptrees.dpcore.trees.forest import SPINE


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
