"""What a report says of a box beside its figures: how it was measured, and how to read it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dpcore.arithmetic.elementary import log2
from dpcore.hypercube.question import HypercubeQuestion
from dpcore.hypercube.released import ReleasedHypercube
from dpcore.partitions.adaptive import AdaptivePartitionPlan
from dpcore.partitions.plan import Holding
from dpcore.privacy.budget import Budget
from pipelines.answers.figures import budget_share
from pipelines.page.extent import clip
from pipelines.page.noise import law_text
from pipelines.page.policies import CELL_POLICIES
from pipelines.page.reading import ADDS_UP, STANDARD_ERROR, Note, consistent_count, interval

_HELD = {
    Holding.DENSE.value: "a counter for every node of the deepest level",
    Holding.SPARSE.value: (
        "a counter for every node of the deepest level that a row touches, and noise drawn for a "
        "node when it is looked at"
    ),
}
_ESTIMATE = (
    "The least squares combination of the noisy counts of all nodes that were looked at. It may be "
    "negative or fractional."
)
_EVEN_SHARES = (
    "The node's share of its parent's count, by Algorithm 4 of Holland et al.: what its children "
    "are off by is taken from each alike."
)
_GIVEN = (
    "It is given the partition: the noisy counts that made it chose which nodes are divided, and "
    "of this choice the intervals know nothing. Nodes that were divided tend to be estimated a "
    "little too high, those that were not a little too low."
)
_DECIDED_APART = (
    "It is given the partition, and right for it: numbers of their own decided which nodes are "
    "divided, so the estimates are unbiased and their standard errors exact."
)
_NO_ERRORS = (
    "None is stated, and no standard error: what was measured also decided which nodes are "
    "divided. Those that were divided tend to be estimated too high, the others too low, and the "
    "least squares errors do not know of it. A box that is for estimates has exact ones."
)
_AGAIN = (
    "A node that is not divided was measured a second time, with all of the budget that the levels "
    "below it would have taken: every row's way from the whole to its part spends the same, "
    "whatever came out."
)
_SKETCHED = (
    "Below the levels of counters it allows for the noise and not for other nodes in the same cell "
    "of a sketch."
)
_INSIDE = (
    "Rows are drawn evenly spread in each part, as they are sampled. How they lie inside a part is "
    "not known"
)
_DENSITY = (
    f"{_INSIDE}; an answer about a piece of a part has an interval from none of the part's rows to "
    "all of them."
)


def facts(tree: ReleasedHypercube, total: Budget) -> dict[str, str]:
    """What the partition is, name by name.

    Args:
        tree: the box.
        total: the budget of the release.
    """
    question, plan = tree.question, tree.question.plan
    spec, budget = plan.spec(), tree.question.budget
    partition = tree.partition
    said = {
        "Columns": "; ".join(
            f"{clip(axis.column)}: {_cells(axis.kind, axis.cells, depth)}"
            for axis, depth in zip(question.domain.axes, question.domain.depths, strict=True)
        ),
        "Partition": f"{len(partition.parts.counts):,} parts, the deepest "
        f"{partition.tree.levels[-1].depth} of {question.domain.bits} bits deep (halvings of the "
        f"box, one column after the other); {_nodes(tree):,} nodes were looked at",
        "Divided": _divided(spec),
        "Budget": "" if budget is None else budget_share(budget, total),
        "Exact counts": _held(spec, plan.state_bytes),
        "Intervals": f"{100 * question.confidence:.6g} %" if plan.states_errors else "none stated",
    }
    return {name: text for name, text in said.items() if text}


def levels(tree: ReleasedHypercube) -> Iterator[dict[str, str]]:
    """The rows of the table of levels."""
    plan, partition = tree.question.plan, tree.partition
    errors = plan.spec().get("split", {}).get("errors")
    thresholds = plan.spec().get("thresholds")
    ends = partition.tree.leaves()
    for place, (level, law) in enumerate(zip(plan.levels, plan.laws, strict=True)):
        nodes = parts = 0
        if place < len(partition.tree.levels):
            own = partition.tree.levels[place]
            filled = tree.question.domain.has_cells(own.depth, own.nodes)
            nodes, parts = int(filled.sum()), int((filled & ends[place]).sum())
        # Above a sketch, or the last level, no number follows; the root has no number.
        below = plan.laws[place + 1] if 0 < place < plan.height else None
        collide = place < plan.height and plan.levels[place + 1].get("held") == "sketch"
        least = None
        if errors is not None and below is not None and not collide:
            least = errors * math.sqrt(below.variance)
        if thresholds is not None and 0 < place < plan.height:
            least = thresholds[place]
        amount = level.get(plan.measure.value)
        sketched = level.get("held") == "sketch"
        text = law_text(law, exact=plan.public_total and place == 0)
        if isinstance(plan, AdaptivePartitionPlan) and place < plan.height:
            last = law_text(plan.last_laws[place], exact=False)
            if law is not None:
                text += f"; of a part once more {last}"
            elif place:
                text = f"of a part alone {last}"
        yield {
            "depth": f"{level['depth']}",
            "nodes": f"{nodes:,}",
            "parts": f"{parts:,}",
            "budget": "" if amount is None else f"{_number(str(amount)):.4g}",
            "noise": f"{text}, in each cell of a sketch" if sketched else text,
            "deviation": "" if law is None else f"{math.sqrt(law.variance):,.4g}",
            "above": "" if least is None else f"{least:,.4g}",
        }


def policies(question: HypercubeQuestion) -> Iterator[dict[str, str]]:
    """The rows of the table of policies, a column each."""
    for axis in question.domain.axes:
        spec = axis.spec()
        yield {"column": clip(axis.column), "tree": clip(question.name)} | {
            name: CELL_POLICIES.get(str(spec.get(name)), "")
            for name in ("outside", "missing", "unknown")
        }


def notes(question: HypercubeQuestion) -> tuple[Note, ...]:
    """How to read the numbers."""
    spec = question.plan.spec()
    adaptive = spec["mechanism"] == "adaptive"
    even = spec.get("estimation") == "even_shares"
    apart = adaptive and _number(spec["decision_part"]) > 0
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


def _nodes(tree: ReleasedHypercube) -> int:
    return sum(
        int(tree.question.domain.has_cells(level.depth, level.nodes).sum())
        for level in tree.partition.tree.levels
    )


def _divided(spec: Mapping[str, Any]) -> str:
    """Which nodes are divided, in words."""
    split = spec.get("split")
    if spec["mechanism"] == "adaptive":
        return _adaptively(spec)
    if split is None:
        return (
            f"as PrivTree does: nodes whose count, less {spec['decay']:,} rows for each level "
            f"above them, exceeds discrete Laplace noise of scale {_number(spec['split_scale']):g}"
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
    part = _number(spec["decision_part"])
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


def _held(spec: Mapping[str, Any], state_bytes: int | None) -> str:
    """How exact counts were held, and in how much memory, until there was noise."""
    held, sketches = spec.get("holding"), spec.get("sketches")
    text = _HELD.get(str(held), str(held))
    if sketches:
        kind = str(sketches["kind"]).replace("_", "-")
        depth = spec["levels"][sketches["counters"]]["depth"]
        text = (
            f"counters down to depth {depth}, and below for each level a {kind} sketch of "
            f"{sketches['rows']:,} x {sketches['width']:,} cells"
        )
    return text if state_bytes is None else f"{text}: {state_bytes:,} bytes"


def _number(text: str) -> float:
    """Return the number that a rational's text represents."""
    above, _, below = text.partition("/")
    return float(above) / float(below or 1)
