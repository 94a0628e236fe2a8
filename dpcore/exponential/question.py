"""A tree of quantiles alone, without a CDF: its counting, choices, planning and released answers.

What is measured of a key is where its quantiles lie: their cells, then their shares. Only the
requested quantiles are released, and no number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.exponential.choice import PLACES
from dptrees.dpcore.exponential.plan import (
    ExponentialPlan,
    Margin,
    is_better,
    margins,
    rank_errors,
    root_mean_square,
)
from dptrees.dpcore.exponential.quantiles import (
    ChosenQuantiles,
    answered,
    chosen_quantiles,
    next_request,
    reach,
    read_request,
)
from dptrees.dpcore.levels.workload import OrderedWorkload, Planner, ReadAs, Reasons, Values
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.ordered.question import OrderedRows
from dptrees.dpcore.privacy.unit import Measure, PrivacyUnit
from dptrees.dpcore.questions.messages import (
    Drawn,
    Gathered,
    Part,
    Place,
    ReleasedPart,
    pack_measured,
    unpack_measured,
)
from dptrees.dpcore.questions.planning import ChunkAnswer, ChunkLayout, Mechanism, Setting
from dptrees.dpcore.questions.released import (
    NODES,
    NODES_SCHEMA,
    QUANTILES,
    Answer,
    Released,
    Total,
    tree_and_key,
)
from dptrees.dpcore.questions.tree_question import TreeQuestion, budget_entry, column_policies
from dptrees.dpcore.rows.columns import pack, unpack
from dptrees.dpcore.rows.keys import keys_from_spec
from dptrees.dpcore.specification import INLINE, Refusal
from dptrees.dpcore.trees.chunks import Chunk, UniformChunking
from dptrees.dpcore.trees.forests import (
    LevelSolution,
    Measurements,
    PrefixSolution,
    RootSolutions,
    SingleChunkTrees,
)
from dptrees.dpcore.trees.shapes import UniformTree


class ExponentialForest(SingleChunkTrees):
    """Quantiles of histograms.

    Args:
        plan: of each.
        keys: how many there are.
        chunk_leaves: the most cells of a chunk.
    """

    def __init__(self, plan: ExponentialPlan, *, keys: int, chunk_leaves: int) -> None:
        self.plan = plan
        tree = plan.tree
        if plan.cells > chunk_leaves > 1:  # cut in chunks of cells, which answer in rounds
            fanouts = (-(-plan.cells // chunk_leaves), chunk_leaves)
            tree = UniformTree(leaves=plan.cells, fanouts=fanouts)
        self.chunking = UniformChunking(tree=tree, keys=keys, chunk_leaves=chunk_leaves)

    def measure(
        self, tree: str, chunk: Chunk, counts: Integers, noise: NoiseSource
    ) -> Measurements:
        stream = noise.for_counts(counts).stream(tree, chunk.key, chunk.index, 0)
        rows = counts.reshape(chunk.rows, -1)
        results = [chosen_quantiles(row, self.plan, stream) for row in rows]
        return to_measurements(results)

    def chunk_roots(self, chunk: Chunk, measurements: Measurements) -> Floats:
        return np.zeros(chunk.units)

    def chunk_totals(self, chunk: Chunk, counts: Integers) -> Integers:
        """No totals are sent, not even to the group."""
        return np.zeros(chunk.units, np.int64)

    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], PrefixSolution | None]:
        return [], None


def to_measurements(found: Sequence[ChosenQuantiles]) -> Measurements:
    """The choices of consecutive keys, as `from_measurements` reads them."""
    measured: Measurements = [
        np.stack([each.cells for each in found]),
        np.stack([each.shares for each in found]).view(np.int64),
    ]
    ends = [each.ends for each in found if each.ends is not None]
    return [*measured, *np.stack(ends, axis=1)] if ends else measured


def from_measurements(measured: Measurements) -> ChosenQuantiles:
    """The choices of `ExponentialForest.measure`, (keys, quantiles) each; ends are (2, keys,
    quantiles)."""
    cells, shares, *ends = (each for each in measured if each is not None)
    return ChosenQuantiles(cells, shares.view(np.float64), np.stack(ends) if ends else None)


@dataclass(frozen=True, kw_only=True)
class ExponentialMechanism(Mechanism[ExponentialForest, Any]):
    """Quantiles alone, chosen one after the other; there are no nodes and no intervals of counts.

    Args:
        plan: the quantiles, and what the choice of each spends.
    """

    written = ("kind", "plan", "places")
    leading = ("kind", "budget", "places")
    # Of quantiles inside a cell; another number makes another law.
    places: ClassVar[int] = PLACES

    plan: ExponentialPlan = field(metadata=INLINE)

    @property
    def kind(self) -> str:
        return "exponential"

    @property
    def public_total(self) -> bool:
        """False: no number of rows is released."""
        return False

    def forest(self, layout: ChunkLayout) -> ExponentialForest:
        return ExponentialForest(self.plan, keys=layout.keys, chunk_leaves=layout.chunk_leaves)

    def widths(self, confidence: float) -> NoReturn:
        raise TypeError("exponential: quantiles have no half-widths")

    def intervals(self, forest: ExponentialForest, widths: Any) -> NoReturn:
        raise TypeError("exponential: there are no nodes")

    def entry(self, level_names: Sequence[str] | None) -> dict[str, object]:
        return {"mechanism": self.kind}


# The weights' floor then adds less than a thousandth of a percent to any margin's probability of a
# cell, and a tenth of a percent to that of a place.
MOST_CELLS = 2**26
WORDS = (
    "Each quantile is a cell (or a place in one) drawn with a probability that falls exponentially "
    "with the distance of its rank from the wanted one: the middle quantile among all rows, the "
    "others among the rows between those drawn before. rank_margins says how many rows the ranks "
    "are off at most, with the stated confidence each. No CDF and no counts are released."
)
INTERVAL_WORDS = (
    "Each interval is a pair of ends around the value, drawn like the quantiles, of a share of the "
    "budget: with the stated confidence each it holds the quantile of the rows. Its ends reach for "
    "the ranks that lie a stated number of rows below and above the wanted one."
)


@dataclass(frozen=True, kw_only=True)
class ExponentialQuestion(OrderedRows, TreeQuestion[ExponentialMechanism]):
    """Quantiles over an ordered domain, for each key.

    Args:
        quantiles: in the order in which they are reported; the plan has them rising.

    Raises:
        Refusal: more cells than a choice may have.
    """

    written = (
        *("name", "domain", "keys", "mechanism"),
        *("quantiles", "confidence", "weight", "chunk_leaves"),
    )
    leading = ("kind", "name", "domain", "keys")
    output_only = ("confidence", "weight")
    tables = (NODES,)

    domain: OrderedDomain
    quantiles: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if sorted(map(exact_quantile, self.quantiles)) != list(self.plan.quantiles):
            raise ValueError("quantiles: they are not those of the plan")
        if self.plan.confidence != self.confidence:
            raise ValueError(f"confidence: {self.confidence} is not that of the plan")
        if self.domain.cells > MOST_CELLS:
            raise Refusal(
                "domain",
                f"{self.domain.cells} cells are too many for the exponential mechanism: at most "
                f"{MOST_CELLS}",
            )

    @property
    def plan(self) -> ExponentialPlan:
        """The plan of the mechanism."""
        return self.mechanism.plan

    @cached_property
    def order(self) -> list[int]:
        """Positions of the quantiles among the plan's quantiles."""
        return [self.plan.quantiles.index(exact_quantile(each)) for each in self.quantiles]

    @cached_property
    def rank_margins(self) -> list[Margin]:
        """Bounds on the errors in rank, at the tree's confidence, in the order reported."""
        found = margins(self.plan, self.confidence)
        return [found[place] for place in self.order]

    @cached_property
    def interval_reach(self) -> list[int] | None:
        """Distances in rows of the ranks that intervals reach for below and above the wanted one,
        in the order reported; None where there are no intervals."""
        if not self.plan.interval_share:
            return None
        return [reach(self.plan, place) for place in self.order]

    def prepare(self) -> None:
        """Nothing takes long."""

    def recall(self, entry: Mapping[str, object]) -> None:
        """Nothing took long."""

    def node_labels(self, level: int, nodes: Integers) -> NoReturn:
        raise self._without_nodes()

    def _without_nodes(self) -> ValueError:
        return ValueError(f"tree {self.name} has quantiles alone, no nodes")

    def chunk_answer(
        self, chunk: Chunk, measured: Measurements, roots: RootSolutions
    ) -> ChunkAnswer:
        table, note = self._node_table(measured)
        return ChunkAnswer({NODES: table}, note)

    @property
    def rounds(self) -> int:
        """One for the rows of the chunks, one for each depth of the tree of quantiles, and one for
        intervals; none where a chunk holds all cells."""
        if not self.forest.chunking.split_level:
            return 0
        return 1 + self.plan.first.height + bool(self.plan.interval_share)

    def answer(self, place: Place, counts: bytes, request: bytes, noise: NoiseSource) -> bytes:
        chunk = self._chunk(place)
        return answered(self.plan, self.name, chunk, unpack(counts), request, noise)

    def next_request(
        self, group: int, answers: Mapping[Place, bytes], request: bytes, noise: NoiseSource
    ) -> bytes:
        in_order = [answers[place] for place in sorted(answers)]
        return next_request(self.plan, self.name, group, in_order, request, noise)

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        if not self.rounds:
            return super().draw(place, counts, noise)
        if place.number:
            return Drawn(sent=b"", kept=None)
        return Drawn(sent=b"", kept=pack_measured(to_measurements([read_request(counts).found])))

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        if not self.rounds:
            return super().gather(group, sent, noise)
        return Gathered({Place(group, 0): b""}, ())

    def finish(self, place: Place, kept: bytes, returned: bytes) -> Sequence[ReleasedPart]:
        if not self.rounds:
            return super().finish(place, kept, returned)
        table, note = self._node_table(unpack_measured(kept, 1))
        return [ReleasedPart(self._part(NODES, place), table, pack(note))]

    def parts(self) -> Iterator[Part]:
        """One for the chunks of a key, which has no nodes."""
        if not self.rounds:
            yield from super().parts()
        else:
            for key in range(self.key_count):
                yield self._part(NODES, Place(key, 0))

    @staticmethod
    def _node_table(measured: Measurements) -> tuple[pa.Table, Integers]:
        """No node is released; the table of the whole tree has the quantiles."""
        return NODES_SCHEMA.empty_table(), np.stack([m for m in measured if m is not None])

    def conclude(self, notes: Mapping[Part, bytes]) -> Mapping[str, pa.Table]:
        columns = 4 if self.plan.interval_share else 2
        results = [
            unpack(note).reshape(columns, -1, len(self.quantiles)) for note in notes.values()
        ]
        return {
            QUANTILES: chosen_table(self, from_measurements(list(np.concatenate(results, axis=1))))
        }

    def entry(self) -> dict[str, object]:
        return (
            {"name": self.name}
            | budget_entry(self)
            | {
                "mechanism": "exponential",
                "choices": choice_entries(self.plan),
                "rank_margins": [
                    {"q": quantile, "rows": margin.rows, "share of all rows": margin.share}
                    for quantile, margin in zip(self.quantiles, self.rank_margins, strict=True)
                ],
                **self._interval_entry(),
                "words": WORDS,
                "policies": column_policies(self),
            }
        )

    def _interval_entry(self) -> dict[str, object]:
        if self.interval_reach is None:
            return {}
        measure = self.plan.budget.measure.value
        said = {
            "share": str(self.plan.interval_share),
            f"{measure} of each": str(self.plan.interval_amount),
            "confidence": self.confidence,
            "rows": self.interval_reach,
            "words": INTERVAL_WORDS,
        }
        return {"intervals": said}

    def law_spec(self) -> dict[str, object]:
        """The confidence shapes where the ends of intervals lie, and so what is drawn."""
        shaped = {"confidence": self.confidence} if self.plan.interval_share else {}
        return super().law_spec() | shaped


