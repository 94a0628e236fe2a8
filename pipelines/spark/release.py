"""The function `dptrees.spark.release`: a release of a Spark DataFrame."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dptrees.pipelines.python.error import quiet_import, short_traceback, user_errors

if TYPE_CHECKING:
    from dptrees.pipelines.python.config import AnyConfig
    from dptrees.pipelines.python.release import Release


_Path = str | os.PathLike[str]


@short_traceback
def release(
    df: Any,
    config: AnyConfig,
    *,
    key: _Path | None = None,
    output: _Path | None = None,
    set: Mapping[str, object] | None = None,
    discard: bool = False,
) -> Release:
    """Make a differentially private release of a Spark DataFrame.

    Spark counts the rows in its executors. The driver gets exact partial counts and draws the
    noise once. For the same rows, key and nonce, the release has the same bytes as the release of
    the command.

    Args:
        df: the DataFrame, of Spark or of Spark Connect.
        config: the configuration, as for `dptrees.release`; without ``input``.
        key: the place of the release key: a path, ``file:PATH`` or ``env:NAME``. Executors load it
            from there if the privacy unit is not the row. None: as for `dptrees.release`.
        output: the folder of the release, which the driver writes. None: the release is in memory;
            `Release.save` writes it.
        set: parameters of the configuration, by name.
        discard: delete the files of a stopped run in `output`, and spend the budget again.

    Returns:
        The release; it may be published.

    Raises:
        Error: in one sentence that says what to fix.
    """
    with user_errors():
        making = quiet_import()
        from dptrees.pipelines.spark.rows import check_frame, counted_by_spark

        check_frame(df)
        call = making.Call(
            config=config,
            key=key,
            output=output,
            parameters=set,
            wanted=making.FolderRequest(discard=discard),
            counted_by=counted_by_spark,
        )
        made: Release = making.release(df, call)
        return made
