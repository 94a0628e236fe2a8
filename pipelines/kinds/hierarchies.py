"""Trees over labels: the section of a listed hierarchy, and of a sparse tree too large to list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import PlainValidator, WithJsonSchema
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.arithmetic.elementary import power
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.irregular.planner import NodeWeights
from dptrees.dpcore.levels.hierarchy import HierarchyWorkload
from dptrees.dpcore.levels.irregular import FEWEST, TOP_DOWN
from dptrees.dpcore.levels.relative_errors import METRICS, RelativeObjective
from dptrees.dpcore.mechanisms import ADAPTIVE, PLANNED, THRESHOLDS, mechanism_names
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.questions.planning import Noise, Workload
from dptrees.dpcore.rows.policies import MeasureColumn
from dptrees.dpcore.sparse.domain import NOTATIONS, CodeDomain, SparseDomain
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain
from dptrees.dpcore.sparse.question import SparseQuestion, SparseWorkload
from dptrees.dpcore.sparse.released import ReleasedSparse
from dptrees.dpcore.trees.closest_cdf import CDF_METRICS
from dptrees.pipelines.kinds.hierarchy_domain import (
    HIERARCHY_SCHEMA,
    guessed_counts,
    hierarchy_weights,
    invariant_level,
    read_hierarchy,
)
from dptrees.pipelines.process import UserError
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken, from_dpcore, nearest, shown
from dptrees.pipelines.sections.rules import Amount, Section, Text
from dptrees.pipelines.sections.tree import (
    TEXT,
    KnownLeavesSection,
    TreeSection,
    rules_schema,
    several,
)
from dptrees.pipelines.show.description import (
    NODES_SHOWN,
    Column,
    Description,
    Table,
    Unit,
    heading,
    largest_line,
    level_noise,
)
from dptrees.pipelines.show.figures import percent
from dptrees.pipelines.show.mechanisms import ErrorTarget, KindLines

_ORDERED_ONLY = "belongs to an ordered domain"
_COUNTS, _ESTIMATES, _LEAVES = "counts", "estimates", "leaves"
# What counts between thresholds do not have, and what an adaptive tree does not.
_NOT_BY_THRESHOLDS = ("measure", "invariants", "level_budgets", "estimation")
_SPLIT_ONLY = (*_NOT_BY_THRESHOLDS, "node_weights")
_ABSENT = {THRESHOLDS: _NOT_BY_THRESHOLDS, ADAPTIVE: _SPLIT_ONLY}


class MeasureSection(Section):
    """A column that is summed, between bounds."""

    column: Text
    lower: Annotated[int, PlainValidator(rules.whole_number)]
    upper: Annotated[int, PlainValidator(rules.whole_number)]
    missing: Annotated[str, PlainValidator(rules.choice("drop", "zero"))] = "drop"

    @section_rule(mode="after")
    def _check_bounds(self) -> Self:
        _ = self.measure
        return self

    @cached_property
    def measure(self) -> MeasureColumn:
        """The column and its bounds."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        try:
            return MeasureColumn(**given)
        except ValueError as error:
            raise from_dpcore(error, given) from None


