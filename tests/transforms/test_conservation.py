"""A loss or a repetition at any hand-over between steps fails the job, and nothing is released."""

import itertools
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.utils.windowed_value import WindowedValue

from transforms import histogram, solve, write
from transforms.conservation import (
    check_balance,
    check_digests,
    check_once,
    expected_balance,
    tree_chunks,
    tree_rows,
)
from transforms.errors import ConservationError, sentence_in
from transforms.readers import read

MAIN = None
Change = Callable[[Any], list[Any]]


def drop(element: Any) -> list[Any]:
    return []


def repeat(element: Any) -> list[Any]:
    return [element, element]


def tag_of(element: Any) -> str | None:
    return element.tag if isinstance(element, beam.pvalue.TaggedOutput) else MAIN


def plant_output(
    monkeypatch: pytest.MonkeyPatch, kind: type, method: str, tag: str | None, change: Change
) -> list[Any]:
    """Drops or repeats the first element that a step gives to one of its outputs."""
    planted: list[Any] = []
    original = getattr(kind, method)

    @wraps(original)
    def changed(*arguments: Any, **named: Any) -> Iterator[Any]:
        for element in original(*arguments, **named) or ():
            if not planted and tag_of(element) == tag:
                planted.append(element)
                yield from change(element)
            else:
                yield element

    monkeypatch.setattr(kind, method, changed)
    return planted


def plant_input(monkeypatch: pytest.MonkeyPatch, kind: type, change: Change) -> list[Any]:
    """Hides the first element from one of the steps that take it, or gives it twice."""
    planted: list[Any] = []
    original = kind.process

    @wraps(original)
    def changed(self: Any, element: Any, *others: Any) -> Iterator[Any]:
        times = 1
        if not planted:
            planted.append(element)
            times = len(change(element))
        for _ in range(times):
            yield from original(self, element, *others)

    monkeypatch.setattr(kind, "process", changed)
    return planted


OUTPUTS = {
    "files": (read._Match, "process", MAIN),
    "splits": (read._SplitFile, "process", MAIN),
    "batches": (read._ReadSplit, "process", MAIN),
    "dense histograms": (histogram._PartialCounts, "finish_bundle", MAIN),
    "summed counts": (histogram._SumChunk, "process", MAIN),
    "digests": (solve._Digest, "process", MAIN),
    "recorded digest": (solve._Record, "process", MAIN),
    "measured chunks": (solve._Measure, "process", MAIN),
    "roots": (solve._Measure, "process", solve.ROOTS),
    "solutions": (solve._SolveSpine, "process", MAIN),
}
BALANCES = {
    "balance of files": (read._Match, "process", read.BALANCE),
    "balance of splits": (read._SplitFile, "process", read.BALANCE),
    "balance of batches": (read._ReadSplit, "process", read.BALANCE),
    "balance of rows": (histogram._PartialCounts, "finish_bundle", read.BALANCE),
    "balance of sums": (histogram._SumChunk, "process", read.BALANCE),
}
INPUTS = {
    "counts on the way to the digest": solve._Digest,
    "counts on the way to the noise": solve._Measure,
    "roots on the way to the spine": solve._SolveSpine,
}
# A part that is written twice is the same part: a receipt may come again.
LOST_RECEIPTS = {
    "receipts of chunks": (write._WriteChunk, "process", MAIN),
    "receipts of spines": (write._WriteSpine, "process", MAIN),
    "node tables of spines": (solve._SolveSpine, "process", solve.SPINE_ANSWER),
}


@pytest.fixture
def fails(make_plan, data, tmp_path, run, monkeypatch, small_splits) -> Callable[..., str]:
    """Runs the job, sees that it fails without a release, and returns the sentence."""
    monkeypatch.setattr("dpcore.ordered.question.CHUNK_LEAVES", 8)
    plan = make_plan("value", fanouts=(4, 4, 2))

    def failed(planted: list[Any]) -> str:
        with pytest.raises(Exception) as caught:
            run(plan, data, tmp_path / "out")
        assert planted, "nothing was planted"
        assert not (tmp_path / "out" / "manifest.json").exists()
        sentence = sentence_in(f"{caught.value} {caught.value.__cause__ or ''}")
        assert sentence is not None and "\n" not in sentence
        return sentence

    return failed


@pytest.mark.parametrize("change", [drop, repeat])
@pytest.mark.parametrize("place", OUTPUTS)
def test_a_step_that_loses_or_repeats_an_output(place, change, fails, monkeypatch) -> None:
    planted = plant_output(monkeypatch, *OUTPUTS[place], change)
    assert fails(planted).startswith("the engine lost or repeated data: ")


@pytest.mark.parametrize("place", BALANCES)
def test_a_lost_balance(place, fails, monkeypatch) -> None:
    planted = plant_output(monkeypatch, *BALANCES[place], drop)
    assert fails(planted).startswith("the engine lost or repeated data: ")


@pytest.mark.parametrize("change", [drop, repeat])
@pytest.mark.parametrize("place", INPUTS)
def test_a_step_that_loses_or_repeats_an_input(place, change, fails, monkeypatch) -> None:
    planted = plant_input(monkeypatch, INPUTS[place], change)
    assert fails(planted).startswith("the engine lost or repeated data: ")