def exact_quantile(quantile: float) -> Fraction:
    """The decimal that a quantile was written as."""
    return Fraction(repr(quantile))


def choice_entries(plan: ExponentialPlan) -> list[dict[str, object]]:
    """The budget of the choice of each quantile, and its law, in rising order."""
    found = {path[-1].place: path for path in plan.first.paths()}
    measure = plan.budget.measure.value
    return [
        {
            "q": float(quantile),
            "among": "all rows" if len(found[place]) == 1 else "the rows between others",
            "part": str(found[place][-1].part),
            measure: str(plan.amounts[place]),
            "rate": float(plan.rates[place]),
            "law": "permute-and-flip"
            if plan.flips and found[place][-1].is_last
            else "exponential mechanism",
        }
        for place, quantile in enumerate(plan.quantiles)
    ]


def exponential_question_from_spec(
    spec: Mapping[str, Any], unit: PrivacyUnit, measure: Measure
) -> ExponentialQuestion:
    """The question of a specification, as `ExponentialQuestion.spec` writes it."""
    domain, left = make_domain(spec["domain"]), dict(spec)
    mechanism = ExponentialMechanism.from_entries(
        left,
        cells=domain.cells,
        unit=domain.counted(unit, keyed=spec["keys"] is not None),
        measure=measure,
        quantiles=tuple(sorted(map(exact_quantile, spec["quantiles"]))),
        keyed=spec["keys"] is not None,
        confidence=spec["confidence"],
    )
    keys = keys_from_spec(spec["keys"])
    return ExponentialQuestion.from_spec(left, domain=domain, mechanism=mechanism, keys=keys)


