"""Private partition selection: which keys of a release exist, a first stage of it.

Rows are counted by key in shards, whatever the data are, and each key is released or not by a
coin of its own. The coins come from a keystream that is bound to the release, the shard, the
global digest and the exact keys and counts, so the same counts get the same coins. The released
table of keys, in order, in one part, reveals nothing of other keys; counts are not released. In
flight a key is one number (an integer with its sign bit turned) or one string (all columns,
joined and escaped). A row with a null, a string that is empty or not UTF-8, or a number that is
no integer has no key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.partition_selection import SelectionLaw
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.messages import Drawn, Gathered, Place, RowIncrements
from dptrees.dpcore.questions.one_part import ReleasedTable, ShardedKeys, key_increments
from dptrees.dpcore.questions.released import Answer
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.rows.columns import (
    fixed_width_values,
    large_texts,
    plain_values,
    readable_texts,
    value_type,
)
from dptrees.dpcore.rows.key_tables import INTEGER, TEXT, check_key_type
from dptrees.dpcore.rows.numbers import whole_numbers
from dptrees.dpcore.specification import CONTEXT, Coded, Refusal

TYPES = {"text": TEXT, "integer": INTEGER}
_SIGN = np.uint64(2**63)
# Between the strings of a key. A string that holds it, or the sign that escapes it, is escaped.
_JOINT, _ESCAPE = "\x00", "\x01"
_ESCAPES = ((_ESCAPE, _ESCAPE + "A"), (_JOINT, _ESCAPE + "B"))


@dataclass(frozen=True, kw_only=True)
class KeyColumns(Coded):
    """The columns of keys that nobody lists.

    Args:
        columns: their names, at least one, all different.
        types: of each, "text" or "integer".

    Raises:
        Refusal: no column, one twice, or another type.

    >>> shops = KeyColumns(columns=("shop", "year"), types=("text", "integer"))
    >>> rows = {"shop": pa.array(["a", "", "b"]), "year": pa.array([7, 7, -1])}
    >>> keys = shops.row_keys(rows)
    >>> keys.is_valid().to_pylist(), shops.table(keys.drop_null()).to_pylist()
    ([True, False, True], [{'shop': 'a', 'year': 7}, {'shop': 'b', 'year': -1}])
    """

    kind: ClassVar[str] = "selection"
    written = ("kind", "columns", "types")

    columns: tuple[str, ...]
    types: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise Refusal("columns", "there must be one or more, all different")
        if len(self.types) != len(self.columns) or not set(self.types) <= set(TYPES):
            raise Refusal("types", f"there must be text or integer for each of {self.columns}")

    @property
    def is_integer(self) -> bool:
        """Whether keys are integers of one column."""
        return self.types == ("integer",)

    @property
    def key_type(self) -> pa.DataType:
        """Type of packed keys: uint64 or large_string."""
        return pa.uint64() if self.is_integer else TEXT

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of each column where a file does not give one."""
        plain = {"text": pa.string(), "integer": INTEGER}
        return {name: plain[type] for name, type in zip(self.columns, self.types, strict=True)}

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuse columns of types that keys cannot be read from.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """
        for name, type in zip(self.columns, self.types, strict=True):
            try:
                check_key_type(name, types[name], TYPES[type])
            except ValueError as error:
                other = "integer" if type == "text" else "text"
                hint = f" (private keys are of type {type}, unless by says type: {other})."
                raise ValueError(str(error).removesuffix(".") + hint) from None

    def row_keys(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """The packed key of each row, (rows,); null where it has none.

        Args:
            columns: by name, (rows,), plain or dictionary-encoded, of types that `check_types`
                accepts.
        """
        self.check_types({name: columns[name].type for name in self.columns})
        if self.is_integer:
            return _by_values(columns[self.columns[0]], _packed_integers)
        if len(self.columns) == 1:
            return _by_values(columns[self.columns[0]], _texts)
        texts = [
            _by_values(columns[name], _escaped_texts if type == "text" else _integer_texts)
            for name, type in zip(self.columns, self.types, strict=True)
        ]
        return pc.binary_join_element_wise(*texts, pa.scalar(_JOINT, TEXT))

    def table(self, keys: pa.Array) -> pa.Table:
        """Packed keys as a table of their values, in the same order.

        Args:
            keys: (n,), none null.

        Returns:
            a column a key column, of large_string or int64.
        """
        if self.is_integer:
            values = (fixed_width_values(keys) ^ _SIGN).view(np.int64)
            return pa.table({self.columns[0]: pa.array(values)})
        if len(self.columns) == 1:
            return pa.table({self.columns[0]: keys})
        parts = pc.list_flatten(pc.split_pattern(keys, _JOINT))
        number = len(self.columns)
        found = {}
        for place, (name, type) in enumerate(zip(self.columns, self.types, strict=True)):
            own = parts.take(pa.array(np.arange(place, len(parts), number)))
            found[name] = own.cast(INTEGER) if type == "integer" else _unescaped(own)
        return pa.table(found)


def _by_values(column: pa.Array, mapping: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """A map of values applied to a column, to a dictionary's values once."""
    column = plain_values(column)
    if pa.types.is_null(value_type(column.type)):
        return pa.nulls(len(column), mapping(pa.array([], pa.string())).type)
    if not pa.types.is_dictionary(column.type):
        return mapping(column)
    return mapping(plain_values(column.dictionary)).take(column.indices)


