"""The `domain` section of a hierarchy, and the keys of a tree that name its levels and nodes.

The leaves are in a public table (a column a level, codes, paths, or names and their parents), or
are the timestamps of a calendar. dpcore checks them; an error of the table is reported at the
key `table`, any other error at its own key.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dptrees.dpcore.hierarchy.calendar import (
    CALENDAR_LEVELS,
    check_calendar,
    universe_from_calendar,
)
from dptrees.dpcore.hierarchy.domain import POLICIES, HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import MAX_DIGITS
from dptrees.dpcore.hierarchy.universe import OTHER, Universe, check_level_names
from dptrees.dpcore.irregular.planner import NodeWeights
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken, from_dpcore, moment, nearest, shown
from dptrees.pipelines.sections.public_tables import read_universe, universe_from_leaves
from dptrees.pipelines.sections.tree import (
    BOUND,
    TEXT,
    Schema,
    rule_schema,
    rules_schema,
    several,
    words,
)

_COLUMN_FORMS = ("digits", "separator", "parent", "calendar")
# The keys beside which a key may be, and what is said where none of them is there.
_BESIDE = {
    "levels": (
        ("columns", "digits", "separator"),
        "belongs to columns, digits or separator; here the levels have names",
    ),
    "lower": (("calendar",), "belongs to calendar"),
    "upper": (("calendar",), "belongs to calendar"),
    "table": (
        ("columns", "digits", "separator", "parent"),
        "does not go with calendar, whose leaves follow from lower and upper",
    ),
    "leaves": (
        ("columns", "digits", "separator"),
        "goes with columns, digits and separator; names and their parents need a table",
    ),
    "table_column": (("digits", "separator", "parent"), "belongs to a column and its table"),
    "table_columns": (("columns",), "belongs to columns; for one column it is table_column"),
}
# Leaves that are listed in a configuration; more are read from a table.
MOST_LISTED = 1 << 17


def read_hierarchy(value: object) -> HierarchyDomain:
    """Make the domain of a hierarchy of the plain values of a section; reads its table.

    Args:
        value: a section as `pipelines.sections.document` reads it.

    Returns:
        The domain.

    Raises:
        RuleBroken: at the key whose rule is broken.

    >>> from datetime import date
    >>> days = {"column": "day", "calendar": ["month", "day"]}
    >>> bounds = {"lower": date(2013, 1, 1), "upper": date(2014, 1, 1)}
    >>> read_hierarchy(days | bounds).tree.level_sizes
    (1, 12, 365)
    """
    section = rules.section(value)
    rules.known_keys(section, _RULES)
    form = _form(section)
    _check_keys(section, form)
    given: dict[str, Any] = {
        key: rules.at(f".{key}", _RULES[key], each) for key, each in section.items()
    }
    universe = _calendar_universe(given) if form == "calendar" else _table_universe(given, form)
    policies = {name: given.get(name, "drop") for name in ("unknown", "missing")}
    try:
        return HierarchyDomain(
            universe=universe, columns=given.get("columns") or (given["column"],), **policies
        )
    except ValueError as error:
        # Only the label "other" is left to refuse, where a policy makes a leaf of this name.
        first = next((f".{name}" for name, policy in policies.items() if policy == OTHER), "")
        raise RuleBroken(str(error).removesuffix("."), at=first) from None


def hierarchy_weights(
    domain: HierarchyDomain, level_weights: object, node_weights: object
) -> NodeWeights | None:
    """Return the weights of nodes in a plan, from a tree's `level_weights` and `node_weights`.

    Args:
        domain: of the tree.
        level_weights: numbers by names of levels (0 for the others), or a list of them, root first;
            None: 1 for each level.
        node_weights: numbers by paths as `Universe.find` reads them, in addition to the levels'
            weights; or None.

    Returns:
        The weights; None where neither key is given.

    Raises:
        RuleBroken: at the key whose rule is broken, below the tree's section.

    >>> from dptrees.dpcore.hierarchy.calendar import universe_from_calendar
    >>> from datetime import date
    >>> year = universe_from_calendar(("month", "day"), date(2013, 1, 1), date(2014, 1, 1))
    >>> domain = HierarchyDomain(universe=year, columns=("day",))
    >>> hierarchy_weights(domain, {"day": 2}, {"2013-12": 1})
    NodeWeights(levels=(0.0, 0.0, 2.0), nodes=((1, 11, 1.0),))
    """
    if level_weights is None and node_weights is None:
        return None
    tree = domain.tree
    levels: tuple[float, ...] = (1.0,) * len(tree.level_names)
    nodes: tuple[tuple[int, int, float], ...] = ()
    if level_weights is not None:
        levels = rules.at(".level_weights", lambda each: _level_weights(tree, each), level_weights)
    if node_weights is not None:
        nodes = rules.at(".node_weights", lambda each: _node_weights(tree, each), node_weights)
    if not any(levels) and not any(weight for _, _, weight in nodes):
        raise RuleBroken("must contain a number above 0", at=".level_weights")
    return NodeWeights(levels=levels, nodes=nodes)


def guessed_counts(domain: HierarchyDomain, guess: object) -> tuple[float, ...] | None:
    """A public guess of the rows of a node of each level, root first.

    Args:
        domain: of the tree.
        guess: numbers by names of all levels, or a list of them, root first; or None.

    Raises:
        RuleBroken: at the key `guess`, below the tree's section.
    """
    if guess is None:
        return None
    names = domain.tree.level_names
    if isinstance(guess, dict):
        absent = [name for name in names if name not in guess]
        if absent:
            raise RuleBroken(f"must have a number for each level, also {absent[0]}", at=".guess")
    return rules.at(".guess", lambda each: _level_weights(domain.tree, each), guess)


def invariant_level(domain: HierarchyDomain, invariants: object) -> int | None:
    """Return the lowest level whose counts are public, from the key `invariants` of a tree.

    Args:
        domain: of the tree.
        invariants: the name of that level; or the names of all levels from the top down to it, with
            or without the root; None: no count is public.

    Returns:
        The level, 0 for the root; None where no count is public.

    Raises:
        RuleBroken: at the key, below the tree's section: there is no such level, it is the level
            of the leaves, or a level above it is left out.

    >>> from dptrees.dpcore.hierarchy.calendar import universe_from_calendar
    >>> from datetime import date
    >>> year = universe_from_calendar(("month", "day"), date(2013, 1, 1), date(2014, 1, 1))
    >>> invariant_level(HierarchyDomain(universe=year, columns=("day",)), "month")
    1
    """
    if invariants is None:
        return None
    return rules.at(".invariants", lambda each: _public_level(domain.tree, each), invariants)


def _form(section: Mapping[str, object]) -> str:
    """The key that says how the leaves are written: "columns", or one of `_COLUMN_FORMS`."""
    forms = [form for form in _COLUMN_FORMS if form in section]
    if "columns" in section:
        if "column" in section:
            raise RuleBroken("cannot be given with column; give one of the two", at=".columns")
        if forms:
            raise RuleBroken(
                "belongs to one column; each of several columns is a level", at=f".{forms[0]}"
            )
        return "columns"
    if "column" not in section:
        raise RuleBroken("needs column or columns")
    if len(forms) > 1:
        raise RuleBroken(f"does not go with {forms[0]}; give one of the two", at=f".{forms[1]}")
    if not forms:
        raise RuleBroken(
            "needs, beside column, one of digits (for codes), separator (for paths), parent (for "
            "names) and calendar (for timestamps)"
        )
    return forms[0]


def _check_keys(section: Mapping[str, object], form: str) -> None:
    """Refuse keys that belong to another form, and one that this form lacks."""
    for key, (forms, sentence) in _BESIDE.items():
        if key in section and form not in forms:
            raise RuleBroken(sentence, at=f".{key}")
    if form == "digits" and "levels" not in section:
        raise RuleBroken("is required with digits", at=".levels")
    if form == "calendar":
        return
    if "leaves" not in section and "table" not in section:
        more = "" if form == "parent" else ", or leaves that are listed"
        raise RuleBroken(f"is required with {form}{more}", at=".table")
    if "leaves" in section:
        for key in ("table", "table_column", "table_columns"):
            if key in section:
                raise RuleBroken("does not go with leaves, which are listed", at=f".{key}")


def _calendar_universe(given: Mapping[str, Any]) -> Universe:
    try:
        return universe_from_calendar(given["calendar"], given.get("lower"), given.get("upper"))
    except ValueError as error:
        raise from_dpcore(error, {"lower": None, "upper": None, **given}) from None


def _table_universe(given: Mapping[str, Any], form: str) -> Universe:
    if form in ("columns", "digits"):
        _check_lengths(given, form)
    listed = "leaves" in given
    arguments: dict[str, Any]
    if form == "columns":
        levels = given.get("levels") or rules.at(".columns", _level_names, list(given["columns"]))
        arguments = {"levels": levels}
        if not listed:
            arguments["columns"] = given.get("table_columns", given["columns"])
    else:
        column = given.get("table_column", given["column"])
        if given.get("parent") == column:
            raise RuleBroken(f"{shown(column)} is the column of the nodes themselves", at=".parent")
        arguments = {"column": column, form: given[form], "levels": given.get("levels", ())}
    try:
        if listed:
            columns = given.get("columns") or (given["column"],)
            return universe_from_leaves(_leaf_columns(given["leaves"], columns), **arguments)
        return read_universe(given["table"], **arguments)
    except ValueError as error:
        at = ".leaves" if listed else ".table"
        raise RuleBroken(str(error).removesuffix("."), at=at) from None


def _leaf_columns(leaves: object, columns: Sequence[str]) -> dict[str, pa.Array]:
    """The listed leaves by column.

    Args:
        leaves: values of each column, for every combination of these; a list of lists, a leaf each;
            or, of one column, a list of values.
        columns: of the domain.

    Raises:
        ValueError: they are none of these, or too many.
    """
    if isinstance(leaves, dict):
        if set(leaves) != set(columns):
            raise ValueError(f"must list the values of {', '.join(columns)}, and of no others")
        number = math.prod(len(leaves[name]) for name in columns)
        _check_listed(number)
        combined = list(itertools.product(*(leaves[name] for name in columns)))
    else:
        _check_listed(len(leaves))  # type: ignore[arg-type]
        one = len(columns) == 1
        combined = [
            (each,) if one and not isinstance(each, tuple) else each
            for each in leaves  # type: ignore[attr-defined]
        ]
        if any(not isinstance(each, tuple) or len(each) != len(columns) for each in combined):
            raise ValueError(f"each must be a list of {len(columns)}, a value of each column")
    return {
        name: _label_array(name, [leaf[place] for leaf in combined])
        for place, name in enumerate(columns)
    }


def _check_listed(number: int) -> None:
    if number > MOST_LISTED:
        raise ValueError(f"are {number:,}; more than {MOST_LISTED:,} are read from a table")


def _label_array(name: str, values: list[object]) -> pa.Array:
    """Values that are all strings, or all whole numbers."""
    if all(isinstance(each, str) for each in values):
        return pa.array(values, pa.string())
    if all(isinstance(each, int) and not isinstance(each, bool) for each in values):
        return pa.array(values, pa.int64())
    raise ValueError(f"{name} must have strings, or whole numbers, and not both")


def _leaves(value: object) -> object:
    """Leaves as they are written: lists become tuples."""
    if isinstance(value, dict):
        return {name: rules.several(each) for name, each in rules.section(value).items()}
    return tuple(tuple(each) if isinstance(each, list) else each for each in rules.several(value))


def _check_lengths(given: Mapping[str, Any], form: str) -> None:
    """Refuse lists of names that are not one for each level."""
    wanted = len(given[form])
    for key in ("levels", "table_columns"):
        if len(given.get(key, given[form])) != wanted:
            raise RuleBroken(
                f"must hold as many names as {form} has entries, {wanted}, not {len(given[key])}",
                at=f".{key}",
            )


def _names(value: object) -> tuple[str, ...]:
    """Return a list of distinct strings."""
    names = (
        rules.at(f"[{index}]", rules.text, each) for index, each in enumerate(rules.several(value))
    )
    return rules.each_once(tuple(names))


def _level_names(value: object) -> tuple[str, ...]:
    names = _names(value)
    try:
        check_level_names(names)
    except Refusal as refusal:
        raise RuleBroken(refusal.rule) from None
    return names


def _digits(value: object) -> tuple[int, ...]:
    digits = rules.whole_numbers(value)
    if sum(digits) > MAX_DIGITS:
        raise RuleBroken(f"must be at most {MAX_DIGITS} together, not {sum(digits)}")
    return digits


def _separator(value: object) -> str:
    # A blank is a separator too.
    return value if isinstance(value, str) and value.isspace() else rules.text(value)


def _calendar(value: object) -> tuple[str, ...]:
    levels = tuple(map(str, rules.several(value)))
    try:
        check_calendar(levels)
    except Refusal as refusal:
        raise RuleBroken(refusal.rule) from None
    return levels


_RULES: dict[str, Callable[[object], object]] = {
    "kind": rules.choice("hierarchy"),
    "column": rules.text,
    "columns": _names,
    "digits": _digits,
    "separator": _separator,
    "parent": rules.text,
    "calendar": _calendar,
    "levels": _level_names,
    "lower": moment,
    "upper": moment,
    "leaves": _leaves,
    "table": rules.text,
    "table_column": rules.text,
    "table_columns": _names,
    "unknown": rules.choice(*POLICIES),
    "missing": rules.choice(*POLICIES),
}


_TEXTS = several(TEXT)
_LABEL: Schema = {"type": ["string", "integer"]}
_LEAVES: Schema = {
    "anyOf": [
        {"type": "array", "items": {"anyOf": [_LABEL, several(_LABEL)]}, "minItems": 1},
        {"type": "object", "additionalProperties": several(_LABEL)},
    ]
}
HIERARCHY_SCHEMA = rules_schema(
    _RULES,
    "hierarchy",
    columns=_TEXTS,
    leaves=_LEAVES,
    levels=_TEXTS,
    table_columns=_TEXTS,
    digits=rule_schema(rules.whole_numbers),
    separator=TEXT,
    calendar=several(words(*CALENDAR_LEVELS)),
    lower=BOUND,
    upper=BOUND,
)


def _level_weights(tree: Universe, value: object) -> tuple[float, ...]:
    names = tree.level_names
    if isinstance(value, dict):
        weights = dict.fromkeys(names, 0.0)
        for name, each in value.items():
            _check_level(tree, name)
            weights[name] = rules.at(f".{name}", rules.weight, each)
        return tuple(weights.values())
    several = rules.several(value)
    if len(several) != len(names):
        raise RuleBroken(
            f"must be {len(names)} numbers, one for each of {', '.join(names)}, not {len(several)}"
        )
    return tuple(rules.at(f"[{index}]", rules.weight, each) for index, each in enumerate(several))


def _node_weights(tree: Universe, value: object) -> tuple[tuple[int, int, float], ...]:
    weights: dict[tuple[int, int], float] = {}
    for path, each in rules.section(value).items():
        try:
            node = tree.find(path)
        except ValueError:
            raise RuleBroken(f"{shown(path)} is not a path in the universe") from None
        if node in weights:
            raise RuleBroken(f"{shown(path)} is the path of an earlier node too")
        try:
            weights[node] = rules.weight(each)
        except RuleBroken as broken:
            raise RuleBroken(f"{shown(path)}: {broken}") from None
    if not weights:
        raise RuleBroken("must hold at least one path")
    return tuple((level, node, weight) for (level, node), weight in weights.items())


def _check_level(tree: Universe, name: str) -> None:
    if name not in tree.level_names:
        raise RuleBroken(f"{shown(name)} is not a level; {nearest(name, tree.level_names)}")


def _public_level(tree: Universe, value: object) -> int:
    several = list(rules.one_or_several(value))
    for index, name in enumerate(several):
        place = f"[{index}]" if isinstance(value, list) else ""
        rules.at(place, lambda each: _check_level(tree, rules.text(each)), name)
    names = rules.each_once(tuple(map(str, several)))
    level = max(map(tree.level_names.index, names))
    lowest = tree.level_names[level]
    if tree.level_sizes[level] == tree.leaves:
        raise RuleBroken(
            f"{shown(lowest)} has the counts of the leaves: nothing would be left to protect; name "
            "a level above"
        )
    absent = [name for name in tree.level_names[1:level] if name not in names]
    if isinstance(value, list) and absent:
        raise RuleBroken(
            f"{shown(lowest)} makes the counts of {shown(absent[0])} public as well; name every "
            "level above it, or it alone"
        )
    return level