_INTERVAL = ("ci_low", "ci_high")


def chosen_table(question: ExponentialQuestion, chosen: ChosenQuantiles) -> pa.Table:
    """The rows of the quantiles of all keys, (keys, quantiles) in ``chosen``.

    The error of their ranks is bounded without the data (`dpcore.exponential.plan`), the error
    of their values is not: without intervals, the ends of these are null.
    """
    keys, wanted = chosen.cells.shape
    # As they were requested, not as they rise.
    order = question.order
    cells, shares = chosen.cells[:, order].reshape(-1), chosen.shares[:, order].reshape(-1)
    values = question.domain.value_at(cells, shares)
    # From the least value of the first cell to the largest of the last.
    ends = [
        question.domain.value_at(side[:, order].reshape(-1), np.full(len(values), share))
        for side, share in zip(() if chosen.ends is None else chosen.ends, (0.0, 1.0), strict=False)
    ]
    is_number = pa.types.is_floating(values.type) or pa.types.is_integer(values.type)
    unknown, text = pa.nulls(len(values), pa.float64()), pa.nulls(len(values), pa.string())

    def numbers(found: pa.Array) -> pa.Array:
        return found.cast(pa.float64(), safe=False) if is_number else unknown

    names = zip(("tree", "key"), tree_and_key(question, 0, keys, wanted), strict=True)
    return pa.table(
        dict(names)
        | {"q": pa.array(np.tile(np.asarray(question.quantiles, np.float64), keys))}
        | {"value": numbers(values)}
        | dict(zip(_INTERVAL, map(numbers, ends) if ends else (unknown, unknown), strict=True))
        | {"value_text": values.cast(pa.string())}
        | dict(
            zip(
                (f"{name}_text" for name in _INTERVAL),
                (each.cast(pa.string()) for each in ends) if ends else (text, text),
                strict=True,
            )
        )
    )


