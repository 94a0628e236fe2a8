"""The plan of a release: all its trees and the guarantee they share.

Its digest identifies the law of everything that will be released, and enters the seed of every
draw of noise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from dptrees.dpcore.choices.unit_bounds import BoundQuestion
from dptrees.dpcore.choices.value_bounds import ValueBoundsQuestion
from dptrees.dpcore.noise.laws import SAMPLER_VERSION
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.question import Question, SeriesRun
from dptrees.dpcore.release.kinds import ReadKeys, ReadTerms, ReadUniverse, find_kind
from dptrees.dpcore.release.manifest import FORMAT_VERSION, READ_FORMATS
from dptrees.dpcore.rows.key_tables import TableKeys
from dptrees.dpcore.series.runs import counts_new_units


@dataclass(frozen=True, kw_only=True)
class UnitBounds:
    """The bounds of a privacy unit, and of values, that a release chooses first, by a release of
    their own.

    Args:
        plan: of that release, whose budget is spent beside the trees'.
        values: the chosen bounds by their names ("max_rows", "max_keys", "range-0.upper"), in the
            order of the plan's trees; None: they are yet to be chosen, and the trees are planned
            for one row of a unit and for any bounds of values.

    Raises:
        ValueError: bounds that the plan does not choose.
    """

    plan: ReleasePlan
    values: tuple[tuple[str, float | str], ...] | None = None

    def __post_init__(self) -> None:
        names = [name for question in self._choices for name in question.bound_names]
        if self.values is not None and [name for name, _ in self.values] != names:
            raise ValueError(f"bounds: they are not those that are chosen, {', '.join(names)}")

    @property
    def _choices(self) -> tuple[BoundQuestion | ValueBoundsQuestion, ...]:
        choices = []
        for question in self.plan.questions:
            if not isinstance(question, (BoundQuestion, ValueBoundsQuestion)):
                raise ValueError(f"bounds: {question.name} chooses none")
            choices.append(question)
        return tuple(choices)

    @property
    def in_words(self) -> str:
        """The bounds that are chosen, for a person, as "max_rows and upper of fare"."""
        return " and ".join(question.bounds_in_words for question in self._choices)

    @property
    def chosen_by(self) -> str:
        """The mechanisms of the choices, for a person."""
        return " and ".join(sorted({each.chosen_by for each in self._choices}))

    @property
    def chosen_in_words(self) -> str:
        """The bounds with what was chosen, as "max_rows 12, upper of fare 300"."""
        values = {n: x if isinstance(x, str) else f"{x:,.12g}" for n, x in self.values or ()}
        return ", ".join(
            f"{each.bounds_in_words} {' and '.join(values[name] for name in each.bound_names)}"
            for each in self._choices
        )

    @property
    def of_values(self) -> bool:
        """Whether bounds of values are among them."""
        return any(isinstance(each, ValueBoundsQuestion) for each in self._choices)

    @property
    def unit_values(self) -> dict[str, int]:
        """The chosen bounds of the privacy unit, by their names; empty before they are chosen."""
        values = dict(self.values or ())
        chosen = [each for each in self._choices if isinstance(each, BoundQuestion)]
        return {each.name: int(values[each.name]) for each in chosen if each.name in values}

    @property
    def tree_values(self) -> dict[str, dict[str, float | str]]:
        """The chosen bounds of values, "lower" and "upper" as far as they were chosen, by the name
        of the tree that is counted with them; empty before they are chosen."""
        values = dict(self.values or ())
        return {
            tree: {side: values[f"{each.name}.{side}"] for side in each.plan.sides}
            for each in self._choices
            if isinstance(each, ValueBoundsQuestion) and values
            for tree in each.trees
        }

    def spec(self) -> dict[str, object]:
        """The bounds as plain JSON values."""
        values = None if self.values is None else dict(self.values)
        return {"plan": self.plan.spec(), "values": values}


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """All questions of a release and the guarantee they share.

    Args:
        name: the release's id.
        unit: what neighbors differ in.
        budget: of the trees that share one; their budgets sum to no more. The epsilon that is
            stated where all trees spend an epsilon and a delta of their own.
        questions: at least one, with names that differ.
        selection: the release, made before, of the keys of some trees; None where all are listed.
            What it spends is spent beside all else here.
        bounds: of the unit, that were chosen before in the same way; None where all are given.
        stated: (epsilon, delta) where the guarantee of the trees is stated so; the budget is then a
            rho, and the composition of all laws was certified to keep them
            (`dpcore.privacy.composition`), beside what sparse trees spend of them.
        dataset: the id of the data set whose budget it counts against in a ledger; None without.
        dialect: how the rows are written, which is a part of what a row means, as plain JSON
            values; empty where a file says it or nothing is to say.
        unit_families: the families of types (`dpcore.bounding.unit_ids`) that the unit's
            columns have in the rows of this job, no part of the specification; None: unknown.

    Raises:
        ValueError: no question, a name twice, budgets above the whole, mixed relations or
            runs, or laws that do not keep what is stated.
    """

    name: str
    unit: PrivacyUnit
    budget: Budget
    questions: tuple[Question, ...]
    stated: tuple[Fraction, Fraction] | None = None
    dataset: str | None = None
    selection: ReleasePlan | None = None
    bounds: UnitBounds | None = None
    dialect: Mapping[str, Any] = field(default_factory=dict, hash=False)
    unit_families: Mapping[str, str] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.questions:
            raise ValueError("trees: a release needs at least one tree")
        names = [question.name for question in self.questions]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"trees: the name {twice[0]} is listed twice")
        if len({question.run for question in self.questions}) > 1:
            raise ValueError("trees: they are of different runs of a series")
        self._check_budgets()
        self._check_selection()
        self._check_bounds()
        if self.stated is None:
            if any(question.budget is None for question in self.questions):
                raise ValueError("delta: a tree spends one, so the release must state one")
        elif not self.spending.keeps(*self.stated, rho=self.budget.amount):
            epsilon, delta = self.stated
            raise ValueError(f"delta: the noise does not keep {delta} at epsilon {epsilon}")
        is_pure = self.budget.measure is Measure.EPSILON
        other = self.spending.rho if is_pure else self.spending.epsilon
        if other and (is_pure or self.stated is None):
            name = "a rho" if is_pure else "an epsilon"
            raise ValueError(f"trees: they spend {name} of {other} beside the budget")

    @property
    def counts_units(self) -> bool:
        """Whether units count in all trees, by one value of each, or as different values: no bound
        of rows concerns any."""
        has_values = any(each.unit_value is not None for each in self.questions)
        return has_values and all(each.counts_units for each in self.questions)

    @property
    def counted_in_words(self) -> str:
        """Describe how much of a unit is counted."""
        if not self.counts_units:
            return self.unit.bounds_in_words
        keys = self.unit.once_per_key.rows if any(each.is_keyed for each in self.questions) else 1
        return "one value" if keys == 1 else f"at most {keys:,} values"

    def _check_selection(self) -> None:
        if self.selection is None:
            return
        alike = self._is_alike(self.selection.unit)
        if not alike or (self.stated is None and self.budget.measure is Measure.RHO):
            raise ValueError("selection: it is planned for another guarantee")

    def _is_alike(self, other: PrivacyUnit) -> bool:
        """Whether a unit is this one, but for how much of it is counted."""
        own = self.unit
        return (own.neighbors, own.columns, own.nulls) == (
            other.neighbors,
            other.columns,
            other.nulls,
        )

    def _check_bounds(self) -> None:
        if self.bounds is None:
            return
        first = self.bounds.plan
        measure = Measure.EPSILON if self.stated is not None else self.budget.measure
        if not self._is_alike(first.unit) or first.budget.measure is not measure:
            raise ValueError("bounds: they are planned for another guarantee")
        own = {"max_rows": self.unit.rows, "max_keys": self.unit.keys}
        if any(own[name] != value for name, value in self.bounds.unit_values.items()):
            raise ValueError("bounds: those of the unit are not those that were chosen")
        domains = {each.name: getattr(each, "domain", None) for each in self.questions}
        for name, chosen in self.bounds.tree_values.items():
            spec = {} if (domain := domains.get(name)) is None else domain.spec()
            if any(spec.get(side) != at for side, at in chosen.items()):
                raise ValueError(f"bounds: those of {name} are not those that were chosen")

    def _check_budgets(self) -> None:
        for question in self.questions:
            own = question.budget
            alike = own is None or own.measure is self.budget.measure or self._is_pure(question)
            if not self.unit.holds(question.unit) or not alike:
                raise ValueError(f"trees: {question.name} is planned for another guarantee")
        # An epsilon beside one that is stated is added to what is stated.
        shared = Fraction(0) if self.stated is not None else self.spending.epsilon
        spent = self.spending.rho if self.budget.measure is Measure.RHO else shared
        if spent > self.budget.amount:
            raise ValueError(f"trees: budgets sum to {spent}, above {self.budget.amount}")
        if self.stated is not None and self.composed and self.budget.measure is not Measure.RHO:
            raise ValueError("delta: the budget behind it must be a rho")

    def _is_pure(self, question: Question) -> bool:
        """Whether a tree spends an epsilon, without a delta, in a release that states both."""
        own = question.budget
        return self.stated is not None and own is not None and own.measure is Measure.EPSILON

    @property
    def composed(self) -> tuple[Question, ...]:
        """The questions that share `budget`; the others spend an epsilon, or an epsilon and a
        delta, of their own."""
        return tuple(
            each for each in self.questions if each.budget is not None and not self._is_pure(each)
        )

    @property
    def spending(self) -> Spending:
        """Budget that all trees spend together."""
        return total_spending(self.questions)

    @property
    def promised(self) -> tuple[Fraction, Fraction] | None:
        """The (epsilon, delta) of all that is released, the selection of keys and the choice of
        bounds included (basic composition); None where `whole_budget` says it all."""
        if self.selection is None and self.stated is None:
            return None
        epsilon, delta = (self.budget.amount, Fraction(0)) if self.stated is None else self.stated
        for first in (self.selection, None if self.bounds is None else self.bounds.plan):
            if first is not None:
                epsilon, delta = epsilon + first.spending.epsilon, delta + first.spending.delta
        return epsilon, delta

    @property
    def whole_budget(self) -> Budget:
        """Budget of all that is released, the choice of bounds included, where `promised` is None.

        Losses of one measure add up, also where the trees are planned for what was chosen: by
        adaptive composition.
        """
        if self.bounds is None or self.promised is not None:
            return self.budget
        first = self.bounds.plan.budget.amount
        return Budget(measure=self.budget.measure, amount=self.budget.amount + first)

    @property
    def run(self) -> SeriesRun | None:
        """The run of a series that this release is; None for a single release. All runs of a series
        spend the budget together, once."""
        return self.questions[0].run

    @property
    def remembering(self) -> tuple[Question, ...]:
        """The trees that need to know in how many periods of a series each unit was counted."""
        return tuple(each for each in self.questions if each.counted_periods is not None)

    @property
    def remembering_key(self) -> str:
        """The key of a configuration for which units are remembered."""
        levels = [each.levels[0] for each in self.remembering]  # type: ignore[attr-defined]
        return "to_date" if all(map(counts_new_units, levels)) else "series.max_periods"

    @property
    def keeps_key(self) -> bool:
        """Whether it is a run of a series that must be made under the key of the run before."""
        return self.is_later_run and any(question.needs_one_key for question in self.questions)

    @property
    def is_later_run(self) -> bool:
        """Whether it is a run of a series that goes on from one before."""
        return self.run is not None and self.run.period > 1

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of all questions and of the privacy unit, each once."""
        read = (name for question in self.questions for name in question.columns)
        return tuple(dict.fromkeys((*read, *self.unit.columns)))

    def question(self, name: str) -> Question:
        """The question of a name.

        Raises:
            KeyError: there is none.
        """
        return {question.name: question for question in self.questions}[name]

    def spec(self) -> dict[str, object]:
        """The whole specification as plain JSON values; `plan_from_spec` reads it back."""
        pure = [question.name for question in self.questions if self._is_pure(question)]
        counted: dict[str, object] = {} if self.dataset is None else {"dataset": self.dataset}
        return (
            {
                "format": FORMAT_VERSION,
                "sampler": SAMPLER_VERSION,
                "name": self.name,
                "unit": "row",
                **self.unit.spec(),
                "measure": self.budget.measure.value,
                "budget": str(self.budget.amount),
                "stated": None if self.stated is None else [str(each) for each in self.stated],
                "trees": [question.spec() for question in self.questions],
                **counted,
            }
            | ({"pure": pure} if pure else {})
            | ({"dialect": dict(self.dialect)} if self.dialect else {})
            | self._selection_spec()
            | ({} if self.bounds is None else {"bounds": self.bounds.spec()})
        )

    def _selection_spec(self) -> dict[str, object]:
        return {} if self.selection is None else {"selection": self.selection.spec()}

    @cached_property
    def digest(self) -> bytes:
        """SHA-256, in canonical JSON, of what shapes the map and the noise.

        What only shapes the output (quantiles, confidence, weight, the planner's objective, the
        estimate and the consistent counts) is left out: finishing a folder with another quantile of
        the same data must draw the same noise. It holds nothing of the data.
        """
        spec = self.spec() | {"trees": [question.law_spec() for question in self.questions]}
        text = json.dumps(spec, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).digest()