def _packed_integers(column: pa.Array) -> pa.Array:
    if len(column) == 0:
        return pa.array([], pa.uint64())
    values, is_none = _int64(column)
    return pa.array(values.view(np.uint64) ^ _SIGN, mask=is_none)


def _integer_texts(column: pa.Array) -> pa.Array:
    if len(column) == 0:
        return pa.array([], TEXT)
    values, is_none = _int64(column)
    return pa.array(values, mask=is_none).cast(TEXT)


def _int64(column: pa.Array) -> tuple[Integers, Any]:
    values, is_none = whole_numbers(column)
    if values.dtype == np.uint64:
        beyond = values > np.uint64(2**63 - 1)
        is_none = beyond if is_none is None else is_none | beyond
    return values.astype(np.int64), is_none


def _texts(column: pa.Array) -> pa.Array:
    texts = readable_texts(large_texts(column))
    empty = pc.equal(texts, "")
    return pc.if_else(empty, pa.scalar(None, TEXT), texts) if pc.any(empty).as_py() else texts


def _escaped_texts(column: pa.Array) -> pa.Array:
    encoded = _texts(column).dictionary_encode()
    labels = encoded.dictionary
    for sign, other in _ESCAPES:
        labels = pc.replace_substring(labels, sign, other)
    return labels.take(encoded.indices)


def _unescaped(labels: pa.Array) -> pa.Array:
    for sign, other in reversed(_ESCAPES):
        labels = pc.replace_substring(labels, other, sign)
    return labels


def counted_once(unit: PrivacyUnit) -> PrivacyUnit:
    """The unit with one row under each of its keys, as for the selection of keys.

    Its bounds are of rows, one under a key: the m that stay are those with the smallest hashes of
    (unit, key), of what the keys are. A bound of keys would choose by the codes of keys, which keys
    that nobody lists do not have.

    >>> from dptrees.dpcore.privacy.unit import Neighbors
    >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=10, keys=3)
    >>> counted_once(person).moved(keyed=True)
    (3, 3)
    """
    if unit.is_row:
        return unit
    keys = min(unit.rows, unit.keys or unit.rows)
    return replace(unit, rows=keys, keys=None, rows_per_key=1)


