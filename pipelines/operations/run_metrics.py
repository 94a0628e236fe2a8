"""Metrics of a run of `dptrees release`: its plan, its end, its budget, and how long steps took.

No count and no size of the input is among them. All but the exit code and the times follow from the
configuration, and from the keys that the release itself holds; the exit code and the times are the
operator's (docs/guarantee.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.accounting.totals import totals_entry
from dptrees.pipelines.faults.exit_code import ExitCode
from dptrees.pipelines.operations.exposition import Metric, Sample
from dptrees.pipelines.running.run_record import versions
from dptrees.pipelines.running.stage import Stage
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
        from dptrees.pipelines.operations.ledger_metrics import account_metrics

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
