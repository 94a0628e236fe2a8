"""The loop that runs a graph in this process, one element after the other.

A step gets the very objects that the step before it gave: nothing is encoded. The steps are
the same on every engine, so a release has the same bits, and its balance is checked too. Steps
without a grouping between them run together, an element all the way before the next one is read,
so no more rows are in memory than a batch for each thread. Elements after `flow.Spread` or a
grouping are shared among threads. Elements that wait for a grouping are kept in memory up to a
limit, the others in a file without a name (`transforms.nameless_file`). Batches free and take
megabytes at once, so glibc has to keep freed memory: by default clearing its pages takes a
third of the time.
"""

from __future__ import annotations

import copy
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from dptrees.transforms import flow
from dptrees.transforms.nameless_file import NamelessFile, StoredBytes
from dptrees.transforms.tables.query_rows import LOOK_SECONDS, end_driver_calls, hear_signals

# As glibc's malloc.h numbers them.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# Free memory at the end of the heap, and blocks that are taken from it; 32 MB is the largest.
_KEPT_BYTES, _HEAP_BYTES = 2**26, 2**25


def keep_freed_memory() -> None:
    """Let the process keep up to 64 MB that it has freed; nothing where malloc is not glibc's."""
    with suppress(OSError, AttributeError):
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        allocator.mallopt(_MMAP_THRESHOLD, _HEAP_BYTES)


# Bytes of large values that stay in memory, of each grouping.
MEMORY_BYTES = 2**25
# Smaller values stay in memory: noting where one is takes as much.
LEAST_BYTES = 2**10

Group = tuple[Any, Iterable[Any]]


class WaitingPairs:
    """Pairs of a key and a value that wait for a grouping.

    Several threads may append at once; values that are bytes may lie in a file.

    >>> pairs = WaitingPairs()
    >>> for pair in [("a", b"x"), ("b", b"y"), ("a", b"z")]:
    ...     pairs.append(pair)
    >>> pairs.groups()
    [('a', [b'x', b'z']), ('b', [b'y'])]
    """

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any]] = []
        self._lock = threading.Lock()
        self._bytes = 0
        self._file: NamelessFile | None = None
        self._close: Callable[[], object] = _nothing

    def append(self, pair: tuple[Any, Any]) -> None:
        """Add a pair.

        Raises:
            ReleaseError: the temporary file cannot be made or written.
        """
        key, value = pair
        if isinstance(value, bytes) and len(value) >= LEAST_BYTES:
            file = self._file_beyond(len(value))
            if file is not None:
                value = file.write(value)
        self._pairs.append((key, value))

    def _file_beyond(self, size: int) -> NamelessFile | None:
        """The file, where so many bytes more are beyond the limit."""
        with self._lock:
            self._bytes += size
            if self._bytes > MEMORY_BYTES and self._file is None:
                self._file = NamelessFile()
                self._close = self._file.close
            return self._file

    def groups(self) -> list[Group]:
        """Return every key with its values, and forget them.

        Values in the file are read when they are iterated, each time anew.
        """
        found: dict[Any, list[Any]] = {}
        self._pairs.reverse()
        while self._pairs:  # let go on the way
            key, value = self._pairs.pop()
            found.setdefault(key, []).append(value)
        if self._file is None:
            return list(found.items())
        self._file = None  # closed with the last value that lies there
        return [(key, _Values(values)) for key, values in found.items()]

    def close(self) -> None:
        """Close the file after a fault, when nobody reads the values that are left."""
        self._close()


def _nothing() -> None:
    """There is no file to close."""


class _Values:
    """Values of a key, some in a file.

    Args:
        values: in the order in which they came.
    """

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        for value in self._values:
            yield value.read() if isinstance(value, StoredBytes) else value


Values = list[Any]
Receive = Callable[[Any], None]
# Groups of a few elements are done before threads have begun.
_LEAST_SHARED = 2


