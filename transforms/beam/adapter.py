"""The graph of a job as Beam's own transforms: each step in one generic DoFn.

The graph (`transforms.flow`) has the labels, the groupings, and the types that Beam's coders need.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions, WorkerOptions
from apache_beam.transforms.window import GlobalWindows

from dptrees.dpcore.bounding.row_choice import planned_shards
from dptrees.transforms import flow
from dptrees.transforms.conservation import NAMESPACE, count_by
from dptrees.transforms.steps.count import check_shards

# A worker that has a step of the job has this module.
count_by(lambda name, amount: Metrics.counter(NAMESPACE, name).inc(amount))


class RunStep(beam.DoFn):
    """A step of the graph as a DoFn.

    Args:
        step: it travels to the workers.
    """

    def __init__(self, step: flow.Step) -> None:
        self._step = step
        tagged = dict(step.types)
        self.with_output_types(tagged.pop(flow.MAIN, Any), **tagged)

    def setup(self) -> None:
        self._step.setup()

    def start_bundle(self) -> None:
        self._step.start_bundle()

    def process(self, element: Any, *sides: Any) -> Iterator[Any]:
        for given in self._step.process(element, *sides):
            if isinstance(given, flow.Tagged):
                yield beam.pvalue.TaggedOutput(given.output, given.element)
            else:
                yield given

    def finish_bundle(self) -> Iterator[Any]:
        windowed = GlobalWindows.windowed_value
        for given in self._step.finish_bundle():
            if isinstance(given, flow.Tagged):
                yield beam.pvalue.TaggedOutput(given.output, windowed(given.element))
            else:
                yield windowed(given)

    def teardown(self) -> None:
        self._step.teardown()


class _Fold(beam.CombineFn):
    """A function of two values as a CombineFn."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def create_accumulator(self) -> Any:
        return None

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return element if accumulator is None else self._function(accumulator, element)

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        merged = None
        for each in accumulators:
            merged = merged if each is None else self.add_input(merged, each)
        return merged

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator


class OnBeam(beam.PTransform):
    """A transform of the graph in a pipeline of Beam.

    Args:
        transform: what takes the input of this one, and gives its output; several collections are
            tuples or dictionaries here and there.
    """

    def __init__(self, transform: flow.Transform) -> None:
        super().__init__()
        self._transform = transform

    def expand(self, given: Any) -> Any:
        whole = given[0] if isinstance(given, tuple) else given
        pipeline = whole.pipeline
        chosen, planned = unit_shards(pipeline.options)
        graph = flow.Flow(unit_shards=chosen, planned_shards=planned)
        made: dict[flow.Collection, Any] = {}

        def own(each: Any) -> Any:
            if isinstance(each, tuple):
                return tuple(map(own, each))
            if isinstance(each, beam.pvalue.PBegin):
                return graph
            made[found := graph.input()] = each
            return found

        def there(each: Any) -> Any:
            if isinstance(each, tuple):
                return tuple(map(there, each))
            if isinstance(each, dict):
                return {name: there(one) for name, one in each.items()}
            return None if each is None else made[each]

        result = self._transform.expand(own(given))
        for number, node in enumerate(graph.nodes):
            outputs = _apply(pipeline, node, made)
            for name, output in zip(node.primitive.outputs, outputs, strict=True):
                made[flow.Collection(graph, number, name)] = output
        return there(result)


def _apply(pipeline: Any, node: flow.Node, made: Any) -> list[Any]:
    """Apply a node in a pipeline of Beam; return its outputs in their order."""
    primitive, taken = node.primitive, [made[each] for each in node.inputs]
    if isinstance(primitive, flow.Each):
        return _each(node.label, primitive, taken[0], made)
    if isinstance(primitive, flow.Given):
        create = beam.Create(primitive.elements, reshuffle=False)
        return [pipeline | node.label >> create]
    if isinstance(primitive, flow.Combine):
        return [taken[0] | node.label >> _combine(primitive)]
    if isinstance(primitive, flow.Join):
        return [tuple(taken) | node.label >> beam.Flatten(pipeline=pipeline)]
    kinds = {flow.Group: beam.GroupByKey, flow.Spread: beam.Reshuffle}
    return [taken[0] | node.label >> kinds[type(primitive)]()]


def _each(label: str, each: flow.Each, taken: Any, made: Any) -> list[Any]:
    kinds = {flow.AsList: beam.pvalue.AsList, flow.AsDict: beam.pvalue.AsDict}
    sides = [
        kinds[type(side)](made[side.of]) if isinstance(side, flow.AsList) else side
        for side in each.sides
    ]
    step = beam.ParDo(RunStep(each.step), *sides)
    main, *also = each.outputs
    if not also:
        return [taken | label >> step]
    found = taken | label >> step.with_outputs(*also, main=main)
    return [found[name] for name in each.outputs]


def _combine(combine: flow.Combine) -> Any:
    fold = _Fold(combine.function).with_output_types(combine.type)
    if combine.by_key:
        return beam.CombinePerKey(fold)
    return beam.CombineGlobally(fold).without_defaults()


class UnitOptions(PipelineOptions):
    """Options for bounding the rows of privacy units; no result depends on them."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument(
            "--unit_shards",
            type=int,
            help="Number of shards in which the rows of privacy units are bounded; more shards "
            "need less memory. Default: 4 for each worker in the options, at least 64; 128 in "
            "this process.",
        )


def unit_shards(options: PipelineOptions) -> tuple[int | None, int]:
    """In how many parts the rows of units are bounded: as chosen, None without a choice; and as
    planned for the workers that the options name.

    Raises:
        InputError: a number out of range.
    """
    chosen = options.view_as(UnitOptions).unit_shards
    check_shards(chosen)
    return chosen, planned_shards(workers=_named_workers(options))


def _named_workers(options: PipelineOptions) -> int:
    """The most workers that an option of an engine names; 1 where none does."""
    cloud, flink = options.view_as(WorkerOptions), options.view_as(FlinkRunnerOptions)
    named = (cloud.num_workers, cloud.max_num_workers, flink.parallelism)
    return max(1, *(int(each or 0) for each in named))
