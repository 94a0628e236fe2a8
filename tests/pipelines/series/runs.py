"""A workspace of the runs of a series, each with rows of its own, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.pipelines.conftest import Outcome, Workspace


class Runs(Workspace):
    """A workspace whose configuration has a section `series`."""

    def write_period(self, period: int) -> Any:
        """The rows of a period in place of those that are there."""
        raise NotImplementedError

    def configured(self, period: int, **series: object) -> str:
        """The configuration of a period."""

        def change(settings: dict[str, Any]) -> None:
            settings["series"] |= {"period": period} | series

        return self.configure(change)

    def period(self, period: int, *options: str, **series: object) -> Outcome:
        """Run `dptrees release` for a period."""
        return self.run("release", self.configured(period, **series), *options)

    def period_folder(self, period: int) -> Path:
        return self.output / f"period-{period:04d}"

    def released_periods(self, last: int) -> None:
        """Write and release the first periods."""
        for period in range(1, last + 1):
            self.write_period(period)
            outcome = self.period(period)
            assert outcome.code == 0, outcome.err

    def snapshot(self, period: int) -> dict[str, bytes]:
        """All files of a run."""
        folder = self.period_folder(period)
        found = sorted(path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def refused(outcome: Outcome, *words: str) -> None:
    """Check that a command was refused in a sentence with some words."""
    assert outcome.code != 0 and "Traceback" not in outcome.err
    for word in words:
        assert word in outcome.err, outcome.err


# What an engine may do to what a step yields.
Step = Callable[[Any], Any]


def lost(step: Step, element: Any) -> list[Any]:
    list(step(element))
    return []


def without_its_balance(step: Step, element: Any) -> list[Any]:
    return list(step(element))[:1]


def balance_alone(step: Step, element: Any) -> list[Any]:
    return list(step(element))[1:]


def repeated(step: Step, element: Any) -> list[Any]:
    found = list(step(element))
    return found[:1] + found
