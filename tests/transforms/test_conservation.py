"""A loss or a repetition at any hand-over between steps fails the job, and nothing is released."""

import itertools
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from dptrees.transforms import flow
from dptrees.transforms.conservation import (
    check_balance,
    check_digests,
    check_once,
    expected_balance,
    tree_chunks,
    tree_rows,
)
from dptrees.transforms.errors import ConservationError, sentence_in
from dptrees.transforms.readers import read
from dptrees.transforms.steps import count, draw, record
from tests.transforms import every_kind
from tests.transforms.eager import HAND_OVERS, unchanged
from tests.transforms.every_case import check_every_case
from tests.transforms.losses import Change, Planted, check_losses, drop, repeat

MAIN = None


def output_tag(element: Any) -> str | None:
    return element.output if isinstance(element, flow.Tagged) else MAIN


def plant_output(
    monkeypatch: pytest.MonkeyPatch, kind: type, method: str, tag: str | None, change: Change
) -> list[Any]:
    """Drops or repeats the first element that a step gives to one of its outputs."""
    planted: list[Any] = []
    original = getattr(kind, method)

    @wraps(original)
    def changed(*arguments: Any, **named: Any) -> Iterator[Any]:
        for element in original(*arguments, **named) or ():
            if not planted and output_tag(element) == tag:
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
    "partial counts": (count.CountBundle, "finish_bundle", MAIN),
}
BALANCES = {
    "balance of files": (read._Match, "process", read.BALANCE),
    "balance of splits": (read._SplitFile, "process", read.BALANCE),
    "balance of batches": (read._ReadSplit, "process", read.BALANCE),
    "balance of rows": (count.CountBundle, "finish_bundle", read.BALANCE),
}


@pytest.fixture
def fails(make_plan, data, tmp_path, run, small_splits) -> Callable[..., str]:
    """Runs the job, sees that it fails without a release, and returns the sentence."""
    plan = make_plan("value", fanouts=(4, 4, 2), chunk_leaves=8)

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


def test_a_bundle_whose_counts_and_balance_are_both_lost(fails, monkeypatch) -> None:
    planted: list[object] = []

    def lost(self) -> Iterator[Any]:
        planted.append(self)
        return iter(())

    monkeypatch.setattr(count.CountBundle, "finish_bundle", lost)
    assert "rows do not balance" in fails(planted)


# --- every hand-over of every kind of tree, step by step without an engine -----------------------

NOTHING_CAME = "nothing arrived at the commit"
RECEIPTS = ("receipts of groups", "receipts of places")
# A plan for each shape of the graph: one place and several, what is absent, several trees, rounds.
# All faults are planted once a shape, since no step knows what kind of tree it carries.
ROADS = (
    *("ordered", "thresholds", "keys of a table", "sparse", "table"),
    *("exponential, in rounds", "mixed"),
)


def graph_shape(kind: str) -> tuple[Any, ...]:
    """Return the properties of a plan that determine its steps."""
    plan = every_kind.PLANS[kind]()
    places = len(plan.questions[0].places)
    absent = every_kind.ABSENT.get(kind, set())
    return sorted(absent), len(plan.questions) > 1 or places > 1, draw.round_count(plan) > 0


def test_every_shape_has_a_plan_with_all_faults() -> None:
    every, planted = (
        {str(graph_shape(kind)) for kind in kinds} for kinds in (every_kind.PLANS, ROADS)
    )
    assert every == planted


@pytest.fixture(params=every_kind.PLANS)
def kind(request) -> str:
    """Trees of every kind, in several chunks."""
    return str(request.param)


@pytest.fixture
def attempt(kind, release_steps) -> Callable[..., Path]:
    """Releases step by step, with a fault or without, to a new folder, which it returns."""
    plan = every_kind.PLANS[kind]()

    def attempted(fault: Any = unchanged) -> Path:
        try:
            folder: Path = release_steps(plan, every_kind.bundles(), fault)
            record.check_committed(str(folder))
        except ConservationError as error:
            # The loss of the one place, or of rounds that end in it, leaves nothing to commit.
            first, *others = plan.questions
            is_alone = not others and (len(first.places) == 1 or bool(first.rounds))
            assert is_alone or not error.sentence.endswith(NOTHING_CAME)
            raise
        return folder

    return attempted


