"""A box in words: how it is measured, level by level, and how to read its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from dptrees.dpcore.arithmetic.elementary import log2
from dptrees.dpcore.boxes.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.boxes.plan import Holding, PartitionMechanism
from dptrees.dpcore.boxes.question import HypercubeQuestion
from dptrees.pipelines.description.description import Column, Unit, level_noise
from dptrees.pipelines.page.extent import clip
from dptrees.pipelines.page.reading import ADDS_UP, STANDARD_ERROR, Note, consistent_count, interval

_HELD = {
    Holding.DENSE.value: "a counter for every node of the deepest level",
    Holding.SPARSE.value: (
        "a counter for every node of the deepest level that a row touches, and noise drawn for a "
        "node when it is examined"
    ),
}
_HELD_IN = {"counters": "each counter", "sketch": "each cell of a sketch"}
_ESTIMATE = (
    "The least squares combination of the noisy counts of all examined nodes. It may be negative "
    "or fractional."
)
_EVEN_SHARES = (
    "The node's share of its parent's count, by Algorithm 4 of Holland et al.: the difference "
    "between a node and the sum of its children is divided equally among the children."
)
_GIVEN = (
    "It is conditional on the partition: the same noisy counts decided which nodes are divided, "
    "and the intervals do not account for this choice. Divided nodes tend to be estimated a "
    "little too high, and other nodes a little too low."
)
_DECIDED_APART = (
    "It is conditional on the partition, and exact for it: separate noisy numbers decided which "
    "nodes are divided, so the estimates are unbiased and their standard errors exact."
)
_NO_ERRORS = (
    "There is no interval and no standard error, because the same measurements decided which "
    "nodes are divided. Divided nodes tend to be estimated too high and the others too low, and "
    "the least squares errors do not account for this. A box with optimize_for: estimates has "
    "exact intervals."
)
_AGAIN = (
    "A node that is not divided was measured a second time, with all of the budget of the levels "
    "below it: every path from the root to a part spends the same budget, whatever the partition "
    "is."
)
_SKETCHED = (
    "Below the levels of counters, it accounts for the noise but not for other nodes in the same "
    "cell of a sketch."
)
_INSIDE = (
    "Rows are drawn evenly spread in each part, as sampled rows are. Their true places inside a "
    "part are not known"
)
_DENSITY = (
    f"{_INSIDE}; an answer about a piece of a part has an interval from none of the part's rows to "
    "all of them."
)


def plan_facts(question: HypercubeQuestion) -> dict[str, str]:
    """Return what is known of a box before it is released, by name, for the page."""
    domain, plan = question.domain, question.plan
    spec = plan.spec()
    columns = (
        f"{clip(axis.column)}: {_cells(axis.kind, axis.cells, depth)}"
        for axis, depth in zip(domain.axes, domain.depths, strict=True)
    )
    stated = {} if plan.states_errors else {"Intervals": "none stated"}
    return {
        "Columns": "; ".join(columns),
        "Divided": _divided(spec),
        "Counters": _counters(spec),
        **stated,
    }


def level_columns(plan: PartitionMechanism) -> tuple[Column, ...]:
    """Return what each level of a plan spends, its noise, and which of its nodes are divided."""
    noises = [
        level_noise(law, public=plan.public_total and level == 0)
        for level, law in enumerate(plan.laws)
    ]
    measure = plan.measure.value
    amounts = [Fraction(str(level[measure])) if measure in level else None for level in plan.levels]
    columns = [
        Column(f"Budget ({measure})", amounts, Unit.AMOUNT),
        Column("Noise", noises, Unit.LAW),
        Column("Noise, standard deviation", noises, Unit.DEVIATION),
        Column("Divided above an estimate of", list(_least_divided(plan)), Unit.ERROR),
    ]
    if isinstance(plan, AdaptivePartitionPlan):
        # A root that is not measured is always divided.
        laws = plan.last_laws if plan.laws[0] else (None, *plan.last_laws[1:])
        again = [law and level_noise(law, public=False) for law in laws]
        columns.insert(3, Column("Noise of a part, measured once more or alone", again, Unit.LAW))
    if plan.spec().get("sketches"):
        held = [_HELD_IN[str(level["held"])] for level in plan.levels]
        columns.insert(2, Column("Noise is in", held, Unit.TEXT))
    return tuple(columns)


def _least_divided(plan: PartitionMechanism) -> Iterator[float | None]:
    """Yield the least estimate of the nodes of each level that are divided, None: no number
    decides."""
    spec = plan.spec()
    errors, thresholds = spec.get("split", {}).get("errors"), spec.get("thresholds")
    for level in range(plan.height + 1):
        # Above a sketch, or the last level, no number follows; the root has no number.
        inside = 0 < level < plan.height
        below = plan.laws[level + 1] if inside else None
        if inside and thresholds is not None:
            yield thresholds[level]
        elif errors is None or below is None or plan.levels[level + 1].get("held") == "sketch":
            yield None
        else:
            yield errors * math.sqrt(below.variance)


def notes(question: HypercubeQuestion) -> tuple[Note, ...]:
    """How to read the numbers."""
    spec = question.plan.spec()
    adaptive = spec["mechanism"] == "adaptive"
    even = spec.get("estimation") == "even_shares"
    apart = adaptive and float(Fraction(spec["decision_part"])) > 0
    given: tuple[Note, ...] = interval(_DECIDED_APART if apart else _GIVEN)
    if not question.plan.states_errors:
        given = (("interval", _NO_ERRORS),)
    if spec.get("sketches"):
        given = (*given, ("interval", _SKETCHED))
    return (
        ("estimate", _EVEN_SHARES if even else _ESTIMATE),
        *((("estimate", _AGAIN),) if adaptive else ()),
        *consistent_count(ADDS_UP),
        *given,
        *((STANDARD_ERROR,) if question.plan.states_errors else ()),
        ("density", _DENSITY if question.plan.states_errors else f"{_INSIDE}."),
    )


def _cells(kind: str, cells: int, depth: int) -> str:
    size = f"{cells:,}" if cells < 2**24 else f"2^{log2(cells):.4g}"
    return f"{kind} of {size} cells, halved up to {depth} times"


def _divided(spec: Mapping[str, Any]) -> str:
    """Which nodes are divided, in words."""
    split = spec.get("split")
    if spec["mechanism"] == "adaptive":
        return _adaptively(spec)
    if split is None:
        scale = float(Fraction(spec["split_scale"]))
        return (
            f"as PrivTree does: nodes whose count, less {spec['decay']:,} rows for each level "
            f"above them, exceeds discrete Laplace noise of scale {scale:g}"
        )
    said = []
    if split["errors"] is not None:
        said.append(
            f"nodes whose estimate exceeds {split['errors']:g} standard errors of a count of the "
            "next level"
        )
    if split["parts"] is not None:
        said.append(f"nodes with at least 1/{split['parts']:,} of all rows")
    if split["most"] < 2 ** spec["levels"][-2]["depth"]:
        said.append(f"of each level at most the {split['most']:,} largest")
    return "; ".join(said) or "all nodes"


def _adaptively(spec: Mapping[str, Any]) -> str:
    """Which nodes of an adaptive partition are divided, in words."""
    part = float(Fraction(spec["decision_part"]))
    whose = "the number that decides" if part else "the estimate"
    said = [f"nodes where {whose} exceeds the rows that the table of levels has"]
    if part:
        said.append(f"{100 * part:g} % of the budget above the last level is for these numbers")
    measured = [level["depth"] for level in spec["levels"][1:-1] if level[spec["measure"]] != "0"]
    between = len(measured) < len(spec["levels"]) - 2
    if between:
        said.append("of nodes that are measured only where they end an even part of the one above")
    if measured and spec["most"] < 2 ** measured[-1]:
        which = "measured level" if between else "level"
        said.append(f"of each {which} at most the {spec['most']:,} largest")
    return "; ".join(said)


def _counters(spec: Mapping[str, Any]) -> str:
    """Return how exact counts were held until there was noise, in words."""
    held, sketches = spec.get("holding"), spec.get("sketches")
    if not sketches:
        return _HELD.get(str(held), str(held))
    kind = str(sketches["kind"]).replace("_", "-")
    depth = spec["levels"][sketches["counters"]]["depth"]
    return (
        f"counters down to depth {depth}, and below for each level a {kind} sketch of "
        f"{sketches['rows']:,} x {sketches['width']:,} cells"
    )
