"""A question: one tree over one domain, once per key, and all that shapes its answer.

A release answers several questions in one pass over the rows. `ReleasePlan` holds them with the
guarantee they share; its digest identifies the law of everything that will be released, and
enters the seed of every draw of noise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import pyarrow as pa

from dpcore.chunks import CHUNK_LEAVES
from dpcore.domain import KeyList, OrderedDomain, make_domain, make_key_list
from dpcore.estimators import Estimator
from dpcore.forest import Forest
from dpcore.noise import Integers
from dpcore.objectives import Objective, objective_from_spec
from dpcore.plan import Mechanism, TreePlan
from dpcore.plan_errors import widths_of
from dpcore.planner import CDF
from dpcore.privacy import Budget, Measure, Neighbors
from dpcore.privacy_loss import keeps, moved_counts
from dpcore.published_forest import Consistency, PublishedForest
from dpcore.samplers import SAMPLER_VERSION, NoiseLaw
from dpcore.tree import Tree
from dpcore.uncertainty import IntervalWidths

# Changes whenever the same specification would give other bits in a release.
FORMAT_VERSION = 2

_OUTPUT_ONLY = (
    "quantiles",
    "confidence",
    "weight",
    "objective",
    "estimation",
    "consistency",
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """One tree of a release.

    Args:
        name: of the tree; names the rows of the output.
        domain: the map from rows to leaves.
        plan: how the tree is measured.
        keys: the public group-by keys, None for one tree over all rows.
        quantiles: those asked for, each in [0, 1].
        confidence: of the intervals, above 0 and at most 0.9999.
        weight: the question's share of the budget, relative to the others'.
        objective: what the plan was made for.
        consistency: which integers stand beside the estimates.

    Raises:
        ValueError: parts that do not fit each other.
    """

    name: str
    domain: OrderedDomain
    plan: TreePlan
    keys: KeyList | None = None
    quantiles: tuple[float, ...] = ()
    confidence: float = 0.95
    weight: Fraction = Fraction(1)
    objective: Objective = CDF
    consistency: Consistency = Consistency.TOP_DOWN

    def __post_init__(self) -> None:
        if self.plan.tree.leaves != self.domain.cells:
            raise ValueError(
                f"plan: {self.plan.tree.leaves} leaves for a domain of {self.domain.cells} cells"
            )
        if (self.keys is not None) != self.plan.keyed:
            raise ValueError("plan: keyed must say whether the question has keys")
        if self.plan.public_total and self.domain.drops_rows:
            raise ValueError("plan: the total is not public where a policy drops rows")
        outside = [quantile for quantile in self.quantiles if not 0 <= quantile <= 1]
        if outside:
            raise ValueError(f"quantiles: {outside[0]} is not between 0 and 1")
        if not 0 < self.confidence <= 0.9999:
            raise ValueError(f"confidence: {self.confidence} is not above 0 and at most 0.9999")
        if self._is_published and self.domain.cells > CHUNK_LEAVES:
            raise ValueError(
                f"domain: {self.domain.cells} cells are too many for the papers' estimates and the "
                f"closest CDF, which need a whole tree at once: at most {CHUNK_LEAVES}"
            )

    @property
    def _is_published(self) -> bool:
        """Whether the answer is one of the papers', which need a whole tree at once."""
        return not self.plan.is_efficient or self.consistency is not Consistency.TOP_DOWN

    @property
    def key_count(self) -> int:
        """How many trees there are."""
        return 1 if self.keys is None else self.keys.size

    @property
    def key_labels(self) -> list[str | None]:
        """The name of every key, in the order of key codes; one None without keys."""
        return [None] if self.keys is None else list(self.keys.labels)

    @cached_property
    def forest(self) -> Forest:
        """The trees in chunks."""
        if self._is_published:
            return PublishedForest(self.plan, keys=self.key_count, consistency=self.consistency)
        return Forest(self.plan, keys=self.key_count, chunk_leaves=CHUNK_LEAVES)

    def remember_widths(self, widths: IntervalWidths) -> None:
        """Takes widths that were computed before: they follow from the plan, but not at once."""
        self.__dict__["widths"] = widths

    def __getstate__(self) -> dict[str, object]:
        # The forest holds arrays of weights, which a worker makes for itself.
        return {name: value for name, value in self.__dict__.items() if name != "forest"}

    @cached_property
    def widths(self) -> IntervalWidths:
        """Of the intervals, in standard errors."""
        return widths_of(self.plan, self.confidence)

    def leaf_ids(self, columns: Mapping[str, pa.Array]) -> Integers:
        """The global leaf id of every row that a policy keeps.

        Args:
            columns: the columns of a batch by name, (rows,) each.

        Returns:
            (kept rows,) int64: key code * K + cell.
        """
        cells = self.domain.cell_ids(columns[self.domain.column])
        dropped = self.domain.drops_rows
        if self.keys is not None:
            codes = self.keys.codes(columns[self.keys.column])
            ids = codes * self.domain.cells + cells
            kept = (cells >= 0) & (codes >= 0)
            return ids[kept]
        return cells[cells >= 0] if dropped else cells

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (
            (self.domain.column,) if self.keys is None else (self.domain.column, self.keys.column)
        )

    def spec(self) -> dict[str, object]:
        """All that shapes the law of the answer, as plain JSON values; `question_from_spec` reads
        it back."""
        plan = self.plan
        return {
            "name": self.name,
            "domain": self.domain.spec(),
            "keys": None if self.keys is None else self.keys.spec(),
            "leaves": plan.tree.leaves,
            "fanouts": list(plan.tree.fanouts),
            "level_amounts": [str(amount) for amount in plan.level_amounts],
            "budget": str(plan.budget.amount),
            "public_total": plan.public_total,
            "quantiles": list(self.quantiles),
            "confidence": self.confidence,
            "weight": str(self.weight),
            "objective": self.objective.spec(),
            "mechanism": plan.mechanism.value,
            "estimation": plan.estimator.value,
            "consistency": self.consistency.value,
            "chunk_leaves": CHUNK_LEAVES,
        }


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
            if not keeps(self.moved_counts, self.budget.amount, epsilon, delta):
                raise ValueError(f"delta: the noise does not keep {delta} at epsilon {epsilon}")

    @property
    def moved_counts(self) -> tuple[tuple[NoiseLaw, int], ...]:
        """The noise laws of all trees, and how many counts of each a row moves."""
        return tuple(pair for q in self.questions for pair in moved_counts(q.plan))

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
        spec = self.spec()
        spec["trees"] = [
            {name: value for name, value in question.spec().items() if name not in _OUTPUT_ONLY}
            for question in self.questions
        ]
        text = json.dumps(spec, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).digest()


