"""A Beam runner that walks a job's graph in this process, one element after the other.

A step gets the very objects that the step before it gave: nothing is encoded. The steps are
the same on every engine, so a release has the same bits, and its balance is checked too. Steps
without a grouping between them run together, an element all the way before the next one is read,
so no more rows are in memory than a batch for each thread. Elements after a reshuffle or a
grouping are shared among threads. Elements that wait for a grouping are kept in memory up to a
limit, the others in a file without a name (`transforms.nameless_file`). Batches free and take
megabytes at once, so glibc has to keep freed memory: by default clearing its pages takes a
third of the time. State, timers, windows and splittable sources are refused by Beam's own
checks.
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

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.common import DoFnRunner
from apache_beam.runners.common import Receiver as BeamReceiver
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState
from apache_beam.transforms.sideinputs import SideInputMap
from apache_beam.transforms.window import GlobalWindows

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
_windowed = GlobalWindows.windowed_value
# Groups of a few elements are done before threads have begun.
_LEAST_SHARED = 2


class LoopRunner(PipelineRunner):
    """Runs a job before `run_pipeline` returns.

    Beam's option ``--direct_num_workers`` is the number of threads; 0: one for each processor that
    this process may use.
    """

    def run_pipeline(self, pipeline: Any, options: Any) -> PipelineResult:
        """Runs it.

        Raises:
            NotImplementedError: a step that is none of those that releases are made of.
        """
        keep_freed_memory()
        steps = _Steps()
        pipeline.visit(steps)
        _Loop(steps.found, _thread_count(options)).run()
        return _Done(PipelineState.DONE)


def _thread_count(options: Any) -> int:
    return int(options.view_as(DirectOptions).direct_num_workers) or _processor_count()


def _processor_count() -> int:
    """The processors that this process may use; where the system does not say, all that there
    are."""
    if hasattr(os, "sched_getaffinity"):  # Linux alone
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Done(PipelineResult):
    def wait_until_finish(self, duration: int | None = None) -> str:
        """At once: the job is over."""
        return str(self.state)


class _Steps(PipelineVisitor):
    """The steps of a graph, each behind those whose output it takes."""

    def __init__(self) -> None:
        self.found: list[AppliedPTransform] = []

    def enter_composite_transform(self, transform_node: AppliedPTransform) -> None:
        """A reshuffle is one step: what it is made of would only pack and unpack."""
        if isinstance(transform_node.transform, beam.Reshuffle):
            self.found.append(transform_node)

    def visit_transform(self, transform_node: AppliedPTransform) -> None:
        """Takes a primitive step."""
        above = transform_node.parent
        while above is not None and not isinstance(above.transform, beam.Reshuffle):
            above = above.parent
        if above is None:
            self.found.append(transform_node)


class _Loop:
    """The state of a run: the elements that wait for a step, and those that steps take beside."""

    def __init__(self, steps: Iterable[AppliedPTransform], threads: int) -> None:
        self._steps, self._threads = list(steps), threads
        self.order = {step: number for number, step in enumerate(self._steps)}
        self.waiting: dict[AppliedPTransform, Values] = {}
        self._pairs = {
            step: WaitingPairs()
            for step in self._steps
            if isinstance(step.transform, beam.GroupByKey)
        }
        self._takers: dict[Any, list[AppliedPTransform]] = {}
        self._beside: dict[Any, Values] = {}
        self._left: dict[Any, int] = {}
        for step in self._steps:
            for collection in step.inputs:
                self._takers.setdefault(collection, []).append(step)
            for side in step.side_inputs:
                self._beside[side.pvalue] = []
                self._left[side.pvalue] = self._left.get(side.pvalue, 0) + 1

    def run(self) -> None:
        """Runs every step.

        Raises:
            NotImplementedError: a step of a kind that is not known here.
        """
        for step in self._steps:
            _check_known(step)
        try:
            self._run()
        except Exception:  # a second interrupt may leave threads behind, which still write
            for pairs in self._pairs.values():
                pairs.close()
            raise

    def _run(self) -> None:
        for step in self._steps:
            if _is_fused(step):
                continue
            elements = self.waiting.pop(step, [])
            if isinstance(step.transform, beam.ParDo):
                self._feed(elements, lambda chain, own=step: [chain.process(own)])  # type: ignore[misc]
                for side in step.side_inputs:
                    self._let_go(side.pvalue)
                continue
            if isinstance(step.transform, beam.Impulse):
                elements = [b""]
            elif isinstance(step.transform, beam.GroupByKey):
                elements = self._pairs[step].groups()
            (collection,) = step.outputs.values()
            self._feed(elements, lambda chain, given=collection: self.takers(given, chain))  # type: ignore[misc]

    def takers(self, collection: Any, chain: _Chain) -> list[Receive]:
        """What takes the elements of a collection: steps of a chain, and lists of what waits."""
        found: list[Receive] = []
        for step in self._takers.get(collection, ()):
            if isinstance(step.transform, beam.Flatten):
                (together,) = step.outputs.values()
                found += self.takers(together, chain)
            elif _is_fused(step):
                found.append(chain.process(step))
            else:
                pairs = self._pairs.get(step)
                found.append(_appended(pairs or self.waiting.setdefault(step, [])))
        if collection in self._beside:
            found.append(_appended(self._beside[collection]))
        return found

    def side_inputs(self, step: AppliedPTransform) -> list[SideInputMap]:
        """What a step takes beside its elements."""
        return [
            SideInputMap(
                type(side), side._view_options(), [*map(_windowed, self._beside[side.pvalue])]
            )
            for side in step.side_inputs
        ]

    def _let_go(self, collection: Any) -> None:
        self._left[collection] -= 1
        if not self._left[collection]:
            self._beside[collection].clear()

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
        self._runners: dict[AppliedPTransform, DoFnRunner] = {}

    def process(self, step: AppliedPTransform) -> Receive:
        """What takes the elements of a step; it is made where it is not there yet."""
        if step not in self._runners:
            outputs = {
                tag: _Receiver(self._loop.takers(collection, self))
                for tag, collection in step.outputs.items()
            }
            transform = step.transform
            self._runners[step] = DoFnRunner(
                copy.copy(transform.fn),
                transform.args,
                transform.kwargs,
                self._loop.side_inputs(step),
                step.inputs[0].windowing,
                tagged_receivers={None: _Receiver([]), **outputs},
                step_name=step.full_label,
            )
        result: Receive = self._runners[step].process
        return result

    def run(
        self,
        elements: deque[Any],
        begin: Callable[[_Chain], Sequence[Receive]],
        stop: threading.Event,
    ) -> None:
        """Run a bundle of the elements, until none is left or somebody stops it."""
        takers = begin(self)
        ordered = sorted(self._runners, key=self._loop.order.__getitem__)
        runners = [self._runners[step] for step in ordered]
        begun: list[DoFnRunner] = []
        try:
            for runner in runners:
                begun.append(runner)
                runner.setup()
            for runner in runners:
                runner.start()
            while not stop.is_set():
                try:
                    element = _windowed(elements.popleft())
                except IndexError:
                    break
                for take in takers:
                    take(element)
            if not stop.is_set():
                for runner in runners:
                    runner.finish()
        except Exception as error:
            # Beam makes an error of its own of whatever stops a step, and so of who stops it.
            if _stopped(error):
                raise KeyboardInterrupt from None
            raise
        finally:
            for runner in begun:
                runner.teardown()


class _Receiver(BeamReceiver):
    """Hands on what a step gives.

    Args:
        takers: all that take it.
    """

    def __init__(self, takers: Sequence[Receive]) -> None:
        self._takers = takers

    def receive(self, windowed_value: Any) -> None:
        """Takes one element."""
        for take in self._takers:
            take(windowed_value)


def _appended(values: Values | WaitingPairs) -> Receive:
    """What adds elements to those that wait, without their window: there is one."""

    def append(windowed_value: Any) -> None:
        values.append(windowed_value.value)

    return append


def _is_fused(step: AppliedPTransform) -> bool:
    """Whether a step runs with the step before it: it takes nothing but its elements."""
    if isinstance(step.transform, beam.Flatten):
        return True
    return isinstance(step.transform, beam.ParDo) and not step.side_inputs


def _check_known(step: AppliedPTransform) -> None:
    """Refuse a step that is of no kind that is known here.

    Raises:
        NotImplementedError: it is none.
    """
    known = (beam.Impulse, beam.ParDo, beam.GroupByKey, beam.Flatten, beam.Reshuffle)
    if not isinstance(step.transform, known):
        raise NotImplementedError(f"{step.full_label}: {type(step.transform).__name__}")


def _stopped(error: BaseException | None) -> bool:
    """Whether somebody stopped the process, whatever was made of that."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
