"""Released packages, as lines of the tables, through a Python that has them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.accuracy.cases import ANY_TREE, Absent, Answers, Case, Method, Tree

_PROGRAM = Path(__file__).with_name("package_releases.py")
PYTHON = Path(__file__).resolve().parents[2] / "build" / "peers" / "bin" / "python"
# More rows than this take some of them minutes a release.
MOST_ROWS = {"OpenDP, quantiles": 100_000, "PyDP, percentiles": 100_000}
_SEPARATE = (1, 3, 9)
_HISTOGRAMS = ("OpenDP, histogram", "PipelineDP, counts")


class Packages:
    """A process of the other Python, started at its first request.

    Args:
        python: its path.
    """

    def __init__(self, python: Path) -> None:
        self._python = python
        self._process: subprocess.Popen[str] | None = None

    def run(self, name: str, case: Case, numbers: Sequence[int]) -> list[Mapping[str, Answers]]:
        """Releases by a method of the other program.

        Raises:
            Absent: the other Python is not there, or the package has nothing for the budget.
        """
        if case.rows > MOST_ROWS.get(name, case.rows):
            raise Absent(f"is not run on more than {MOST_ROWS[name]} rows, which take too long")
        with TemporaryDirectory() as folder:
            counts, answers = Path(folder, "counts.npy"), Path(folder, "answers.npz")
            np.save(counts, case.counts)
            request = {
                "method": name,
                "counts": str(counts),
                "answers": str(answers),
                "measure": case.privacy.measure,
                "amount": case.privacy.value,
                "quantiles": [float(each) for each in case.quantiles],
                "releases": len(numbers),
            }
            self._send(request)
            with np.load(answers) as found:
                return [_answers(case, found, place) for place in range(len(numbers))]

    def _send(self, request: Mapping[str, Any]) -> None:
        if not self._python.exists():
            raise Absent(f"there is no {self._python}: make peers")
        if self._process is None:
            self._process = subprocess.Popen(
                [str(self._python), str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{_PROGRAM.name} ended at {request['method']}")
        if "absent" in (reply := json.loads(line)):
            raise Absent(reply["absent"])


def _answers(case: Case, found: Mapping[str, Any], place: int) -> Mapping[str, Answers]:
    prefixes = found["prefixes"][place] if "prefixes" in found else None
    quantiles: dict[Any, int] = {}
    if "quantiles" in found:
        cells = np.floor(found["quantiles"][place]).clip(0, case.counts.size - 1).astype(int)
        quantiles = dict(zip(case.quantiles, cells.tolist(), strict=True))
    return {"": Answers(prefixes=prefixes, quantiles=quantiles)}


def package_methods(python: Path) -> tuple[Method, ...]:
    """The methods of all packages, in one process."""
    packages = Packages(python)
    quantile_counts = {
        "OpenDP, histogram": (0,),
        "OpenDP, tree": (0,),
        "OpenDP, quantiles": _SEPARATE,
        "PipelineDP, counts": (0,),
        "PipelineDP, quantiles": (0,),
        "PyDP, percentiles": _SEPARATE,
    }
    return tuple(
        Method(
            name=name,
            run=partial(packages.run, name),
            quantile_counts=numbers,
            trees=ANY_TREE if name in _HISTOGRAMS else frozenset({Tree.ORDERED}),
        )
        for name, numbers in quantile_counts.items()
    )