def plan_from_spec(spec: Mapping[str, object]) -> ReleasePlan:
    """The release plan of a specification, as a manifest holds it.

    Raises:
        ValueError: the specification is of another format.
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
        questions=tuple(_question_from_spec(tree, neighbors, measure) for tree in trees),
        stated=(Fraction(stated[0]), Fraction(stated[1])) if isinstance(stated, list) else None,
    )


def _question_from_spec(
    spec: dict[str, object], neighbors: Neighbors, measure: Measure
) -> Question:
    fanouts, amounts, quantiles = spec["fanouts"], spec["level_amounts"], spec["quantiles"]
    assert isinstance(fanouts, list) and isinstance(amounts, list) and isinstance(quantiles, list)
    keys = spec["keys"]
    plan = TreePlan(
        tree=Tree(leaves=int(str(spec["leaves"])), fanouts=tuple(fanouts)),
        neighbors=neighbors,
        budget=Budget(measure=measure, amount=Fraction(str(spec["budget"]))),
        level_amounts=tuple(Fraction(amount) for amount in amounts),
        public_total=bool(spec["public_total"]),
        keyed=keys is not None,
        mechanism=Mechanism(spec["mechanism"]),
        estimator=Estimator(spec["estimation"]),
    )
    domain, objective = spec["domain"], spec["objective"]
    assert isinstance(domain, dict) and isinstance(objective, dict)
    return Question(
        name=str(spec["name"]),
        domain=make_domain(domain),
        plan=plan,
        keys=make_key_list(keys) if isinstance(keys, dict) else None,
        quantiles=tuple(quantiles),
        confidence=float(str(spec["confidence"])),
        weight=Fraction(str(spec["weight"])),
        objective=objective_from_spec(objective),
        consistency=Consistency(spec["consistency"]),
    )
