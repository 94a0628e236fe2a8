"""What was measured, as lines of JSON to which a later run adds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np

from benchmarks.accuracy.cases import Privacy
from benchmarks.accuracy.tasks import TASKS


@dataclass(frozen=True, kw_only=True, order=True)
class Place:
    """Where an error was measured."""

    task: str
    privacy: str
    rows: int
    method: str
    data: str


@dataclass(frozen=True, kw_only=True)
class Error:
    """An error, in rows times epsilon (or the square root of 2 rho) or thousandths of the domain.

    Attributes:
        mean: a root of a mean of squares, or a mean.
        deviation: its Monte Carlo standard error.
        releases: how many were made.
    """

    mean: float
    deviation: float
    releases: int

    @classmethod
    def of(cls, task: str, values: list[float], scale: float) -> Error:
        """Return the error over releases, each with one value as `benchmarks.accuracy.tasks` makes
        it.

        >>> Error.of("ranges", [9.0, 9.0], 2.0)
        Error(mean=6.0, deviation=0.0, releases=2)
        """
        found = np.array(values)
        mean = float(found.mean())
        deviation = float(found.std(ddof=1)) / sqrt(found.size) if found.size > 1 else mean
        if TASKS[task] == "square":
            mean = sqrt(mean)
            deviation = deviation / (2 * mean) if mean else 0.0
        factor = 1.0 if task.endswith("value") else scale
        return cls(mean=mean * factor, deviation=deviation * factor, releases=found.size)


class Records:
    """The lines of a file.

    Args:
        path: of the file; it need not be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, line: Mapping[str, object]) -> None:
        """Adds a line."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _lines(self) -> list[dict[str, object]]:
        if not self._path.exists():
            return []
        with self._path.open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def made(self) -> dict[str, int]:
        """How many releases there are, by what `find_key` calls them."""
        found: dict[str, int] = defaultdict(int)
        for line in self._lines():
            found[str(line["key"])] += int(str(line["releases"]))
        return found

    def errors(self) -> dict[Place, Error]:
        """All errors, over all lines."""
        values: dict[Place, list[float]] = defaultdict(list)
        for line in self._lines():
            for name, by_task in line["errors"].items():  # type: ignore[attr-defined]
                method = f"{line['method']}: {name}" if name else str(line["method"])
                for task, found in by_task.items():
                    at = Place(
                        task=task,
                        privacy=str(line["privacy"]),
                        rows=int(str(line["rows"])),
                        method=method,
                        data=str(line["data"]),
                    )
                    values[at] += found
        return {
            at: Error.of(at.task, found, Privacy.of(at.privacy).scale)
            for at, found in values.items()
        }
