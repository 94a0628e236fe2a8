"""How a plan divides the budget between the levels of a tree, before any row is read."""

from __future__ import annotations

from itertools import pairwise

import dptrees
from tests.docs.diagrams.canvas import PICTURES, Canvas

PAGE = PICTURES / "plan.svg"
CONFIG = {
    "release": "diagram",
    "privacy": {"epsilon": 1, "neighbors": "add_remove"},
    "trees": [
        {
            "name": "age",
            "optimize_for": "estimates",
            "objective": "cdf",
            "domain": {"column": "age", "lower": 0, "upper": 1024, "cells": 1024},
        }
    ],
}


def drawing() -> str:
    """Return the diagram, with figures from the planner."""
    (entry,) = dptrees.plan(CONFIG).entries["trees"]
    error, flat = entry["predicted"]["cdf_rmse"], _candidate(entry, "histogram")
    canvas = Canvas(800, 330, "A plan: from the configuration to levels, budgets and errors.")
    canvas.text(30, 34, "A plan is made before any row is read", "strong", "start")
    canvas.label(30, 62, 170, 190, "", "box")
    canvas.lines(
        46,
        90,
        "Configuration\n(public)\n\n1,024 cells of age\nepsilon = 1\nobjective: CDF\n"
        "neighbors:\n  add_remove",
        "",
        "start",
    )
    canvas.arrow(200, 157, 248, 157)
    canvas.text(256, 84, "Levels, and the budget of each", "", "start")
    counts = [1]
    for fanout in entry["fanouts"]:
        counts.append(min(counts[-1] * fanout, 1024))
    widest = max(level["epsilon"] for level in entry["levels"])
    for number, (level, nodes) in enumerate(zip(entry["levels"], counts, strict=True)):
        y = 104 + 38 * number
        canvas.text(330, y + 18, f"{nodes:,} node{'s' * (nodes > 1)}", "soft", "end")
        share = level["epsilon"]
        if share:
            canvas.box(342, y, 120 * share / widest, 26, "bar", 2)
            canvas.text(342 + 120 * share / widest + 8, y + 18, f"{share:.2f}", "", "start")
        else:
            canvas.text(342, y + 18, "0: the level below adds up", "soft", "start")
    canvas.arrow(530, 157, 578, 157)
    canvas.label(586, 62, 184, 190, "", "chosen")
    canvas.lines(
        602,
        90,
        "Predicted error\nof a CDF point\n\n"
        f"this plan: {error:.1f} rows\n1,024 cells alone:\n{flat:.1f} rows",
        "",
        "start",
    )
    assert all(first < second for first, second in pairwise(counts))
    canvas.lines(
        30,
        286,
        "The planner tries many shapes of the tree and chooses the one with the smallest "
        "predicted error.\n"
        "The levels of every path from the root to a leaf spend epsilon = 1 together.",
        "soft",
        "start",
    )
    return canvas.drawing()


def _candidate(entry: dict[str, object], label: str) -> float:
    candidates = entry["candidates"]
    assert isinstance(candidates, list)
    errors = [each["predicted"]["cdf_rmse"] for each in candidates if each["label"] == label]
    return float(errors[0])
