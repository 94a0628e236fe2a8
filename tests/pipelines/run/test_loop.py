"""The loop of this machine: steps, sides, tags and groups, on one thread and on several.

That releases of every kind have the same bits is tested with the Python interface.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dptrees.pipelines.run import loop
from dptrees.pipelines.run.loop import run_flow
from dptrees.transforms import flow
from dptrees.transforms.errors import InputError


class Call(flow.Step):
    """Yields what a function makes of each element."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def process(self, *elements: Any) -> Iterator[Any]:
        yield self._function(*elements)


class Split(flow.Step):
    """Even numbers, odd ones by a tag, and their number when the bundle ends."""

    def start_bundle(self) -> None:
        self._rows = 0

    def process(self, number: int, above: list[int]) -> Iterator[Any]:
        self._rows += 1
        value = number + sum(above)
        yield flow.Tagged("odd", value) if number % 2 else value

    def finish_bundle(self) -> Iterator[Any]:
        yield flow.Tagged("rows", self._rows)


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> int:
    """One thread, and several."""
    number: int = request.param
    return number


@pytest.fixture
def run(threads: int) -> Callable[..., list[Any]]:
    """Run a graph; return what it gives, sorted."""

    def ran(build: Callable[[flow.Flow], Any]) -> list[Any]:
        seen: list[Any] = []
        graph = flow.Flow()
        build(graph) | "See" >> flow.Each(Call(seen.append))
        run_flow(graph, threads)
        return sorted(seen)

    return ran


def spread(graph: flow.Flow, elements: Any) -> flow.Collection:
    """Elements that the threads share."""
    found: flow.Collection = graph | "Given" >> flow.Given(elements) | "Spread" >> flow.Spread()
    return found


def test_tags_sides_and_bundles(run) -> None:
    def build(graph: flow.Flow) -> Any:
        above = graph | "Above" >> flow.Given([100, 1000])
        numbers = graph | "Numbers" >> flow.Given(range(4))
        split = flow.Each(Split(), flow.AsList(above), also=("odd", "rows"), main="even")
        given = numbers | "Split" >> split
        return (given["even"], given["odd"], given["rows"]) | "Join" >> flow.Join()

    found = run(build)
    assert found[-4:] == [1100, 1101, 1102, 1103]
    assert sum(found[:-4]) == 4  # the rows of every bundle


def test_an_output_that_the_graph_does_not_know_is_a_fault(run) -> None:
    def build(graph: flow.Flow) -> Any:
        numbers = graph | "Numbers" >> flow.Given([1])
        return numbers | "Split" >> flow.Each(Split(), [])

    with pytest.raises(KeyError, match="odd"):
        run(build)


def test_groups_sums_and_dictionaries(run) -> None:
    def build(graph: flow.Flow) -> Any:
        pairs = spread(graph, [("a", 1), ("b", 2), ("a", 3)])
        groups = pairs | "Group" >> flow.Group()
        lengths = groups | "Length" >> flow.Each(Call(lambda pair: (pair[0], len([*pair[1]]))))
        sums = pairs | "Sum" >> flow.Combine(operator.add, int)
        values = pairs | "Value" >> flow.Each(Call(lambda pair: pair[1]))
        total = values | "Total" >> flow.Combine(operator.add, int, by_key=False)
        of_all = total | "Name" >> flow.Each(Call(lambda number: ("all", number)))
        of_b = sums | "Of b" >> flow.Each(
            Call(lambda pair, all: ("b", all["b"], pair)), flow.AsDict(sums)
        )
        return (lengths, sums, of_all, of_b) | "Join" >> flow.Join()

    assert run(build) == [
        *[("a", 2), ("a", 4), ("all", 6), ("b", 1), ("b", 2)],
        *[("b", 2, ("a", 4)), ("b", 2, ("b", 2))],
    ]


def test_nothing_comes_of_nothing(run) -> None:
    def build(graph: flow.Flow) -> Any:
        none = graph | "None" >> flow.Given([])
        return none | "Total" >> flow.Combine(operator.add, int, by_key=False)

    assert run(build) == []


