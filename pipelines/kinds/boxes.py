"""Boxes: their section, their plans in words, their lines on the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import PlainValidator, WithJsonSchema
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.arithmetic.elementary import log2
from dptrees.dpcore.boxes.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.plan import Estimation, Holding, PartitionMechanism, PartitionPlan
from dptrees.dpcore.boxes.planner import SHARES, PartitionChoices
from dptrees.dpcore.boxes.question import PLANNERS, HypercubeQuestion, HypercubeWorkload
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.dpcore.questions.planning import Noise
from dptrees.dpcore.sketches.sketch import SketchKind
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.kinds.domains import box_schema, read_hypercube
from dptrees.pipelines.process import UserError
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken, shown
from dptrees.pipelines.sections.rules import Amount
from dptrees.pipelines.sections.tree import TreeSection
from dptrees.pipelines.show.description import (
    NODES_SHOWN,
    Column,
    Description,
    Errors,
    Table,
    Unit,
    heading,
    largest_line,
    level_noise,
)
from dptrees.pipelines.show.figures import significant
from dptrees.pipelines.show.mechanisms import ErrorTarget, KindLines
from dptrees.pipelines.show.page_nodes import clip
from dptrees.pipelines.show.tree_page import (
    ADDS_UP,
    STANDARD_ERROR,
    Note,
    consistent_count,
    interval,
)
from dptrees.pipelines.terminal_text import escaped

# The keys of a configuration by the names of dpcore's choices, where they differ.
_KEYS = {
    "most": "k",
    "hash_rows": "hashes",
    "holding": "counts",
    "estimation": "consistency",
    "decided_apart": "optimize_for",
}
_CHOICES = {each.name: _KEYS.get(each.name, each.name) for each in fields(PartitionChoices)}
MECHANISMS = ("planned", "privhp", "privhp_paper", "pmm", "privtree", "adaptive")
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def _whole(value: object) -> int:
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        value = int(value) if value.adjusted() < 16 else value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**50:
        raise RuleBroken(f"{shown(value)} must be a whole number from 1 to 2^50")
    return value


def memory_bytes(value: object) -> int:
    """Bytes, as a number or with a unit.

    >>> memory_bytes("256 MiB")
    268435456
    """
    if isinstance(value, str):
        number, _, unit = value.strip().partition(" ")
        if number.isdecimal() and unit in _UNITS:
            return _whole(int(number) * _UNITS[unit])
        raise RuleBroken(f"{shown(value)} must be a number of bytes, or such as 64 MiB, 2 GiB")
    return _whole(value)


def _errors(value: object) -> float:
    number = rules.weight(value)
    if number > 1e6:
        raise RuleBroken(f"{shown(value)} must be at most 1000000")
    return number


def _is_for_estimates(purpose: str) -> bool:
    return purpose == "estimates"


# How the values of keys become values of choices, where they differ.
_VALUES: dict[str, Callable[[str], object]] = {
    "estimation": Estimation,
    "holding": Holding,
    "sketch": SketchKind,
    "decided_apart": _is_for_estimates,
}
Whole = Annotated[int | None, PlainValidator(_whole)]


class HypercubeTree(TreeSection):
    """A partition of a box of columns."""

    refused: ClassVar[Mapping[str, str]] = {
        **{key: key for key in ("domain", "noise", "mechanism")},
        **_CHOICES,
        "columns": "domain.columns",
        "depths": "domain.depths",
    }
    misplaced: ClassVar[Mapping[str, str]] = {
        "group_by": "a box has no keys; make the key one of its columns, with its categories",
        **dict.fromkeys(
            ("quantiles", "guess", "widths", "fanouts", "objective"),
            "belongs to an ordered domain; you can query every column, quantile and range of a box",
        ),
        **dict.fromkeys(("measure", "invariants", "node_weights"), "belongs to a hierarchy"),
    }
    domain: Annotated[HypercubeDomain, PlainValidator(read_hypercube), WithJsonSchema(box_schema())]
    mechanism: Annotated[str, PlainValidator(rules.choice(*MECHANISMS))] = "planned"
    optimize_for: Annotated[str | None, PlainValidator(rules.choice("counts", "estimates"))] = None
    weight: Amount = Fraction(1)
    noise: Annotated[str, PlainValidator(rules.choice("best", "laplace", "gaussian"))] = "best"
    rows: Whole = None
    rows_at_most: Whole = None
    depth: Whole = None
    bits_apart: Whole = None
    k: Whole = None
    parts: Whole = None
    split_errors: Annotated[float | None, PlainValidator(_errors)] = None
    shares: Annotated[str | None, PlainValidator(rules.choice(*SHARES))] = None
    consistency: Annotated[
        str | None, PlainValidator(rules.choice(*(each.value for each in Estimation)))
    ] = None
    counts: Annotated[
        str | None, PlainValidator(rules.choice(*(each.value for each in Holding)))
    ] = None
    memory: Annotated[int | None, PlainValidator(memory_bytes)] = None
    width: Whole = None
    hashes: Whole = None
    sketch: Annotated[
        str | None, PlainValidator(rules.choice(*(each.value for each in SketchKind)))
    ] = None

    @section_rule(mode="after")
    def _check_choices(self) -> Self:
        _ = self.choices
        return self

    @cached_property
    def choices(self) -> PartitionChoices:
        """The workload of the plan."""
        given = {name: getattr(self, key, None) for name, key in _CHOICES.items()}
        chosen = {
            name: _VALUES[name](each) if name in _VALUES else each
            for name, each in given.items()
            if each is not None
        }
        try:
            return PartitionChoices.from_mechanism(self.mechanism, **chosen)
        except Refusal as refusal:
            key = _KEYS.get(refusal.field, refusal.field)
            raise RuleBroken(refusal.rule, at=f".{key}") from None

    def workload(self) -> HypercubeWorkload:
        return HypercubeWorkload(
            name=self.name,
            domain=self.domain,
            weight=self.weight,
            noise=Noise(self.noise),
            mechanism=self.mechanism if self.mechanism in PLANNERS else "privhp",
            choices=self.choices,
        )


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
_BIASED = (
    "It is conditional on the partition. The same measurements decided which nodes are divided, so "
    "divided nodes tend to be estimated too high. The standard error has this bias in it, as a "
    "model predicts it from the estimates. A box with optimize_for: estimates has exact errors."
)
_AGAIN = (
    "A node that is not divided was measured a second time, with all of the budget of the levels "
    "below it: every path from the root to a part spends the same budget, whatever the partition "
    "is."
)
_SKETCHED = (
    "Below the levels of counters, the standard error accounts for the noise, and for other nodes "
    "in the same cell of a sketch at most: of one node it may be 1.4 times too large. The "
    "interval holds however these nodes are distributed."
)
SEVERAL_HASHES = (
    "a box that is counted by sketches of several hashes states no errors of sums of nodes: "
    "hashes: 1 does"
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
    return {
        "Columns": "; ".join(columns),
        "Divided": _divided(spec),
        "Counters": _counters(spec),
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
    decided = _DECIDED_APART if apart else _BIASED if adaptive else _GIVEN
    given: tuple[Note, ...] = interval(decided)
    if _adds_up(question.plan):
        given = (*given, ("interval", _SKETCHED))
    elif _adds_up(question.plan) is False:
        given = (*given, ("interval", f"{SEVERAL_HASHES[0].upper()}{SEVERAL_HASHES[1:]}."))
    return (
        ("estimate", _EVEN_SHARES if even else _ESTIMATE),
        *((("estimate", _AGAIN),) if adaptive else ()),
        *consistent_count(ADDS_UP),
        *given,
        STANDARD_ERROR,
        ("density", _DENSITY),
    )


def _adds_up(plan: PartitionMechanism) -> bool | None:
    """Return whether errors of sums of sketched counts are stated; None where nothing is sketched
    and estimated by least squares."""
    if not isinstance(plan, PartitionPlan) or plan.sketches is None:
        return None
    return plan.sketches.adds_up if plan.estimation is not Estimation.EVEN_SHARES else None


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


ADAPTIVE_ERRORS = (
    "the error of a box depends on the data: on which nodes are split, and on how evenly rows "
    "are spread in the others"
)

# With more columns a wide table is closer on pairs of them (docs/synthetic.md).
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
        intervals="",
        notes=notes(question),
    )


def _remarks(question: HypercubeQuestion) -> Iterator[str]:
    """Say what is known of the errors of a box."""
    if isinstance(question.plan, AdaptivePartitionPlan):
        yield ADAPTIVE_ERRORS
    if _adds_up(question.plan) is False:
        yield SEVERAL_HASHES
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


def no_target(target: ErrorTarget) -> dict[str, Any]:
    """
    Raises:
        UserError: in any case.
    """
    raise UserError(
        f"--target-error: {target.place} is a {target.question.kind}, whose error no budget can be "
        "found for; name another tree"
    )


def hypercube_summary(tree: ReleasedHypercube) -> Iterator[str]:
    """The count of all rows, the size of the partition, and the largest of its first parts."""
    yield from heading(tree.question, tree.question.columns)
    parts = len(tree.partition.parts[2])
    yield f"  {tree.total:,} rows in a partition of {parts:,} parts; the largest nodes:"
    yield from map(largest_line, tree.top(NODES_SHOWN, tree.question.plan.depths[1]))


HYPERCUBE_LINES = KindLines(
    describe=hypercube_description,
    target=no_target,
    summary=hypercube_summary,
)
