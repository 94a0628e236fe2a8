"""A box of columns on the terminal: the levels of its plan, and what was released of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dpcore.hypercube.question import HypercubeQuestion
from dpcore.hypercube.released import ReleasedHypercube
from dpcore.partitions.adaptive import AdaptivePartitionPlan
from pipelines.answers.figures import significant
from pipelines.plain.lines import NODES_SHOWN, heading, largest
from pipelines.target import Target
from pipelines.terminal_text import escaped
from pipelines.user_error import UserError

ADAPTIVE_ERRORS = (
    "how far off a box is depends on the data: on which nodes are split, and how evenly rows lie "
    "in the others"
)


def hypercube_entry(question: HypercubeQuestion) -> dict[str, Any]:
    """The plan of a box as plain values: its levels, and each level's standard error, in rows."""
    plan, spec = question.plan, question.plan.spec()
    errors = [None if law is None else math.sqrt(law.variance) for law in plan.laws]
    return {
        "name": question.name,
        "keys": 1,
        "mechanism": spec["mechanism"],
        "columns": list(question.columns),
        "levels": [
            level | {"std_error": error} for level, error in zip(plan.levels, errors, strict=True)
        ],
        "state_bytes": plan.state_bytes,
        "plan": {name: value for name, value in spec.items() if name != "levels"},
    }


def hypercube_lines(question: HypercubeQuestion, entry: Mapping[str, Any]) -> Iterator[str]:
    """One box's levels, and how its counts are held."""
    plan = question.plan
    yield ""
    yield (
        f"{question.name}: a partition of {', '.join(map(escaped, question.columns))}, "
        f"{plan.depths[-1]} of {question.domain.bits} bits deep"
    )
    for number, level in enumerate(entry["levels"]):
        error = level["std_error"]
        text = "not measured" if error is None else f"std error {significant(error)}"
        if level["held"] == "sketch":
            text += " of a sketch cell"
        if isinstance(plan, AdaptivePartitionPlan) and 0 < number < plan.height:
            own = significant(math.sqrt(plan.variances.ended[number]))
            ends = f"{own} where it is not split, at {plan.thresholds[number]:,} rows or fewer"
            text = f"{text}; {ends}" if error is not None else f"{ends} in an even part"
        if number == 0 and plan.public_total:
            text = "public"
        yield f"  level {level['depth']:<2} {text}"
    if isinstance(plan, AdaptivePartitionPlan):
        yield f"  {ADAPTIVE_ERRORS}"
    held = entry["plan"]["holding"]
    bound = "as many as rows touch" if plan.state_bytes is None else f"{plan.state_bytes:,} bytes"
    yield f"  exact counts are held {held}: {bound}"


def hypercube_target(target: Target) -> dict[str, Any]:
    """
    Raises:
        UserError: in any case.
    """
    raise UserError(
        f"--target-error: {target.place} is a hypercube, whose error no budget can be found for; "
        "name another tree"
    )


def hypercube_summary(tree: ReleasedHypercube) -> Iterator[str]:
    """The count of all rows, the size of the partition, and the largest of its first parts."""
    yield from heading(tree.question, tree.question.columns)
    parts = len(tree.partition.parts[2])
    yield f"  {tree.total:,} rows in a partition of {parts:,} parts; the largest first ones:"
    yield from map(largest, tree.top(NODES_SHOWN, tree.question.plan.depths[1]))
