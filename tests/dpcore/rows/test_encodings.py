"""However strings and truth values are encoded, they are the same values in every place that takes
strings: plain, in a dictionary, in runs, of a fixed width, or stored by an extension type."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dptrees.dpcore.choices.key_selection import KeyColumns
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
    universe_from_columns,
    universe_from_paths,
)
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.rows.columns import plain_values, value_type
from dptrees.dpcore.rows.key_tables import KeyTable, TableKeys
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain
from dptrees.pipelines.check.tally import shapes

WORDS = ["11", "12", None, "11", "21", "12"]
TRUTHS = [True, False, None, True, True, False]
UUIDS = [None if word is None else uuid.UUID(int=int(word) << 100) for word in WORDS]


class _Stored(pa.ExtensionType):  # type: ignore[misc]
    """A type of a person's own, of some storage."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "tests.stored")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> _Stored:
        return cls(storage)


def stored(column: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(_Stored(column.type), column)


def words() -> Iterator[tuple[list[Any], pa.Array]]:
    plain, octets = pa.array(WORDS), pa.array([each and each.encode() for each in WORDS])
    for type in (pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()):
        yield WORDS, octets.cast(type) if "binary" in str(type) else plain.cast(type)
    fixed = octets.cast(pa.binary(2))
    json = pa.ExtensionArray.from_storage(pa.json_(), plain)
    for each in (fixed, json, stored(plain), stored(octets), stored(fixed), stored(stored(fixed))):
        yield WORDS, each
    for each in (plain, fixed, octets):
        yield WORDS, each.dictionary_encode()
        yield WORDS, pc.run_end_encode(each)
    yield (
        WORDS,
        pa.DictionaryArray.from_arrays(
            plain.dictionary_encode().indices, stored(plain.unique().drop_null())
        ),
    )


def truths() -> Iterator[tuple[list[Any], pa.Array]]:
    plain = pa.array(TRUTHS)
    values = [each if each is None else str(each).lower() for each in TRUTHS]
    bits = pa.ExtensionArray.from_storage(pa.bool8(), plain.cast(pa.int8()))
    for each in (bits, stored(plain), pc.run_end_encode(plain)):
        yield values, each


def uuids() -> Iterator[tuple[list[Any], pa.Array]]:
    column = pa.array(UUIDS, pa.uuid())
    values = [each and str(each) for each in UUIDS]
    yield values, column
    yield values, stored(column)
    distinct = pa.array(list(dict.fromkeys(each for each in UUIDS if each)), pa.uuid())
    yield (
        values,
        pa.DictionaryArray.from_arrays(pa.array(WORDS).dictionary_encode().indices, distinct),
    )


COLUMNS = [*words(), *truths(), *uuids()]
PLACES: dict[str, Callable[[tuple[str, ...]], Callable[[pa.Array], list[Any]]]] = {
    "categories": lambda values: of(
        lambda domain, x: (domain.check_type(x.type), domain.cell_ids(x).tolist()),
        CategoryDomain(column="x", categories=values),
    ),
    "causes": lambda values: of(
        lambda domain, x: [each.rows.tolist() for each in domain.row_outcomes({"x": x})],
        CategoryDomain(column="x", categories=values[:1]),
    ),
    "keys": lambda values: of(
        lambda keys, x: keys.codes(x).tolist(), KeyList(column="x", keys=values, unknown="other")
    ),
    "table of keys": lambda values: of(
        lambda keys, x: (keys.check_types({"x": x.type}), keys.row_codes({"x": x}).tolist()),
        TableKeys(table=KeyTable(pa.table({"x": pa.array(values, pa.large_string())}))),
    ),
    "private keys": lambda values: of(
        lambda keys, x: (keys.check_types({"x": x.type}), keys.row_keys({"x": x}).to_pylist()),
        KeyColumns(columns=("x",), types=("text",)),
    ),
    "hierarchy": lambda values: leaves(universe_from_columns({"x": pa.array(values)})),
    "paths": lambda values: leaves(universe_from_paths(pa.array(values), "/")),
    "sparse labels": lambda values: sparse(LabelDomain(label_columns=("x",))),
    "sparse paths": lambda values: sparse(PathDomain(column="x", depth=2)),
    "shapes": lambda values: lambda x: sorted(shapes(x).items()),
}


def of(read: Callable[[Any, pa.Array], Any], domain: Any) -> Callable[[pa.Array], Any]:
    return lambda x: read(domain, x)


def leaves(universe: Any) -> Callable[[pa.Array], Any]:
    domain = HierarchyDomain(universe=universe, columns=("x",))
    return lambda x: (domain.check_column_type("x", x.type), domain.leaf_ids({"x": x}).tolist())


def sparse(domain: Any) -> Callable[[pa.Array], Any]:
    def read(x: pa.Array) -> Any:
        counts = domain.leaf_counts({"x": x})
        assert domain.accepts(x.type)
        found = sorted(zip(counts.keys.to_pylist(), counts.counts.tolist(), strict=True))
        return found, domain.leaf_keys({"x": x}).cast(pa.large_string()).to_pylist()

    return read


@pytest.mark.parametrize("place", PLACES)
def test_values_do_not_depend_on_their_encoding(place: str) -> None:
    for values, column in COLUMNS:
        listed = tuple(dict.fromkeys(each for each in values if each is not None))
        read = PLACES[place](listed)
        assert read(column) == read(pa.array(values)), column.type
        assert read(column.slice(1, 4)) == read(pa.array(values[1:5])), column.type
        assert read(column.slice(2, 0)) == read(pa.array([], pa.string()))


def test_codes_of_digits_are_read_of_a_fixed_width() -> None:
    read = leaves(universe_from_codes(pa.array(["11", "12", "21"]), (1, 1)))
    for values, column in words():
        assert read(column) == read(pa.array(values))


def test_other_extension_types_are_not_their_storage() -> None:
    """Their integers may be periods or colors."""
    column = stored(pa.array([1, 2]))
    assert value_type(column.type) == column.type
    assert plain_values(column).type == column.type
    with pytest.raises(ValueError, match="x"):
        CategoryDomain(column="x", categories=(1, 2)).check_type(column.type)