def total_spending(questions: Iterable[Question]) -> Spending:
    """Budget that some questions spend together."""
    return sum((question.spending for question in questions), start=Spending())


def plan_from_spec(
    spec: Mapping[str, object],
    read_universe: ReadUniverse | None = None,
    read_keys: ReadKeys | None = None,
) -> ReleasePlan:
    """The release plan of a specification, as a manifest holds it.

    Args:
        spec: as `ReleasePlan.spec` writes it.
        read_universe: gives the universes of hierarchies, which the specification names by digest.
        read_keys: gives the tables of keys, which it names so too.

    Raises:
        ValueError: the specification is of another format, or of a hierarchy without a universe.
    """
    if spec.get("format") not in READ_FORMATS:
        known = " or ".join(map(str, READ_FORMATS))
        raise ValueError(f"format: {spec.get('format')} is not {known}, which this program reads")
    unit, measure = PrivacyUnit.from_entries(dict(spec)), Measure(spec["measure"])
    trees, stated, pure = spec["trees"], spec["stated"], spec.get("pure", [])
    assert isinstance(trees, list) and isinstance(pure, list)
    before = spec.get("selection")
    terms = ReadTerms(unit, measure, read_universe)
    alone = terms._replace(measure=Measure.EPSILON)
    return ReleasePlan(
        name=str(spec["name"]),
        unit=unit,
        budget=Budget(measure=measure, amount=Fraction(str(spec["budget"]))),
        questions=tuple(
            find_kind(tree).question(tree, alone if tree["name"] in pure else terms)
            for tree in (_with_keys(each, read_keys) for each in trees)
        ),
        stated=(Fraction(stated[0]), Fraction(stated[1])) if isinstance(stated, list) else None,
        dataset=None if spec.get("dataset") is None else str(spec["dataset"]),
        selection=plan_from_spec(before) if isinstance(before, dict) else None,
        bounds=_bounds_from_spec(spec.get("bounds")),
        dialect=dialect if isinstance(dialect := spec.get("dialect"), dict) else {},
    )


def _bounds_from_spec(spec: object) -> UnitBounds | None:
    if not isinstance(spec, dict):
        return None
    values = spec["values"]
    return UnitBounds(
        plan=plan_from_spec(spec["plan"]),
        values=tuple(values.items()) if isinstance(values, dict) else None,
    )


def _with_keys(tree: dict[str, Any], read_keys: ReadKeys | None) -> dict[str, Any]:
    """The specification of a tree with the table of its keys, where it names one."""
    keys = tree.get("keys")
    if not isinstance(keys, dict) or "table" not in keys:
        return tree
    if read_keys is None:
        raise ValueError(f"trees: the table of the keys of {tree['name']} is not at hand")
    return tree | {"keys": TableKeys(table=read_keys(keys["table"]), unknown=keys["unknown"])}
