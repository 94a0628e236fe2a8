"""The plan of a release: all its questions and the guarantee they share.

Its digest identifies the law of everything that will be released, and enters the seed of every draw
of noise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpcore.accounting import rho_of
from dpcore.hierarchy_question import hierarchy_question_from_spec
from dpcore.privacy import Budget, Measure, Neighbors
from dpcore.privacy_loss import keeps
from dpcore.question import MovedCounts, Question, ordered_question_from_spec
from dpcore.samplers import SAMPLER_VERSION
from dpcore.universe import Universe

# Changes whenever the same specification would give other bits in a release.
FORMAT_VERSION = 2

# From the digest of a universe to the universe.
ReadUniverse = Callable[[str], Universe]


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """All questions of a release and the guarantee they share.

    Args:
        name: the release's id.
        neighbors: the neighbouring relation.
        budget: the whole release's; the questions' budgets sum to no more.
        questions: at least one, with names that differ.
        stated: (epsilon, delta) where the guarantee is stated so; the budget is then a rho, and the
            composition of all laws was certified to keep them (`dpcore.privacy_loss`).

    Raises:
        ValueError: no question, a name twice, budgets above the whole, mixed relations, or laws
            that do not keep what is stated.
    """

    name: str
    neighbors: Neighbors
    budget: Budget
    questions: tuple[Question, ...]
    stated: tuple[Fraction, Fraction] | None = None

    def __post_init__(self) -> None:
        if not self.questions:
            raise ValueError("trees: a release needs at least one tree")
        names = [question.name for question in self.questions]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"trees: the name {twice[0]} stands twice")
        for question in self.questions:
            plan = question.plan
            if plan.neighbors is not self.neighbors or plan.budget.measure != self.budget.measure:
                raise ValueError(f"trees: {question.name} is planned for another guarantee")
        spent = sum(question.plan.budget.amount for question in self.questions)
        if spent > self.budget.amount:
            raise ValueError(f"trees: budgets sum to {spent}, above {self.budget.amount}")
        if self.stated is not None:
            epsilon, delta = self.stated
            if self.budget.measure is not Measure.RHO:
                raise ValueError("delta: the budget behind it must be a rho")
            if not self._keeps(epsilon, delta):
                raise ValueError(f"delta: the noise does not keep {delta} at epsilon {epsilon}")

    @property
    def moved_counts(self) -> MovedCounts | None:
        """The noise laws of all trees, and how many counts of each a row moves by one; None where
        the composition of one of them is not known beyond its rho."""
        moved: MovedCounts = ()
        for question in self.questions:
            if question.moved_counts is None:
                return None
            moved += question.moved_counts
        return moved

    def _keeps(self, epsilon: Fraction, delta: Fraction) -> bool:
        moved = self.moved_counts
        if moved is None:
            return self.budget.amount <= rho_of(epsilon, delta)
        return keeps(moved, self.budget.amount, epsilon, delta)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that all questions read, each once."""
        return tuple(dict.fromkeys(name for q in self.questions for name in q.columns))

    def question(self, name: str) -> Question:
        """The question of a name.

        Raises:
            KeyError: there is none.
        """
        for question in self.questions:
            if question.name == name:
                return question
        raise KeyError(name)

    def spec(self) -> dict[str, object]:
        """The whole specification as plain JSON values; `plan_from_spec` reads it back."""
        return {
            "format": FORMAT_VERSION,
            "sampler": SAMPLER_VERSION,
            "name": self.name,
            "unit": "row",
            "neighbors": self.neighbors.value,
            "measure": self.budget.measure.value,
            "budget": str(self.budget.amount),
            "stated": None if self.stated is None else [str(each) for each in self.stated],
            "trees": [question.spec() for question in self.questions],
        }

    @cached_property
    def digest(self) -> bytes:
        """SHA-256, in canonical JSON, of what shapes the map and the noise.

        What only shapes the output (quantiles, confidence, weight, the planner's objective, the
        estimate and the consistent counts) is left out: asking for another quantile of the same
        data must draw the same noise. It holds nothing of the data.
        """
        spec = self.spec() | {"trees": [question.law_spec() for question in self.questions]}
        text = json.dumps(spec, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).digest()


def plan_from_spec(
    spec: Mapping[str, object], read_universe: ReadUniverse | None = None
) -> ReleasePlan:
    """The release plan of a specification, as a manifest holds it.

    Args:
        spec: as `ReleasePlan.spec` tells it.
        read_universe: gives the universes of hierarchies, which the specification names by digest.

    Raises:
        ValueError: the specification is of another format, or of a hierarchy without a universe.
    """
    if spec.get("format") != FORMAT_VERSION:
        raise ValueError(f"format: {spec.get('format')} is not {FORMAT_VERSION}, this program's")
    neighbors, measure = Neighbors(spec["neighbors"]), Measure(spec["measure"])
    trees, stated = spec["trees"], spec["stated"]
    assert isinstance(trees, list)
    return ReleasePlan(
        name=str(spec["name"]),
        neighbors=neighbors,
        budget=Budget(measure=measure, amount=Fraction(str(spec["budget"]))),
        questions=tuple(
            _question_from_spec(tree, neighbors, measure, read_universe) for tree in trees
        ),
        stated=(Fraction(stated[0]), Fraction(stated[1])) if isinstance(stated, list) else None,
    )


def _question_from_spec(
    spec: Mapping[str, object],
    neighbors: Neighbors,
    measure: Measure,
    read_universe: ReadUniverse | None,
) -> Question:
    domain = spec["domain"]
    assert isinstance(domain, dict)
    if domain.get("kind") != "hierarchy":
        return ordered_question_from_spec(spec, neighbors, measure)
    if read_universe is None:
        raise ValueError(f"trees: the universe of {spec['name']} is not at hand")
    universe = read_universe(str(domain["universe"]))
    return hierarchy_question_from_spec(spec, neighbors, measure, universe)
