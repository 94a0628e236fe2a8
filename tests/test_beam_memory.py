"""What Beam is given from memory is what it would have found."""

from __future__ import annotations

from inspect import unwrap
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options import pipeline_options
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, StandardOptions
from apache_beam.transforms import core

from dptrees.transforms.steps.count import CountBundle, _EmptyPlaces, _MergePlace
from tests import beam_memory

FLAGS = ["--runner=FnApiRunner", "--experiments=one", "--direct_num_workers=2"]
KINDS = [each for each in vars(pipeline_options).values() if isinstance(each, type)]


@pytest.fixture(autouse=True)
def remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the memory for Beam as the session does, also where this file alone has imported Beam."""
    beam_memory.remember(monkeypatch)


@pytest.mark.parametrize("kind", [each for each in KINDS if issubclass(each, PipelineOptions)])
def test_options_are_those_of_their_flags(kind: type[Any]) -> None:
    plain = unwrap(PipelineOptions.__init__)
    for flags in ([], FLAGS, FLAGS):
        for overrides in ({}, {"runner": "another", "experiments": ["two"]}):
            made, found = kind(flags, **overrides), kind.__new__(kind)
            plain(found, flags, **overrides)
            assert vars(made)["_visible_options"] == vars(found)["_visible_options"]
            assert vars(made)["_all_options"] == vars(found)["_all_options"]


def test_views_share_their_values_and_others_do_not() -> None:
    one, other = PipelineOptions(FLAGS), PipelineOptions(FLAGS)
    one.view_as(DebugOptions).add_experiment("mine")
    one.view_as(StandardOptions).runner = "mine"
    assert one.view_as(DebugOptions).experiments == ["one", "mine"]
    assert one.view_as(StandardOptions).runner == "mine"
    assert other.view_as(DebugOptions).experiments == ["one"]
    assert other.view_as(StandardOptions).runner == "FnApiRunner"


class Parameters(beam.DoFn):
    """Parameters of every form."""

    def process(self, element, window=beam.DoFn.WindowParam, *more, only=1):  # type: ignore
        return [element]

    @staticmethod
    def alone(first, second=2):  # type: ignore
        return first


@pytest.mark.parametrize("kind", [Parameters, CountBundle, _MergePlace, _EmptyPlaces])
def test_signatures_are_those_of_the_methods(kind: type[beam.DoFn]) -> None:
    step = kind.__new__(kind)
    found, plain = core.get_function_args_defaults, unwrap(core.get_function_args_defaults)
    methods = [getattr(step, name) for name in dir(step) if callable(getattr(step, name, None))]
    assert len(methods) > 10
    for method in [*methods, *methods, len, lambda a, b=3: a]:
        if isinstance(method, type):
            continue
        assert found(method) == plain(method)
        found(method)[0].append("changed")
