"""A step of the pipeline run over elements at hand, as one bundle, without a Beam runner.

An engine that is not Beam's runs the counting steps of a release so, each task as one bundle. What
a task gives is what the bundle would have given.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue


def run_bundle(step: beam.DoFn, elements: Iterable[Any], main: str) -> Iterator[tuple[str, Any]]:
    """Yield every output of a step, with the name of the output.

    Args:
        step: a step without side inputs; it is set up, and torn down, here.
        elements: its input, read one by one.
        main: the name of the output of elements without a tag.

    >>> class Halves(beam.DoFn):
    ...     def process(self, number):
    ...         yield number // 2
    ...         yield beam.pvalue.TaggedOutput("rest", number % 2)
    >>> list(run_bundle(Halves(), [5], "halves"))
    [('halves', 2), ('rest', 1)]
    """
    step.setup()
    try:
        step.start_bundle()
        for element in elements:
            for output in step.process(element) or ():
                yield _named(output, main)
        for output in step.finish_bundle() or ():
            yield _named(output, main)
    finally:
        step.teardown()


def _named(output: Any, main: str) -> tuple[str, Any]:
    name, value = main, output
    if isinstance(output, beam.pvalue.TaggedOutput):
        name, value = output.tag, output.value
    return name, value.value if isinstance(value, WindowedValue) else value
