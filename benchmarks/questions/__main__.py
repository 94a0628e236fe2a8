"""Common questions to a table, by this project and by other packages, in one table.

Run as ``python -m benchmarks.questions [--releases 20] [--python build/peers/bin/python]`` after
``make peers``. Each package answers in a process of its own, epsilon 1 for each question by itself;
what protects is a row. Lines are the body of the function that a user writes, and the lines of a
function that all questions of the package share. Seconds are the median of one answer, after
the first; the error is the root mean square over answers and releases.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.questions.table import make_table, true_answers

PROJECT = Path(__file__).resolve().parents[2]
PEERS = PROJECT / "build" / "peers" / "bin" / "python"
PACKAGES = {
    "dptrees": "dptrees",
    "OpenDP": "opendp",
    "PipelineDP": "pipelinedp",
    "diffprivlib": "diffprivlib",
}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--python", type=Path, default=PEERS, help="that has the other packages")
    given = parser.parse_args()
    found = {
        name: _answered(sys.executable if module == "dptrees" else str(given.python), module, given)
        for name, module in PACKAGES.items()
    }
    width = 28
    print(f"{'':<{width}}" + "".join(f"{name:>23}" for name in PACKAGES))
    for label, cell in (
        ("import and first answer, s", _import_text),
        ("intervals", _interval_text),
    ):
        print(f"{label:<{width}}" + "".join(f"{cell(found[name]):>23}" for name in PACKAGES))
    print(f"{'lines, seconds, error of':<{width}}")
    for question in true_answers(make_table()):
        cells = (_question_text(found[name], question) for name in PACKAGES)
        print(f"{question:<{width}}" + "".join(f"{cell:>23}" for cell in cells))
    for name, each in found.items():
        for line in _failures(each):
            print(f"{name}: {line}")
    return 0


def _answered(python: str, module: str, given: argparse.Namespace) -> dict[str, Any]:
    run = subprocess.run(
        [python, "-m", "benchmarks.questions.answering", module, str(given.releases)],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        check=False,
    )
    if run.returncode:
        return {"failed": run.stderr.strip().splitlines()[-1][:100]}
    answered: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answered


def _import_text(found: Mapping[str, Any]) -> str:
    return f"{found['import']:.1f}" if "import" in found else "failed"


def _interval_text(found: Mapping[str, Any]) -> str:
    return "failed" if "failed" in found else "of each" if found["intervals"] else "none"


def _question_text(found: Mapping[str, Any], question: str) -> str:
    if "failed" in found:
        return "failed"
    each = found["questions"].get(question)
    if each is None:
        return "-"
    if "failed" in each:
        return "failed"
    shared = f"+{each['shared']}" if each["shared"] else ""
    return f"{each['lines']}{shared}, {each['seconds']:.2g}, {each['rmse']:.3g}"


def _failures(found: Mapping[str, Any]) -> list[str]:
    """Why the package, or its answer to a question, failed."""
    if "failed" in found:
        return [str(found["failed"])]
    questions = found["questions"].items()
    return [f"{name}: {each['failed']}" for name, each in questions if "failed" in each]


if __name__ == "__main__":
    sys.exit(main())
