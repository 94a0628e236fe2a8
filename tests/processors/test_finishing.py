"""A release that one processor began is finished and recognized on another one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.processors.emulated import run_module
from tests.processors.finishing import KILLED, OUTPUT, write_place
from tests.processors.test_releases import files

MODULE = "tests.processors.finishing"
# All instructions that can be passed over are passed over; test_releases has the same plans on the
# others.
OTHER = "nehalem"


def steps(processor: str, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Run steps in a process on an emulated processor; return its exit code and the outcomes."""
    done = run_module(processor, MODULE, *arguments)
    assert done.returncode in (0, KILLED), done.stderr[-3000:]
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_finished_and_recognised_on_another(tmp_path: Path) -> None:
    """Killed and made on this machine as it is: another one finishes the one, finds the other
    finished, and makes it again from its rows to verify it."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    write_place(whole)
    shutil.copytree(whole, killed)
    code, outcomes = steps("native", f"make={whole}", f"kill={killed}")
    assert code == KILLED and [each["code"] for each in outcomes] == [0], outcomes
    assert (killed / OUTPUT / "record.json").exists()
    assert not (killed / OUTPUT / "manifest.json").exists()
    expected = files(whole / OUTPUT)
    code, outcomes = steps(OTHER, f"finish={killed}", f"recognise={whole}", f"verify={whole}")
    assert code == 0 and [each["code"] for each in outcomes] == [0, 0, 0], outcomes
    assert "no rows were read" in outcomes[1]["out"]
    assert files(killed / OUTPUT) == files(whole / OUTPUT) == expected