class ExponentialQuantiles(Planner[OrderedWorkload]):
    """Quantiles of an ordered domain, by the exponential mechanism.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.ordered.domain_kinds import make_domain
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> ages = OrderedWorkload(
    ...     name="age", quantiles=(0.5,), mechanism="exponential", domain=make_domain(
    ...         {"column": "age", "type": "integer", "lower": 0, "upper": 120}))
    >>> one = Setting(
    ...     unit=ADD_REMOVE_ROW, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> round(ages.predicted(ages.planned(one)), 3)  # rows, of rank
    1.414
    """

    makes = ExponentialMechanism
    may_add_up = False
    refused: ClassVar[Reasons] = {
        **dict.fromkeys(
            ("fanouts", "level_budgets", "estimation", "consistency"),
            "the exponential mechanism has no tree of counts, whose levels would be measured",
        ),
        **dict.fromkeys(
            ("objective", "optimize_for"),
            "the exponential mechanism releases quantiles alone, no CDF and no counts",
        ),
        "guess": "the exponential mechanism is planned without one",
        "noise": "the exponential mechanism adds none",
    }
    allowed: ClassVar[Values] = {
        "objective": ("quantiles",),
        "noise": ("best",),
    }

    def error_unit(self, workload: OrderedWorkload) -> str:
        return "rows"

    def mechanism(self, workload: OrderedWorkload, setting: Setting) -> ExponentialMechanism:
        plan = ExponentialPlan(
            cells=workload.domain.cells,
            unit=workload.counted_unit(setting),
            budget=setting.budget,
            quantiles=tuple(sorted(map(exact_quantile, workload.quantiles))),
            keyed=workload.keys is not None,
            interval_share=workload.interval_share,
            confidence=setting.confidence,
        )
        return ExponentialMechanism(plan=plan)

    def tree(self, workload: OrderedWorkload, setting: Setting) -> ExponentialQuestion:
        return ExponentialQuestion(
            name=workload.name,
            domain=workload.domain,
            mechanism=self.mechanism(workload, setting),
            keys=workload.keys,
            quantiles=workload.quantiles,
            confidence=setting.confidence,
            weight=workload.weight,
        )

    def if_closer(
        self, workload: OrderedWorkload, setting: Setting, whole: OrderedWorkload
    ) -> ExponentialQuestion | None:
        rows = workload.guessed_rows
        if rows is None and workload.read_as is not ReadAs.QUANTILES:
            return None
        try:
            tree = self.tree(workload, setting)
        except Refusal:  # the minimum, too many cells, or too small a budget: a tree can
            return None
        return tree if is_better(tree.plan, None if rows is None else Fraction(rows)) else None

    def predicted(self, workload: OrderedWorkload, mechanism: ExponentialMechanism) -> float:
        """Return the standard deviation of ranks, root mean square over the quantiles, where rows
        lie densely."""
        return root_mean_square(rank_errors(mechanism.plan))


