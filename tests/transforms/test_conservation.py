"""A loss or a repetition at any hand-over between steps fails the job, and nothing is released."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.utils.windowed_value import WindowedValue

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
from tests.transforms.conftest import NONCE
from tests.transforms.eager import HAND_OVERS, EagerRelease, unchanged

MAIN = None
Change = Callable[[Any], list[Any]]


def drop(element: Any) -> list[Any]:
    return []


def repeat(element: Any) -> list[Any]:
    return [element, element]


def output_tag(element: Any) -> str | None:
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

    def lost(self) -> Iterator[WindowedValue]:
        planted.append(self)
        return iter(())

    monkeypatch.setattr(count.CountBundle, "finish_bundle", lost)
    assert "rows do not balance" in fails(planted)


# --- every hand-over of every kind of tree, step by step without an engine -----------------------

# A part that is written twice is the same part.
RECEIPTS = ("receipts of groups", "receipts of places")
LOST_OR_REPEATED = [name for name in HAND_OVERS if name not in (*RECEIPTS, "the receipts of all")]


class Planted:
    """Changes one element of a hand-over.

    Args:
        place: the hand-over.
        change: of its element.
        number: which element, from the front or, below 0, from the back.
    """

    def __init__(self, place: str, change: Change, number: int = 0) -> None:
        self._place, self._change, self._number = place, change, number
        self.planted = False

    def __call__(self, name: str, elements: list[Any]) -> list[Any]:
        chosen = list(elements)
        if name.startswith("balance"):  # of rows read the reader has the other half
            chosen = [each for each in elements if each[1] and each[0] != "rows"]
        if name != self._place or not chosen:
            return elements
        self.planted = True
        place = elements.index(chosen[self._number % len(chosen)])
        return [*elements[:place], *self._change(elements[place]), *elements[place + 1 :]]


# A plan for each shape of the graph: one place and several, what is absent, several trees, rounds.
ROADS = (
    *("ordered", "thresholds", "keys of a table", "sparse", "table"),
    *("exponential, in rounds", "mixed"),
)
# The other faults are planted once a shape, since no step knows what kind of tree it carries.
FIRST, OTHERS = (drop, 0), ((drop, -1), (repeat, 0), (repeat, -1))
Fault = tuple[str, str, Change, int]


def faults_at(places: Iterable[str]) -> list[Fault]:
    """(kind, hand-over, change, number): the first is dropped of every kind, and the rest."""
    return [
        (kind, place, *fault)
        for kind in every_kind.PLANS
        for place in places
        if place not in every_kind.ABSENT.get(kind, ())
        for fault in (FIRST, *(OTHERS if kind in ROADS else ()))
    ]


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
def attempt(kind, tmp_path, reference) -> Callable[..., list[str]]:
    """The release, step by step, with a fault or without."""

    def attempted(fault: Any = unchanged) -> list[str]:
        release = EagerRelease(
            every_kind.PLANS[kind](), reference, str(tmp_path / "out"), NONCE, fault
        )
        manifests = release.run(every_kind.bundles())
        record.check_committed(str(tmp_path / "out"))
        return manifests

    return attempted


NOTHING_CAME = "nothing arrived at the commit"
PARTS_LOST = ("the parts of the release did not arrive exactly once", NOTHING_CAME)


def refused(kind: str, attempt: Callable[..., list[str]], fault: Any) -> str:
    """The sentence that a release with a fault fails with. Where a plan has one place, or rounds
    that end in one place, its loss leaves nothing at all, and so no commit."""
    with pytest.raises(ConservationError) as caught:
        attempt(fault)
    if caught.value.sentence.endswith(NOTHING_CAME):
        (question,) = every_kind.PLANS[kind]().questions
        assert len(question.places) == 1 or question.rounds
    return caught.value.sentence


def test_without_a_fault_it_is_the_release_of_the_rows_in_memory(
    attempt, kind, tmp_path, key, release_files
) -> None:
    absent = set()

    def watched(name: str, elements: list[Any]) -> list[Any]:
        if name in HAND_OVERS and not elements:
            absent.add(name)
        return elements

    assert attempt(watched) == [str(tmp_path / "out" / "manifest.json")]
    assert absent == every_kind.ABSENT.get(kind, set())
    found = release_files(tmp_path / "out")
    tables = {name: data for name, data in found.items() if name.endswith(".parquet")}
    assert tables == every_kind.tables_in_memory(every_kind.PLANS[kind](), key)


def named(value: Any) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(
    ("kind", "place", "change", "number"), faults_at(LOST_OR_REPEATED), ids=named
)
def test_every_hand_over(kind, place, change, number, attempt, tmp_path) -> None:
    fault = Planted(place, change, number)
    sentence = refused(kind, attempt, fault)
    assert fault.planted and not (tmp_path / "out" / "manifest.json").exists()
    assert sentence.startswith("the engine lost or repeated data: ") and "\n" not in sentence


@pytest.mark.parametrize("place", RECEIPTS)
def test_a_lost_receipt(place, kind, attempt, tmp_path) -> None:
    if place in every_kind.ABSENT.get(kind, ()):
        return
    fault = Planted(place, drop)
    assert refused(kind, attempt, fault).endswith(PARTS_LOST)
    assert fault.planted and not (tmp_path / "out" / "manifest.json").exists()


def test_a_repeated_receipt_is_the_same_part(attempt, tmp_path, release_files) -> None:
    def repeated(name: str, elements: list[Any]) -> list[Any]:
        return elements * 2 if name in RECEIPTS else elements

    attempt(repeated)
    twice = release_files(tmp_path / "out")
    assert attempt() and release_files(tmp_path / "out") == twice


def emptied(element: Any) -> list[Any]:
    """The same message without its counts: all that arrives, arrives once."""
    return [(element[0], b"")]


def test_counts_that_are_lost_within_a_message(kind, attempt) -> None:
    def fault(name: str, elements: list[Any]) -> list[Any]:
        if name != "partial counts":
            return elements
        place = next(n for n, (_, data) in enumerate(elements) if data)
        return [*elements[:place], *emptied(elements[place]), *elements[place + 1 :]]

    with pytest.raises(ConservationError, match="lost or repeated data: rows of"):
        attempt(fault)


def test_a_place_that_nobody_made(kind, attempt) -> None:
    """Dropped from both sources: no rows in it, and no empty partial counts."""
    chosen = every_kind.PLANS[kind]().questions[-1]
    key = (chosen.name, *chosen.places[-1])

    def fault(name: str, elements: list[Any]) -> list[Any]:
        return [each for each in elements if "partial" not in name or each[0] != key]

    assert refused(kind, attempt, fault).endswith(("so nothing was released", NOTHING_CAME))


SORTED = [
    (kind, change, buffered)
    for kind in every_kind.PLANS
    for change, buffered in itertools.product([drop, repeat], [1, 300])
    if kind in ROADS or (change, buffered) == (drop, 1)
]


@pytest.mark.parametrize(("kind", "change", "buffered"), SORTED, ids=named)
def test_sorted_counts(kind, change, buffered, attempt, monkeypatch) -> None:
    """Where known leaves do not fit memory, and leave before their bundle ends."""
    monkeypatch.setattr("dptrees.transforms.steps.counting.DENSE_CELLS", 0)
    monkeypatch.setattr("dptrees.dpcore.questions.messages.BUFFERED_ROWS", buffered)
    with pytest.raises(ConservationError, match="lost or repeated data: partial counts of tree"):
        attempt(Planted("partial counts", change))


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
    planted = plant_input(monkeypatch, record._Commit, drop)
    run(make_plan(), data, tmp_path / "out")
    assert planted
    assert not (tmp_path / "out" / "manifest.json").exists()
    with pytest.raises(ConservationError, match=NOTHING_CAME):
        record.check_committed(str(tmp_path / "out"))
