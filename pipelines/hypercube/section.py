"""The section of a box of columns: how its partition is made."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import PlainValidator, WithJsonSchema
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.plan import Estimation, Holding
from dptrees.dpcore.boxes.planner import SHARES, PartitionChoices
from dptrees.dpcore.boxes.question import PLANNERS, HypercubeWorkload
from dptrees.dpcore.questions.planning import Noise
from dptrees.dpcore.sketches.sketch import SketchKind
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.hypercube.domain import box_schema, read_hypercube
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, shown
from dptrees.pipelines.sections.section import Amount
from dptrees.pipelines.sections.tree import TreeSection

# The keys of a configuration by the names of dpcore's choices, where they differ.
_KEYS = {
    "most": "k",
    "hash_rows": "hashes",
    "holding": "counts",
    "estimation": "consistency",
    "decided_apart": "optimize_for",
}
MECHANISMS = ("planned", "privhp", "privhp_paper", "pmm", "privtree", "adaptive")
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def _whole(value: object) -> int:
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        value = int(value) if value.adjusted() < 16 else value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**50:
        raise RuleBroken(f"{shown(value)} must be a whole number from 1 to 2^50")
    return value


def memory_bytes(value: object) -> int:
    """Bytes, as a number or with a unit.

    >>> memory_bytes("256 MiB")
    268435456
    """
    if isinstance(value, str):
        number, _, unit = value.strip().partition(" ")
        if number.isdecimal() and unit in _UNITS:
            return _whole(int(number) * _UNITS[unit])
        raise RuleBroken(f"{shown(value)} must be a number of bytes, or such as 64 MiB, 2 GiB")
    return _whole(value)


def _errors(value: object) -> float:
    number = rules.weight(value)
    if number > 1e6:
        raise RuleBroken(f"{shown(value)} must be at most 1000000")
    return number


Whole = Annotated[int | None, PlainValidator(_whole)]


class HypercubeTree(TreeSection):
    """A partition of a box of columns."""

    refused: ClassVar[Mapping[str, str]] = {
        "domain": "domain",
        "noise": "noise",
        **{key: key for key in ("rows", "rows_at_most", "depth", "bits_apart", "parts", "memory")},
        **{key: key for key in ("split_errors", "width", "sketch", "mechanism", "shares")},
        **_KEYS,
        "columns": "domain.columns",
        "depths": "domain.depths",
    }
    misplaced: ClassVar[Mapping[str, str]] = {
        "group_by": "a box has no keys; make the key one of its columns, with its categories",
        **dict.fromkeys(
            ("quantiles", "guess", "widths", "fanouts", "objective"),
            "belongs to an ordered domain; you can query every column, quantile and range of a box",
        ),
        **dict.fromkeys(("measure", "invariants", "node_weights"), "belongs to a hierarchy"),
    }
    domain: Annotated[HypercubeDomain, PlainValidator(read_hypercube), WithJsonSchema(box_schema())]
    mechanism: Annotated[str, PlainValidator(rules.choice(*MECHANISMS))] = "planned"
    optimize_for: Annotated[str | None, PlainValidator(rules.choice("counts", "estimates"))] = None
    weight: Amount = Fraction(1)
    noise: Annotated[str, PlainValidator(rules.choice("best", "laplace", "gaussian"))] = "best"
    rows: Whole = None
    rows_at_most: Whole = None
    depth: Whole = None
    bits_apart: Whole = None
    k: Whole = None
    parts: Whole = None
    split_errors: Annotated[float | None, PlainValidator(_errors)] = None
    shares: Annotated[str | None, PlainValidator(rules.choice(*SHARES))] = None
    consistency: Annotated[
        str | None, PlainValidator(rules.choice(*(each.value for each in Estimation)))
    ] = None
    counts: Annotated[
        str | None, PlainValidator(rules.choice(*(each.value for each in Holding)))
    ] = None
    memory: Annotated[int | None, PlainValidator(memory_bytes)] = None
    width: Whole = None
    hashes: Whole = None
    sketch: Annotated[
        str | None, PlainValidator(rules.choice(*(each.value for each in SketchKind)))
    ] = None

    @section_rule(mode="after")
    def _check_choices(self) -> Self:
        _ = self.choices
        return self

    @cached_property
    def choices(self) -> PartitionChoices:
        """The workload of the plan."""
        given: dict[str, Any] = {
            "rows": self.rows,
            "rows_at_most": self.rows_at_most,
            "depth": self.depth,
            "bits_apart": self.bits_apart,
            "most": self.k,
            "parts": self.parts,
            "split_errors": self.split_errors,
            "shares": self.shares,
            "estimation": None if self.consistency is None else Estimation(self.consistency),
            "holding": None if self.counts is None else Holding(self.counts),
            "memory": self.memory,
            "width": self.width,
            "hash_rows": self.hashes,
            "decided_apart": None
            if self.optimize_for is None
            else self.optimize_for == "estimates",
            "sketch": None if self.sketch is None else SketchKind(self.sketch),
        }
        try:
            return PartitionChoices.from_mechanism(
                self.mechanism, **{name: each for name, each in given.items() if each is not None}
            )
        except Refusal as refusal:
            key = _KEYS.get(refusal.field, refusal.field)
            raise RuleBroken(refusal.rule, at=f".{key}") from None

    def workload(self) -> HypercubeWorkload:
        return HypercubeWorkload(
            name=self.name,
            domain=self.domain,
            weight=self.weight,
            noise=Noise(self.noise),
            mechanism=self.mechanism if self.mechanism in PLANNERS else "privhp",
            choices=self.choices,
        )
