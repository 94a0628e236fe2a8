"""The columns that a plan reads, in a file: its own columns, fields within them, or its path.

A name is a column, a field (`address.zip`), or a folder of the path (`year=2024/`, as Hive and
Spark write it, with %XX; `__HIVE_DEFAULT_PARTITION__` is null), in this order. The first line of
a CSV file without a header is a row, so a message shows names outside a schema only if all of
them look like names and one of them is a name that the configuration reads.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.bounding.unit_ids import check_unit_types
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder.listing import path_columns
from dptrees.transforms.readers.csv_values import typed
from dptrees.transforms.readers.formats import text_kind

# Below it every whole number is a double of its own.
_DOUBLES = 2**53


def column_types(
    plan: ReleasePlan, *, of: str = "CSV", only: Collection[str] | None = None
) -> dict[str, pa.DataType]:
    """The type in which each column is read: that of the values of its domain or key list.

    Where one tree reads whole numbers of a range and another numbers, both read numbers, as of a
    Parquet column of doubles: every whole number of the range is one.

    Args:
        plan: whose columns they are.
        of: what declares no types, for messages.
        only: the columns concerned; None: all.

    Raises:
        InputError: two trees read one column as types that do not go together; or a tree reads a
            column of the privacy unit as other than text: values of that type may be rounded, so
            that two units became one, and rows of one text that is no such value would be many.
    """
    types: dict[str, pa.DataType] = {}
    readers: dict[str, list[Question]] = {}
    for question in plan.questions:
        for column, wanted in _value_types(question).items():
            if only is not None and column not in only:
                continue
            readers.setdefault(column, []).append(question)
            if types.setdefault(column, wanted) != wanted:
                types[column] = _wider(column, readers[column], of)
    texts = (pa.string(), pa.large_string())
    for question in plan.questions:
        for column, own in _value_types(question).items():
            is_read = only is None or column in only
            if is_read and column in plan.unit.columns and own not in texts:
                raise InputError(
                    f"privacy.unit: the {of} column {column!r} names the unit, whose text is read "
                    f"exactly, but tree {question.name} reads it as {types[column]}, which may "
                    "round: give the tree a second column of the same values, or write Parquet"
                )
    # Of a unit what the file says is enough.
    return dict.fromkeys(plan.unit.columns, pa.string()) | types


def _wider(column: str, questions: list[Question], of: str) -> pa.DataType:
    """Return the type in which several trees read one column.

    Raises:
        InputError: there is none.
    """
    types = [_value_types(each)[column] for each in questions]
    integers = [each for each, type in zip(questions, types, strict=True) if type == pa.int64()]
    fitting = all(_fits_doubles(each, column) for each in integers)
    if set(types) == {pa.int64(), pa.float64()} and fitting:
        return pa.float64()
    raise InputError(
        f"trees: the {of} column {column!r} is read as {types[0]} by tree {questions[0].name} and "
        f"as {types[-1]} by tree {questions[-1].name}: give both trees one type, or write Parquet, "
        "whose columns have types"
    )


def _fits_doubles(question: Question, column: str) -> bool:
    """Return whether a tree reads whole numbers of a range that are all doubles."""
    domain = question.spec().get("domain")
    if not isinstance(domain, Mapping) or domain.get("column") != column:
        return False
    bounds = [domain.get("lower"), domain.get("upper")]
    return all(isinstance(each, int) and abs(each) < _DOUBLES for each in bounds)


def _value_types(question: Question) -> dict[str, pa.DataType]:
    try:
        return question.value_types
    except ValueError as error:
        raise InputError(f"trees: {question.name}: {error}") from None


_NAMES_SHOWN = 20
# It begins with a letter: numbers, dates, quotes, brackets, `=`, `:` and `@` are marks of data.
_NAME = re.compile(r"[^\W\d][\w .()/%#-]{0,99}")
_MARKS = re.compile(r"[\W_]+")
_NOT_SHOWN = (
    "its names are not shown, since they may be a row: one of them does not look like a name, or "
    "none is a column that is read"
)


def are_names(names: Sequence[str]) -> bool:
    """Whether all strings look like names of columns.

    >>> are_names(["age", "Größe (cm)", "col-1"]), are_names(["age", "41"]), are_names(["a=1"])
    (True, False, False)
    """
    return bool(names) and all(_NAME.fullmatch(name) and name.isprintable() for name in names)


def may_show(names: Sequence[str], read: Collection[str]) -> bool:
    """Whether a message may show names that no schema states.

    Args:
        names: all names that were found.
        read: the columns that the configuration reads.

    >>> may_show(["Age", "sex"], ["age"]), may_show(["Anna Example", "Bern"], ["age"])
    (True, False)
    """
    known = {_plain(name) for name in read} - {""}
    return are_names(names) and any(_plain(name) in known for name in names)


def _plain(name: str) -> str:
    return _MARKS.sub("", name.casefold())


def columns_found(
    missing: str,
    names: Sequence[str],
    read: Collection[str],
    *,
    in_schema: bool = False,
    start: bytes = b"",
) -> str:
    """Say which columns there are in place of one that is missing, if they may be shown.

    Args:
        missing: the name that was looked for.
        names: all names that were found.
        read: the columns that the configuration reads.
        in_schema: whether a schema states the names.
        start: the first bytes of a text file; their kind is named where the names are not shown.

    >>> columns_found("Age", ["age", "sex"], ["Age"])
    'its columns are age, sex; did you mean age?'
    >>> columns_found("age", ["Anna Example", "Bern"], ["age"]) == _NOT_SHOWN
    True
    """
    if not (in_schema or may_show(names, [missing, *read])):
        kind = text_kind(start)
        return f"{_NOT_SHOWN}; {kind}" if kind else _NOT_SHOWN
    plain = {each.strip().casefold(): each for each in reversed(names)}
    near = [] if missing in names else difflib.get_close_matches(missing.casefold(), plain, n=1)
    meant = f"; did you mean {_readable(plain[near[0]])}?" if near else ""
    shown = ", ".join(map(_readable, names[:_NAMES_SHOWN])) or "none"
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"its columns are {shown}{more}{meant}"


def _readable(name: str) -> str:
    """A name as it is, where blanks and marks in it can be seen."""
    return name if name.isprintable() and name == name.strip() else repr(name)


@dataclass(frozen=True, kw_only=True)
class FileColumns:
    """The places of the columns that a plan reads.

    Attributes:
        within: of columns that the file has, the names from a column of the file to a field in it.
        constants: of columns in the path, the value, (1,); of missing ones, a null.
        order: of the columns.
    """

    within: Mapping[str, tuple[str, ...]]
    constants: Mapping[str, pa.Array]
    order: tuple[str, ...]

    @classmethod
    def from_schema(
        cls,
        schema: pa.Schema,
        path: str,
        plan: ReleasePlan,
        *,
        missing_column: str | None = None,
        in_schema: bool = False,
    ) -> "FileColumns":
        """Find the columns of a plan in a file.

        Args:
            schema: of the file.
            path: of the file.
            plan: whose columns they are.
            missing_column: "fail" or "null"; None: a user cannot choose, and it is refused.
            in_schema: whether a file or table states the names, so that messages may show them.

        Raises:
            InputError: one is missing, or of another type than its domain reads; it names the file,
                the column and the rule.
        """
        within, path_values = {}, path_columns(path)
        for name in plan.columns:
            names = _names_within(schema, name)
            if names is not None:
                within[name] = names
            elif name not in path_values and (missing_column != "null" or name in schema.names):
                choice = missing_column == "fail" and name not in schema.names
                way_out = "; input.missing_column: null reads null there" if choice else ""
                there = list(described(schema))
                raise no_column(path, name, there, plan.columns, way_out, in_schema=in_schema)
        absent = [name for name in plan.columns if name not in within]
        constants = path_constants(path, [name for name in absent if name in path_values], plan)
        constants = dict.fromkeys(absent, pa.nulls(1)) | constants
        types = {name: each.type for name, each in constants.items()}
        types |= {name: _type_within(schema, names) for name, names in within.items()}
        check_types(types, path, plan)
        return cls(within=within, constants=constants, order=plan.columns)

    @property
    def dotted(self) -> list[str]:
        """The columns to read from the file; fields have dots."""
        return [".".join(names) for names in self.within.values()]

    def batch(self, read: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a batch that was read of the file."""
        columns = []
        for name in self.order:
            if name in self.constants:
                columns.append(repeated(self.constants[name], read.num_rows))
            else:
                columns.append(_nested_field(read, self.within[name]))
        return pa.RecordBatch.from_arrays(columns, names=list(self.order))