class HierarchyTree(KnownLeavesSection):
    """One tree over a hierarchy."""

    misplaced: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("quantiles", "widths", "fanouts"), _ORDERED_ONLY
    )
    refused: ClassVar[Mapping[str, str]] = {
        **{key: key for key in ("domain", "measure", "mechanism", "estimation", "noise")},
        **{key: key for key in ("level_weights", "level_budgets", "invariants")},
        **{"level_amounts": "level_budgets", "estimator": "estimation"},
    }
    domain: Annotated[
        HierarchyDomain, PlainValidator(read_hierarchy), WithJsonSchema(HIERARCHY_SCHEMA)
    ]
    measure: MeasureSection | None = None
    objective: Annotated[str, PlainValidator(rules.choice("nodes", "relative"))] = "nodes"
    metric: Annotated[str | None, PlainValidator(rules.choice(*METRICS))] = None
    alpha: Annotated[float | None, PlainValidator(rules.weight)] = None
    kappa: Annotated[float | None, PlainValidator(rules.weight)] = None
    guess: Any = None
    rows_at_most: int = MAX_COUNT
    mechanism: Annotated[str, PlainValidator(rules.choice(*mechanism_names("hierarchy")))] = PLANNED
    optimize_for: Annotated[
        str | None, PlainValidator(rules.choice(_COUNTS, _ESTIMATES, _LEAVES))
    ] = None
    estimation: Annotated[str | None, PlainValidator(rules.choice("least_squares", "none"))] = None
    consistency: Annotated[
        str | None, PlainValidator(rules.choice(FEWEST, TOP_DOWN, *CDF_METRICS))
    ] = None
    level_weights: Any = None
    node_weights: Any = None
    level_budgets: Annotated[
        Literal["equal", "optimal"] | tuple[Fraction, ...] | None,
        PlainValidator(rules.level_budgets),
    ] = None
    invariants: Any = None

    @section_rule(mode="after")
    def _check_levels(self) -> Self:
        _ = self.weights, self.public_level
        amounts, names = self.level_budgets, self.domain.tree.level_names
        if amounts == "optimal":
            rule = "must be equal or a list of numbers; left out, the budgets are the best ones"
            raise RuleBroken(rule, at=".level_budgets")
        if isinstance(amounts, tuple) and len(amounts) != len(names):
            raise RuleBroken(
                f"must be {len(names)} numbers, one for each of {', '.join(names)}",
                at=".level_budgets",
            )
        self._check_mechanism()
        self._check_consistency()
        if self.public_level is not None and self.measure is not None:
            raise RuleBroken(
                "does not go with measure: only counts can be public", at=".invariants"
            )
        return self

    def _check_consistency(self) -> None:
        if self.consistency in CDF_METRICS:
            raise RuleBroken(_ORDERED_ONLY, at=".consistency")
        if self.consistency == FEWEST and self.mechanism in (THRESHOLDS, ADAPTIVE):
            repaired = "adaptive trees" if self.mechanism == ADAPTIVE else "thresholds"
            raise RuleBroken(f"{repaired} are repaired top_down", at=".consistency")
        if self.consistency == FEWEST and self.measure is not None:
            raise RuleBroken("fewest is of counts, not of sums", at=".consistency")

    def workload(self) -> Workload[Any]:
        assert self.level_budgets != "optimal"
        is_relative = self.objective == "relative"
        chosen = any(getattr(self, key) is not None for key in _NOT_BY_THRESHOLDS)
        own = self.mechanism, self.noise
        # Thresholds are open under a relative objective, if nothing is chosen that they lack.
        is_open = own == (PLANNED, Noise.BEST.value) and self.consistency != FEWEST and not chosen
        return HierarchyWorkload(
            name=self.name,
            domain=self.domain,
            keys=self.keys,
            weight=self.weight,
            noise=Noise(self.noise),
            measure=None if self.measure is None else self.measure.measure,
            public_level=self.public_level,
            mechanism=self.mechanism,
            weights=self.weights,
            objective=self.relative if is_relative else None,
            estimation=self.estimation,
            consistency=self.consistency,
            level_budgets=self.level_budgets,
            reads_counts=self.optimize_for == _COUNTS,
            guessed_rows=self.guessed_rows,
            rows_at_most=self.rows_at_most,
            may_use_thresholds=is_relative and is_open,
        )

    @cached_property
    def weights(self) -> NodeWeights | None:
        """What the plan is best for."""
        if self.optimize_for == _LEAVES:
            for key in ("level_weights", "node_weights", "level_budgets"):
                if getattr(self, key) is not None:
                    raise RuleBroken(f"does not go with optimize_for: {_LEAVES}", at=f".{key}")
            height = self.domain.tree.shape.height
            parts = np.arange(height + 1) / max(1, height)
            return NodeWeights(levels=tuple(power(np.full(height + 1, 10.0), parts).tolist()))
        return hierarchy_weights(self.domain, self.level_weights, self.node_weights)

    @cached_property
    def public_level(self) -> int | None:
        """The lowest level whose counts are declared public."""
        return invariant_level(self.domain, self.invariants)

    def _check_mechanism(self) -> None:
        if self.objective == "relative":
            _ = self.relative
            if self.node_weights is not None:
                raise RuleBroken("belongs to the objective nodes", at=".node_weights")
            self._check_rows()
        else:
            _ = self.guessed_rows
            for key in ("metric", "alpha", "kappa", "rows_at_most"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise RuleBroken("belongs to the objective relative", at=f".{key}")
            if self.mechanism == THRESHOLDS:
                raise RuleBroken("thresholds go with the objective relative", at=".mechanism")
        if self.mechanism == PLANNED and self.estimation == "none":
            raise RuleBroken("none goes with the mechanism tree", at=".estimation")
        self._check_adaptive()

    def _check_adaptive(self) -> None:
        """Refuse what thresholds or adaptive trees do not have, and what only the latter have."""
        if self.mechanism == ADAPTIVE and self.objective == "relative":
            raise RuleBroken("adaptive goes with the objective nodes", at=".mechanism")
        for key in _ABSENT.get(self.mechanism, ()):
            if getattr(self, key) is not None:
                raise RuleBroken(f"does not go with the mechanism {self.mechanism}", at=f".{key}")
        if self.mechanism == ADAPTIVE:
            return
        if self.guessed_rows is not None:
            if self.mechanism != PLANNED:
                raise RuleBroken("goes with the mechanisms planned and adaptive", at=".guess")
            for key in _SPLIT_ONLY:
                if getattr(self, key) is not None:
                    raise RuleBroken(f"does not go with {key}", at=".guess")
        elif self.optimize_for is not None and (self.optimize_for, self.mechanism) != (
            _LEAVES,
            PLANNED,
        ):
            raise RuleBroken(
                "goes with the mechanism adaptive, and with planned where a guess has rows"
                if self.optimize_for != _LEAVES
                else f"{_LEAVES} goes with the mechanisms planned and adaptive",
                at=".optimize_for",
            )

    @cached_property
    def guessed_rows(self) -> float | None:
        """The guess of the rows of a tree, where errors are in rows."""
        if self.guess is None or self.objective == "relative":
            return None
        if not isinstance(self.guess, dict) or "rows" not in self.guess:
            if self.mechanism == ADAPTIVE:
                raise RuleBroken("needs a section with rows", at=".guess")
            raise RuleBroken("belongs to the objective relative", at=".guess")
        rules.at(".guess", lambda each: rules.known_keys(rules.section(each), ["rows"]), self.guess)
        return float(rules.at(".guess.rows", rules.amount, self.guess["rows"]))

    def _check_rows(self) -> None:
        if not 1 <= self.rows_at_most <= MAX_COUNT:
            raise RuleBroken("must be from 1 to 2^40", at=".rows_at_most")
        if max(self.relative.guess or (0,)) > self.rows_at_most:
            raise RuleBroken("is above rows_at_most", at=".guess")

    @cached_property
    def relative(self) -> RelativeObjective:
        """What the tree is for, where errors are relative to counts."""
        given = {"metric": self.metric or "alpha_rmse", "alpha": self.alpha, "kappa": self.kappa}
        needed = "kappa" if "kappa" in (self.metric or "") else "alpha"
        if given[needed] is None:
            raise RuleBroken(f"is required with the metric {given['metric']}", at=f".{needed}")
        weights, guess = self.weights, guessed_counts(self.domain, self.guess)
        try:
            return RelativeObjective(
                **given,  # type: ignore[arg-type]
                guess=guess,
                level_weights=None if weights is None else weights.levels,
            )
        except ValueError as error:
            raise from_dpcore(error, given | {"guess": self.guess}) from None


_KNOWN_ONLY = "needs a domain whose leaves are public"


def _rows(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**40:
        raise RuleBroken(f"{shown(value)} must be a whole number from 0 to 2^40")
    return value


_RULES: dict[str, Callable[[object], Any]] = {
    "kind": rules.choice("sparse"),
    "column": rules.text,
    "columns": lambda value: rules.each_once(tuple(map(rules.text, rules.several(value)))),
    "bits": rules.whole_numbers,
    "notation": rules.choice(*NOTATIONS),
    "separator": rules.text,
    "depth": rules.Whole(1, 64),
}


_SCHEMA = rules_schema(_RULES, "sparse", columns=several(TEXT))


def read_sparse(value: object) -> SparseDomain:
    """Make the domain of a large tree of the plain values of a section.

    Raises:
        RuleBroken: at the key whose rule is broken.

    >>> read_sparse({"column": "address", "bits": [8, 8, 16]}).names
    ('/8', '/16', '/32')
    """
    given = rules.fields(value, _RULES)
    make, fields = _form(given)
    try:
        return make(**fields)
    except ValueError as error:
        refused = from_dpcore(error, fields)
        at = {".widths": ".bits", ".label_columns": ".columns"}.get(refused.at, refused.at)
        raise RuleBroken(str(refused), at=at) from None


def _form(given: dict[str, Any]) -> tuple[Callable[..., SparseDomain], dict[str, Any]]:
    """How a leaf is written, and the fields of that kind of domain."""
    if "columns" in given:
        _check_alone(given, "columns", ())
        return LabelDomain, {"label_columns": given["columns"]}
    if "column" not in given:
        raise RuleBroken("needs column or columns")
    if "bits" in given:
        _check_alone(given, "bits", ("column", "notation"))
        widths = {"widths": given.pop("bits")}
        default = "ipv4" if sum(widths["widths"]) == 32 else "hex"
        return CodeDomain, widths | {"notation": default} | given
    if "depth" not in given:
        _check_alone(
            given, "a column of whole values; say bits for codes or depth for paths", ("column",)
        )
        return LabelDomain, {"label_columns": (given["column"],)}
    _check_alone(given, "depth", ("column", "separator"))
    return PathDomain, given


def _check_alone(given: Mapping[str, object], key: str, beside: tuple[str, ...]) -> None:
    for other in given:
        if other != key and other not in beside:
            raise RuleBroken(f"does not go with {key}", at=f".{other}")


class SparseTree(TreeSection):
    """One tree too large to list."""

    misplaced: ClassVar[Mapping[str, str]] = {
        "group_by": "a sparse tree has no keys; make the key its first label",
        **dict.fromkeys(
            ("quantiles", "guess", "widths", "fanouts", "estimation", "consistency"),
            "belongs to an ordered domain",
        ),
        **dict.fromkeys(("measure", "invariants", "node_weights", "level_budgets"), _KNOWN_ONLY),
    }
    domain: Annotated[SparseDomain, PlainValidator(read_sparse), WithJsonSchema(_SCHEMA)]
    objective: Annotated[str, PlainValidator(rules.choice("nodes"))] = "nodes"
    mechanism: Annotated[str, PlainValidator(rules.choice("planned", "threshold"))] = "planned"
    level_weights: Any = None
    prune_below: Annotated[int, PlainValidator(_rows)] = 0
    weight: Amount = Fraction(1)

    @section_rule(mode="after")
    def _check_weights(self) -> Self:
        _ = self.weights
        return self

    def workload(self) -> SparseWorkload:
        return SparseWorkload(
            name=self.name,
            domain=self.domain,
            weight=self.weight,
            weights=self.weights,
            prune_below=self.prune_below,
        )

    @cached_property
    def weights(self) -> tuple[Fraction, ...] | None:
        """How much a row less in the threshold of each level below the root is worth."""
        if self.level_weights is None:
            return None
        return tuple(rules.at(".level_weights", self._weights, self.level_weights))

    def _weights(self, given: object) -> list[Fraction]:
        names = self.domain.names
        if not isinstance(given, Mapping):
            several = rules.several(given)
            if len(several) != len(names):
                raise RuleBroken(
                    f"must be {len(names)} numbers, one for each of {', '.join(names)}, not "
                    f"{len(several)}"
                )
            return [rules.amount(each) for each in several]
        weights = dict.fromkeys(names, Fraction(1))
        for name, each in given.items():
            if name not in weights:
                hint = nearest(str(name), names)
                raise RuleBroken(f"{shown(name)} is not a level below the root; {hint}")
            weights[name] = rules.at(f".{name}", rules.amount, each)
        return list(weights.values())


def sparse_description(question: SparseQuestion) -> Description:
    """Describe the plan of a sparse tree: the noise and the threshold of each level."""
    plan, domain = question.plan, question.domain
    size = "any number of leaves" if domain.leaves is None else f"{domain.leaves:,} leaves"
    return Description(
        entry=lambda: _entry(question),
        size=f"{size}, only heavy nodes; epsilon {float(plan.epsilon):.4g}, "
        f"delta {float(plan.delta):.4g}",
        intervals=" or more, given that the node passed its threshold"
        + (", before the folding" if question.prune_below else ""),
        table=Table(
            columns=_columns(question),
            caption="Noise and threshold per level",
            note="The root has no threshold: it is always published.",
        ),
        level_names=[level.name for level in plan.levels],
    )


def _columns(question: SparseQuestion) -> Sequence[Column]:
    plan, levels = question.plan, range(question.plan.height + 1)
    noises = [level_noise(plan.law(level), public=plan.public_total) for level in levels]
    fractions = [Fraction(level.epsilon) / Fraction(plan.epsilon) for level in plan.levels]
    budgets = [f"epsilon {float(e.epsilon):.4g}, delta {float(e.delta):.3g}" for e in plan.levels]
    radius = [plan.radius(level) for level in levels]
    heavy, most, confidence = [], [], percent(question.confidence)
    for level in levels:
        heavy.append(plan.heavy_count(level, question.confidence) if level else None)
        most.append(question.unpublished_most(level) if level else None)
    above, passes = "published above a noisy count of", "Published"
    if question.prune_below:
        passes = "Passes"
    return (
        Column("Part of the budget", fractions, Unit.FRACTION),
        Column("Budget", budgets, Unit.TEXT),
        Column("Noise", noises, Unit.LAW),
        Column("Noise, standard deviation", noises, Unit.DEVIATION, "std error {}"),
        Column("Never off by more than", radius, Unit.COUNT),
        Column(above.capitalize(), [None, *radius[1:]], Unit.COUNT, f"{above} {{}}"),
        Column(
            f"{passes} at {confidence}, from rows",
            heavy,
            Unit.COUNT,
            f"nodes of {{}} rows or more at {confidence}",
        ),
        Column(
            "Rows where not published, at most",
            most,
            Unit.COUNT,
            "at most {} rows where not published",
        ),
    )


def _entry(question: SparseQuestion) -> dict[str, Any]:
    """Return the plan as plain values, see `SparsePlan.predictions`."""
    return {
        "keys": 1,
        "mechanism": "threshold",
        "levels": [
            level | {"suppressed_most": question.unpublished_most(number) if number else None}
            for number, level in enumerate(question.plan.predictions(question.confidence))
        ],
    }


def sparse_target(target: ErrorTarget) -> dict[str, Any]:
    """
    Raises:
        UserError: in any case.
    """
    raise UserError(f"--target-error: {target.place} is sparse; its thresholds are its errors")


def sparse_summary(tree: ReleasedSparse) -> Iterator[str]:
    """How many nodes of each level were published, and the largest of the first level."""
    yield from heading(tree.question, tree.question.columns)
    levels = enumerate(tree.level_names)
    shown = ", ".join(f"{len(tree.rows(level)):,} {name}" for level, name in levels)
    yield f"  nodes that passed their thresholds: {shown}"
    yield from map(largest_line, tree.top(NODES_SHOWN, 1))


SPARSE_LINES = KindLines(
    describe=sparse_description,
    target=sparse_target,
    summary=sparse_summary,
)
