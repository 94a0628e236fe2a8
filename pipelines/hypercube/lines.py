"""A box of columns on the terminal: the levels of its plan, and what was released of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dptrees.dpcore.boxes.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.boxes.question import HypercubeQuestion
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.pipelines.answers.figures import significant
from dptrees.pipelines.description.description import Column, Description, Errors, Table, Unit
from dptrees.pipelines.hypercube.facts import level_columns, notes, plan_facts
from dptrees.pipelines.plain.kind_lines import KindLines
from dptrees.pipelines.plain.lines import NODES_SHOWN, heading, largest
from dptrees.pipelines.target import ErrorTarget
from dptrees.pipelines.terminal_text import escaped
from dptrees.pipelines.user_error import UserError

ADAPTIVE_ERRORS = (
    "the error of a box depends on the data: on which nodes are split, and on how evenly rows "
    "are spread in the others"
)

# With more columns a wide table is closer on pairs of them (benchmarks/wide_tables.py).
MOST_COLUMNS = 3
TOO_MANY_COLUMNS = (
    f"with more than {MOST_COLUMNS} columns, a wide table (domain.kind: table) gives more "
    "accurate synthetic rows and counts of pairs"
)


def hypercube_description(question: HypercubeQuestion) -> Description:
    """Describe the plan of a box: its levels, which nodes are divided, how its counts are held."""
    plan, spec, columns = question.plan, question.plan.spec(), map(escaped, question.columns)
    bound = "as many as rows touch" if plan.state_bytes is None else f"{plan.state_bytes:,} bytes"
    texts = Column("", list(_levels(question)), Unit.TEXT, "{}")
    return Description(
        entry=lambda: _entry(question),
        errors=lambda entry: Errors(notes=tuple(_remarks(question))),
        size=f"a partition of {', '.join(columns)}, {plan.depths[-1]} of {question.domain.bits} "
        "bits deep",
        budget=question.budget,
        table=Table(
            columns=(texts, *level_columns(plan)),
            rows=[f"level {depth}" for depth in plan.depths],
            title="Depth",
        ),
        facts={"Exact counts": f"held {spec['holding']}, {bound}"},
        domain_facts=plan_facts(question),
        intervals="" if plan.states_errors else None,
        notes=notes(question),
    )


def _remarks(question: HypercubeQuestion) -> Iterator[str]:
    """Say what is known of the errors of a box."""
    if isinstance(question.plan, AdaptivePartitionPlan):
        yield ADAPTIVE_ERRORS
    if len(question.columns) > MOST_COLUMNS:
        yield TOO_MANY_COLUMNS


def _levels(question: HypercubeQuestion) -> Iterator[str]:
    """Yield the noise of each level, in words."""
    plan = question.plan
    for number, (level, law) in enumerate(zip(plan.levels, plan.laws, strict=True)):
        text = "not measured"
        if law is not None:
            text = f"std error {significant(math.sqrt(law.variance))}"
        if level["held"] == "sketch":
            text += " of a sketch cell"
        if isinstance(plan, AdaptivePartitionPlan) and 0 < number < plan.height:
            own = significant(math.sqrt(plan.variances.ended[number]))
            ends = f"{own} if it is not split, at {plan.thresholds[number]:,} rows or fewer"
            text = f"{text}; {ends}" if law is not None else f"{ends} in an even part"
        yield "public" if number == 0 and plan.public_total else text


def _entry(question: HypercubeQuestion) -> dict[str, Any]:
    """Return the plan of a box as plain values: its levels, with their standard errors in rows."""
    plan, spec = question.plan, question.plan.spec()
    errors = [None if law is None else math.sqrt(law.variance) for law in plan.laws]
    return {
        "keys": 1,
        "mechanism": spec["mechanism"],
        "columns": list(question.columns),
        "levels": [
            level | {"std_error": error} for level, error in zip(plan.levels, errors, strict=True)
        ],
        "state_bytes": plan.state_bytes,
        "plan": {name: value for name, value in spec.items() if name != "levels"},
    }


def hypercube_target(target: ErrorTarget) -> dict[str, Any]:
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
    yield f"  {tree.total:,} rows in a partition of {parts:,} parts; the largest nodes:"
    yield from map(largest, tree.top(NODES_SHOWN, tree.question.plan.depths[1]))


HYPERCUBE_LINES = KindLines(
    describe=hypercube_description,
    target=hypercube_target,
    summary=hypercube_summary,
)