@pytest.mark.parametrize("fault", [InputError("planted"), KeyboardInterrupt()])
def test_faults_come_through(run, fault: BaseException) -> None:
    def fail(_: object) -> None:
        raise fault

    with pytest.raises(type(fault)):
        run(lambda graph: spread(graph, range(9)) | "Fail" >> flow.Each(Call(fail)))


def test_elements_go_all_the_way_before_the_next_one_is_read(run, threads: int) -> None:
    """Between two groupings a thread holds one element, however many there are."""
    held, most = set[int](), [0]

    class Read(flow.Step):
        def process(self, number: int) -> Iterator[int]:
            for each in range(50):
                held.add(100 * number + each)
                most[0] = max(most[0], len(held))
                yield 100 * number + each

    def count(number: int) -> int:
        held.discard(number)
        return number

    def build(graph: flow.Flow) -> Any:
        read = spread(graph, range(4)) | "Read" >> flow.Each(Read())
        return read | "Count" >> flow.Each(Call(count))

    assert len(run(build)) == 200 and not held
    assert most[0] <= threads


def test_elements_are_shared_among_threads(run, threads: int) -> None:
    """Each thread has steps of its own, which begin and end their bundle once."""
    meeting = threading.Barrier(threads, timeout=20)

    class Meet(flow.Step):
        def start_bundle(self) -> None:
            self._seen = 0

        def process(self, number: int) -> Iterator[Any]:
            if not self._seen:
                meeting.wait()
            self._seen += 1
            yield from ()

        def finish_bundle(self) -> Iterator[Any]:
            yield self._seen

    seen = run(lambda graph: spread(graph, range(9)) | "Meet" >> flow.Each(Meet()))
    assert sum(seen) == 9 and len(seen) == threads and min(seen) > 0


def test_a_fault_of_one_thread_stops_all_and_tears_down(run) -> None:
    done, torn = list[int](), list[int]()

    class Fail(flow.Step):
        def process(self, number: int) -> Iterator[int]:
            if number == 5:
                raise InputError("planted")
            done.append(number)
            yield number

        def finish_bundle(self) -> Iterator[Any]:
            raise AssertionError("a bundle that failed has no end")

        def teardown(self) -> None:
            torn.append(1)

    with pytest.raises(InputError, match="planted"):
        run(lambda graph: spread(graph, range(1000)) | "Fail" >> flow.Each(Fail()))
    assert len(done) < 1000 and torn


def test_a_collection_is_taken_by_several_steps_and_beside_others(run) -> None:
    def build(graph: flow.Flow) -> Any:
        doubled = spread(graph, range(6)) | "Double" >> flow.Each(Call(lambda number: 2 * number))
        total = doubled | "Total" >> flow.Combine(operator.add, int, by_key=False)
        more = doubled | "Add" >> flow.Each(
            Call(lambda number, all: number + all[0]), flow.AsList(total)
        )
        return (doubled, more) | "Join" >> flow.Join()

    assert run(build) == sorted([*range(0, 12, 2), *range(30, 42, 2)])


def test_labels_are_unique() -> None:
    graph = flow.Flow()
    graph | "Given" >> flow.Given([1])
    with pytest.raises(ValueError, match="two steps 'Given'"):
        graph | "Given" >> flow.Given([2])


def test_processors_are_counted_on_every_system(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loop.processor_count() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert loop.processor_count() == os.cpu_count()


def test_a_fault_closes_the_files_of_groups_that_are_read(run, monkeypatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(loop.WaitingPairs, "close", lambda self: closed.append(1))

    class Fail(flow.Step):
        def process(self, group: Any) -> Iterator[Any]:
            raise InputError("planted")
            yield

    def build(graph: flow.Flow) -> Any:
        pairs = spread(graph, [(0, bytes(loop.LEAST_BYTES)), (1, bytes(loop.LEAST_BYTES))])
        return pairs | "Group" >> flow.Group() | "Fail" >> flow.Each(Fail())

    with pytest.raises(InputError, match="planted"):
        run(build)
    assert closed
