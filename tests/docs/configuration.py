"""Draw the tables of all keys of a configuration from the models that check a file.

    python -m tests.docs.drawn --write

writes docs/reference/configuration-keys.md; a test checks that the committed page is current.
docs/configuration explains the purpose of each key by hand; a test checks that it has every key.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo

from dptrees.dpcore.ordered.domain import MISSING_POLICIES, OUTSIDE_POLICIES
from dptrees.dpcore.ordered.domain_kinds import DOMAIN_KINDS, domain_fields
from dptrees.pipelines.config.registry import KINDS
from dptrees.pipelines.config.release_section import ReleaseSection
from dptrees.pipelines.kinds import hierarchies as sparse
from dptrees.pipelines.kinds import hierarchy_domain as hierarchy
from dptrees.pipelines.kinds import numbers as distinct
from dptrees.pipelines.kinds import sketches
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.input import TABLE_INPUTS
from dptrees.pipelines.sections.parameters import ParameterSection
from dptrees.pipelines.sections.rules import Section

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "reference" / "configuration-keys.md"
PROSE = "../configuration"

INTRODUCTION = f"""\
# All keys of a configuration

This page lists every key of every section with its accepted values and its default, for quick
reference. It is drawn from the models that check a file. [Configuration]({PROSE}/index.md)
explains the purpose of each key, with examples.