@dataclass(frozen=True, kw_only=True)
class SelectionPlan(Coded):
    """The plan of the selection of a group-by's keys.

    A unit counts once for each of at most m keys. With a unit more, m counts move by one, and m
    decisions change; with a unit of other rows 2 m, m that it leaves and m that it enters. Each
    decision is about its own key alone, and spends an equal part.

    Args:
        unit: whose keys are counted; at most one row of it under a key.
        epsilon, delta: of the whole selection.
        threshold: public: keys of fewer units are never released.

    Raises:
        Refusal: a unit with several rows under a key, or a budget that makes no law.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> plan = SelectionPlan(unit=SUBSTITUTE_ROW,
    ...                      epsilon=Fraction(1), delta=Fraction(1, 10**6))
    >>> plan.moved, plan.law.epsilon, plan.law.least_units(0.5)
    (2, Fraction(1, 2), 27)
    """

    unit: PrivacyUnit = field(metadata=CONTEXT)
    epsilon: Fraction
    delta: Fraction
    threshold: int = 1

    def __post_init__(self) -> None:
        if not self.unit.is_row and self.unit.rows_per_key != 1:
            raise Refusal("rows_per_key", "a unit counts once under a key where keys are selected")
        _ = self.law

    @property
    def moved(self) -> int:
        """The most keys whose number of units changes by one between neighbors."""
        keys, _ = self.unit.moved(keyed=True)
        return 2 * keys if self.unit.substitutes else keys

    @cached_property
    def law(self) -> SelectionLaw:
        """Noise law of the decision about one key."""
        return SelectionLaw(
            epsilon=self.epsilon / self.moved,
            delta=self.delta / self.moved,
            threshold=self.threshold,
        )


@dataclass(frozen=True, kw_only=True)
class SelectionQuestion(ShardedKeys):
    """Private selection of the keys that exist.

    Args:
        domain: the columns of keys.
        plan: what the decisions spend.
        shards: in how many parts the keys are handled.

    Raises:
        ValueError: keys of its own, or no shard.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = SelectionPlan(unit=ADD_REMOVE_ROW,
    ...                      epsilon=Fraction(1), delta=Fraction(1, 10**6))
    >>> carriers = KeyColumns(columns=("carrier",), types=("text",))
    >>> SelectionQuestion(name="carrier", domain=carriers, plan=plan).spending.own
    (Fraction(1, 1), Fraction(1, 1000000))
    """

    kind = "selection"
    written = ("name", "domain", "plan", "shards", "confidence", "weight")

    domain: KeyColumns
    plan: SelectionPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys is not None:
            raise ValueError("keys: a selection of keys has none of its own")

    @property
    def key_type(self) -> pa.DataType:
        return self.domain.key_type

    @property
    def unit(self) -> PrivacyUnit:
        """Privacy unit whose keys are counted."""
        return self.plan.unit

    @property
    def spending(self) -> Spending:
        return Spending(epsilon=self.plan.epsilon, delta=self.plan.delta)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.domain.columns

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return self.domain.value_types

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self.domain.check_types(types)

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        return key_increments(self.domain.row_keys(columns))

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        exact = NodeCounts.from_bytes(counts)
        key_noise = replace(noise, own_digest=noise.key.digest("own key counts", *exact.content))
        stream = key_noise.stream(self.name, 0, place.number, 0)
        chosen = exact.taken(self.plan.law.released(exact.counts, stream))
        # Of a released key nothing is published but that it exists.
        silent = replace(chosen, counts=np.zeros(len(chosen), np.int64))
        return Drawn(sent=silent.to_bytes(), kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """All released keys in order."""
        keys = NodeCounts.from_partials(self.key_type, sent.values()).keys
        return self.released(self.domain.table(keys))

    def entry(self) -> dict[str, object]:
        """The law of the decisions."""
        law = self.plan.law
        return {
            "name": self.name,
            "epsilon": str(self.plan.epsilon),
            "delta": str(self.plan.delta),
            "mechanism": "partition selection",
            "keys_moved": self.plan.moved,
            "threshold": self.plan.threshold,
            "units_for_half": law.least_units(0.5),
            "units_for_certain": law.certain_units,
            "policies": {
                ", ".join(self.columns): {
                    "missing": "no key",
                    "an empty text": "no key",
                    "not UTF-8": "no key",
                    "a number that is no integer": "no key",
                }
            },
        }


class ReleasedSelection(ReleasedTable):
    """The keys that were selected, in the columns of the table."""

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        raise ValueError(f"top: {self._name} is a selection of keys, which releases no counts")
