"""A look at the workers before a job: their Python, their dptrees and their key.

An engine tries every failure anew, so a job of one small step goes first, whose findings are no
failures: a worker counts what it found, and the launcher reads the names of these counters. The
step is named by its module, since another Python cannot read code: this module keeps its name.
"""

import sys
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions

from dptrees.dpcore import __version__
from dptrees.transforms.errors import ReleaseError
from dptrees.transforms.keys import KeyReference

_PYTHON, _DPTREES, _KEY = (f"dptrees preflight {each}" for each in ("python", "dptrees", "key"))


class PreflightError(ReleaseError):
    """The workers differ from the launcher: somebody must fix them."""


class PreflightOptions(PipelineOptions):
    """Whether workers are looked at; no result depends on it."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument(
            "--no_preflight",
            action="store_true",
            help="Start the job without checking the workers first.",
        )


class LookAtWorkers(beam.PTransform):
    """Counts what a worker is like.

    Args:
        key: where the release key lies, with its check value.
    """

    def __init__(self, key: KeyReference) -> None:
        super().__init__()
        self._key = key

    def expand(self, begin: Any) -> Any:
        return (
            begin
            | "Impulse" >> beam.Impulse()
            # b"" -> nothing
            | "Look" >> beam.ParDo(_Look(self._key))
        )


@beam.typehints.with_output_types(int)
class _Look(beam.DoFn):
    def __init__(self, key: KeyReference) -> None:
        self._key = key

    def process(self, element: Any) -> Iterator[int]:
        Metrics.counter(_PYTHON, python_minor()).inc()
        Metrics.counter(_DPTREES, __version__).inc()
        Metrics.counter(_KEY, _key_state(self._key)).inc()
        yield from ()


def _key_state(key: KeyReference) -> str:
    """Return what is wrong with the key of a worker; "loaded" if nothing is."""
    try:
        key.load()
    except ReleaseError as error:
        return error.sentence
    return "loaded"


def python_minor() -> str:
    """The version of this Python, by which it reads the code of another."""
    return ".".join(map(str, sys.version_info[:2]))


def check_found(metrics: Any) -> None:
    """Sees that workers are as the launcher is.

    Args:
        metrics: of the job.

    Raises:
        PreflightError: naming what differs.
    """
    _check_same("Python", python_minor(), _names(metrics, _PYTHON))
    _check_same("dptrees", __version__, _names(metrics, _DPTREES))
    for sentence in _names(metrics, _KEY):
        if sentence != "loaded":
            raise PreflightError(f"{sentence} (on a worker)")


def _check_same(what: str, own: str, found: list[str]) -> None:
    for other in found:
        if other != own:
            raise PreflightError(
                f"workers: they run {what} {other}, and the launcher {own}: what one writes the "
                "other cannot read for certain; start both with the same"
            )


def _names(metrics: Any, namespace: str) -> list[str]:
    found = metrics.query(MetricsFilter().with_namespace(namespace))["counters"]
    return sorted({counter.key.metric.name for counter in found})
