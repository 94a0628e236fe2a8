"""The metrics of a run of `dptrees release`, once it ends in any way.

Metrics that cannot be reported draw a warning, and change neither the release nor the exit code.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from types import TracebackType

from typing_extensions import Self

from dptrees.pipelines.faults.exit_code import ExitCode
from dptrees.pipelines.faults.log import remark
from dptrees.pipelines.faults.outcome import failure_outcome
from dptrees.pipelines.faults.stopping import stopped_by
from dptrees.pipelines.operations.exposition import check_place, write_metrics
from dptrees.pipelines.operations.run_metrics import CommandRun, run_metrics
from dptrees.pipelines.running.stage import Stage
from dptrees.pipelines.user_error import UserError
from dptrees.transforms.folder import files


@dataclass(kw_only=True)
class Watch:
    """Watch one release of a run, from before its configuration is read until it ends.

    Args:
        config: the path of its configuration.
        metrics_file: where its metrics are written; None: nowhere.
        run: that it is a part of.

    Attributes:
        stage: what is made, once it is planned; and again once it is there.
        made: whether this run made the release; None while there is none.

    Raises:
        UserError: the file cannot be written there.
    """

    config: str = ""
    metrics_file: str | None = None
    run: CommandRun = field(default_factory=CommandRun)
    stage: Stage | None = field(default=None, init=False)
    made: bool | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.metrics_file is not None:
            check_place(self.metrics_file)

    def planned(self, stage: Stage) -> None:
        """The configuration is read, and its release planned.

        Raises:
            UserError: a file of this run would lie in the release.
        """
        if self.metrics_file is not None:
            try:
                check_outside(self.metrics_file, stage.output)
            except UserError:
                self.metrics_file = None  # nor is it written there now
                raise
        self.stage = stage

    def finished(self, stage: Stage, *, made: bool) -> None:
        """The release is there.

        Args:
            stage: of its trees, with the keys that were selected.
            made: by this run.
        """
        self.stage, self.made = stage, made

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        outcome = None if error is None else failure_outcome(error, stopped_by())
        run = self.run
        run.ended = round(time.time(), 3)
        if error is not None:
            run.code = ExitCode.FAULT if outcome is None else outcome.code
        if self.stage is not None:
            run.steps += self.stage.record.steps
        if error is None and self.made is not None:
            run.made, run.completed = (run.made or 0) + self.made, run.ended
        if self.metrics_file is None:
            return
        try:
            metrics = run_metrics(self.config, self.stage, run)
        except Exception:  # of a ledger that went away meanwhile, say
            remark(f"{self.metrics_file}: the metrics of this run cannot be made")
            return
        try:
            write_metrics(self.metrics_file, metrics)
        except Exception:  # of a full disk, say
            remark(f"{self.metrics_file}: the metrics of this run cannot be written")


def check_outside(path: str, output: str) -> None:
    """Refuse a file for an operator in the folder of a release.

    Args:
        path: of the file, on a disk of this machine.
        output: the folder of the release.

    Raises:
        UserError: the file would be published with the release.
    """
    if not files.is_local(output):
        return
    folder = os.path.abspath(output.removeprefix("file://"))
    if os.path.commonpath([folder, os.path.abspath(path)]) == folder:
        raise UserError(f"{path}: lies in the release, which is published; choose another place")
