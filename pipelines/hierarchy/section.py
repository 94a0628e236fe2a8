"""The section of a tree over a hierarchy: what it counts, what it is for, how it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import PlainValidator, WithJsonSchema
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.adaptive.hierarchy_planner import AdaptiveHierarchy
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.question import HierarchyWorkload
from dptrees.dpcore.irregular.planner import NodeWeights
from dptrees.dpcore.levels.irregular import TOP_DOWN, IrregularLevels, Thresholds
from dptrees.dpcore.levels.relative_errors import METRICS, RelativeObjective
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.questions.planning import Noise, Workload
from dptrees.dpcore.release.mechanism_choice import MechanismChoice
from dptrees.dpcore.rows.policies import MeasureColumn
from dptrees.pipelines.hierarchy.domain import (
    HIERARCHY_SCHEMA,
    guessed_counts,
    hierarchy_weights,
    invariant_level,
    read_hierarchy,
)
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, from_dpcore
from dptrees.pipelines.sections.section import Section, Text
from dptrees.pipelines.sections.tree import KnownLeavesSection

_ORDERED_ONLY = "belongs to an ordered domain"
PLANNED, TREE, THRESHOLDS, ADAPTIVE = _MECHANISMS = "planned", "tree", "thresholds", "adaptive"
_COUNTS, _ESTIMATES = "counts", "estimates"
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
    mechanism: Annotated[str, PlainValidator(rules.choice(*_MECHANISMS))] = PLANNED
    optimize_for: Annotated[str | None, PlainValidator(rules.choice(_COUNTS, _ESTIMATES))] = None
    estimation: Annotated[str | None, PlainValidator(rules.choice("least_squares", "none"))] = None
    consistency: Annotated[
        str, PlainValidator(rules.choice("top_down", "smallest_first", "l1", "l2"))
    ] = "top_down"
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
        if self.consistency in ("l1", "l2"):
            raise RuleBroken(_ORDERED_ONLY, at=".consistency")
        if self.consistency == "smallest_first" and self.mechanism in (THRESHOLDS, ADAPTIVE):
            repaired = "adaptive trees" if self.mechanism == ADAPTIVE else "thresholds"
            raise RuleBroken(f"{repaired} are repaired top_down", at=".consistency")
        if self.consistency == "smallest_first" and self.measure is not None:
            raise RuleBroken("smallest_first is of counts, not of sums", at=".consistency")

    def workload(self) -> Workload[Any]:
        if self.mechanism == THRESHOLDS:
            return HierarchyWorkload(**self._shared, candidate=self._thresholds)
        whole = HierarchyWorkload(**self._shared, candidate=self._levels)
        if not self.may_adapt:
            return whole
        tree = AdaptiveHierarchy(
            weights=self.weights,
            counts=self.optimize_for == _COUNTS,
            guessed_rows=self.guessed_rows,
        )
        adaptive = replace(whole, candidate=tree)
        if self.mechanism == ADAPTIVE:
            return adaptive
        own = {name: self._shared[name] for name in ("name", "keys", "weight", "noise")}
        return MechanismChoice(
            **own, whole=whole, adaptive=adaptive, guessed_rows=self.guessed_rows
        )

    @property
    def _shared(self) -> dict[str, Any]:
        """The parts of the workload that no mechanism changes."""
        return {
            "name": self.name,
            "domain": self.domain,
            "keys": self.keys,
            "weight": self.weight,
            "noise": Noise(self.noise),
            "measure": None if self.measure is None else self.measure.measure,
            "public_level": self.public_level,
        }

    @property
    def _thresholds(self) -> Thresholds:
        return Thresholds(objective=self.relative, rows_at_most=self.rows_at_most)

    @property
    def _levels(self) -> IrregularLevels:
        """Noise on the levels; under a relative objective thresholds too, if nothing is chosen
        that they lack."""
        assert self.level_budgets != "optimal"
        is_relative = self.objective == "relative"
        chosen = any(getattr(self, key) is not None for key in _NOT_BY_THRESHOLDS)
        own = self.mechanism, self.consistency, self.noise
        is_open = own == (PLANNED, TOP_DOWN, Noise.BEST.value) and not chosen
        equal = self.mechanism == TREE and self.level_budgets is None
        return IrregularLevels(
            weights=self.weights,
            objective=self.relative if is_relative else None,
            estimation=self.estimation,
            consistency=self.consistency,
            level_budgets="equal" if equal else self.level_budgets,
            thresholds=self._thresholds if is_relative and is_open else None,
        )

    @cached_property
    def weights(self) -> NodeWeights | None:
        """What the plan is best for."""
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
        elif self.optimize_for is not None:
            raise RuleBroken(
                "goes with the mechanism adaptive, and with planned where a guess has rows",
                at=".optimize_for",
            )

    @property
    def may_adapt(self) -> bool:
        """Whether sparse nodes need not be split."""
        guessed = self.guessed_rows is not None and self.consistency == "top_down"
        return self.mechanism == ADAPTIVE or guessed

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
        needed = "kappa" if self.metric == "rel_kappa" else "alpha"
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
