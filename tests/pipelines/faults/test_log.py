"""The id of a run in every event."""

from __future__ import annotations

import json

import pytest

from dptrees.pipelines.monitoring import RUN_ID, run_id
from tests.pipelines.conftest import Workspace


def run_ids(text: str) -> set[str]:
    return {json.loads(line)["run"] for line in text.splitlines()}


def test_every_event_bears_the_id_of_its_run(
    again: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = again.release(None, "--log-format=json", "--run-id=manual__2026-11-21")
    assert run_ids(given.err) == {"manual__2026-11-21"}
    (first,) = run_ids(again.release(None, "--log-format=json").err)
    (second,) = run_ids(again.release(None, "--log-format=json").err)
    assert first != second
    monkeypatch.setenv(RUN_ID, "of-the-scheduler")
    assert run_ids(again.release(None, "--log-format=json").err) == {"of-the-scheduler"}


def test_what_is_no_id(workspace: Workspace) -> None:
    for text in ("two words", "line\nbreak", "é", "x" * 201):
        with pytest.raises(ValueError, match="must be one word"):
            run_id(text)
        outcome = workspace.release(None, f"--run-id={text}")
        assert outcome.code == 2 and "must be one word" in outcome.err
