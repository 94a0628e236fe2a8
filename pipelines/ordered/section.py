"""The section of a tree over an ordered domain: what it is for and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ModelWrapValidatorHandler,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.mean import FINEST
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.questions.planning import Noise, ReleaseTerms, Workload
from dptrees.dpcore.rows.numbers import MOST_WHOLE
from dptrees.dpcore.uniform.objectives import Objective
from dptrees.dpcore.uniform.plan import Consistency, Estimator
from dptrees.pipelines.ordered.domain import ordered_schema, read_tree_domain, with_finest_cells
from dptrees.pipelines.ordered.mechanisms import (
    MECHANISMS,
    OWN_OBJECTIVES,
    UNIFORM_LEVELS,
    WHOLE_LEVEL_KEYS,
    OrderedChoices,
    ReadAs,
    refused_choice,
    whole_levels,
)
from dptrees.pipelines.ordered.metrics import (
    COUNT,
    PATTERN,
    WORDS,
    chosen_by,
    read_metrics,
    with_metrics,
)
from dptrees.pipelines.ordered.objective import make_objective
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, from_dpcore
from dptrees.pipelines.sections.section import Amount, Section
from dptrees.pipelines.sections.tree import KnownLeavesSection
from dptrees.pipelines.value_bounds.auto import AutoRange, auto_range

# Bounds were chosen for the budget that was spent: the cells between them may be many.
_CHOSEN = "chosen bounds"
DEFAULT_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)

# What goes with categories that have no order; all else speaks of runs of them.
_OF_COUNTS: Mapping[str, tuple[object, ...]] = {
    "objective": (None, "counts"),
    "quantiles": ((),),
    "mechanism": ("planned", "histogram"),
    "estimation": ("full",),
    "consistency": (None, "top_down"),
}

Quantile = Annotated[float, PlainValidator(rules.quantile)]


class GuessSection(Section):
    """A public guess: so many rows in a tree, and the part of them below some values."""

    rows: Amount
    below: Annotated[tuple[tuple[object, float], ...], PlainValidator(rules.guessed_parts)] = ()


class IntervalSection(Section):
    """What is spent on intervals by a mechanism that has none without."""

    fraction: Annotated[Fraction, PlainValidator(rules.share)]


def _with_domain(tree: Mapping[str, Any], bounds: Mapping[str, float]) -> dict[str, Any]:
    return {**tree, "domain": {**tree["domain"], **bounds}}


class OrderedTree(KnownLeavesSection):
    """One tree over an ordered domain: what it is for and how it is made."""

    refused: ClassVar[Mapping[str, str]] = {
        **{key: key for key in ("quantiles", "widths", "level_weights", "mechanism", "fanouts")},
        **{key: key for key in ("level_budgets", "estimation", "noise", "intervals")},
        **{"level_amounts": "level_budgets", "estimator": "estimation", "domain": "domain.cells"},
        **{"column": "domain.column", "missing": "domain.missing"},
    }
    domain: Annotated[
        OrderedDomain,
        PlainValidator(read_tree_domain),
        WithJsonSchema(ordered_schema(with_auto=True)),
    ]
    objective: Annotated[
        str | None,
        PlainValidator(
            rules.choice(
                *("cdf", "quantiles", "ranges", "counts", "nodes", "mean"), page="docs/questions.md"
            )
        ),
    ] = None
    metrics: Annotated[
        tuple[str, ...],
        PlainValidator(read_metrics),
        WithJsonSchema(
            {
                "type": "array",
                "items": {"anyOf": [{"enum": list(WORDS)}, {"pattern": f"^{PATTERN}$"}]},
                "minItems": 1,
                "uniqueItems": True,
            }
        ),
    ] = ()
    quantiles: Annotated[
        tuple[Quantile, ...], BeforeValidator(rules.several), AfterValidator(rules.each_once)
    ] = ()
    guess: GuessSection | None = None
    widths: Annotated[tuple[int, ...], PlainValidator(rules.whole_numbers)] = ()
    level_weights: Annotated[tuple[float, ...], PlainValidator(rules.weights)] = ()
    mechanism: Annotated[
        str,
        PlainValidator(rules.choice(*MECHANISMS)),
    ] = "planned"
    fanouts: Annotated[tuple[int, ...] | None, PlainValidator(rules.whole_numbers)] = None
    level_budgets: Annotated[
        Literal["equal", "optimal"] | tuple[Fraction, ...] | None,
        PlainValidator(rules.level_budgets),
    ] = None
    estimation: Annotated[
        str, PlainValidator(rules.choice(*(each.value for each in Estimator)))
    ] = "full"
    consistency: Annotated[
        str | None, PlainValidator(rules.choice(*(each.value for each in Consistency)))
    ] = None

    intervals: IntervalSection | None = None
    optimize_for: Annotated[
        str | None, PlainValidator(rules.choice(*(each.value for each in ReadAs)))
    ] = None

    # The bounds that are chosen privately, and the section with values in their place.
    _auto: AutoRange | None = PrivateAttr(None)
    _values: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @section_rule(mode="wrap")
    @classmethod
    def _with_stand_ins(
        cls, value: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        if isinstance(value, Mapping):
            value = with_metrics(value)
            if any(value.get("objective") == own for own in OWN_OBJECTIVES):
                value = with_finest_cells(value, FINEST)
        auto = auto_range(value) if isinstance(value, Mapping) else None
        if auto is None:
            result = handler(value)
            if info.context != _CHOSEN:
                result._check_whole_numbers(value)
            return result
        handler(_with_domain(value, auto.stand_ins | auto.narrowest))
        return cls._checked(auto, _with_domain(value, auto.stand_ins), handler)

    @classmethod
    def _checked(
        cls,
        auto: AutoRange | None,
        values: Mapping[str, Any],
        handler: Callable[[Any], Self],
    ) -> Self:
        result = handler(values)
        result._auto, result._values = auto, values
        return result

    def _check_whole_numbers(self, values: Any) -> None:
        """Refuse many cells that nobody wrote, but where they cost nothing."""
        domain = values.get("domain") if isinstance(values, Mapping) else None
        cells, is_whole = self.domain.cells, isinstance(self.domain, IntegerDomain)
        is_written = not isinstance(domain, Mapping) or "cells" in domain
        is_cheap = (
            self.chosen_objective in OWN_OBJECTIVES
            or self.mechanism == "exponential"
            or self.optimize_for == ReadAs.QUANTILES.value
        )
        if is_whole and cells > MOST_WHOLE and not (is_written or is_cheap):
            raise RuleBroken(
                f"is required where more than {MOST_WHOLE:,} whole numbers lie between the bounds: "
                f"fewer cells, or {cells} for a cell each, which takes much time and memory",
                at=".domain.cells",
            )

    @property
    def auto(self) -> AutoRange | None:
        """The bounds of the domain that are chosen privately; None where both are given."""
        return self._auto

    def with_bounds(self, bounds: Mapping[str, float]) -> OrderedTree:
        """The section with bounds of the domain that were chosen.

        Args:
            bounds: "lower" and "upper", as far as they were chosen.
        """
        values = _with_domain(self._values, bounds)
        return self._checked(
            self._auto, values, partial(type(self).model_validate, context=_CHOSEN)
        )

    @property
    def without_auto(self) -> OrderedTree:
        """The section with its present bounds, as if they were given."""
        if self._auto is None:
            return self
        return type(self).model_validate(self._values, context=_CHOSEN)

    @section_rule(mode="after")
    def _check_metrics(self) -> Self:
        if self.metrics == (COUNT,) and self.domain.is_ordered:
            raise RuleBroken(
                "count alone needs no values: use a tree with the groups as categories",
                at=".metrics",
            )
        if set(self.metrics) - {COUNT} and not self.domain.is_ordered:
            raise RuleBroken("categories without an order have count alone", at=".metrics")
        for key, value in chosen_by(self.metrics).items() if self.metrics else ():
            given = getattr(self, key)
            if given != (value if isinstance(value, str) else tuple(map(float, value))):
                raise RuleBroken("is chosen by metrics; leave it out", at=f".{key}")
        return self

    @section_rule(mode="after")
    def _check_objective(self) -> Self:
        own = OWN_OBJECTIVES.get(self.chosen_objective)
        if own is not None:
            for key in self.model_fields_set & own.refused.keys():
                if getattr(self, key) not in own.allowed.get(key, ()):
                    raise RuleBroken(own.refused[key], at=f".{key}")
            return self
        for key, kind in (("widths", "ranges"), ("level_weights", "nodes")):
            if getattr(self, key) and self.chosen_objective != kind:
                raise RuleBroken(f"belongs to the objective {kind}", at=f".{key}")
        if self.guessed_parts and self.chosen_objective != "quantiles":
            raise RuleBroken("belongs to the objective quantiles", at=".guess.below")
        self._check_order()
        chosen = {name: getattr(self, name) for name in self.model_fields_set}
        refused = refused_choice(self.mechanism, chosen)
        if refused is not None:
            raise RuleBroken(refused[1], at=f".{refused[0]}")
        if self.chosen_objective == "nodes":
            if self.fanouts is None:
                raise RuleBroken("is required for the objective nodes", at=".fanouts")
            if not self.level_weights:
                raise RuleBroken("is required for the objective nodes", at=".level_weights")
        _ = self.planned_for
        self._check_counts()
        return self

    def _check_counts(self) -> None:
        """Check consistency and the guess of counts, where whole levels are measured."""
        if self.mechanism not in UNIFORM_LEVELS:
            return
        repaired = (
            self.mechanism != "independent"
            and self.estimation == Estimator.FULL.value
            and self.chosen_consistency in (Consistency.TOP_DOWN, Consistency.SHRUNK)
            and self.domain.is_ordered
        )
        if self.consistency == Consistency.SHRUNK.value and not repaired:
            raise RuleBroken(
                "shrunk goes with cells in order and estimation full, and not with the mechanism "
                "independent",
                at=".consistency",
            )
        only_rows = self.guess is not None and not self.guess.below
        if only_rows and not repaired:
            raise RuleBroken(
                "rows alone is only for counts of cells in order with estimation full and "
                "consistency top_down or shrunk",
                at=".guess",
            )
        if self.optimize_for == ReadAs.QUANTILES.value and self.chosen_objective != "quantiles":
            raise RuleBroken("quantiles goes with the objective quantiles", at=".optimize_for")
        if self.optimize_for is not None and not (repaired and self.plans_freely):
            raise RuleBroken(
                "goes with the mechanism planned, without level_budgets, of cells in order, with "
                "estimation full and consistency top_down or shrunk",
                at=".optimize_for",
            )

    @property
    def chosen_reading(self) -> ReadAs | None:
        """Which numbers are read: as given; where rows are guessed and nothing else is chosen,
        counts."""
        if self.optimize_for is not None:
            return ReadAs(self.optimize_for)
        free = self.plans_freely and not self.model_fields_set & WHOLE_LEVEL_KEYS
        sums = self.chosen_objective in ("cdf", "ranges")
        return ReadAs.COUNTS if self.guess is not None and free and sums else None

    @property
    def plans_freely(self) -> bool:
        """Whether the planner chooses the shares of the levels."""
        return self.mechanism == "planned" and self.level_budgets is None

    def _check_order(self) -> None:
        """Categories that have no order are for counts."""
        if self.domain.is_ordered:
            return
        for key, of_counts in _OF_COUNTS.items():
            if (choice := getattr(self, key)) not in of_counts:
                what = "" if isinstance(choice, tuple) else f"{choice} "
                raise RuleBroken(
                    f"{what}needs categories in order; if the list is in order, say ordered: true "
                    "in the domain",
                    at=f".{key}",
                )

    @property
    def guessed_parts(self) -> tuple[Fraction, tuple[tuple[object, float], ...]] | None:
        """The guess of the distribution, where it says more than the number of rows."""
        if self.guess is None or not self.guess.below:
            return None
        return self.guess.rows, self.guess.below

    @property
    def chosen_objective(self) -> str:
        """The one given; by default the counts of categories that have no order, else the CDF."""
        return self.objective or ("cdf" if self.domain.is_ordered else "counts")

    @cached_property
    def planned_for(self) -> Objective:
        """What the plan is best for."""
        try:
            return make_objective(
                self.chosen_objective,
                self.domain,
                quantiles=self.chosen_quantiles,
                guess=self.guessed_parts,
                widths=self.widths,
                level_weights=self.level_weights,
            )
        except ValueError as error:
            raise from_dpcore(
                error,
                {"guess": self.guess, "widths": self.widths, "level_weights": self.level_weights},
            ) from None

    @property
    def leaves(self) -> int | None:
        return 1 if self.chosen_objective in OWN_OBJECTIVES else super().leaves

    def workload(self) -> Workload[Any]:
        own = OWN_OBJECTIVES.get(self.chosen_objective)
        if own is not None:
            return own.workload(self.choices)
        return MECHANISMS[self.mechanism].workload(self.choices)

    @property
    def choices(self) -> OrderedChoices:
        """The choices of the section, whatever its mechanism."""
        return OrderedChoices(
            name=self.name,
            domain=self.domain,
            keys=self.keys,
            weight=self.weight,
            noise=Noise(self.noise),
            objective=self.planned_for,
            quantiles=self.chosen_quantiles,
            fanouts=self.fanouts,
            level_budgets=self.level_budgets,
            estimator=Estimator(self.estimation),
            consistency=self.chosen_consistency,
            read_as=self.chosen_reading,
            guessed_rows=None if self.guess is None else self.guess.rows,
            interval_share=Fraction(0) if self.intervals is None else self.intervals.fraction,
            chosen=frozenset(self.model_fields_set),
        )

    def describe_rule(self, key: str, rule: str, terms: ReleaseTerms) -> str:
        if key != "estimation" or whole_levels(self.mechanism, self.choices).public_total(terms):
            return rule
        return (
            f"{rule}; it is public under substitute, where the tree has no group_by and no "
            "policy of its domain or of the input drops rows"
        )

    @property
    def chosen_consistency(self) -> Consistency:
        """The one given; by default top down, and of independent prefixes the closest CDF, since
        only that keeps what makes them different; of plans for counts of sums what is closest."""
        if self.consistency is not None:
            return Consistency(self.consistency)
        sums = self.chosen_objective in ("cdf", "ranges")
        if self.chosen_reading is ReadAs.COUNTS and self.plans_freely and sums:
            return Consistency.SHRUNK
        return Consistency.L2 if self.mechanism == "independent" else Consistency.TOP_DOWN

    @property
    def chosen_quantiles(self) -> tuple[float, ...]:
        """The quantiles given, or the default ones where the tree is for quantiles."""
        if self.quantiles or self.chosen_objective != "quantiles":
            return self.quantiles
        return DEFAULT_QUANTILES