@pytest.mark.parametrize("change", [drop, repeat])
def test_sparse_histograms(change, fails, monkeypatch) -> None:
    monkeypatch.setattr("transforms.count.DENSE_CELLS", 0)
    monkeypatch.setattr("dpcore.questions.leaf_counts.BUFFERED_ROWS", 300)
    planted = plant_output(monkeypatch, histogram._PartialCounts, "process", MAIN, change)
    assert fails(planted).startswith("the engine lost or repeated data: partial counts of tree")


def emptied(element: Any) -> list[Any]:
    """The same message without its counts: all that arrives, arrives once."""
    if isinstance(element, WindowedValue):
        return [element.with_value((element.value[0], b""))]
    return [(element[0], b"")]


@pytest.mark.parametrize("cells, method", [(2**25, "finish_bundle"), (0, "process")])
def test_rows_lost_from_a_histogram(cells, method, fails, monkeypatch) -> None:
    monkeypatch.setattr("transforms.count.DENSE_CELLS", cells)
    monkeypatch.setattr("dpcore.questions.leaf_counts.BUFFERED_ROWS", 300)
    planted = plant_output(monkeypatch, histogram._PartialCounts, method, MAIN, emptied)
    assert fails(planted).startswith("the engine lost or repeated data: rows of tree value")


def test_a_histogram_without_rows_that_is_lost(fails, monkeypatch) -> None:
    """The sums are right without it, but what an engine lost once it may lose again."""
    planted = plant_output(monkeypatch, histogram._EmptyChunks, "process", MAIN, drop)
    assert "partial counts of tree value do not balance" in fails(planted)


@pytest.mark.parametrize("place", LOST_RECEIPTS)
def test_a_lost_receipt(place, fails, monkeypatch) -> None:
    planted = plant_output(monkeypatch, *LOST_RECEIPTS[place], drop)
    assert "the parts of the release did not arrive" in fails(planted)


def test_a_repeated_receipt_is_the_same_part(
    make_plan, data, tmp_path, run, monkeypatch, rows, expected_files, release_files
) -> None:
    monkeypatch.setattr("dpcore.ordered.question.CHUNK_LEAVES", 8)
    plan = make_plan("value", fanouts=(4, 4, 2))
    planted = [plant_output(monkeypatch, *place, repeat) for place in LOST_RECEIPTS.values()]
    run(plan, data, tmp_path / "out")
    assert all(planted)
    found = release_files(tmp_path / "out")
    assert expected_files(plan, rows).items() <= found.items()
    assert "manifest.json" in found


def test_an_empty_chunk_that_nobody_made(make_plan, tmp_path, fails, monkeypatch) -> None:
    # The first chunk is dropped from both sources: no rows in it and no empty partial.
    monkeypatch.setattr(histogram, "_dense_counts", lambda question, counts: iter(()))
    planted = plant_output(monkeypatch, histogram._EmptyChunks, "process", MAIN, drop)
    assert "do not balance" in fails(planted)


def test_a_bundle_whose_counts_and_balance_are_both_lost(fails, monkeypatch) -> None:
    planted: list[object] = []

    def lost(self) -> Iterator[WindowedValue]:
        planted.append(self)
        return iter(())

    monkeypatch.setattr(histogram._PartialCounts, "finish_bundle", lost)
    assert "rows do not balance" in fails(planted)


def test_a_balance_that_holds(make_plan) -> None:
    plan = make_plan("value", "number")
    expected = expected_balance(plan)
    assert expected == {tree_chunks("value"): 1, tree_chunks("number"): 1}
    check_balance(plan, expected | {"rows": 0, tree_rows("value"): 0})
    check_digests(plan, 2)


@pytest.mark.parametrize(
    "change",
    [{"rows": 1}, {"rows": -1}, {tree_rows("value"): 2}, {tree_chunks("value"): 0}, {"files": 1}],
)
def test_a_balance_that_does_not_hold_names_no_number(change, make_plan) -> None:
    plan = make_plan("value", "number")
    with pytest.raises(ConservationError) as caught:
        check_balance(plan, expected_balance(plan) | change)
    assert not any(character.isdigit() for character in caught.value.sentence)
    assert next(iter(change)) in caught.value.sentence


@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_digests_that_are_not_of_every_chunk(chunks, make_plan) -> None:
    with pytest.raises(ConservationError, match="digests of chunks do not balance"):
        check_digests(make_plan("value", "number"), chunks)


@pytest.mark.parametrize("given", list(itertools.product([0, 1, 2], repeat=3)))
def test_each_once(given) -> None:
    messages = [name for name, times in zip("abc", given, strict=True) for _ in range(times)]
    if given == (1, 1, 1):
        check_once("the letters", messages, "bca")
        return
    with pytest.raises(ConservationError, match="the letters did not arrive exactly once"):
        check_once("the letters", messages, "abc")


def test_no_folder_is_left_that_looks_like_a_release(fails, monkeypatch, tmp_path: Path) -> None:
    fails(plant_output(monkeypatch, *OUTPUTS["batches"], drop))
    # The balance is checked before the record, so not even that was written.
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["nonce.json"]


def test_a_commit_that_never_comes_leaves_no_release(
    make_plan, data, tmp_path, run, monkeypatch
) -> None:
    # Nothing comes after the commit that could miss it: its absence is the missing manifest.
    planted = plant_input(monkeypatch, write._Commit, drop)
    run(make_plan(), data, tmp_path / "out")
    assert planted
    assert not (tmp_path / "out" / "manifest.json").exists()