class _Combined:
    """Elements combined as they come, by several threads at once."""

    def __init__(self, combine: flow.Combine) -> None:
        self._combine, self._lock = combine, threading.Lock()
        self._found: dict[Any, Any] = {}

    def append(self, element: Any) -> None:
        """Add an element."""
        key, value = element if self._combine.by_key else (None, element)
        with self._lock:
            if key in self._found:
                value = self._combine.function(self._found[key], value)
            self._found[key] = value

    def taken(self) -> Values:
        """Return what became of the elements."""
        return list(self._found.items() if self._combine.by_key else self._found.values())


def run_flow(graph: flow.Flow, threads: int = 0) -> None:
    """Run a graph to its end.

    Args:
        graph: without inputs of its own.
        threads: how many; 0: one for each processor that this process may use.

    >>> seen = []
    >>> class See(flow.Step):
    ...     def process(self, element):
    ...         yield seen.append(element)
    >>> graph = flow.Flow()
    >>> pairs = graph | "Pairs" >> flow.Given([("a", 1), ("a", 2)])
    >>> _ = pairs | "Sum" >> flow.Combine(int.__add__, int) | "See" >> flow.Each(See())
    >>> run_flow(graph); seen
    [('a', 3)]
    """
    keep_freed_memory()
    _Loop(graph.nodes, threads or processor_count()).run()


