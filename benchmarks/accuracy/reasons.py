"""Why another method is better at a point, as far as it is known."""

from __future__ import annotations

# By the beginning of a task and of the better method's name.
_REASONS: dict[tuple[str, str], str] = {
    ("nodes, ", "AHP"): "AHP measures one mean of all leaves that look alike, wherever they lie; "
    "a hierarchy joins neighbors alone",
    ("3 quantiles, ", "OpenDP, quantiles"): "the first quartile of hours lies three rows from the "
    "next value: where it is missed, it is by so few rows",
    ("9", "DAWA"): "DAWA joins cells that look alike where rows are few, as do adaptive trees for "
    "counts, which the planner does not take for quantiles",
    ("9 quantiles, ", "GreedyH"): "all are off by less than a row",
    ("nodes, ", "Uniform"): "so few rows that every count is best guessed from their total",
}


def find_reason(task: str, better: str) -> str:
    """Return the known reason, or that none is known."""
    for (begins, name), reason in _REASONS.items():
        if task.startswith(begins) and better.startswith(name):
            return reason
    return "not known"
