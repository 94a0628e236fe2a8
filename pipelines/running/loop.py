"""A Beam runner that walks a job's graph once, in this process, on lists.

Beam's local runner translates a graph into the form that engines read, encodes every element and
decodes it again. For rows that are in memory already that is most of the time; here a step gets the
very objects that the step before it gave. The steps are the same on every engine, so a release
has the same bits, and its balance is checked all the same.

Everything is one bundle, and a collection lives until its last consumer is done: this is for what
fits memory. What the steps of a release do not use (state, timers, windows, splittable sources) is
refused by Beam's own checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.common import DoFnRunner
from apache_beam.runners.common import Receiver as BeamReceiver
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState
from apache_beam.transforms.sideinputs import SideInputMap
from apache_beam.transforms.window import GlobalWindows

Values = list[Any]
_windowed = GlobalWindows.windowed_value


class LoopRunner(PipelineRunner):
    """Runs a job before `run_pipeline` returns."""

    def run_pipeline(self, pipeline: Any, options: Any) -> PipelineResult:
        """Runs it.

        Raises:
            NotImplementedError: a step that is none of those that releases are made of.
        """
        steps = _Steps()
        pipeline.visit(steps)
        _Loop(steps.found).run()
        return _Done(PipelineState.DONE)


class _Done(PipelineResult):
    def wait_until_finish(self, duration: int | None = None) -> str:
        """At once: the job is over."""
        return str(self.state)


class _Steps(PipelineVisitor):
    """The steps of a graph, each behind those whose output it takes."""

    def __init__(self) -> None:
        self.found: list[AppliedPTransform] = []

    def enter_composite_transform(self, transform_node: AppliedPTransform) -> None:
        """Between workers alone rows are shuffled: here that changes nothing."""
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
    """The state of a run: the elements of every collection that somebody still takes."""

    def __init__(self, steps: Iterable[AppliedPTransform]) -> None:
        self._steps = list(steps)
        self._values: dict[Any, Values] = {}
        self._takers: dict[Any, int] = {}
        for step in self._steps:
            for collection in _taken(step):
                self._takers[collection] = self._takers.get(collection, 0) + 1

    def run(self) -> None:
        """Runs every step once."""
        for step in self._steps:
            given = _find_run(step)(step, self._values)
            for tag, collection in step.outputs.items():
                if self._takers.get(collection):
                    self._values[collection] = given.get(tag, [])
            self._release(step)

    def _release(self, step: AppliedPTransform) -> None:
        """Lets go of what no later step takes."""
        for collection in _taken(step):
            self._takers[collection] -= 1
            if not self._takers[collection]:
                del self._values[collection]


def _taken(step: AppliedPTransform) -> list[Any]:
    """The collections that a step takes, those beside its main input too."""
    mains = [each for each in step.inputs if isinstance(each, beam.pvalue.PCollection)]
    return [*mains, *(side.pvalue for side in step.side_inputs)]


Given = Mapping[Any, Values]
Run = Callable[[AppliedPTransform, Mapping[Any, Values]], Given]


def _impulse(step: AppliedPTransform, values: Mapping[Any, Values]) -> Given:
    return {None: [b""]}


def _same(step: AppliedPTransform, values: Mapping[Any, Values]) -> Given:
    """All that comes in."""
    return {None: [each for collection in step.inputs for each in values[collection]]}


def _group(step: AppliedPTransform, values: Mapping[Any, Values]) -> Given:
    (collection,) = step.inputs
    groups: dict[Any, Values] = {}
    for key, value in values[collection]:
        groups.setdefault(key, []).append(value)
    return {None: list(groups.items())}


class _Receiver(BeamReceiver):
    """Takes what a step gives, without its window: there is one."""

    def __init__(self) -> None:
        self.values: Values = []

    def receive(self, windowed_value: Any) -> None:
        """Takes one element."""
        self.values.append(windowed_value.value)


def _do(step: AppliedPTransform, values: Mapping[Any, Values]) -> Given:
    """One bundle of a step of one's own."""
    receivers = {tag: _Receiver() for tag in (None, *step.outputs)}
    transform = step.transform
    runner = DoFnRunner(
        transform.fn,
        transform.args,
        transform.kwargs,
        [_side_input(side, values) for side in step.side_inputs],
        step.inputs[0].windowing,
        tagged_receivers=receivers,
        step_name=step.full_label,
    )
    runner.setup()
    try:
        runner.start()
        for value in values[step.inputs[0]]:
            runner.process(_windowed(value))
        runner.finish()
    except Exception as error:
        # Beam makes an error of its own of whatever stops a step, and so of who stops it.
        if _stopped(error):
            raise KeyboardInterrupt from None
        raise
    finally:
        runner.teardown()
    return {tag: receiver.values for tag, receiver in receivers.items()}


def _stopped(error: BaseException | None) -> bool:
    """Whether somebody stopped the process, whatever was made of that."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _side_input(side: Any, values: Mapping[Any, Values]) -> SideInputMap:
    return SideInputMap(type(side), side._view_options(), [*map(_windowed, values[side.pvalue])])


_RUNS: dict[type, Run] = {
    beam.Impulse: _impulse,
    beam.ParDo: _do,
    beam.GroupByKey: _group,
    beam.Flatten: _same,
    beam.Reshuffle: _same,
}


def _find_run(step: AppliedPTransform) -> Run:
    """What runs a step.

    Raises:
        NotImplementedError: it is of no kind that is known here.
    """
    for kind, run in _RUNS.items():
        if isinstance(step.transform, kind):
            return run
    raise NotImplementedError(f"{step.full_label}: {type(step.transform).__name__}")
