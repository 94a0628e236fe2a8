"""A release that one processor began is finished and recognised on every other one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.processors.emulated import PROCESSORS, run_module
from tests.processors.finishing import KILLED, OUTPUT, write_place
from tests.processors.test_releases import files

MODULE = "tests.processors.finishing"
OTHERS = tuple(each for each in ("skylake", "prescott", "nehalem") if each in PROCESSORS)


def steps(processor: str, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Run steps in a process on an emulated processor; return its exit code and the outcomes."""
    done = run_module(processor, MODULE, *arguments)
    assert done.returncode in (0, KILLED), done.stderr[-3000:]
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_finished_and_recognised_on_every_other(tmp_path: Path) -> None:
    """Killed and made on this machine as it is: every other one finishes the one, finds the other
    finished, and the last one makes it again from its rows to verify it."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    write_place(whole)
    shutil.copytree(whole, killed)
    code, outcomes = steps("native", f"make={whole}", f"kill={killed}")
    assert code == KILLED and [each["code"] for each in outcomes] == [0], outcomes
    assert (killed / OUTPUT / "record.json").exists()
    assert not (killed / OUTPUT / "manifest.json").exists()
    expected = files(whole / OUTPUT)
    for processor in OTHERS:
        left = tmp_path / processor
        shutil.copytree(killed, left)
        last = [f"verify={whole}"] if processor == OTHERS[-1] else []
        code, outcomes = steps(processor, f"finish={left}", f"recognise={whole}", *last)
        assert code == 0 and all(each["code"] == 0 for each in outcomes), (processor, outcomes)
        assert "no row was read" in outcomes[1]["out"]
        assert files(left / OUTPUT) == expected, f"finished on {processor}"
        assert files(whole / OUTPUT) == expected
