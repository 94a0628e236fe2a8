"""The functions of ``import dptrees``: a release, its plan, a check of its rows, keys.

They import the planner, and what makes releases, on their first call.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dptrees.pipelines.process import Later
from dptrees.pipelines.python.error import quiet_import, short_traceback, user_errors, warn_caller
from dptrees.transforms.errors import sentence_in

if TYPE_CHECKING:
    from dptrees.dpcore.release.plan import ReleasePlan
    from dptrees.pipelines.config.configuration import Configuration
    from dptrees.pipelines.python.config import AnyConfig
    from dptrees.pipelines.python.planned import Plan, RowCheck
    from dptrees.pipelines.python.release import Release
    from dptrees.pipelines.python.request import Request
    from dptrees.transforms.keys import KeyReference


_Path = str | os.PathLike[str]
_opened = Later("query.folders:opened")


@short_traceback
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

    **Each call without `output` draws new noise and spends the budget of the configuration
    again.** Two releases of the same rows add up: a warning shows their total in this process, and
    a `Session` refuses a release that would exceed a total.

    With `output`, a release that exists in the folder is not changed: no row is read, nothing is
    spent, and a warning says so. A stopped release is finished. A ledger adds up budgets of
    several processes, and needs `output`.

    Args:
        rows: the data. An Arrow table, batch or reader; a pandas or Polars DataFrame; a DuckDB
            relation, or another object with an Arrow stream; a dictionary of columns; a list of
            dictionaries; the path of a file, a glob, or a list of them. None: the input of the
            configuration.
        config: the configuration: a dictionary, or the path of a YAML file. ``input``,
            ``output``, ``key`` and ``release`` are optional.
        key: the place of the release key: a path, ``file:PATH`` or ``env:NAME``. None: the key of
            `config`. Without either, a release in memory draws a key and forgets it: no one can
            remove the noise, and no one can make the release again.
        output: the folder of the release. None: the release is in memory; `Release.save` writes it.
        set: parameters of the configuration, by name.
        options: options of Beam, as on the command line: ``["--runner=FlinkRunner", ...]``. Without
            a runner, this process makes the release, with the same bits as every engine.
        discard: delete the files of a stopped run in `output`, and spend the budget again.

    Returns:
        The release; it may be published.

    Raises:
        Error: in one sentence that says what to fix.
    """

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


@short_traceback
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
    """Begin a request: queries of a table, which make one release.

        dptrees.of(frame, epsilon=1).by("sex", keys=["f", "m"]).mean("hours", (0, 80)).release()

    Nothing is read or spent before `Request.release`. `Request.plan` shows the expected errors
    before that, and ``print(request)`` the configuration.

    Args:
        rows: the data, as for `release`.
        epsilon, delta, rho: the budget of all queries together; one of epsilon and rho.
        neighbors: the neighboring relation, ``add_remove`` or ``substitute``.
        unit: the column that identifies the privacy unit, such as a person; None: each row is one.
        max_rows: the largest number of rows of a unit that a query counts; required with `unit`.
        max_keys: the largest number of groups in which a unit counts.

    Returns:
        A request without queries; add them with its methods.
    """
    request = quiet_import("request")
    privacy = {
        "neighbors": neighbors,
        "epsilon": epsilon,
        "delta": delta,
        "rho": rho,
        "unit": unit,
        "max_rows": max_rows,
        "max_keys": max_keys,
    }
    made: Request = request.Request(rows=rows, privacy=request.without_none(privacy))
    return made


@short_traceback
def plan(
    config: AnyConfig,
    *,
    set: Mapping[str, object] | None = None,
    units: Release | _Path | None = None,
) -> Plan:
    """Return the plan of a release with its expected errors; no rows are read.

    Args:
        config: the configuration, as for `release`.
        set: parameters of the configuration, by name.
        units: a release with a tree of type unit_rows, or its folder. The plan then compares bounds
            on the rows of a privacy unit; `Plan.max_rows` is the one that adds the least error.

    Returns:
        The plan, which prints as a table.

    Raises:
        Error: in one sentence that says what to fix.
    """
    planned = quiet_import("planned")
    with user_errors():
        if units is None or isinstance(units, (str, os.PathLike)):
            place = None if units is None else os.fspath(units)
        else:
            place = units.place
        made: Plan = planned.Plan(_requested(config, set), place)
        for line in made.warnings:
            warn_caller(line)
    return made


