"""A kind of tree of its own, in no package: one total per key with noise of an exact law.

It registers itself and is planned, released on Beam, queried and reported without an edit of any
existing file: the proof that nothing above a kind's package checks what kind a tree is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import PlainValidator

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource, add_noise, counts_digest
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.sensitivity import level_law
from dptrees.dpcore.privacy.unit import Budget, PrivacyUnit
from dptrees.dpcore.questions.messages import (
    Drawn,
    Gathered,
    Increments,
    Part,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dptrees.dpcore.questions.planning import Setting, Workload
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import Answer, Released
from dptrees.dpcore.release import kinds as release_kinds
from dptrees.dpcore.rows.keys import KeyList, make_key_list
from dptrees.pipelines.config import registry as command_kinds
from dptrees.pipelines.sections.tree import TreeSection

ROOT = Place(0, 0)


class Totals:
    """Counts, a counter, partial counts: an array of one integer a key is all of them."""

    is_due = False

    def __init__(self, sums: np.ndarray[Any, Any]) -> None:
        self.sums = sums

    def add(self, increments: Increments, rows: int, /) -> int:
        self.sums = self.sums + np.bincount(increments.cells, minlength=len(self.sums))
        return len(increments.cells)

    def take(self) -> Iterator[Partial]:
        yield Partial(ROOT, self.to_bytes())
        self.sums = np.zeros_like(self.sums)

    @property
    def total(self) -> int:
        return int(self.sums.sum())

    def to_bytes(self) -> bytes:
        return self.sums.astype("<i8").tobytes()

    def digest(self, key: ReleaseKey, release: str, tree: str, place: Place) -> int:
        return counts_digest(key, release, tree, *place, self.sums)


@dataclass(frozen=True, kw_only=True)
class TotalsQuestion(Question):
    """How many rows each key has."""

    kind = "totals"
    output_only = ("confidence",)

    keys: KeyList
    share: Budget
    relation: PrivacyUnit
    columns = property(lambda self: (self.keys.column,))
    value_types = property(lambda self: {self.keys.column: self.keys.value_type})
    unit = property(lambda self: self.relation)
    budget = property(lambda self: self.share)
    spending = property(lambda self: Spending(**{self.share.measure.value: self.share.amount}))
    places = (ROOT,)
    law = property(lambda self: level_law(self.relation, self.share, single_node=False))

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self.keys.check_type(types[self.keys.column])

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        return self.row_increments(columns).increments

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        codes = self.keys.codes(columns[self.keys.column])
        return RowIncrements(Increments(codes[codes >= 0]), np.flatnonzero(codes >= 0))

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Totals:
        return Totals(np.zeros(self.key_count, np.int64))

    def merge(self, place: Place, partials: Iterable[bytes]) -> Totals:
        filled = [np.frombuffer(data, "<i8") for data in partials if data]
        return Totals(np.sum([np.zeros(self.key_count, np.int64), *filled], axis=0))

    def split_counts(self, counts: Any, choices: KeyedChoices) -> Iterator[Partial]:
        return Totals(np.asarray(counts)).take()

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        exact = np.frombuffer(counts, "<i8").astype(np.int64)
        noisy = add_noise(self.law, exact, noise.for_counts(exact).stream(self.name, *place, 0))
        return Drawn(sent=noisy.tobytes(), kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        noisy, error = np.frombuffer(sent[ROOT], np.int64), self.law.variance**0.5
        margin = self.law.bound(1 - self.confidence)
        table = pa.table(
            {"tree": [self.name] * len(noisy), "key": self.key_labels}
            | {"level": np.zeros(len(noisy), np.int32), "estimate": noisy.astype(float)}
            | {"std_error": np.full(len(noisy), error)}
            | {"ci_low": noisy - margin, "ci_high": noisy + margin, "count": noisy.clip(0)}
        )
        return Gathered({}, [ReleasedPart(next(self.parts()), table)])

    def parts(self) -> Iterator[Part]:
        yield Part(kind="nodes", tree=self.name, key=0, index=0)

    def entry(self) -> dict[str, object]:
        return {"name": self.name, "law": str(self.law)}

    def spec(self) -> dict[str, object]:
        own = {"domain": {"kind": self.kind}, "keys": self.keys.spec(), "weight": str(self.weight)}
        own |= {"budget": str(self.share.amount), "confidence": self.confidence}
        return {"name": self.name, **own}


class ReleasedTotals(Released):
    """The released totals."""

    height = 0

    def __init__(self, question: TotalsQuestion, read: Any) -> None:
        self.question, self._read = question, read

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        row = self._read("nodes", self.question.name, 0, 0).to_pylist()
        found = row[self.question.keys.find_code(key)]
        names = ("estimate", "std_error", "ci_low", "ci_high", "count")
        return [Answer(label="all", fraction=None, **{name: found[name] for name in names})]


@dataclass(frozen=True, kw_only=True)
class TotalsWorkload(Workload[TotalsQuestion]):
    """The workload of a section."""

    def planned(self, setting: Setting) -> TotalsQuestion:
        assert self.keys is not None
        own = {"keys": self.keys, "share": setting.budget, "relation": setting.unit}
        return TotalsQuestion(name=self.name, confidence=setting.confidence, **own)


class TotalsSection(TreeSection):
    """``domain: {kind: totals, column: place, keys: [...]}``."""

    domain: Annotated[Any, PlainValidator(lambda value: value)]

    def workload(self) -> TotalsWorkload:
        values = {"column": self.domain["column"], "keys": tuple(self.domain["keys"])}
        return TotalsWorkload(name=self.name, keys=KeyList(**values | {"unknown": "drop"}))


def totals_from_spec(spec: Mapping[str, Any], terms: Any) -> TotalsQuestion:
    """The question of a specification."""
    share = Budget(measure=terms.measure, amount=Fraction(spec["budget"]))
    own = {"keys": make_key_list(spec["keys"]), "share": share, "relation": terms.unit}
    return TotalsQuestion(name=spec["name"], confidence=spec["confidence"], **own)


def register(patch: pytest.MonkeyPatch) -> None:
    """Adds the kind to the two registries."""
    kind = release_kinds.TreeKind(
        totals_from_spec, lambda question, read, _: ReleasedTotals(question, read)
    )
    patch.setitem(release_kinds.KINDS, "totals", kind)
    patch.setitem(
        command_kinds.KINDS, "totals", command_kinds.KindHandlers(section=lambda: TotalsSection)
    )
