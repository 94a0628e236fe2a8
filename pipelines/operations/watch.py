"""The metrics of a run of `dptrees release`, once it ends in any way.

Metrics that cannot be reported draw a warning, and change neither the release nor the exit code.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from typing_extensions import Self

from dptrees.pipelines.faults.exit_code import ExitCode
from dptrees.pipelines.faults.log import remark
from dptrees.pipelines.faults.outcome import Outcome, failure_outcome
from dptrees.pipelines.faults.stopping import stopped_by
from dptrees.pipelines.operations.exposition import check_place, exposition, write_metrics
from dptrees.pipelines.operations.run_metrics import Ended, run_metrics
from dptrees.pipelines.running.stage import Stage
from dptrees.pipelines.user_error import UserError
from dptrees.transforms import files

if TYPE_CHECKING:
    from dptrees.pipelines.operations.push import Pushgateway

_FAULT = "an error in the program, or in its engine"


@dataclass(kw_only=True)
class CommandRun:
    """One run of the command, which makes several releases with `--through`.

    Attributes:
        begun: when it began, in seconds.
        made: how many releases it made; None while it has come to no end of one.
        completed: when it last saw a release finished, in seconds.
        steps: the steps of all its releases that came to their end.
    """

    begun: float = field(default_factory=time.time)
    made: int | None = field(default=None, init=False)
    completed: float | None = field(default=None, init=False)
    steps: list[dict[str, object]] = field(default_factory=list, init=False)


@dataclass(kw_only=True)
class Watch:
    """Watch one release of a run, from before its configuration is read until it ends.

    Args:
        config: the path of its configuration.
        metrics_file: where its metrics are written; None: nowhere.
        gateway: to which its metrics are sent; None: to none.
        run: that it is a part of.

    Attributes:
        stage: what is made, once it is planned; and again once it is there.
        made: whether this run made the release; None while there is none.

    Raises:
        UserError: the file cannot be written there.
    """

    config: str = ""
    metrics_file: str | None = None
    gateway: Pushgateway | None = None
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
        outcome, now, run = run_outcome(error), round(time.time(), 3), self.run
        if self.stage is not None:
            run.steps += self.stage.record.steps
        if outcome.code == ExitCode.DONE and self.made is not None:
            run.made, run.completed = (run.made or 0) + self.made, now
        ended = Ended(
            code=int(outcome.code),
            time=now,
            begun=run.begun,
            completed=run.completed,
            made=run.made,
            steps=tuple(run.steps),
        )
        self._report_metrics(ended)

    def _report_metrics(self, ended: Ended) -> None:
        if self.metrics_file is None and self.gateway is None:
            return
        try:
            metrics = run_metrics(self.config, self.stage, ended)
        except Exception:  # of a ledger that went away meanwhile, say
            place = self.metrics_file or "--push-metrics"
            remark(f"{place}: the metrics of this run cannot be made")
            return
        if self.metrics_file is not None:
            try:
                write_metrics(self.metrics_file, metrics)
            except Exception:  # of a full disk, say
                remark(f"{self.metrics_file}: the metrics of this run cannot be written")
        if self.gateway is not None:
            self._push(self.gateway, exposition(metrics))

    def _push(self, gateway: Pushgateway, text: str) -> None:
        """Send the metrics; a failure is one remark."""
        from dptrees.pipelines.operations.push import PushError  # with a client of HTTP

        release = self.config if self.stage is None else self.stage.planned.name
        reason = ""
        try:
            gateway.push(text, release)
        except PushError as error:
            reason = str(error)
        except Exception:  # of a file of credentials that is gone, say
            reason = "its credentials cannot be read"
        if reason:
            remark(
                f"--push-metrics: the metrics of this run cannot be sent to {gateway.place}: "
                f"{reason}; the release and the exit code of this run stay as they are"
            )


def run_outcome(error: BaseException | None) -> Outcome:
    """How the command will end.

    Args:
        error: with which the run ended; None: it ended well.
    """
    if error is None:
        return Outcome(code=ExitCode.DONE, sentence="")
    outcome = failure_outcome(error, stopped_by())
    return outcome or Outcome(code=ExitCode.FAULT, sentence=_FAULT)


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