@short_traceback
def load(config: AnyConfig, *, set: Mapping[str, object] | None = None) -> ReleasePlan:
    """Return the plan of a configuration, for `ReleaseTrees` in a Beam pipeline.

    `plan` shows the expected errors of the same plan.

    Args:
        config: the configuration, as for `release`. A pipeline gives the rows, the key and the
            folder to `ReleaseTrees`: ``input``, ``output`` and ``key`` are not read. Give each
            data set its own ``release``.
        set: parameters of the configuration, by name.

    Returns:
        The plan: the trees, their noise and the guarantee.

    Raises:
        Error: in one sentence that says what to fix.
    """
    with user_errors():
        return _requested(config, set).plan()


def _requested(config: AnyConfig, parameters: Mapping[str, object] | None) -> Configuration:
    found: Configuration = quiet_import("config").requested_configuration(config, {}, parameters)
    return found


def key(place: _Path) -> KeyReference:
    """Return a reference to a release key, for `ReleaseTrees` in a Beam pipeline.

    The key is not read here. Each worker reads it from the same place.

    Args:
        place: a path, ``file:PATH``, ``env:NAME``, or a secret of a cloud's secret manager. A
            relative path is made absolute, because a worker can have another working directory.

    Returns:
        The reference. It contains no key.

    >>> key("/etc/release.key").reference, key("env:RELEASE_KEY").reference
    ('file:/etc/release.key', 'env:RELEASE_KEY')
    """
    reference: KeyReference = quiet_import("config").key_anywhere(place)
    return reference


def error_sentence(error: BaseException) -> str | None:
    """Return the sentence of dptrees in an error of a Beam pipeline, however an engine wraps it.

    Args:
        error: the exception of the pipeline.

    Returns:
        The sentence, which says what to fix; None: the error is not of dptrees.

    >>> error_sentence(ValueError("another error"))
    """
    return sentence_in(str(error))


@short_traceback
def check(
    rows: Any,
    config: AnyConfig,
    *,
    set: Mapping[str, object] | None = None,
    most: int | None = None,
) -> RowCheck:
    """Count the rows that a release would count and drop: **exact, not private**, never publish it.

    Nothing is written and no budget is spent.

    Args:
        rows: the data, as for `release`.
        config: the configuration, as for `release`.
        set: parameters of the configuration, by name.
        most: the largest number of rows to read; None: all.

    Returns:
        The number of rows that each tree would count, reasons for the others, and advice.

    Raises:
        Error: in one sentence that says what to fix.
    """
    with user_errors():
        found: RowCheck = quiet_import("planned").row_check(rows, config, set, most)
    return found


@short_traceback
def open(path: _Path, *, window: str | None = None) -> Release:
    """Open a finished release in a folder, or all periods to date in the folder of a series.

    Args:
        path: the folder, on a local disk or any filesystem that Beam supports.
        window: some periods of a series, such as ``"3:10"``.

    Returns:
        The release.

    Raises:
        Error: if there is no release, or its manifest was edited or damaged; what only its plan
            shows is reported by the first query that needs it.
    """
    release = quiet_import("release")
    place = os.fspath(path)
    with user_errors():
        (found,) = _opened(place, window, None)
        made: Release = release.Release(found.folder, path=place)
    return made


@short_traceback
def keygen(path: _Path) -> str:
    """Write a new release key to a new file that only you can read.

    Keep it secret: anyone with access to it can remove the noise of every release made under it.
    Keep it safe: without it, a stopped release cannot be finished, and a damaged one cannot be
    repaired.

    Args:
        path: the file.

    Returns:
        The path.

    Raises:
        Error: if the file exists (a key is never overwritten), or cannot be written.
    """
    from dptrees.pipelines.proof.keygen import write_release_key

    place = os.fspath(path)
    with user_errors():
        write_release_key(place)
    return place
