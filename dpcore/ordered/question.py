"""A question about an ordered domain: its nodes, CDF and quantiles."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from itertools import groupby

import numpy as np
import pyarrow as pa

from dpcore.arrays import Floats, Integers
from dpcore.errors.intervals import clipped_intervals, prefix_margin
from dpcore.ordered.errors import widths_of
from dpcore.ordered.make import OrderedDomain, make_domain
from dpcore.ordered.quantiles import Ends, QuantileCells, difference_ends
from dpcore.ordered.tables import cdf_table, quantiles_table, solved_quantiles
from dpcore.papers.forest import PapersForest
from dpcore.privacy.budget import Budget, Measure
from dpcore.privacy.spending import MovedCounts
from dpcore.privacy.unit import PrivacyUnit
from dpcore.questions.entry import budget_entry, policies_of
from dpcore.questions.parts import ChunkAnswer
from dpcore.questions.place import Increments, Part
from dpcore.questions.tables import CDF as CDF_TABLE
from dpcore.questions.tables import NODES, QUANTILES, nodes_table
from dpcore.questions.tree_question import Intervals, TreeQuestion
from dpcore.rows.keys import keys_from_spec
from dpcore.rows.packing import unpack
from dpcore.trees.chunks import Chunk
from dpcore.trees.forest import (
    LevelSolution,
    Measurements,
    PrefixSolution,
    RootSolutions,
)
from dpcore.trees.uniform import Tree
from dpcore.uniform.entry import levels_of
from dpcore.uniform.forest import UniformForest
from dpcore.uniform.objectives import CDF, Objective, objective_from_spec
from dpcore.uniform.plan import Consistency, Estimator, Measured, TreePlan, moved_counts
from dpcore.uniform.widths import IntervalWidths


@dataclass(frozen=True, kw_only=True)
class CdfQuestion(TreeQuestion):
    """One tree over an ordered domain: its nodes, CDF and quantiles, however they are measured.

    Args:
        quantiles: those asked for, each in [0, 1].

    Raises:
        ValueError: parts that do not fit each other.
    """

    tables = ("nodes", "cdf")

    domain: OrderedDomain
    quantiles: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.public_total and self.domain.drops_rows:
            raise ValueError("plan: the total is not public where a policy drops rows")
        if not self.is_ordered and self.quantiles:
            raise ValueError("quantiles: categories without an order have none")
        if self.domain.counts_units and self.keys is not None:
            raise ValueError("keys: a unit has rows under several, and counts once")
        outside = [quantile for quantile in self.quantiles if not 0 <= quantile <= 1]
        if outside:
            raise ValueError(f"quantiles: {outside[0]} is not between 0 and 1")

    @property
    def is_ordered(self) -> bool:
        """Whether the order of the cells means something; else there are counts alone."""
        return self.domain.is_ordered

    @property
    def counts_rows(self) -> bool:
        return not self.domain.counts_units

    def of_units(self, rows: Integers) -> Increments | None:
        cells = self.domain.of_units(rows)
        return None if cells is None else Increments(cells)

    @property
    def tree(self) -> Tree:
        """Its shape."""
        shape = self.plan.tree
        assert isinstance(shape, Tree)
        return shape

    def node_labels(self, level: int, nodes: Integers) -> pa.StringArray:
        tree = self.tree
        below = tree.leaves_below(level)
        return self.domain.range_labels(nodes * below, np.minimum((nodes + 1) * below, tree.leaves))

    def labels_in_words(self, rows: pa.Table) -> list[str]:
        """Return the labels of nodes; "95 and above" where values outside the domain are counted.

        Args:
            rows: of the table of nodes.
        """
        tree, cells = self.tree, self.domain.cells
        below = np.array([tree.leaves_below(level) for level in range(tree.height + 1)], np.int64)
        widths = below[rows["level"].to_numpy()]
        start = rows["node"].to_numpy() * widths
        stop = np.minimum(start + widths, cells)
        labels: list[str] = rows["label"].to_pylist()
        for place in np.flatnonzero((start == 0) | (stop == cells)).tolist():
            words = self.domain.clamped_label(int(start[place]), int(stop[place]))
            labels[place] = labels[place] if words is None else words
        return labels

    @abstractmethod
    def prefix_intervals(self, prefixes: PrefixSolution, total: float | None) -> Intervals:
        """The estimates of CDF points with their errors.

        Args:
            prefixes: (units, n) of a chunk.
            total: the public number of rows, None where it is private.
        """

    @abstractmethod
    def difference_ends(self, prefixes: PrefixSolution, roots: RootSolutions) -> Ends:
        """The intervals that quantiles are found by.

        Args:
            prefixes: (units, n) of a chunk.
            roots: (units,) the solutions of its subtrees' roots.
        """

    def chunk_answer(
        self, chunk: Chunk, measured: Measurements, roots: RootSolutions
    ) -> ChunkAnswer:
        levels, prefixes = self.forest.solve(chunk, measured, roots)
        assert prefixes is not None  # leaves have an order
        roots = roots.with_counts(levels[0])
        total = self.released_total(roots)
        tables = {
            NODES: nodes_table(self, chunk.key, levels, total),
            CDF_TABLE: cdf_table(self, chunk, prefixes, roots, total),
        }
        cells = solved_quantiles(self, chunk, prefixes, roots)
        return ChunkAnswer(tables, None if cells is None else cells.to_array())

    def conclude(self, notes: Mapping[Part, bytes]) -> Mapping[str, pa.Table]:
        if not self.quantiles:
            return {}
        rows = [
            reduce(QuantileCells.merge, (self._cells(note) for _, note in chunks))
            for _, chunks in groupby(notes.items(), key=lambda each: each[0].key)
        ]
        together = np.concatenate([cells.to_array() for cells in rows], axis=1)
        return {QUANTILES: quantiles_table(self, QuantileCells.from_array(together))}

    def _cells(self, note: bytes) -> QuantileCells:
        return QuantileCells.from_array(unpack(note).reshape(4, -1, len(self.quantiles)))


@dataclass(frozen=True, kw_only=True)
class OrderedQuestion(CdfQuestion):
    """One tree over an ordered domain whose levels are measured whole.

    Args:
        objective: what the plan was made for.
        consistency: which integers stand beside the estimates.
        for_counts: the plan was made for them.
        guessed_rows: the public guess at which their errors are predicted.

    Raises:
        ValueError: parts that do not fit each other.
    """

    kind = "ordered"
    output_only = (
        *("quantiles", "confidence", "weight", "objective", "estimation", "consistency"),
        *("for", "guessed_rows"),
    )
    widths_kind = IntervalWidths

    plan: TreePlan
    objective: Objective = CDF
    consistency: Consistency = Consistency.TOP_DOWN
    for_counts: bool = False
    guessed_rows: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.consistency is Consistency.SHRUNK and not self.plan.is_efficient:
            raise ValueError("consistency: shrunk counts are of efficient estimates")
        if self._is_published and self.domain.cells > self.chunk_leaves:
            raise ValueError(
                f"domain: {self.domain.cells} cells are too many for the papers' estimates and the "
                f"closest CDF, which need a whole tree at once: at most {self.chunk_leaves}"
            )

    @property
    def _is_published(self) -> bool:
        """Whether the answer is one of the papers', which need a whole tree at once."""
        return not self.plan.is_efficient or self.consistency in (Consistency.L1, Consistency.L2)

    @cached_property
    def forest(self) -> UniformForest | PapersForest:
        """The trees in chunks."""
        if self._is_published:
            return PapersForest(
                self.plan,
                keys=self.key_count,
                chunk_leaves=self.chunk_leaves,
                consistency=self.consistency,
            )
        return UniformForest(
            self.plan,
            keys=self.key_count,
            chunk_leaves=self.chunk_leaves,
            shrunk=self.consistency is Consistency.SHRUNK,
        )

    @cached_property
    def widths(self) -> IntervalWidths:
        """Half-widths of the confidence intervals, in standard errors."""
        return widths_of(self.plan, self.confidence)

    @property
    def public_total(self) -> bool:
        return self.plan.public_total

    @property
    def moved_counts(self) -> MovedCounts | None:
        return moved_counts(self.plan)

    def margins(self, solved: LevelSolution) -> Floats:
        return self.widths.levels[solved.level] * np.sqrt(solved.variance)

    def prefix_intervals(self, prefixes: PrefixSolution, total: float | None) -> Intervals:
        return clipped_intervals(
            prefixes.estimate,
            prefixes.variance,
            prefix_margin(self.widths.sloped, prefixes.variance),
            np.inf if total is None else total,
        )

    def difference_ends(self, prefixes: PrefixSolution, roots: RootSolutions) -> Ends:
        return difference_ends(prefixes, roots.total, self.forest.root_variance, self.widths.sloped)

    def entry(self) -> dict[str, object]:
        return (
            {"name": self.name}
            | budget_entry(self)
            | {
                "mechanism": self.plan.measured.value,
                "estimation": self.plan.estimator.value,
                "consistency": self.consistency.value,
                "levels": levels_of(self.plan),
                "policies": policies_of(self),
                "interval_widths": self.widths.spec(),
            }
        )

    def spec(self) -> dict[str, object]:
        """All that shapes the law of the answer, as plain JSON values; `ordered_question_from_spec`
        reads it back."""
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
            "mechanism": plan.measured.value,
            "estimation": plan.estimator.value,
            "consistency": self.consistency.value,
            "chunk_leaves": self.chunk_leaves,
            **({"for": "counts"} if self.for_counts else {}),
            **({} if self.guessed_rows is None else {"guessed_rows": self.guessed_rows}),
        }


