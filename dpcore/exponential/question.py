"""A question about quantiles alone: chosen by the exponential mechanism, without a CDF."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.exponential.choosing import ChosenQuantiles
from dptrees.dpcore.exponential.forest import from_measurements, to_measurements
from dptrees.dpcore.exponential.intervals import reach
from dptrees.dpcore.exponential.margins import Margin, margins
from dptrees.dpcore.exponential.mechanism import ExponentialMechanism
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.exponential.rounds import answered, next_request, read_request
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.ordered.make import OrderedDomain, make_domain
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.entry import budget_entry, column_policies
from dptrees.dpcore.questions.parts import ChunkAnswer
from dptrees.dpcore.questions.place import Drawn, Gathered, Increments, Part, Place, ReleasedPart
from dptrees.dpcore.questions.root_messages import pack_measured, unpack_measured
from dptrees.dpcore.questions.tables import NODES, NODES_SCHEMA, QUANTILES, tree_and_key
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.keys import keys_from_spec
from dptrees.dpcore.rows.packing import pack, unpack
from dptrees.dpcore.trees.chunks import Chunk
from dptrees.dpcore.trees.forest import Measurements, RootSolutions

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
class ExponentialQuestion(TreeQuestion[ExponentialMechanism]):
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

    @property
    def counts_rows(self) -> bool:
        return not self.domain.counts_units

    def unit_increments(self, rows: Integers) -> Increments | None:
        cells = self.domain.unit_cells(rows)
        return None if cells is None else Increments(cells)

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
        unit=domain.counted(unit),
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

    The error of their ranks is bounded without the data (`dpcore.exponential.margins`), the error
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