def processor_count() -> int:
    """The processors that this process may use; where the system does not say, all that there
    are."""
    if hasattr(os, "sched_getaffinity"):  # Linux alone
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Loop:
    """The state of a run: the elements that wait for a step, and those that steps take beside."""

    def __init__(self, nodes: Sequence[flow.Node], threads: int) -> None:
        self.nodes, self._threads = nodes, threads
        self._waiting: dict[int, Values | WaitingPairs | _Combined] = {}
        self._pairs: list[WaitingPairs] = []
        self._takers: dict[tuple[int, str], list[int]] = {}
        self._beside: dict[tuple[int, str], Values] = {}
        self._left: dict[tuple[int, str], int] = {}
        for number, node in enumerate(nodes):
            if not _is_fused(node):
                self._waiting[number] = waiting = _waiting(node.primitive)
                self._pairs += [waiting] if isinstance(waiting, WaitingPairs) else []
            for collection in node.inputs:
                self._takers.setdefault(_name(collection), []).append(number)
            for side in _beside(node):
                self._beside[side] = []
                self._left[side] = self._left.get(side, 0) + 1

    def run(self) -> None:
        """Run every step."""
        try:
            self._run()
        except Exception:  # a second interrupt may leave threads behind, which still write
            for pairs in self._pairs:
                pairs.close()
            raise

    def _run(self) -> None:
        for number, node in enumerate(self.nodes):
            if _is_fused(node):
                continue
            elements = _elements(self._waiting.pop(number))
            if isinstance(node.primitive, flow.Each):
                self._feed(elements, lambda chain, own=number: [chain.process(own)])  # type: ignore[misc]
                for side in _beside(node):
                    self._let_go(side)
            else:
                self._feed(elements, lambda chain, own=number: self.takers(own, flow.MAIN, chain))  # type: ignore[misc]

    def takers(self, number: int, output: str, chain: _Chain) -> list[Receive]:
        """What takes the elements of an output: steps of a chain, and what waits."""
        found: list[Receive] = []
        for taker in self._takers.get((number, output), ()):
            node = self.nodes[taker]
            if isinstance(node.primitive, flow.Join):
                found += self.takers(taker, flow.MAIN, chain)
            elif _is_fused(node):
                found.append(chain.process(taker))
            else:
                found.append(self._waiting[taker].append)
        if (number, output) in self._beside:
            found.append(self._beside[number, output].append)
        return found

    def sides(self, each: flow.Each) -> list[Any]:
        """What a step takes beside its elements."""
        return [
            (dict if isinstance(side, flow.AsDict) else list)(self._beside[_name(side.of)])
            if isinstance(side, flow.AsList)
            else side
            for side in each.sides
        ]

    def _let_go(self, side: tuple[int, str]) -> None:
        self._left[side] -= 1
        if not self._left[side]:
            self._beside[side].clear()

    def _feed(self, elements: Values, begin: Callable[[_Chain], Sequence[Receive]]) -> None:
        """Give elements to all that take them, on several threads where there are several.

        Args:
            elements: emptied on the way.
            begin: gives what takes them, of a chain.
        """
        shared = deque(elements)
        elements.clear()
        workers = min(self._threads, len(shared) // _LEAST_SHARED + 1)
        if workers == 1:
            _Chain(self).run(shared, begin, threading.Event())
            return
        faults: Values = []
        stop = threading.Event()

        def work() -> None:
            try:
                _Chain(self).run(shared, begin, stop)
            except BaseException as fault:
                faults.append(fault)
                stop.set()

        threads = [threading.Thread(target=work) for _ in range(workers)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(LOOK_SECONDS)
                    hear_signals()
        except BaseException:
            end_driver_calls()  # one may wait for hours
            raise
        finally:
            stop.set()  # where this thread is interrupted, the others end with their element
            for thread in threads:
                thread.join()
        if faults:
            raise faults[0]


class _Chain:
    """Steps that run together, for one thread: one bundle.

    Args:
        loop: whose steps they are.
    """

    def __init__(self, loop: _Loop) -> None:
        self._loop = loop
        self._steps: dict[int, flow.Step] = {}
        self._receive: dict[int, Receive] = {}
        self._give: dict[int, Receive] = {}

    def process(self, number: int) -> Receive:
        """What takes the elements of a step; it is made where it is not there yet."""
        if number in self._receive:
            return self._receive[number]
        each = self._loop.nodes[number].primitive
        assert isinstance(each, flow.Each)
        step, sides = copy.copy(each.step), self._loop.sides(each)
        give = self._giving(number, each)

        def take(element: Any) -> None:
            for given in step.process(element, *sides):
                give(given)

        self._steps[number], self._receive[number] = step, take
        return take

    def _giving(self, number: int, each: flow.Each) -> Receive:
        """What takes all that a step yields."""
        main, *also = each.outputs
        takers = self._loop.takers(number, main, self)
        tagged = {name: self._loop.takers(number, name, self) for name in also}

        def give(given: Any) -> None:
            if isinstance(given, flow.Tagged):
                for receive in tagged[given.output]:
                    receive(given.element)
            else:
                for receive in takers:
                    receive(given)

        self._give[number] = give
        return give

    def run(
        self,
        elements: deque[Any],
        begin: Callable[[_Chain], Sequence[Receive]],
        stop: threading.Event,
    ) -> None:
        """Run a bundle of the elements, until none is left or somebody stops it."""
        takers = begin(self)
        ordered = sorted(self._steps)
        begun: list[flow.Step] = []
        try:
            for number in ordered:
                begun.append(self._steps[number])
                self._steps[number].setup()
            for number in ordered:
                self._steps[number].start_bundle()
            while not stop.is_set():
                try:
                    element = elements.popleft()
                except IndexError:
                    break
                for take in takers:
                    take(element)
            for number in ordered if not stop.is_set() else ():
                for given in self._steps[number].finish_bundle():
                    self._give[number](given)
        finally:
            for step in begun:
                step.teardown()


def _name(collection: flow.Collection) -> tuple[int, str]:
    return collection.number, collection.output


def _beside(node: flow.Node) -> list[tuple[int, str]]:
    """The collections that a step takes beside its elements."""
    return [_name(side.of) for side in node.primitive.sides if isinstance(side, flow.AsList)]


def _is_fused(node: flow.Node) -> bool:
    """Whether a node runs with the step before it: it takes nothing but its elements."""
    if isinstance(node.primitive, flow.Join):
        return True
    return isinstance(node.primitive, flow.Each) and not _beside(node)


def _waiting(primitive: flow.Primitive) -> Values | WaitingPairs | _Combined:
    """Where elements wait for a node."""
    if isinstance(primitive, flow.Group):
        return WaitingPairs()
    if isinstance(primitive, flow.Combine):
        return _Combined(primitive)
    return list(primitive.elements) if isinstance(primitive, flow.Given) else []


def _elements(waiting: Values | WaitingPairs | _Combined) -> Values:
    """What a node makes of the elements that waited."""
    if isinstance(waiting, WaitingPairs):
        return list(waiting.groups())
    return waiting.taken() if isinstance(waiting, _Combined) else waiting
