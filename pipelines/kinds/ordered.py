"""Trees over ordered domains: their section, their objective, and their lines on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
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

from dptrees.dpcore.arithmetic.sums import interpolated
from dptrees.dpcore.levels.workload import OrderedWorkload, ReadAs
from dptrees.dpcore.mechanisms import EXPONENTIAL, LEVELS, PLANNED, find_planner, mechanism_names
from dptrees.dpcore.numbers import FINEST, MeanWorkload
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.released import ReleasedCdf
from dptrees.dpcore.questions.planning import Noise, Workload
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.release.composition import Guarantee
from dptrees.dpcore.rows.numbers import MOST_WHOLE
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.uniform.objectives import (
    CdfObjective,
    CountObjective,
    Guess,
    NodeObjective,
    Objective,
    QuantileObjective,
    RangeObjective,
)
from dptrees.dpcore.uniform.plan import Consistency, Estimator
from dptrees.pipelines.kinds.domains import ordered_schema, read_tree_domain, with_finest_cells
from dptrees.pipelines.kinds.ordered_metrics import (
    COUNT,
    MEAN,
    MEAN_REFUSED,
    PATTERN,
    UNIFORM_LEVELS,
    WHOLE_LEVEL_KEYS,
    WORDS,
    chosen_by,
    read_metrics,
    with_metrics,
)
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken, from_dpcore
from dptrees.pipelines.sections.privacy import AutoRange, auto_range
from dptrees.pipelines.sections.rules import Amount, Section
from dptrees.pipelines.sections.tree import KnownLeavesSection
from dptrees.pipelines.show.description import (
    NODES_SHOWN,
    Description,
    heading,
    largest_line,
    totals,
)
from dptrees.pipelines.show.figures import counted_note, counted_noun, quantile_texts
from dptrees.pipelines.show.mechanisms import KindLines, mechanism_description, mechanism_target
from dptrees.pipelines.show.page_nodes import clip
from dptrees.pipelines.terminal_text import escaped

# A guess is off: the plan is made for the guessed place of each quantile and some beside it.
_BESIDE = (-0.05, -0.025, 0.0, 0.025, 0.05)


def make_objective(
    kind: str,
    domain: OrderedDomain,
    *,
    quantiles: tuple[float, ...] = (),
    guess: tuple[Fraction, Sequence[tuple[object, float]]] | None = None,
    widths: tuple[int, ...] = (),
    level_weights: tuple[float, ...] = (),
) -> Objective:
    """The objective that a tree's section describes.

    Args:
        kind: cdf, quantiles, ranges, counts, nodes or mean.
        domain: of the tree.
        quantiles: those that will be read.
        guess: the number of rows, and pairs of a value and the part of the rows below it.
        widths: of ranges, in cells.
        level_weights: of nodes, root first.

    Raises:
        ValueError: a guess that is no CDF, or values that do not fit the domain.
    """
    if kind == "ranges":
        for width in widths:
            if width > domain.cells:
                raise Refusal("widths", f"{width} is more than the {domain.cells} cells")
        return RangeObjective(widths=widths)
    if kind == "nodes":
        return NodeObjective(weights=level_weights)
    # A mean has no tree of counts, and so no plan that an objective would be for.
    if kind in ("cdf", "mean"):
        return CdfObjective()
    if kind == "counts":
        return CountObjective()
    if guess is None:
        return QuantileObjective(quantiles=quantiles)
    rows, below = guess
    places, parts = _guessed_cdf(domain, below)
    looked_at = [
        min(max(quantile + beside, 0.0), 1.0) for quantile in quantiles for beside in _BESIDE
    ]
    densities = np.diff(parts) / np.diff(places) * float(rows)
    guesses = []
    for quantile in looked_at:
        inside = int(np.clip(np.searchsorted(parts, quantile, "right") - 1, 0, len(densities) - 1))
        stop = round(float(interpolated(quantile, parts, places)))
        guesses.append(Guess(stop=stop, density=float(densities[inside])))
    return QuantileObjective(quantiles=tuple(looked_at), guesses=tuple(guesses))


def _guessed_cdf(
    domain: OrderedDomain, below: Sequence[tuple[object, float]]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
    """Boundaries of cells from 0 to K, and the part of the rows below each; both increase."""
    places, parts = [0], [0.0]
    for value, part in below:
        try:
            place = domain.find_boundary(value)
        except ValueError:
            raise Refusal("guess", f"{value} is not a value of the domain") from None
        if place == domain.cells and part != 1:
            raise Refusal("guess", f"{value} must lie below the end of the domain")
        if place <= places[-1] and not (place == 0 and len(places) == 1):
            raise Refusal("guess", "its values must increase, by a cell at least")
        if not parts[-1] < part < 1 and not (place == domain.cells and part == 1):
            raise Refusal("guess", "its parts must increase, from above 0 to below 1")
        places.append(place)
        parts.append(part)
    if places[-1] < domain.cells:
        places.append(domain.cells)
        parts.append(1.0)
    if places[1] == 0:
        raise Refusal("guess", "its first value must lie above the domain's first")
    return np.array(places, np.float64), np.array(parts)


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
        PlainValidator(rules.choice(*mechanism_names("ordered"))),
    ] = PLANNED
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
            if value.get("objective") == MEAN:
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
        cells, is_whole = self.domain.cells, self.domain.kind in ("integer", "duration")
        is_written = not isinstance(domain, Mapping) or "cells" in domain
        is_cheap = (
            self.chosen_objective == MEAN
            or self.mechanism == EXPONENTIAL
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
        if self.chosen_objective == MEAN:
            for key in self.model_fields_set & MEAN_REFUSED.keys():
                if (key, getattr(self, key)) != ("mechanism", PLANNED):
                    raise RuleBroken(MEAN_REFUSED[key], at=f".{key}")
            return self
        for key, kind in (("widths", "ranges"), ("level_weights", "nodes")):
            if getattr(self, key) and self.chosen_objective != kind:
                raise RuleBroken(f"belongs to the objective {kind}", at=f".{key}")
        if self.guessed_parts and self.chosen_objective != "quantiles":
            raise RuleBroken("belongs to the objective quantiles", at=".guess.below")
        self._check_order()
        chosen = {name: getattr(self, name) for name in self.model_fields_set}
        refused = find_planner("ordered", self.mechanism).refusal(chosen)
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
        return self.mechanism == PLANNED and self.level_budgets is None

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
        return 1 if self.chosen_objective == MEAN else super().leaves

    def workload(self) -> Workload[Any]:
        if self.chosen_objective == MEAN:
            return MeanWorkload(**self._shared)
        return self._tree

    @property
    def _shared(self) -> dict[str, Any]:
        """The parts of the workload that a mean has too."""
        return {
            "name": self.name,
            "domain": self.domain,
            "keys": self.keys,
            "weight": self.weight,
            "noise": Noise(self.noise),
        }

    @property
    def _tree(self) -> OrderedWorkload:
        chosen = self.mechanism == PLANNED and self.model_fields_set & WHOLE_LEVEL_KEYS
        return OrderedWorkload(
            **self._shared,
            objective=self.planned_for,
            quantiles=self.chosen_quantiles,
            mechanism=LEVELS if chosen else self.mechanism,
            fanouts=self.fanouts,
            level_budgets=self.level_budgets,
            estimator=Estimator(self.estimation),
            consistency=self.chosen_consistency,
            read_as=self.chosen_reading,
            guessed_rows=None if self.guess is None else self.guess.rows,
            interval_share=Fraction(0) if self.intervals is None else self.intervals.fraction,
        )

    def describe_rule(self, key: str, rule: str, guarantee: Guarantee) -> str:
        is_public = self._tree.public_total(guarantee.unit, drops_rows=guarantee.drops_rows)
        if key != "estimation" or is_public:
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


def ordered_description(question: TreeQuestion[Any]) -> Description:
    """Describe the plan of a tree over an ordered domain."""
    domain: Any = question.domain
    size = f"{domain.cells:,} {'cells' if domain.is_ordered else 'categories without an order'}"
    size = getattr(domain, "noun", size)
    description = mechanism_description(question)
    facts = {"Tree": f"{size}{description.method}"}
    return replace(description, size=size, domain_facts=facts)


def cells_in_words(question: TreeQuestion[Any]) -> str:
    """Return the column of a tree and its cells, and how many keys there are, in a sentence."""
    domain: Any = question.domain
    if (noun := getattr(domain, "noun", None)) is not None:
        return f"{clip(noun)}: {counted_note(question)}."
    text = f"Column {clip(domain.column)} ({domain.kind}) in {domain.cells:,} cells"
    if question.keys is not None:
        by = clip(", ".join(question.keys.columns))
        text += f", once for each of {question.key_count:,} keys of {by}"
    return f"{text}."


def ordered_summary(tree: ReleasedCdf) -> Iterator[str]:
    """The counts of the roots with their quantiles, or with the largest categories."""

    def quantiles(label: str | None, blanks: str) -> Iterator[str]:
        for row in tree.quantiles(label):
            value, span = quantile_texts(row)
            value = str(row.get("in_words", value))
            yield f"  {blanks}{100 * row['q']:>6g} %  {escaped(value):>10}  [{escaped(span)}]"

    def categories(label: str | None, _: str) -> Iterator[str]:
        # One alone is the total.
        shown = NODES_SHOWN if getattr(tree.question.domain, "noun", None) is None else 0
        return map(largest_line, tree.top(shown, tree.height, label))

    yield from heading(tree.question, tree.question.domain.columns)
    below = quantiles if tree.question.is_ordered else categories
    yield from totals(tree, counted_noun(tree.question), below)


ORDERED_LINES = KindLines(
    describe=ordered_description, target=mechanism_target, summary=ordered_summary
)
