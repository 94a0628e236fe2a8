"""What was seen of the rows, for a person or a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dptrees.dpcore.rows.policies import FRACTION
from dptrees.pipelines.checking.advice import tree_advice
from dptrees.pipelines.checking.check import InputCheck
from dptrees.pipelines.checking.malformed import MalformedClass, malformed_classes
from dptrees.pipelines.checking.tally import UNREAD, TreeTally, most_common, spelling_advice
from dptrees.pipelines.terminal_text import escaped
from dptrees.transforms.readers.csv_format import CsvFormat

_LAYOUTS_SHOWN = 5
_BECOMES = {
    "drop": "dropped",
    "clamp": "counted in the nearest cell",
    "first": "counted in the first cell",
    "last": "counted in the last cell",
    "zero": "counted as zero",
}
_CAUSES = {
    UNREAD: "is not a value of the type that is read",
    "missing": "is missing",
    FRACTION: "is a fraction, where only whole numbers are read",
    "unknown": "is not a listed value of the tree",
}


def input_lines(check: InputCheck, number: int, size: int) -> Iterator[str]:
    """The files and their columns."""
    configuration = check.configuration
    paths, form = ", ".join(configuration.input_paths), configuration.input_format
    yield ""
    if configuration.table is None:
        yield f"{escaped(paths)}: {_several(number, 'file')} of {form}, {size:,} bytes"
    else:
        known = f", {size:,} bytes" if size else ""
        yield f"{escaped(configuration.table.name)}: {_several(number, 'part')}{known}"
    for layout in check.layouts[:_LAYOUTS_SHOWN]:
        others = f" and {_several(layout.files - 1, 'other')}" if layout.files > 1 else ""
        yield f"  {escaped(layout.first)}{others}:"
        for name, type in layout.columns.items():
            read = "" if name in check.tally.plan.columns else "  (not read)"
            yield f"    {escaped(name)}: {type}{read}"
        if layout.hidden:
            yield "    (other names are not shown: they may be a row)"
    if len(check.layouts) > _LAYOUTS_SHOWN:
        yield f"  ... and {len(check.layouts) - _LAYOUTS_SHOWN} more kinds of columns"


def check_lines(check: InputCheck) -> Iterator[str]:
    tally, unit = check.tally, check.tally.plan.unit
    yield ""
    yield f"{_several(tally.rows, 'row')} read{'' if check.whole else ', not all'}"
    if check.malformed:
        outcome = "left out" if check.configuration.terms.drops_rows else "refused"
        yield f"{_several(check.malformed, 'malformed row')} {outcome}"
        for each in _malformed_classes(check):
            yield f'  {each.rows:>12,} like "{escaped(each.like)}": {each.reason}'
            yield f"  advice: {each.advice}"
    if tally.without_unit:
        yield f"{_several(tally.without_unit, 'row')} left out, without a {escaped(unit.name)}"
    advice = spelling_advice(unit, tally.spellings)
    if advice is not None:
        yield f"  advice: {escaped(advice)}"
    for tree in tally.trees:
        yield from _tree_lines(tree, check)
    if not unit.is_row:
        yield ""
        yield (
            f"A release counts {unit.bounds_in_words} of each {escaped(unit.name)}: the numbers "
            "here are before this bound."
        )


def _malformed_classes(check: InputCheck) -> list[MalformedClass]:
    """The classes of malformed rows that were counted; none where not all rows were read."""
    csv = check.configuration.input_options.get("csv")
    if not check.malformed or not isinstance(csv, CsvFormat):
        return []
    return list(malformed_classes(check.malformed_csv, csv))


def _tree_lines(tree: TreeTally, check: InputCheck) -> Iterator[str]:
    question = tree.question
    yield ""
    yield f"{question.name} ({', '.join(map(escaped, question.columns))})"
    yield f"  {tree.counted:>12,} counted"
    for cause in tree.in_order:
        becomes = _BECOMES.get(cause.policy, f"counted as {cause.policy!r}")
        yield f"  {cause.rows:>12,} {becomes}: {escaped(cause.column)} {_in_words(cause.cause)}"
        if cause.looks:
            looks = ", ".join(f'"{escaped(each)}"' for each in most_common(cause.looks))
            yield f"  {'':>12}   they look like: {looks} (a is a letter, 9 is a digit)"
    for sentence in tree_advice(tree, check):
        yield f"  advice: {escaped(sentence)}"


def _in_words(cause: str) -> str:
    return _CAUSES.get(cause, f"is {cause}")


def check_entry(check: InputCheck, number: int) -> dict[str, Any]:
    """The check as plain values."""
    tally = check.tally
    return {
        "private": False,
        "files": number,
        "layouts": [
            {"files": each.files, "first": each.first, "columns": each.columns}
            for each in check.layouts
        ],
        "rows": tally.rows,
        "all_rows": check.whole,
        "malformed": check.malformed,
        "malformed_classes": [each._asdict() for each in _malformed_classes(check)],
        "without_unit": tally.without_unit,
        "unit_advice": spelling_advice(tally.plan.unit, tally.spellings),
        "trees": [
            {
                "name": tree.question.name,
                "counted": tree.counted,
                "causes": [
                    {
                        "column": cause.column,
                        "cause": cause.cause,
                        "policy": cause.policy,
                        "rows": cause.rows,
                        "looks_like": most_common(cause.looks),
                    }
                    for cause in tree.in_order
                ],
                "advice": list(tree_advice(tree, check)),
            }
            for tree in tally.trees
        ],
    }


def _several(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
