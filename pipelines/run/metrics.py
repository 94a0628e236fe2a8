"""Metrics of a run of `dptrees release`: its plan, its end, its budget, and how long steps took.

No count and no size of the input is among them. All but the exit code and the times follow from
the configuration and the released keys. Metrics that cannot be written draw a warning, and
change neither the release nor the exit code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType

from typing_extensions import Self

from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.monitoring import (
    Metric,
    Sample,
    check_place,
    failure_outcome,
    remark,
    write_metrics,
)
from dptrees.pipelines.process import ExitCode, UserError, stopped_by
from dptrees.pipelines.report.planning import totals_entry
from dptrees.pipelines.run.output import versions
from dptrees.pipelines.run.stage import Stage
from dptrees.transforms.folder import files
from dptrees.transforms.folder.layout import planned_parts

# Whose versions shape bytes or speed; labels may hold no dash.
_TOLD = ("dptrees", "python", "apache-beam", "pyarrow")


@dataclass(kw_only=True)
class CommandRun:
    """One run of the command, which makes several releases with `--through`.

    Attributes:
        begun: when it began, in seconds.
        code: its exit code.
        ended: when its last release ended in any way, in seconds.
        made: how many releases it made; None: it saw none.
        completed: when it last saw a release finished, in seconds; None: it saw none.
        steps: name and seconds of each step that came to its end.
    """

    begun: float = field(default_factory=time.time)
    code: ExitCode = field(default=ExitCode.DONE, init=False)
    ended: float = field(default=0.0, init=False)
    made: int | None = field(default=None, init=False)
    completed: float | None = field(default=None, init=False)
    steps: list[dict[str, object]] = field(default_factory=list, init=False)

    @property
    def is_there(self) -> bool:
        """Whether the last release is there: a job that is only described ends well without it."""
        return self.code == ExitCode.DONE and self.made is not None


def run_metrics(config: str, stage: Stage | None, run: CommandRun) -> list[Metric]:
    """The metrics of a run.

    Args:
        config: the path of its configuration, by which it is called until its release has a name.
        stage: as far as the run came to know it; None where the configuration was refused.
        run: of the command, which has ended.
    """
    release = {"release": config if stage is None else stage.planned.name}
    result = list(_end_metrics(release, run))
    if stage is not None:
        result += [*_run_metrics(release, stage, run), *_plan_metrics(release, stage, run)]
    if stage is not None and stage.booking and run.is_there:
        # Of a ledger alone, and slow to import.
        from dptrees.pipelines.ledger.commands import account_metrics

        result += account_metrics([stage.booking.account], release)
    return result


def _end_metrics(release: Mapping[str, str], run: CommandRun) -> Iterator[Metric]:
    yield _one("run_exit_code", "Exit code of the last run.", release, int(run.code))
    yield _one("run_ended_timestamp_seconds", "When the last run ended.", release, run.ended)
    if run.completed is not None and run.made is not None:
        yield _one(
            "run_completed_timestamp_seconds",
            "When a run last made a release, or found it finished.",
            release,
            run.completed,
        )
        yield _one("run_made", "Number of releases that the last run made.", release, run.made)


def _run_metrics(release: Mapping[str, str], stage: Stage, run: CommandRun) -> Iterator[Metric]:
    seconds = max(0.0, round(run.ended - run.begun, 3))
    yield _one("run_seconds", "Duration of the last run.", release, seconds)
    steps: dict[str, float] = {}
    for step in run.steps:  # of private keys and of several periods each comes again
        name = str(step["name"])
        steps[name] = steps.get(name, 0.0) + float(str(step["seconds"]))
    yield Metric(
        name="run_step_seconds",
        text="Duration of each finished step of the last run.",
        samples=[({**release, "step": name}, round(spent, 3)) for name, spent in steps.items()],
    )
    found = versions()
    numbers = {name.replace("-", "_"): found[name] for name in _TOLD if name in found}
    about = {**release, "runner": stage.record.runner.split(".")[-1], **numbers}
    yield _one("run_info", "Runner and versions, in labels.", about, 1)


def _plan_metrics(release: Mapping[str, str], stage: Stage, run: CommandRun) -> Iterator[Metric]:
    plan = stage.planned
    yield _one("release_trees", "Trees of the release.", release, len(plan.questions))
    budget: list[Sample] = [
        ({**release, "amount": name}, amount) for name, amount in _budget(plan).items()
    ]
    yield Metric(name="release_budget", text="Budget that it states.", samples=budget)
    if plan.run is not None:
        yield _one("release_period", "Which run of the series this is.", release, plan.run.period)
        yield _one("release_periods", "Runs of the series.", release, plan.run.periods)
    # Until private keys are selected, the plan has placeholders for them.
    if plan.selection is None or run.is_there:
        parts = sum(1 for _ in planned_parts(plan))
        yield _one("release_parts", "Planned number of files of tables.", release, parts)
    trees = totals_entry(stage.configuration, plan)["trees"]
    yield Metric(
        name="tree_predicted_error",
        text="Planned standard error of the objective of a tree.",
        samples=[
            ({**release, "tree": each["name"], "unit": each["unit"]}, each["error"])
            for each in trees
            if each["error"] is not None
        ],
    )


def _budget(plan: ReleasePlan) -> dict[str, float]:
    """The budget that a release states, by the names of its amounts."""
    if plan.promised is not None:
        epsilon, delta = plan.promised
        return {Measure.EPSILON.value: float(epsilon), "delta": float(delta)}
    return {plan.whole_budget.measure.value: float(plan.whole_budget.amount)}


def _one(name: str, text: str, labels: Mapping[str, str], value: float) -> Metric:
    return Metric(name=name, text=text, samples=[(labels, value)])


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