def test_without_a_fault_it_is_the_release_of_the_rows_in_memory(
    attempt, kind, key, release_files
) -> None:
    """A part that is written twice is the same part."""
    absent = set()

    def watched(name: str, elements: list[Any]) -> list[Any]:
        if name in HAND_OVERS and not elements:
            absent.add(name)
        return elements

    def repeated(name: str, elements: list[Any]) -> list[Any]:
        return elements * 2 if name in RECEIPTS else elements

    found = release_files(attempt(watched))
    assert absent == every_kind.ABSENT.get(kind, set())
    tables = {name: data for name, data in found.items() if name.endswith(".parquet")}
    assert tables == every_kind.tables_in_memory(every_kind.PLANS[kind](), key)
    assert release_files(attempt(repeated)) == found


def test_every_hand_over(kind, attempt, tmp_path) -> None:
    others = [(drop, -1), (repeat, 0), (repeat, -1)] if kind in ROADS else []
    places = [name for name in HAND_OVERS if name not in every_kind.ABSENT.get(kind, ())]
    lost_or_repeated = [name for name in places if name not in (*RECEIPTS, "the receipts of all")]
    faults = [(place, *each) for place in lost_or_repeated for each in [(drop, 0), *others]]
    check_losses(attempt, tmp_path, faults)


PARTS_LOST = "the parts of the release did not arrive exactly once"


def emptied(name: str, elements: list[Any]) -> list[Any]:
    """One of the partial counts without its counts: all that arrives, arrives once."""
    if name != "partial counts":
        return elements
    place = next(n for n, (_, data) in enumerate(elements) if data)
    return [*elements[:place], (elements[place][0], b""), *elements[place + 1 :]]


def test_lost_receipts_counts_and_places(kind, attempt, tmp_path) -> None:
    question = every_kind.PLANS[kind]().questions[-1]
    key = (question.name, *question.places[-1])

    def unmade(name: str, elements: list[Any]) -> list[Any]:
        """Dropped from both sources: no rows in it, and no empty partial counts."""
        return [each for each in elements if "partial" not in name or each[0] != key]

    def check_refused(fault: Any, *words: str) -> None:
        with pytest.raises(ConservationError) as caught:
            attempt(fault)
        assert any(each in caught.value.sentence for each in words), caught.value.sentence
        assert getattr(fault, "planted", True) and not list(tmp_path.rglob("manifest.json"))

    receipts = [place for place in RECEIPTS if place not in every_kind.ABSENT.get(kind, ())]
    faults = [(Planted(place, drop), PARTS_LOST, NOTHING_CAME) for place in receipts]
    faults += [(emptied, "lost or repeated data: rows of")]
    check_every_case(check_refused, [*faults, (unmade, "so nothing was released", NOTHING_CAME)])


def test_sorted_counts(kind, attempt, tmp_path, monkeypatch) -> None:
    """Where known leaves do not fit memory, and leave before their bundle ends."""
    monkeypatch.setattr("dptrees.transforms.steps.counting.DENSE_CELLS", 0)
    for buffered in (1, 300) if kind in ROADS else (1,):
        monkeypatch.setattr("dptrees.dpcore.questions.messages.BUFFERED_ROWS", buffered)
        changes = [drop, repeat] if kind in ROADS else [drop]
        check_losses(attempt, tmp_path, [("partial counts", change) for change in changes])


def test_a_balance_that_holds(make_plan) -> None:
    plan = make_plan("value", "number")
    expected = expected_balance(plan)
    assert expected == {tree_chunks("value"): 1, tree_chunks("number"): 1}
    check_balance(plan, expected | {"rows": 0, tree_rows("value"): 0})
    check_digests(plan, 2)


def test_a_balance_that_does_not_hold_names_no_number(make_plan) -> None:
    plan = make_plan("value", "number")
    changes = [{"rows": 1}, {"rows": -1}, {tree_rows("value"): 2}, {tree_chunks("value"): 0}]
    for change in (*changes, {"files": 1}):
        with pytest.raises(ConservationError) as caught:
            check_balance(plan, expected_balance(plan) | change)
        assert not any(character.isdigit() for character in caught.value.sentence)
        assert next(iter(change)) in caught.value.sentence
    for chunks in (0, 1, 3):
        with pytest.raises(ConservationError, match="digests of chunks do not balance"):
            check_digests(plan, chunks)


def test_each_once() -> None:
    for given in itertools.product([0, 1, 2], repeat=3):
        messages = [name for name, times in zip("abc", given, strict=True) for _ in range(times)]
        if given == (1, 1, 1):
            check_once("the letters", messages, "bca")
            continue
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
    planted = plant_input(monkeypatch, record._Commit, drop)
    run(make_plan(), data, tmp_path / "out")
    assert planted
    assert not (tmp_path / "out" / "manifest.json").exists()
    with pytest.raises(ConservationError, match=NOTHING_CAME):
        record.check_committed(str(tmp_path / "out"))