def ordered_question_from_spec(
    spec: Mapping[str, object], unit: PrivacyUnit, measure: Measure
) -> OrderedQuestion:
    """The question of a specification, as `OrderedQuestion.spec` tells it."""
    fanouts, amounts, quantiles = spec["fanouts"], spec["level_amounts"], spec["quantiles"]
    assert isinstance(fanouts, list) and isinstance(amounts, list) and isinstance(quantiles, list)
    keys, objective, cells = spec["keys"], spec["objective"], spec["domain"]
    guessed_rows = spec.get("guessed_rows")
    assert isinstance(cells, dict) and isinstance(objective, dict)
    domain = make_domain(cells)
    plan = TreePlan(
        tree=Tree(leaves=int(str(spec["leaves"])), fanouts=tuple(fanouts)),
        unit=domain.counted(unit),
        budget=Budget(measure=measure, amount=Fraction(str(spec["budget"]))),
        level_amounts=tuple(Fraction(amount) for amount in amounts),
        public_total=bool(spec["public_total"]),
        keyed=keys is not None,
        measured=Measured(spec["mechanism"]),
        estimator=Estimator(spec["estimation"]),
    )
    return OrderedQuestion(
        name=str(spec["name"]),
        domain=domain,
        plan=plan,
        chunk_leaves=int(str(spec["chunk_leaves"])),
        keys=keys_from_spec(keys),
        quantiles=tuple(quantiles),
        confidence=float(str(spec["confidence"])),
        weight=Fraction(str(spec["weight"])),
        objective=objective_from_spec(objective),
        consistency=Consistency(spec["consistency"]),
        for_counts=spec.get("for") == "counts",
        guessed_rows=None if guessed_rows is None else int(str(guessed_rows)),
    )
