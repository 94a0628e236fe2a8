"""A program of this folder in a process of its own, since it forks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.pipelines.conftest import PROJECT, search_path


def reported(program: str, *arguments: str) -> list[Any]:
    """The lines of JSON that a program of this folder prints."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.pipelines.ledger.{program}", *arguments],
        env=os.environ | {"PYTHONPATH": search_path()},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
