"""Configurations that the golden ones lack: mechanisms that are chosen by the planner, other
budgets, groups of mechanisms, and larger domains."""

from __future__ import annotations

from pathlib import Path

from tests.golden.configurations import BY, CITIES, CODES, DAYS, FINE, MINUTES, NUMBERS, RELATIVE

EPSILON, RHO, DELTA = "epsilon: 1.0", "rho: 0.1", "epsilon: 1.0, delta: 1.0e-6"
# By name: the budget and the trees without their names; the rows come from the golden releases.
TREES: dict[str, tuple[str, ...]] = {
    # What a user writes who chooses nothing.
    **{
        f"planned-{name}": (
            budget,
            f"domain: {NUMBERS}",
            f"domain: {NUMBERS}, {BY}, objective: quantiles, quantiles: [0.1, 0.5, 0.9]",
            f"domain: {DAYS}",
            f"domain: {MINUTES}, mechanism: adaptive",
        )
        for name, budget in (("epsilon", EPSILON), ("rho", RHO), ("delta", DELTA))
    },
    **{
        f"for-counts-{name}": (
            budget,
            f"domain: {NUMBERS}, optimize_for: counts, guess: {{rows: 20000}}",
            f"domain: {MINUTES}, optimize_for: counts, guess: {{rows: 2000}}, objective: ranges",
        )
        for name, budget in (("rho", RHO), ("delta", DELTA))
    },
    # Plans that take seconds on larger domains.
    "for-counts-short": (
        RHO,
        "domain: {column: minutes, type: integer, lower: 0, upper: 40}, optimize_for: counts, "
        "guess: {rows: 2000}",
    ),
    "relative-short": (
        EPSILON,
        f"domain: {CITIES}, {RELATIVE}, alpha: 0.9",
    ),
    "box-chosen": (
        EPSILON,
        "domain: {kind: hypercube, columns: [{column: delay, lower: -20, upper: 200, cells: 256}, "
        "{column: minutes, type: integer, lower: 0, upper: 300}]}",
        "domain: {kind: hypercube, columns: [{column: delay, lower: -20, upper: 200, cells: 64}, "
        "{column: carrier, categories: [UA, AA, DL, B6]}]}, mechanism: adaptive",
    ),
    "factorised-delta": (
        DELTA,
        f"domain: {NUMBERS}, mechanism: factorised, objective: ranges",
        f"domain: {MINUTES}, mechanism: factorised, quantiles: [0.5]",
    ),
    "factorised-fine": (
        RHO,
        f"domain: {FINE}, mechanism: factorised",
    ),
    "adaptive-hierarchy-delta": (
        DELTA,
        f"domain: {CODES}, mechanism: adaptive",
        f"domain: {CITIES}, mechanism: adaptive, {BY}",
    ),
}


def write_configuration(folder: Path, name: str) -> Path:
    """Write a configuration whose paths start at its folder; return its path."""
    budget, *trees = TREES[name]
    lines = (f"  - {{name: t{index}, {tree}}}" for index, tree in enumerate(trees))
    path = folder / f"extra-{name}.yaml"
    head = [
        f"release: {name}",
        "input: {format: parquet, path: rows.parquet}",
        f"output: out/{name}",
        "key_file: release.key",
        f"privacy: {{{budget}, neighbors: add_remove}}",
        "trees:",
    ]
    path.write_text("\n".join([*head, *lines, ""]))
    return path
