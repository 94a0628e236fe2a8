"""The examples in the docstrings of benchmarks/papers, which pytest does not collect."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import benchmarks.papers

MODULES = sorted(
    path.stem for path in Path(benchmarks.papers.__file__ or "").parent.glob("[a-z]*.py")
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
WITHOUT: set[str] = set()


@pytest.mark.parametrize("module", MODULES)
def test_they_give_what_they_say(module: str) -> None:
    found = doctest.testmod(import_module(f"benchmarks.papers.{module}"), optionflags=FLAGS)
    assert found.failed == 0 and found.attempted >= (module not in WITHOUT)