def no_column(
    where: str,
    name: str,
    names: Sequence[str],
    read: Collection[str],
    way_out: str = "",
    *,
    in_schema: bool = False,
) -> InputError:
    """The error of rows that lack a column.

    Args:
        where: they lie.
        name: of the column.
        names: of the columns that they have.
        read: the columns that are read.
        way_out: what else can be done, after "; ".
        in_schema: whether a schema states the names.

    >>> no_column("rows", "Age", ["age", "sex"], ["Age"]).sentence
    "input: rows has no column 'Age'; its columns are age, sex; did you mean age?"
    >>> no_column("rows", "age", ["age", "age"], ["age"]).sentence
    "input: rows has column 'age' more than once; its columns are age, age"
    """
    fault = f"has column {name!r} more than once" if name in names else f"has no column {name!r}"
    found = columns_found(name, names, read, in_schema=in_schema)
    return InputError(f"input: {where} {fault}; {found}{way_out}")


def path_constants(path: str, names: Iterable[str], plan: ReleasePlan) -> dict[str, pa.Array]:
    """The values, (1,), of columns in a path, in the types that their domains read.

    Raises:
        InputError: two trees read one of them as different types.
    """
    path_values, wanted = path_columns(path), tuple(names)
    if not wanted:
        return {}  # two trees may read a file's own column differently
    types = column_types(plan, of="path", only=wanted)
    return {name: typed(pa.array([path_values[name]], pa.string()), types[name]) for name in wanted}


