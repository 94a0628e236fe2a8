"""What Beam is given from memory is what it would have found."""

from __future__ import annotations

import itertools
from inspect import unwrap
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options import pipeline_options
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, StandardOptions
from apache_beam.transforms import core

from dptrees.transforms.steps.count import CountBundle, _MergePlace
from dptrees.transforms.steps.counting import EmptyPlaces
from tests import beam_memory

FLAGS = ["--runner=FnApiRunner", "--experiments=one", "--direct_num_workers=2"]
KINDS = [each for each in vars(pipeline_options).values() if isinstance(each, type)]


@pytest.fixture(autouse=True)
def remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the memory for Beam as the session does, also where this file alone has imported Beam."""
    beam_memory.remember(monkeypatch)


def test_options_are_those_of_their_flags() -> None:
    plain = unwrap(PipelineOptions.__init__)
    kinds: list[Any] = [each for each in KINDS if issubclass(each, PipelineOptions)]
    overriding: tuple[dict[str, Any], ...] = ({}, {"runner": "another", "experiments": ["two"]})
    assert len(kinds) > 10
    for kind, flags, overrides in itertools.product(kinds, ([], FLAGS, FLAGS), overriding):
        made, found = kind(flags, **overrides), kind.__new__(kind)
        plain(found, flags, **overrides)
        for name in ("_visible_options", "_all_options"):
            assert vars(made)[name] == vars(found)[name], kind


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


def test_signatures_are_those_of_the_methods() -> None:
    found, plain = core.get_function_args_defaults, unwrap(core.get_function_args_defaults)
    for kind in (Parameters, CountBundle, _MergePlace, EmptyPlaces):
        step = kind.__new__(kind)
        named = [getattr(step, name, None) for name in dir(step)]
        methods = [each for each in named if callable(each) and not isinstance(each, type)]
        assert len(methods) > 10
        for method in [*methods, *methods, len, lambda a, b=3: a]:
            assert found(method) == plain(method), (kind, method)
            found(method)[0].append("changed")
