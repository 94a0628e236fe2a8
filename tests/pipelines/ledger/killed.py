"""Releases that are killed at a step: python -m tests.pipelines.ledger.killed CASES

CASES is a JSON list of {"configuration", "step", "options"}. Each runs in a fork of this process,
which has imported all before; a function of the step kills it before it begins or when it is done,
with no chance to clean up. Each prints a line of JSON: the step, and how it ended.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from dptrees.pipelines.cli.command import main as dptrees
from dptrees.pipelines.config.configuration import load_configuration

# What is patched, and whether it kills before it runs or after; in the order of a release.
STEPS = {
    "before the reservation": ("dptrees.pipelines.ledger.ledger:Ledger.reserve", "before"),
    "within the reservation": ("dptrees.pipelines.ledger.ledger:add_entry", "after"),
    "after the reservation": ("dptrees.pipelines.ledger.ledger:Ledger.reserve", "after"),
    "after the discarding": ("dptrees.pipelines.run.output:discard", "after"),
    "after the nonce": ("dptrees.transforms.release:folder_nonce", "after"),
    "before the ledger's record": ("dptrees.pipelines.ledger.ledger:Ledger.record", "before"),
    "within the ledger's record": ("dptrees.pipelines.ledger.ledger:change_entry", "after"),
    "after the ledger's record": ("dptrees.pipelines.ledger.ledger:Ledger.record", "after"),
    "after the folder's record": ("dptrees.transforms.steps.record:check_record", "after"),
    "after the first part": ("dptrees.transforms.steps.draw:write_part", "after"),
    "before the manifest": ("dptrees.transforms.steps.record:manifest_text", "before"),
    "after the manifest": ("dptrees.transforms.steps.record:_Commit._commit", "after"),
    "before the commit": ("dptrees.pipelines.ledger.ledger:Ledger.commit", "before"),
    "after the commit": ("dptrees.pipelines.ledger.ledger:Ledger.commit", "after"),
}
# Of a release that discards; no other comes there.
DISCARDING = "after the discarding"
# Steps at which the ledger knows nothing of the release yet.
UNKNOWN = ("before the reservation", "within the reservation")
# What a release imports late.
IMPORTED = (
    *("dptrees.pipelines.run.releasing", "dptrees.pipelines.ledger.booking"),
    "apache_beam.runners.portability.fn_api_runner",
)


def main(cases: list[dict[str, Any]]) -> None:
    for name in {*IMPORTED, *(place.partition(":")[0] for place, _ in STEPS.values())}:
        importlib.import_module(name)
    # What planning keeps in memory serves all forks.
    load_configuration(cases[0]["configuration"]).plan()
    for case in cases:
        child = os.fork()
        if not child:
            run(case)
        status = os.waitpid(child, 0)[1]
        sys.stdout.write(json.dumps({"step": case["step"], "status": status}) + "\n")


def run(case: dict[str, Any]) -> None:
    """Makes a release that is killed at its step; ends this process."""
    place, when = STEPS[case["step"]]
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *owners, name = path.split(".")
    for each in owners:
        owner = getattr(owner, each)
    setattr(owner, name, killing(getattr(owner, name), when))
    sys.stdout = io.StringIO()
    os._exit(dptrees(["release", case["configuration"], *case["options"]]) + 1)


def killing(function: Callable[..., Any], when: str) -> Callable[..., Any]:
    """A function that kills this process before it begins, or when it is done."""

    def killed(*arguments: Any, **named: Any) -> Any:
        if when == "after":
            function(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    return killed


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