class ReleasedQuantiles(Released):
    """The quantiles of one tree.

    Args:
        question: the tree.
        quantiles: the table of quantiles, of all trees.
    """

    question: ExponentialQuestion
    unordered = "has the exponential mechanism's quantiles alone, which give no CDF"

    def __init__(self, question: ExponentialQuestion, quantiles: pa.Table) -> None:
        self.question, self._quantiles = question, quantiles

    @property
    def height(self) -> int:
        return 0

    def rows_in_all(self) -> Total | None:
        """Rows are not counted."""
        return None

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        raise self._without_counts("top")

    def numbered_level(self, name: str | None) -> int:
        raise self._without_counts("node")

    def sum(self, paths: object, key: object = None) -> Answer:
        raise self._without_counts("sum")

    def quantiles(self, key: object = None) -> list[dict[str, Any]]:
        """The released quantiles, rows of the quantiles table in the order they were requested."""
        code = self._code(key)
        quantile_count = len(self.question.quantiles)
        mine = pc.equal(self._quantiles["tree"].cast(pa.string()), self._name)
        rows: list[dict[str, Any]] = (
            self._quantiles.filter(mine).slice(code * quantile_count, quantile_count).to_pylist()
        )
        return self.question.domain.quantiles_in_words(rows)

    def quantile(self, quantile: float | str, key: object = None) -> dict[str, object]:
        """One of the quantiles that were requested, and by how many rows and what share of all
        rows its rank is off at most, with the tree's confidence."""
        rows = self.quantiles(key)
        try:
            place = list(map(exact_quantile, self.question.quantiles)).index(
                exact_quantile(float(quantile))
            )
        except ValueError:
            released = ", ".join(f"{each:g}" for each in self.question.quantiles)
            raise ValueError(
                f"quantile: tree {self._name} has only these quantiles: {released}; {quantile} was "
                "not released"
            ) from None
        margin = self.question.rank_margins[place]
        return rows[place] | {"rank_rows": margin.rows, "rank_share": margin.share}

    @property
    def released_quantiles(self) -> tuple[float, ...]:
        return self.question.quantiles

    def _without_counts(self, wanted: str) -> ValueError:
        return ValueError(
            f"{wanted}: tree {self._name} has the exponential mechanism's quantiles alone, no "
            "counts"
        )