def described(schema: pa.Schema) -> dict[str, str]:
    """The columns of a file and the fields within them, with their types.

    >>> described(pa.schema({"id": pa.int64(), "at": pa.struct({"zip": pa.string()})}))
    {'id': 'int64', 'at.zip': 'string'}
    """
    result: dict[str, str] = {}
    for field in schema:
        if pa.types.is_struct(field.type):
            inner = described(pa.schema(list(field.type)))
            result |= {f"{field.name}.{name}": type for name, type in inner.items()}
        else:
            result[field.name] = str(field.type)
    return result


def check_types(types: Mapping[str, pa.DataType], path: str, plan: ReleasePlan) -> None:
    """Refuses columns of a file of types that their domains do not read.

    Raises:
        InputError: naming the file, the column and the rule.
    """
    try:
        check_unit_types(plan.unit, types, plan.unit_families)
        for question in plan.questions:
            question.check_types(types)
    except ValueError as error:
        raise InputError(f"input: {path}: {error}") from None


def _names_within(schema: pa.Schema, name: str) -> tuple[str, ...] | None:
    """The names that lead to a column; None where there is none, or there are two."""
    if schema.get_field_index(name) >= 0:
        return (name,)
    # A name with dots of its own may hold fields: the longest one that is there.
    parts = name.split(".")
    for stop in reversed(range(1, len(parts))):
        top = ".".join(parts[:stop])
        if schema.get_field_index(top) >= 0:
            type = schema.field(top).type
            if not pa.types.is_struct(type):
                return None
            inner = _names_within(pa.schema(list(type)), ".".join(parts[stop:]))
            return None if inner is None else (top, *inner)
    return None


def _type_within(schema: pa.Schema, names: tuple[str, ...]) -> pa.DataType:
    field = schema.field(names[0])
    for name in names[1:]:
        field = field.type.field(field.type.get_field_index(name))
    return field.type


def _nested_field(read: pa.RecordBatch, names: tuple[str, ...]) -> pa.Array:
    column = read.column(names[0])
    for name in names[1:]:
        # A field of what is null is null.
        column = pc.struct_field(column, column.type.get_field_index(name))
    return column


def repeated(value: pa.Array, rows: int) -> pa.Array:
    """A value, (1,), in every row.

    >>> repeated(pa.array(["a"]), 2).to_pylist()
    ['a', 'a']
    """
    return pa.repeat(value[0], rows) if value[0].is_valid else pa.nulls(rows, value.type)
