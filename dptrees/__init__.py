"""Differentially private counts over trees, from Python.

    import dptrees

    people = dptrees.of(frame, epsilon=1).by("sex", ["f", "m"])
    request = people.mean("hours", (0, 80)).quantiles("age", [0.25, 0.5, 0.75], (0, 100))
    request.plan()               # expected errors; nothing is read or spent
    release = request.release()  # spends the budget; the release may be published
    release["hours"].mean()
    release["age"].quantiles().plot()

These are the functions:

    of(rows, epsilon=...)     begin a Request: queries of a table, without a configuration
    release(rows, config)     make a Release by a configuration: a dictionary or YAML file
    open(folder)              open the Release in a folder
    plan(config)              return a Plan: the expected errors, before a row is read
    check(rows, config)       count the rows that a release would drop: exact, not private
    keygen(path)              write a new release key to a file
    closest_cdf(noisy, total) make noisy cumulative counts consistent, by any additive metric

These are for a Beam pipeline:

    load(config)              return the plan of a configuration
    key(place)                name the place of a release key; workers read it from there
    ReleaseTrees(plan, ...)   the transform: rows in, a finished folder out
    DPTree                    the transform of Beam YAML, and of pipelines in other languages
    error_sentence(error)     find the sentence of dptrees in an error of an engine

This is for a Spark DataFrame, and needs ``import dptrees.spark``:

    spark.release(df, config) make a Release; Spark counts the rows

These are the definitions, algorithms and formulas of the papers, and need ``import
dptrees.papers``:

    papers.rameshwar          one module for each paper, in its order and notation

These are the classes; ``help(dptrees.Release)`` describes one:

    Release                   a finished release: release["age"] is a TreeAnswers; save, sample,
                              verify, report
    TreeAnswers               queries of a tree: cdf, quantiles, range, mean, share, describe, top,
                              above, nodes ...; answers can be plotted
    Request                   queries that make one release
    Plan                      the expected error of each tree
    Session                   several releases under one total budget
    Error                     an error that you can fix; its message says how

A configuration has the same keys as a file of the command ``dptrees``, which is also ``python -m
dptrees``. The tutorial is in docs/python.md.
"""

from __future__ import annotations

import difflib
import importlib
import os
from typing import TYPE_CHECKING, Any

# A checkout has the packages next to this folder, with symbolic links to them in it. On a system
# without symbolic links Python finds them by this line.
if not os.path.isdir(os.path.join(os.path.dirname(__file__), "dpcore")):
    __path__.append(os.path.dirname(os.path.dirname(__file__)))

from dptrees.dpcore import __version__

if TYPE_CHECKING:
    from dptrees.dpcore.trees.closest_cdf import closest_cdf
    from dptrees.pipelines.beam_yaml import DPTree
    from dptrees.pipelines.python.calls import (
        check,
        error_sentence,
        key,
        keygen,
        load,
        of,
        open,
        plan,
        release,
    )
    from dptrees.pipelines.python.error import Error
    from dptrees.pipelines.python.making import Session
    from dptrees.pipelines.python.planned import Plan
    from dptrees.pipelines.python.release import Release
    from dptrees.pipelines.python.request import Request
    from dptrees.pipelines.python.tree import TreeAnswers
    from dptrees.transforms.beam.release import ReleaseTrees

__all__ = [
    "DPTree",
    "Error",
    "Plan",
    "Release",
    "ReleaseTrees",
    "Request",
    "Session",
    "TreeAnswers",
    "__version__",
    "check",
    "closest_cdf",
    "error_sentence",
    "key",
    "keygen",
    "load",
    "of",
    "open",
    "plan",
    "release",
]

_CALLS = "dptrees.pipelines.python.calls"
# The module of each public name: imported when the name is first used.
_MODULES = {
    "DPTree": "dptrees.pipelines.beam_yaml",
    "Error": "dptrees.pipelines.python.error",
    "Plan": "dptrees.pipelines.python.planned",
    "Release": "dptrees.pipelines.python.release",
    "ReleaseTrees": "dptrees.transforms.beam.release",
    "Request": "dptrees.pipelines.python.request",
    "Session": "dptrees.pipelines.python.making",
    "TreeAnswers": "dptrees.pipelines.python.tree",
    "check": _CALLS,
    "closest_cdf": "dptrees.dpcore.trees.closest_cdf",
    "error_sentence": _CALLS,
    "key": _CALLS,
    "keygen": _CALLS,
    "load": _CALLS,
    "of": _CALLS,
    "open": _CALLS,
    "plan": _CALLS,
    "release": _CALLS,
}
# Of modules that take long to import.
_LARGE = {"DPTree", "Plan", "Release", "ReleaseTrees", "Request", "Session", "TreeAnswers"}


# Hidden from type checkers, which would accept any name of dptrees.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import the module of a public name when the name is first used."""
        if name not in _MODULES:
            near = difflib.get_close_matches(name, __all__, n=1)
            more = f"; did you mean {near[0]}?" if near else ""
            # Python adds a suggestion of its own to an error without a name.
            raise AttributeError(f"module 'dptrees' has no attribute {name!r}{more}", name=name)
        from dptrees.pipelines.python.error import IMPORT_LOCK, quiet_import

        with IMPORT_LOCK:
            if name in _LARGE:
                quiet_import()
            found = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """Return the names that are meant for users; imported modules are left out."""
    return sorted(__all__)
