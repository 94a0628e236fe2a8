"""Choices in chunks: the law of choices among all cells at once, to the bit, in their messages."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.exponential import quantiles as rounds
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.exponential.quantiles import (
    ChosenQuantiles,
    ChunkRequest,
    QuantileGap,
    answered,
    next_request,
    read_request,
)
from dptrees.dpcore.exponential.question import MOST_CELLS, ExponentialForest
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.rows import columns
from dptrees.dpcore.specification import Refusal
from tests.dpcore.exponential.enumerated_law import enumerated_law
from tests.dpcore.exponential.plans import make_plan
from tests.dpcore.exponential.test_question import (
    CELLS,
    DOMAIN,
    QUANTILES,
    make_release,
    question,
)

NOISE = NoiseSource(
    key=ReleaseKey(bytes(32)), release="r", spec_digest=b"spec", global_digest=bytes(32)
)
NONE = Fraction(0)
TWO = (Fraction(2, 5), Fraction(1, 2))


def in_chunks(counts: tuple[int, ...], plan: ExponentialPlan, chunk_leaves: int) -> ChosenQuantiles:
    """The quantiles that chunks and their group choose."""
    chunks, request = list(ExponentialForest(plan, keys=1, chunk_leaves=chunk_leaves).chunking), b""
    exact, tree = np.array(counts, np.int64), "t"
    assert len(chunks) > 1
    for _ in range(1 + plan.first.height + bool(plan.interval_share)):
        answers = [
            answered(plan, tree, each, exact[each.start :][: each.leaves], request, NOISE)
            for each in chunks
        ]
        request = next_request(plan, tree, 0, answers, request, NOISE)
    assert not read_request(request).parts
    return read_request(request).found


@pytest.mark.parametrize("measure", Measure)
@pytest.mark.parametrize("counts", [(1, 0, 2), (0, 3, 0), (0, 0, 0)])
def test_the_law_is_that_of_all_cells_at_once(counts: tuple[int, ...], measure: Measure) -> None:
    plan = make_plan(len(counts), TWO, 2, measure)
    law = enumerated_law(counts, plan, choose=lambda: in_chunks(counts, plan, 2))
    assert law == enumerated_law(counts, plan)


@pytest.mark.parametrize("measure", Measure)
def test_the_law_of_intervals_is_that_of_all_cells_at_once(measure: Measure) -> None:
    counts, plan = (1, 0, 2), make_plan(3, TWO[:1], 2, measure, share=Fraction(1, 2))
    law = enumerated_law(counts, plan, choose=lambda: in_chunks(counts, plan, 2))
    assert law == enumerated_law(counts, plan)


def test_ranks_without_the_rows_of_chunks_before_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, plan = (1, 1, 2), make_plan(3, TWO, 2, Measure.RHO)
    own = rounds.Cells
    monkeypatch.setattr(rounds, "Cells", lambda first, ends: own(first, ends - ends[0]))
    law = enumerated_law(counts, plan, choose=lambda: in_chunks(counts, plan, 2))
    assert law != enumerated_law(counts, plan)


def test_what_is_requested_is_read_back() -> None:
    found = ChosenQuantiles(np.array([3, 0]), np.array([0.3, 0.0]))
    parts = {1: QuantileGap(3, 9, 10, 2**40, 0.3, 0.75), 0: QuantileGap(0, 0, 0, 0)}
    request = ChunkRequest(rows=np.array([2**40, 0]), parts=parts, found=found)
    again = read_request(request.to_bytes())
    assert again.parts == parts and again.rows.tolist() == [2**40, 0]
    assert again.found.cells.tolist() == [3, 0] and again.found.shares.tolist() == [0.3, 0.0]


@pytest.mark.parametrize("share", [NONE, Fraction(1, 4)])
@pytest.mark.parametrize("keyed", [False, True])
def test_releases_in_chunks(keyed: bool, share: Fraction) -> None:
    """Check every key with a large budget: the released values are the quantiles."""
    planned = replace(question(keyed=keyed, share=share), chunk_leaves=8)
    assert planned.rounds == 3 + bool(share) and len(planned.places) == 7 * planned.key_count
    counts = np.full((planned.key_count, CELLS), 100)
    tree = make_release(planned, counts).tree("t")
    for key in ("f", "m") if keyed else (None,):
        rows = tree.quantiles(key)  # type: ignore[attr-defined]
        values = [row["value"] for row in rows]
        for row in rows:
            assert (row["ci_low"] is None) == (not share)
            # Of a small budget a value may lie outside.
            assert not share or row["ci_low"] <= row["value"] <= row["ci_high"]
        off = [abs(own - CELLS * each) for own, each in zip(values, QUANTILES, strict=True)]
        assert max(off) <= 1


def test_another_compressor_draws_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are part of what choices are drawn by, and bytes of a compressor may change."""
    counts, plan = tuple(range(40)), make_plan(40, TWO, 2, share=Fraction(1, 4))
    first = in_chunks(counts, plan, 8)
    monkeypatch.setattr(columns, "_CODEC", pa.Codec("gzip"))
    again = in_chunks(counts, plan, 8)
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one, other)


def test_retries_draw_the_same_and_other_answers_others() -> None:
    counts = tuple(range(9))
    plan = make_plan(9, TWO, 2)
    first, again = (in_chunks(counts, plan, 3) for _ in range(2))
    assert first.cells.tolist() == again.cells.tolist()
    assert first.shares.tolist() == again.shares.tolist()
    # The law of these is that of no rows, but for an exp(-2^-10); the streams are others.
    small = replace(plan, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1, 2**10)))
    others = [in_chunks((0,) * 8 + (rows,), small, 3).cells.tolist() for rows in range(8)]
    assert len({tuple(each) for each in others}) > 4


def test_a_chunk_chooses_among_its_own_cells() -> None:
    plan = make_plan(9, TWO, 2, Measure.RHO)
    chunk = ExponentialForest(plan, keys=1, chunk_leaves=3).chunking[1]
    none = ChosenQuantiles(np.zeros(2, np.int64), np.zeros(2))
    for first, last, expected in ((0, 2, 0), (0, 3, 1), (5, 8, 1), (6, 8, 0)):
        request = ChunkRequest(
            rows=np.array([5, 5, 5]), parts={1: QuantileGap(first, last, 0, 15)}, found=none
        )
        reported = answered(plan, "t", chunk, np.array([0, 5, 0]), request.to_bytes(), NOISE)
        assert bool(rounds._unpacked(rounds.unpack_many(reported)[0]).mass) == expected


def test_too_many_cells_are_refused() -> None:
    question(cells=DOMAIN | {"upper": MOST_CELLS})
    with pytest.raises(Refusal, match="67108865 cells are too many") as refused:
        question(cells=DOMAIN | {"upper": MOST_CELLS + 1})
    assert refused.value.field == "domain"