<!-- drawn by python -m tests.docs.drawn --write; do not edit -->
"""

# The values that a rule accepts, if its docstring does not describe them for users.
WORDS: dict[str, str] = {
    "rules.text": "a string",
    "rules.null_or_fail": "`fail`, `null`",
    "release_section._date": "a date, or a line of text",
    "release_section._line": "a line of text",
    "hierarchy_domain._leaves": "a section of lists, or a list of leaves",
    "rules.name": "letters, digits, `.`, `_`, `-`",
    "rules.key_reference": "`env:NAME`, `file:PATH` or the URL of a secret",
    "rules.key_file": "a path",
    "rules.signing_key": "a path, or a reference as for `key`",
    "rules.amount": "a number above 0",
    "rules.whole_number": "a whole number",
    "rules.confidence": "a number above 0, at most 0.9999",
    "rules.duration": "a whole number with `s`, `m`, `h` or `d`",
    "rules.column_types": "a section of types by columns",
    "rules.truth": "`true`, `false`",
    "rules.several": "a list",
    "rules.one_or_several": "a value, or a list",
    "rules.ledger_url": "`sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`",
    "rules.guessed_parts": "a list of pairs `[value, fraction of the rows below]`",
    "rules.level_budgets": "`equal`, `optimal`, or a list of budgets",
    "input._mark": "one character",
    "input._quote": "one character, or `false`",
    "input._names": "a list of names",
    "input._null_values": "a string, a list, or a section of these by columns",
    "input._date_format": "a string, or a section of strings by columns",
    "document.moment": "a date or a time",
    "privacy._columns": "`row`, a column, or a list of columns",
    "privacy._bound": "a whole number from 1 to 2^20",
    "privacy.bound_or_auto": "a whole number from 1 to 2^20, `auto`, or `fraction` and `at_most`",
    "tree._columns": "a list of columns",
    "tree._keys": "a list, a list for each column, or `private`",
    "tree._threshold": "a whole number from 1 to 2^40",
    "tree._types": "`text`, `integer`, or a list of these",
    "release_section._start": "a date",
    "release_section._period": "a whole number, or a date",
    "parameters._scalar_text": "a string, a date or a number",
    "parameters._choices": "a list of strings, dates or numbers",
    "parameters._pattern": "a regular expression",
    "input._version": "a number, a timestamp or a name",
    "input.connection_place": "`env:NAME` or `file:PATH`",
    "input._driver": "the name of an ADBC driver, or the path of its library",
    "input._three_names": "`PROJECT.DATASET.TABLE`",
    "hierarchies._rows": "a whole number from 0 to 2^40",
    "boxes._whole": "a whole number from 1 to 2^50",
    "boxes.memory_bytes": "a number of bytes, or a size such as `64 MiB`",
    "boxes._errors": "a number from 0 to 1,000,000",
    "hierarchies.<lambda>": "a list of columns",
    "hierarchy_domain._names": "a list of names that differ",
    "hierarchy_domain._level_names": "a list of names that differ",
    "hierarchy_domain._digits": "a list of whole numbers, at most 18 together",
    "hierarchy_domain._separator": "a string",
    "hierarchy_domain._calendar": (
        "a list of units, such as `year`, `month`, `day`, from large to small"
    ),
}
# Keys whose models accept any value and check it once the domain is known.
KEYS: dict[str, str] = {
    "level_weights": "numbers by names of levels, or a list",
    "node_weights": "numbers by paths",
    "guess": "numbers by names of levels, or a list",
    "invariants": "the name of a level, or a list of names",
    "parameters": "a section with a key for each parameter",
    "lower": "the first value of the first cell",
    "upper": "the end of the last cell",
    "categories": "a list of strings or whole numbers",
}
POLICIES = {"outside": OUTSIDE_POLICIES, "missing": MISSING_POLICIES, "unknown": MISSING_POLICIES}
TYPES = {str: "a string", int: "a whole number", float: "a number", bool: "`true`, `false`"}
# Keys of a domain whose name or default in a configuration is not that of its class.
CONFIGURED = {
    ("date", "out_of_range"): {"default": "`drop`"},
    ("timestamp", "out_of_range"): {"default": "`drop`"},
    ("category", "ordered"): {"default": "`false`"},
    ("category", "value_names"): {
        "name": "labels",
        "takes": "a list of labels, or a section of them by value",
    },
}
# The domain of a box of columns, whose section is read without a model.
BOX = (
    ("kind", "`hypercube`", "required"),
    ("columns", "a list of columns, or of sections of ordered domains", "required"),
    ("lower", "a list, with names of columns", "required there"),
    ("upper", "a list, with names of columns", "required there"),
    ("depths", "a list of whole numbers from 1 to 40", "not given"),
)
# The same for a wide table.
TABLE = (
    ("kind", "`table`", "required"),
    ("columns", "a list of sections of ordered domains", "required"),
    ("cells", "a whole number from 2 to 1,024", "128, or fewer if all tables would not fit"),
    ("missing", "`drop`, `first`, `last` or `category`", "`drop`"),
)
# The page that explains a section, or a part of a page.
EXPLAINED = {
    "input": f"{PROSE}/input.md",
    "privacy": f"{PROSE}/privacy.md",
    "series": "../series.md",
    "report": "../report.md",
    "group_by": f"{PROSE}/by.md",
    "measure": f"{PROSE}/hierarchy.md#measure",
    "guess": f"{PROSE}/trees.md#guess",
    "intervals": f"{PROSE}/trees.md#keys-of-trees-over-an-ordered-domain",
    "ordered": f"{PROSE}/trees.md",
    "hierarchy": f"{PROSE}/hierarchy.md",
    "sparse": f"{PROSE}/sparse.md",
    "hypercube": f"{PROSE}/hypercube.md",
    "table": f"{PROSE}/table.md",
    "distinct": f"{PROSE}/distinct.md",
    "sketch": f"{PROSE}/sketch.md",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Key:
    """A key of a section, with its accepted values and its default in words."""

    name: str
    takes: str
    default: str


_VALUES = Key(
    name="values",
    takes="the first and the last value, in place of `lower` and `upper`",
    default="not given",
)
_DAY_CELLS = Key(
    name="cells", takes="a whole number, in place of `days_per_cell`", default="not given"
)
# Keys of a domain that are no fields of its class, by its type.
MORE = {"integer": (_VALUES,), "date": (_VALUES, _DAY_CELLS)}


def drawing() -> str:
    """Return the page."""
    return "\n".join([INTRODUCTION, *_file_tables(), *_tree_tables(), *_domain_tables()]) + "\n"


def section_keys(section: type[Section]) -> list[Key]:
    """Return the keys of a section."""
    return [
        Key(
            name=field.alias or name,
            takes=_accepted_values(name, field),
            default=_default(field),
        )
        for name, field in section.model_fields.items()
    ]


def sections_below(section: type[Section]) -> dict[str, type[Section]]:
    """Return the sections inside a section, by their keys."""
    found = {}
    for name, field in section.model_fields.items():
        for each in reversed(_alternatives(field.annotation)):
            if _is_section(each):
                found[name] = each
    return found


def _alternatives(annotation: Any) -> list[Any]:
    """Return the types that a key accepts, without the tags of a union."""
    each = (annotation, *get_args(annotation))
    return [get_args(one)[0] if get_origin(one) is Annotated else one for one in each]


def _file_tables() -> Iterator[str]:
    yield from _table("The whole file", section_keys(ReleaseSection), f"{PROSE}/index.md")
    for name, section in sections_below(ReleaseSection).items():
        if name == "trees":
            continue
        yield from _table(f"`{name}`", section_keys(section), EXPLAINED.get(name))
        for format, table in TABLE_INPUTS.items() if name == "input" else ():
            yield from _table(
                f"`input` of format `{format}`", section_keys(table), f"{PROSE}/input.md#tables"
            )
    yield from _table(
        "A parameter of `parameters`", section_keys(ParameterSection), "../parameters.md"
    )


def _tree_tables() -> Iterator[str]:
    below: dict[str, type[Section]] = {}
    for name, kind in KINDS.items():
        if kind.section is not None:
            tree = kind.section()
            yield from _table(f"A tree of kind `{name}`", section_keys(tree), EXPLAINED[name])
            below |= {
                key if key == "group_by" else f"{key}` of kind `{name}": section
                for key, section in sections_below(tree).items()
            }
    for title, section in below.items():
        yield from _table(f"`{title}`", section_keys(section), EXPLAINED.get(title.split("`")[0]))


def _domain_tables() -> Iterator[str]:
    for name, domain in DOMAIN_KINDS.items():
        keys = [
            *(_as_configured(name, key) for key in _field_keys(name, domain)),
            *MORE.get(name, ()),
        ]
        yield from _table(f"`domain` of type `{name}`", keys, f"{PROSE}/ordered.md")
    boxes, tables = (
        [Key(name=name, takes=takes, default=default) for name, takes, default in keys]
        for keys in (BOX, TABLE)
    )
    for kind, keys in (
        ("hierarchy", list(_rule_keys(hierarchy._RULES))),
        ("sparse", list(_rule_keys(sparse._RULES))),
        ("hypercube", boxes),
        ("table", tables),
        ("distinct", list(_rule_keys(distinct._RULES))),
        ("sketch", list(_rule_keys(sketches._RULES))),
    ):
        yield from _table(f"`domain` of kind `{kind}`", keys, EXPLAINED[kind])


def _field_keys(kind: str, domain: Any) -> Iterator[Key]:
    types = get_type_hints(domain)
    for name, default in domain_fields(kind).items():
        policy = POLICIES.get(name)
        yield Key(
            name="out_of_range" if name == "outside" else name,
            takes=KEYS.get(name) or _type_words(types[name])
            if policy is None
            else _choices(policy),
            default="required" if default is dataclasses.MISSING else _shown(default),
        )


def _as_configured(type: str, key: Key) -> Key:
    """Return a key of a domain as a configuration has it, if its name or default differs there."""
    return dataclasses.replace(key, **CONFIGURED.get((type, key.name), {}))


def _rule_keys(given: Mapping[str, Callable[[object], Any]]) -> Iterator[Key]:
    for name, rule in given.items():
        yield Key(name=name, takes=_rule_words(rule) or "", default="")


def _table(title: str, keys: list[Key], page: str | None) -> Iterator[str]:
    yield f"## {title}\n"
    if page is not None:
        yield f"[Description]({page})\n"
    has_defaults = any(key.default for key in keys)
    yield "| key | takes | default |" if has_defaults else "| key | takes |"
    yield "|---|---|---|" if has_defaults else "|---|---|"
    for key in keys:
        cells = [f"`{key.name}`", key.takes, *([key.default] if has_defaults else [])]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _accepted_values(name: str, field: FieldInfo) -> str:
    below = any(map(_is_section, _alternatives(field.annotation)))
    if name == "trees":
        return "a list of sections, one per tree, see below"
    if below or name == "domain":
        return "a section, see below"
    is_list = get_origin(field.annotation) is tuple
    items = _item_words(field.annotation)
    ruled = next((_rule_words(each.func) for each in field.metadata if hasattr(each, "func")), None)
    if ruled is None and not is_list:  # the rule of an optional value
        ruled = items
    if ruled == WORDS["rules.one_or_several"] and items:
        return f"{items}, or a list"
    if ruled == WORDS["rules.several"] and items:
        return f"a list: {items}"
    return ruled or KEYS.get(name) or _type_words(field.annotation)


def _rule_words(rule: Callable[..., Any]) -> str | None:
    """Describe the values that a rule accepts: its words, its choices, or its docstring."""
    if isinstance(rule, rules.Choice):
        return _choices(rule.allowed)
    if isinstance(rule, rules.Whole):
        return rule.words
    name = f"{rule.__module__.rpartition('.')[2]}.{getattr(rule, '__name__', '')}"
    if name in WORDS:
        return WORDS[name]
    first = (inspect.getdoc(rule) or "").partition("\n")[0].partition(". ")[0].rstrip(".")
    first = first.replace("``", "`")
    return first[:1].lower() + first[1:] or None


def _item_words(annotation: Any) -> str | None:
    """Describe each of several values."""
    for each in get_args(annotation):
        for part in getattr(each, "__metadata__", ()):
            if hasattr(part, "func"):
                return _rule_words(part.func)
    return None


def _type_words(annotation: Any) -> str:
    kinds = [each for each in (annotation, *get_args(annotation)) if each in TYPES]
    if get_origin(annotation) is tuple:
        return "a list"
    return TYPES[kinds[0]] if kinds else "a value"


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _choices(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "not given"
    return "required" if field.is_required() else _shown(field.default)


def _shown(value: object) -> str:
    if value is None or value == ():
        return "not given"
    if isinstance(value, Fraction):
        value = value.numerator if value.denominator == 1 else float(value)
    if isinstance(value, tuple) and len(value) == 1:
        (value,) = value
    if isinstance(value, bool):
        value = str(value).lower()
    return f"`{value}`"
