"""Logs are silent while a release runs, and as before once no thread releases any more."""

from __future__ import annotations

import logging
import re
from contextlib import ExitStack

import pytest

from dptrees.pipelines.process import quiet_logs
from tests.pipelines.conftest import PROJECT

# What a process has once: a thread that sets one of these and restores it later restores what
# another thread set meanwhile.
OF_THE_PROCESS = re.compile(r"\b(logging\.disable|redirect_std\w+|os\.chdir|os\.umask)\(")


@pytest.mark.parametrize("first", [0, 1])
def test_overlapping_blocks_restore_what_was_before(first: int) -> None:
    before = logging.root.manager.disable
    blocks = [ExitStack(), ExitStack()]
    for block, level in zip(blocks, (logging.WARNING, logging.CRITICAL), strict=True):
        block.enter_context(quiet_logs(level))
    assert logging.root.manager.disable == logging.CRITICAL
    blocks[first].close()
    assert logging.root.manager.disable == (logging.CRITICAL, logging.WARNING)[first]
    blocks[1 - first].close()
    assert logging.root.manager.disable == before


def test_nothing_else_changes_what_a_process_has_once() -> None:
    found = {
        f"{path.relative_to(PROJECT)}: {match[1]}"
        for package in ("dpcore", "transforms", "pipelines")
        for path in (PROJECT / package).rglob("*.py")
        for match in OF_THE_PROCESS.finditer(path.read_text("utf-8"))
        if path.name != "process.py"
    }
    assert not found
