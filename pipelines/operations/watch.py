"""Who watches a run of `dptrees release`: its metrics, and its lineage, once it ends in any way.

What cannot be told is remarked, and changes neither the release nor the exit code.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from types import TracebackType

from typing_extensions import Self

from pipelines.faults.exit_code import ExitCode
from pipelines.faults.log import remark
from pipelines.faults.outcome import Outcome, outcome_of
from pipelines.faults.stopping import stopped_by
from pipelines.operations.exposition import check_metrics_file, write_metrics
from pipelines.operations.run_metrics import Ended, run_metrics
from pipelines.running.stage import Stage
from pipelines.user_error import UserError
from transforms import files

_FAULT = "a fault of the program, or of its engine"


@dataclass(kw_only=True)
class Watch:
    """Watches one run, from before its configuration is read until it ends.

    Args:
        metrics_file: where its metrics are written; None: nowhere.

    Attributes:
        stage: what is made, once it is planned; and again once it is there.
        made: whether this run made the release; None while there is none.

    Raises:
        UserError: a file cannot be written there.
    """

    metrics_file: str | None = None
    stage: Stage | None = field(default=None, init=False)
    made: bool | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.metrics_file is not None:
            check_metrics_file(self.metrics_file)

    def planned(self, stage: Stage) -> None:
        """The configuration is read, and its release planned.

        Raises:
            UserError: a file of this run would lie in the release.
        """
        if self.metrics_file is not None and _lies_in(self.metrics_file, stage.output):
            path, self.metrics_file = self.metrics_file, None  # nor is it written there now
            raise UserError(
                f"{path}: lies in the release, which is published; choose another place"
            )
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
        outcome = _outcome(error)
        ended = Ended(code=int(outcome.code), time=round(time.time(), 3), made=self.made)
        self._tell_metrics(ended)

    def _tell_metrics(self, ended: Ended) -> None:
        if self.metrics_file is None:
            return
        try:
            write_metrics(self.metrics_file, run_metrics(self.stage, ended))
        except Exception:  # of a ledger that went away meanwhile, say
            remark(f"{self.metrics_file}: the metrics of this run cannot be written")


def _outcome(error: BaseException | None) -> Outcome:
    """How the command will end."""
    if error is None:
        return Outcome(code=ExitCode.DONE, sentence="")
    found = outcome_of(error, stopped_by())
    return found or Outcome(code=ExitCode.FAULT, sentence=_FAULT)


def _lies_in(path: str, output: str) -> bool:
    if not files.is_local(output):
        return False
    folder = os.path.abspath(output.removeprefix("file://"))
    return os.path.commonpath([folder, os.path.abspath(path)]) == folder
