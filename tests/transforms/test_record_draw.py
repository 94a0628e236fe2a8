"""Digests of all counts, their sum, and the draw that is recorded once nothing was lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.noise.source import combine_digests
from dptrees.transforms.errors import ConservationError, ReleaseError
from dptrees.transforms.folder.existing_release import NonceError, folder_nonce
from dptrees.transforms.steps.record import SumDigests, _Record, pack_digest, unpack_digest

DIGESTS = st.lists(st.integers(0, 2**256 - 1), max_size=8)


@given(digests=DIGESTS, data=st.data())
def test_digests_sum_in_any_order_and_any_bundles(digests, data) -> None:
    combine = SumDigests()
    elements = data.draw(st.permutations([pack_digest(digest, 1) for digest in digests]))
    cut = data.draw(st.integers(0, len(elements)))
    bundles = []
    for part in (elements[:cut], elements[cut:], []):
        accumulator = combine.create_accumulator()
        for element in part:
            accumulator = combine.add_input(accumulator, element)
        bundles.append(accumulator)
    one, two, empty = bundles
    left = combine.merge_accumulators([combine.merge_accumulators([one, two]), empty])
    right = combine.merge_accumulators([empty, combine.merge_accumulators([two, one])])
    assert combine.extract_output(left) == combine.extract_output(right)
    total, chunks = unpack_digest(combine.extract_output(left))
    assert combine_digests(total) == combine_digests(sum(digests))
    assert chunks == len(digests)


def test_nothing_is_recorded_before_the_balance_holds(make_plan, reference, tmp_path) -> None:
    plan = make_plan("value", fanouts=(4, 4, 2), chunk_leaves=8)
    chunks = plan.questions[0].places
    step = _Record(plan, reference, str(tmp_path / "out"), bytes(range(16)))
    step.setup()
    whole = pack_digest(5, len(chunks))
    balanced = {"chunks of tree value": len(chunks)}
    for digest, balance in (
        (whole, balanced | {"rows": 1}),
        (whole, {}),
        (pack_digest(5, len(chunks) - 1), balanced),
    ):
        with pytest.raises(ConservationError):
            list(step.process(digest, balance))
        assert not (tmp_path / "out").exists()
    folder_nonce(str(tmp_path / "out"), bytes(range(16)))
    assert list(step.process(whole, balanced)) == [bytes(range(16)) + combine_digests(5)]
    assert (tmp_path / "out" / "record.json").exists()


def test_a_witness_is_requested_before_anything_is_recorded(make_plan, reference, tmp_path) -> None:
    plan = make_plan("value", fanouts=(4, 4, 2), chunk_leaves=8)
    chunks, records = len(plan.questions[0].places), []
    folder_nonce(str(tmp_path / "out"), bytes(range(16)))

    def refuse(record: bytes) -> None:
        records.append(record)
        raise ReleaseError("refused")

    for witness, recorded in ((refuse, False), (records.append, True)):
        step = _Record(plan, reference, str(tmp_path / "out"), bytes(range(16)), witness)
        step.setup()
        drawn = step.process(pack_digest(5, chunks), {"chunks of tree value": chunks})
        if recorded:
            assert len(list(drawn)) == 1
        else:
            with pytest.raises(ReleaseError, match="refused"):
                list(drawn)
        assert (tmp_path / "out" / "record.json").exists() is recorded
    text = (tmp_path / "out" / "record.json").read_text()
    assert records[0] == records[1] and records[0].hex() in text


@pytest.mark.parametrize("left", ["nothing", "another", "damaged"])
def test_a_job_that_outlived_its_folder_draws_nothing(left, make_plan, reference, tmp_path) -> None:
    """Run a step again, as a jar or a template does, under a nonce that was used."""
    plan, records, out = make_plan("value", fanouts=(4, 4, 2), chunk_leaves=8), [], tmp_path / "out"
    chunks = len(plan.questions[0].places)
    if left != "nothing":
        folder_nonce(str(out), bytes(range(1, 17)))
    if left == "damaged":
        (out / "nonce.json").write_text("{")
    step = _Record(plan, reference, str(out), bytes(range(16)), records.append)
    step.setup()
    with pytest.raises(NonceError, match="no longer has the unfinished release"):
        list(step.process(pack_digest(5, chunks), {"chunks of tree value": chunks}))
    assert not records and not (out / "record.json").exists()
