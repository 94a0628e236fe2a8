"""Sums past 64 bits on their way through the job: no count turns its sign, and nothing that stops
the job or is counted by an engine reveals a row."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.questions.messages import merged_chunk
from dptrees.dpcore.rows.columns import unpack
from dptrees.dpcore.rows.policies import LARGEST_BOUND, MeasureColumn
from dptrees.dpcore.trees.chunks import LARGEST_SUM
from dptrees.transforms.conservation import residue, tree_rows
from dptrees.transforms.errors import sentence_in
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps.count import CountBundle, _MergePlace
from tests.dpcore.hierarchy_questions import CODES, hierarchy_question, make_release_plan
from tests.transforms.eager import MAIN, counted, grouped, outputs, summed

BOUND = LARGEST_BOUND
SUMS = MeasureColumn(column="amount", lower=-BOUND, upper=BOUND)
PLAN, PLAN_IN_CHUNKS = (
    make_release_plan(hierarchy_question("digits", measure=SUMS, chunk_leaves=leaves))
    for leaves in (2**17, 4)
)
NOTHING = pa.array([], pa.null())


@pytest.fixture
def large_bundle(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[Any]]:
    """Plants what 2^31 rows of the largest value in each of two leaves, less one, of either sign,
    leave in the first bundle, and as much in a third leaf as int64 just holds of all together."""

    def planted(sign: int) -> list[Any]:
        bundles: list[Any] = []
        start_bundle = CountBundle.start_bundle

        def started(step: Any) -> None:
            start_bundle(step)
            if not bundles:
                bundles.append(step)
                (question,) = PLAN.questions
                counter = step._counters[question.name]
                counter.add(question.increments({name: NOTHING for name in question.columns}), 0)
                sums = counter._sums
                values = [sign * LARGEST_SUM, sign * (LARGEST_SUM - BOUND), sign * BOUND]
                values[2] -= sign > 0
                sums._low[[0, 5, 9]] = values
                sums._largest = LARGEST_SUM
                step._balance[tree_rows(question.name)] += sum(values)

        monkeypatch.setattr(CountBundle, "start_bundle", started)
        return bundles

    return planted


@pytest.mark.parametrize("sign, plan", [(1, PLAN_IN_CHUNKS), (-1, PLAN)])
def test_a_release_of_sums_past_64_bits_ends_in_a_sentence(
    sign, plan, large_bundle, run, tmp_path
) -> None:
    for rows in (1, 0):
        planted = large_bundle(sign)
        amounts = pa.array([float(sign * BOUND)] * rows + [0.0])
        source = tmp_path / f"{rows}.parquet"
        pq.write_table(pa.table({"code": [CODES[5]] * (rows + 1), "amount": amounts}), source)
        with pytest.raises(Exception, match="noisy sum is beyond") as caught:
            run(plan, str(source), tmp_path / str(rows))
        assert planted
        sentence = sentence_in(str(caught.value))
        assert sentence is not None and sentence.startswith(
            "tree places: a noisy sum is beyond 2^50"
        )
        assert not [*(tmp_path / str(rows)).glob("**/manifest.json")]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_balance_holds_past_64_bits(sign, large_bundle, reference) -> None:
    large_bundle(sign)
    rows = pa.record_batch({"code": [CODES[5]] * 2, "amount": [sign * float(BOUND)] * 2})
    found = outputs(counted(PLAN, [[rows]]))
    name, counts, balance = PLAN.questions[0].name, [], found[BALANCE]
    merge = _MergePlace(PLAN, reference)
    merge.setup()
    for place, partials in grouped(found[MAIN]):
        merged = outputs(merge.process((place, [b"", *partials])))
        counts += unpack(merged[MAIN][0][1]).tolist()
        balance += merged[BALANCE]
    totals = summed(balance)
    assert abs(totals[tree_rows(name)]) < 2**33 and residue(totals[tree_rows(name)]) == 0
    assert totals[f"partial counts of tree {name}"] == 0
    assert counts[0] == counts[5] == sign * LARGEST_SUM and not any(counts[1:5])


def test_a_large_batch_is_counted_in_parts(monkeypatch) -> None:
    for module in ("dptrees.dpcore.questions.messages", "dptrees.transforms.steps.count"):
        monkeypatch.setattr(f"{module}.BUFFERED_ROWS", 3)
    rows = pa.record_batch({"code": [CODES[0]] * 8, "amount": [float(BOUND)] * 8})
    for cells in (2**25, 0):
        monkeypatch.setattr("dptrees.transforms.steps.counting.DENSE_CELLS", cells)
        found = outputs(counted(PLAN, [[rows, rows.slice(0, 0)]]))
        ((_, partials),) = grouped(found[MAIN])
        assert merged_chunk(len(CODES), partials).counts.tolist()[:2] == [8 * BOUND, 0]
        assert summed(found[BALANCE])["rows"] == -8
        assert len(partials) == (1 if cells else 3)
