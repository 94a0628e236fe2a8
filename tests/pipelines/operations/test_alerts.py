"""The rules of alerts: Prometheus reads them, they fire when they should, and page and rules agree.

`promtool` comes with Prometheus (`make promtool`); where DPTREES_REQUIRE_PROMTOOL is set, its
absence fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[3]
RULES = PROJECT / "deploy" / "prometheus" / "dptrees.yaml"
PAGE = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
PROMTOOL = PROJECT / "build" / "prometheus" / "usr" / "bin" / "promtool"
ALERTS = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]


@pytest.fixture
def promtool() -> str:
    found = str(PROMTOOL) if PROMTOOL.exists() else shutil.which("promtool")
    if found is None:
        assert os.environ.get("DPTREES_REQUIRE_PROMTOOL") != "1", "there is no promtool"
        pytest.skip("no promtool here: make promtool")
    return found


def checked(promtool: str, *arguments: object, text: str | None = None) -> None:
    """Runs promtool, which must be content."""
    done = subprocess.run(
        [promtool, *map(str, arguments)], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_names_the_alerts() -> None:
    assert re.findall(r"^\| `(Dptrees\w+)`", PAGE, re.M) == [rule["alert"] for rule in ALERTS]


def test_their_metrics_are_those_that_are_written() -> None:
    written = set(re.findall(r"^# TYPE (\w+) gauge", PAGE, re.M))
    # There is none of it where all releases are finished, as on the page.
    written.add("dptrees_ledger_oldest_reserved_timestamp_seconds")
    queried = {name for rule in ALERTS for name in re.findall(r"\bdptrees_\w+", rule["expr"])}
    assert queried <= written


def test_prometheus_reads_them(promtool: str) -> None:
    checked(promtool, "check", "rules", RULES)


def test_prometheus_finds_no_fault_with_the_names(promtool: str) -> None:
    printed = re.findall(r"^```text\n(# HELP .*?)\n*^```", PAGE, re.M | re.S)
    assert len(printed) == 2
    for text in printed:
        checked(promtool, "check", "metrics", text=f"{text}\n")


def series(name: str, labels: str, values: str) -> dict[str, str]:
    """Samples of a metric, one a minute from the beginning of time."""
    return {"series": f"{name}{{{labels}}}", "values": values}


# Day 0 completes at minute 10; then runs fail, until the last one makes no progress.
DAILY = 'release="daily"'
SAMPLES = [
    series("dptrees_run_completed_timestamp_seconds", DAILY, "_x9 600x100 _x3000"),
    series("dptrees_run_exit_code", DAILY, "_x9 0x100 75x3000"),
    series("dptrees_run_exit_code", 'release="other"', "0x10 2x3100"),
    series("dptrees_ledger_oldest_reserved_timestamp_seconds", 'dataset="d"', "600x3110"),
    series("dptrees_ledger_budget", 'dataset="d",amount="epsilon"', "10x3110"),
    series("dptrees_ledger_left", 'dataset="d",amount="epsilon"', "5x100 0.5x3010"),
    series("dptrees_ledger_spent_by_series", 'dataset="d",amount="epsilon"', "1x3110"),
    # A series that has spent its data set's whole total.
    series("dptrees_ledger_budget", 'dataset="daily",amount="epsilon"', "2x3110"),
    series("dptrees_ledger_left", 'dataset="daily",amount="epsilon"', "0x3110"),
    series("dptrees_ledger_spent_by_series", 'dataset="daily",amount="epsilon"', "2x3110"),
    series("node_textfile_mtime_seconds", 'file="/m/dptrees-d.prom"', "600x3110"),
]
FIRED = {
    "DptreesReleaseMissing": (20 * 60, 27 * 60),
    "DptreesReleaseRefused": (5, 20),
    "DptreesReleaseFailing": (100, 200),
    "DptreesReleaseUnfinished": (60, 7 * 60),
    "DptreesBudgetLow": (60, 200),
    "DptreesMetricsStale": (24 * 60, 51 * 60),
}


def test_they_fire_when_they_should(promtool: str, tmp_path: Path) -> None:
    checks: list[dict[str, Any]] = []
    for rule in ALERTS:
        name = rule["alert"]
        query = f"count(ALERTS{{alertname='{name}',alertstate='firing'}})"
        for minute, number in zip(FIRED[name], ([], [{"labels": "{}", "value": 1}]), strict=True):
            checks.append({"expr": query, "eval_time": f"{minute}m", "exp_samples": number})
    tried = {"interval": "1m", "input_series": SAMPLES, "promql_expr_test": checks}
    test = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [tried]}
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(test))
    checked(promtool, "test", "rules", file)
