"""Differentially private counts over trees, from Python.

    import dptrees

    people = dptrees.of(frame, epsilon=1).by("sex", ["f", "m"])
    request = people.mean("hours", (0, 80)).quantiles("age", [0.25, 0.5, 0.75], (0, 100))
    request.plan()               # the errors to expect; nothing is read or spent
    release = request.release()  # spends the budget; what comes out may be published
    release["hours"].mean()
    release["age"].quantiles().plot()

What there is; ``help(dptrees.Release)`` and so on has the whole of each:

    of(rows, epsilon=...)     a Request: questions about a table, without a configuration
    release(rows, config)     a Release by a configuration: a dictionary, a Config or a YAML file
    open(folder)              the Release in a folder
    plan(config)              a Plan: the errors to expect, before a row is read
    check(rows, config)       what a release would leave out: exact, not private
    keygen(path)              a new release key in a file

    Release                   answers: release["age"] is a TreeAnswers; save, sample, verify, report
    Plan                      the expected error of each tree, and of all as text
    TreeAnswers               cdf, quantiles, range, mean, share, describe, top, nodes, plot ...
    Session                   releases of a notebook that may spend one total together
    ReleaseTrees              the transform for a Beam pipeline of your own
    Config, Privacy, Tree, By a configuration as typed objects, in place of a dictionary
    Error                     what is raised; its message says what to fix

A configuration has the same keys as a file of the command ``dptrees``, which is also ``python -m
dptrees``. The documentation is in docs/python.md.
"""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpcore import __version__
from pipelines.python.config import AnyConfig, By, Config, Privacy, Tree
from pipelines.python.error import Error, user_errors
from pipelines.python.keywords import with_known_keywords

if TYPE_CHECKING:
    from pipelines.python.checked import RowCheck
    from pipelines.python.planned import Plan
    from pipelines.python.release import Release
    from pipelines.python.request import Request
    from pipelines.python.session import Session
    from pipelines.python.tree import TreeAnswers
    from transforms.release import ReleaseTrees

__all__ = [
    "By",
    "Config",
    "Error",
    "Plan",
    "Privacy",
    "Release",
    "ReleaseTrees",
    "Request",
    "Session",
    "Tree",
    "TreeAnswers",
    "__version__",
    "check",
    "keygen",
    "of",
    "open",
    "plan",
    "release",
]

_Path = str | os.PathLike[str]


@with_known_keywords
def release(
    rows: Any,
    config: AnyConfig,
    *,
    key: _Path | None = None,
    output: _Path | None = None,
    set: Mapping[str, object] | None = None,
    options: Sequence[str] = (),
    discard: bool = False,
) -> Release:
    """Make a differentially private release of rows.

    **Each call without `output` draws new noise and spends the budget of the configuration again**;
    two releases of the same rows add up (a warning says how much they spent in this process; a
    `Session` refuses what passes a total). With `output`, a release that exists in the folder is
    left as it is, no row is read and nothing is spent (a warning says so); a stopped release is
    finished. A ledger adds budgets up beyond this process, and needs `output`.

    Args:
        rows: an Arrow table, batch or reader; a pandas or Polars DataFrame; a DuckDB relation, or
            whatever else gives an Arrow stream; a dictionary of columns; a list of dictionaries;
            the path of a file, a glob, or a list of them; None: the input of the configuration.
        config: a dictionary, a `Config`, or the path of a YAML file; ``input``, ``output``, ``key``
            and ``release`` may be left out.
        key: where the release key lies: a path, ``file:PATH`` or ``env:NAME``. None: as `config`
            says; else, of a release in memory, a key that is drawn for it and forgotten, so that
            nobody can take the noise away, nor make the release again.
        output: the folder of the release. None: it lives in memory; `Release.save` writes it.
        set: parameters of the configuration, by name.
        options: Beam's, as on the command line: ``["--runner=FlinkRunner", ...]``. Without a runner
            this process does all, as it does on every engine, bit for bit.
        discard: delete what a stopped run left in `output`, and spend the budget anew.

    Returns:
        the release; what it holds may be published.

    Raises:
        Error: one sentence that says what to fix.
    """
    from pipelines.python.beam import quiet_import

    with user_errors():
        making = quiet_import()
        call = making.Call(
            config=config,
            key=key,
            output=output,
            parameters=set,
            options=tuple(options),
            wanted=making.FolderRequest(discard=discard),
        )
        made: Release = making.release(rows, call)
        return made


@with_known_keywords
def of(
    rows: Any,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    neighbors: str = "add_remove",
    unit: str | Sequence[str] | None = None,
    max_rows: int | None = None,
    max_keys: int | None = None,
) -> Request:
    """Begin a request: questions about a table, one after the other, and one release of all.

        dptrees.of(frame, epsilon=1).by("sex", keys=["f", "m"]).mean("hours", (0, 80)).release()

    Nothing is read or spent before `Request.release`; `Request.plan` shows the errors before that,
    and ``print(request)`` the configuration.

    Args:
        rows: as of `release`.
        epsilon, delta, rho: the budget of all questions together; one of epsilon and rho.
        neighbors: ``add_remove`` or ``substitute``.
        unit: the column of the people (or whatever else) to protect; None: each row.
        max_rows: how many rows of a unit count in each question; needed with `unit`.
        max_keys: in how many groups a unit counts.
    """
    from pipelines.python.request import Request

    privacy = Privacy(
        neighbors=neighbors,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        unit=unit,
        max_rows=max_rows,
        max_keys=max_keys,
    )
    return Request(rows=rows, privacy=privacy)


@with_known_keywords
def plan(
    config: AnyConfig,
    *,
    set: Mapping[str, object] | None = None,
    units: Release | _Path | None = None,
) -> Plan:
    """Return the expected errors and the form of a release; reads no rows.

    Args:
        config: as of `release`.
        set: parameters of the configuration, by name.
        units: a release with a tree of type unit_rows, or its folder: compare bounds on the rows of
            a unit by it; `Plan.max_rows` is the one that adds the least error.

    Raises:
        Error: one sentence that says what to fix.
    """
    from pipelines.python.planned import planned

    with user_errors():
        if units is None or isinstance(units, (str, os.PathLike)):
            return planned(config, set, None if units is None else os.fspath(units))
        return planned(config, set, units.place)


@with_known_keywords
def check(
    rows: Any,
    config: AnyConfig,
    *,
    set: Mapping[str, object] | None = None,
    most: int | None = None,
) -> RowCheck:
    """Say what a release would make of rows: **exact, not private**, never to be published.

    Nothing is written and no budget is spent.

    Args:
        rows: as of `release`.
        config: as of `release`.
        set: parameters of the configuration, by name.
        most: at most so many rows are read; None: all.

    Returns:
        how many rows each tree would count, why it would leave others out, and advice.

    Raises:
        Error: one sentence that says what to fix.
    """
    from pipelines.python.beam import quiet_import

    with user_errors():
        quiet_import()
        from pipelines.python.checked import row_check

        return row_check(rows, config, set, most)


def open(path: _Path, *, window: str | None = None) -> Release:
    """A finished release in a folder; of the folder of a series, all its periods to date.

    Args:
        path: of the folder, on a local disk or any filesystem of Beam's.
        window: periods of a series, ``"3:10"``.

    Raises:
        Error: there is no release, or it is damaged.
    """
    from pipelines.python.release import Release
    from pipelines.series.opening import opened

    place = os.fspath(path)
    with user_errors():
        (found,) = opened(place, window, None)
        return Release(found.folder, path=place)


def keygen(path: _Path) -> str:
    """Make a new release key in a new file that you alone can read.

    Keep it secret: anyone with access to it can remove the noise of every release made under it.
    Keep it safe: without it a stopped release cannot be finished, nor a damaged one repaired.

    Returns:
        the path.

    Raises:
        Error: the file is there already (a key is never overwritten), or cannot be made.
    """
    from dpcore.noise.randomness import ReleaseKey
    from pipelines.keygen import write_new

    place = os.fspath(path)
    with user_errors():
        write_new(place, ReleaseKey.generate().to_text() + "\n")
    return place


# The modules of what is slow to import, which is imported when it is first used.
_LATER = {
    "Plan": "pipelines.python.planned",
    "Release": "pipelines.python.release",
    "ReleaseTrees": "transforms.release",
    "Request": "pipelines.python.request",
    "Session": "pipelines.python.session",
    "TreeAnswers": "pipelines.python.tree",
}


def __getattr__(name: str) -> Any:
    """Import what is slow to import when it is first used."""
    if name not in _LATER:
        near = difflib.get_close_matches(name, __all__, n=1)
        more = f"; did you mean {near[0]}?" if near else ""
        raise AttributeError(f"module 'dptrees' has no attribute {name!r}{more}")
    from pipelines.python.beam import quiet_import

    quiet_import()
    return getattr(importlib.import_module(_LATER[name]), name)


if __name__ == "__main__":
    import sys

    from pipelines.command import main

    sys.exit(main())


def __dir__() -> list[str]:
    """Return the names that are meant for users; imported modules are left out."""
    return sorted(__all__)
