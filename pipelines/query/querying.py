"""``dptrees query``: answers from a release's folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from dptrees.dpcore.questions.released import StatisticKind
from dptrees.pipelines.process import UserError
from dptrees.pipelines.query.above import SURELY_NOT, read_lines, read_rows, statements
from dptrees.pipelines.query.folders import AnyFolder, Opened, opened
from dptrees.pipelines.query.release_folder import OTHER_FORM
from dptrees.pipelines.show.answers import (
    AnswerEntry,
    Figure,
    StatisticEntry,
    answer_remarks,
    counted_values,
    csv_lines,
    narrow_table,
    overview,
    overview_table,
    statistic_remarks,
    statistic_table,
    wide_table,
)
from dptrees.pipelines.terminal_text import print_csv, print_json, print_line

if TYPE_CHECKING:
    from dptrees.dpcore.questions.released import Answer, Released

# This value of --key queries every key.
ALL_KEYS = "all"
ABOVE, DESCRIBE = "above", "describe"
STATISTICS = tuple(each.value for each in StatisticKind)
# Of each question, what is counted; whether it has bounds, which may be rounded.
_NOUNS = {
    "cdf": ("range", True),
    "count": ("value", False),
    "range": ("range", True),
    "box": ("box", True),
    "sum": ("sum", True),
    "node": ("node", False),
    "top": ("node", False),
    ABOVE: ("node", False),
    "quantile": ("value", False),
}


def run_query(chosen: argparse.Namespace) -> int:
    """Answer the query of the command's arguments and print the answer.

    Raises:
        UserError: the release has no such tree, key or value; or the answer would be rounded, and
            the arguments accept only exact ones.
    """
    if chosen.wide and (chosen.key != ALL_KEYS or chosen.json or chosen.csv):
        raise UserError("--wide: goes with --key all, and not with --json or --csv")
    if chosen.wide and chosen.kind in (*STATISTICS, DESCRIBE, ABOVE):
        raise UserError(f"--wide: is for counts and quantiles, not for {chosen.kind}")
    folders = opened(chosen.release, chosen.window, chosen.to_date, running=chosen.running)
    name = tree_name(folders[0].folder, chosen)
    if chosen.kind in STATISTICS:
        return _print_statistics(folders, name, chosen)
    if chosen.kind == DESCRIBE:
        return _print_overviews(folders, name, chosen)
    among = len(folders) if getattr(chosen, "simultaneous", False) else 0
    entries, confidence = list[AnswerEntry](), chosen.confidence
    try:
        for each in folders:
            found = _looked_up(each, name, chosen)
            if found is None:
                tree = _chosen_tree(each.folder.release.tree(name), chosen)
                found = list(_entries(tree, each.before, chosen, among)), tree.question.confidence
            entries += found[0]
            confidence = confidence or found[1]
    except ValueError as error:
        raise UserError(f"{chosen.release}: {error}") from None
    if _NOUNS[chosen.kind][1]:
        _check_rounding(entries, name, chosen)
    if chosen.json:
        answers = [each.to_program() for each in entries]
        print_json({"tree": name, "key": chosen.key, "answers": answers}, default=str)
    elif chosen.csv:
        for line in csv_lines(each.to_program() for each in entries):
            print_csv(line)
    else:
        _print(entries, confidence, chosen)
    return 0


def _print_statistics(folders: Sequence[Opened], name: str, chosen: argparse.Namespace) -> int:
    """Answer a query about the values of a column, and print it.

    Raises:
        UserError: as of `run_query`.
    """
    kind, entries = StatisticKind(chosen.kind), list[StatisticEntry]()
    lower, upper = (None if each == "" else each for each in chosen.range or (None, None))
    confidence = chosen.confidence
    try:
        for each in folders:
            tree = _chosen_tree(each.folder.release.tree(name), chosen)
            confidence = confidence or tree.question.confidence
            for key in _keys(tree, chosen.key):
                before = each.before | ({"key": key} if chosen.key == ALL_KEYS else {})
                found = tree.statistic(kind, lower, upper, key)
                entries.append(StatisticEntry(before=before, kind=kind, found=found))
    except ValueError as error:
        raise UserError(f"{chosen.release}: {error}") from None
    programs = [each.to_program() for each in entries]
    if chosen.json:
        print_json({"tree": name, "key": chosen.key, "answers": programs}, default=str)
    elif chosen.csv:
        for line in csv_lines(programs):
            print_csv(line)
    else:
        for line in statistic_table(entries, confidence).lines():
            print_line(line)
        for line in statistic_remarks(entries, confidence):
            print_line(line)
    return 0


def _print_overviews(folders: Sequence[Opened], name: str, chosen: argparse.Namespace) -> int:
    """Print the rows, the mean, the spread and the quartiles of a tree.

    Raises:
        UserError: as of `run_query`.
    """
    lines, confidence = list[tuple[dict[str, object], list[Figure]]](), chosen.confidence
    try:
        for each in folders:
            tree = _chosen_tree(each.folder.release.tree(name), chosen)
            confidence = confidence or tree.question.confidence
            for key in _keys(tree, chosen.key):
                before = each.before | ({"key": key} if chosen.key == ALL_KEYS else {})
                lines.append((before, list(overview(tree, key))))
    except ValueError as error:
        raise UserError(f"{chosen.release}: {error}") from None
    programs = [{**before, **asdict(figure)} for before, found in lines for figure in found]
    if chosen.json:
        print_json({"tree": name, "key": chosen.key, "answers": programs}, default=str)
    elif chosen.csv:
        for line in csv_lines(programs):
            print_csv(line)
    else:
        for line in overview_table(lines).lines():
            print_line(line)
        print_line(
            f"± is half of a {100 * confidence:g} % confidence interval, for each number "
            "separately."
        )
        if (counted := counted_values(tree)) is not None:
            print_line(f"The numbers are of {counted}.")
    return 0


def _looked_up(
    opened: Opened, name: str, chosen: argparse.Namespace
) -> tuple[list[AnswerEntry], float] | None:
    """Return released quantiles with their confidence, for which no plan is made; None where the
    query needs it, as each that is refused."""
    if chosen.kind != "quantile" or getattr(chosen, "column", None) is not None:
        return None
    lookup, of_all = opened.folder.lookup(name), chosen.key == ALL_KEYS
    if lookup is None or chosen.confidence not in (None, lookup.confidence):
        return None
    rows = None
    with suppress(*OTHER_FORM):  # the plan says what is wrong
        rows = lookup.rows(chosen.values, chosen.key)
        if of_all and lookup.has_keys:
            # In a tree with a key "all" it is this one.
            rows = rows or lookup.rows(chosen.values, None)
    if rows is None or lookup.has_keys != (chosen.key is not None):
        return None
    entries = [
        AnswerEntry(
            before=opened.before | ({"key": row["key"]} if of_all else {}), answer=row, noun="value"
        )
        for row in rows
    ]
    return entries, lookup.confidence


def _entries(
    tree: Released, before: dict[str, object], chosen: argparse.Namespace, among: int
) -> Iterator[AnswerEntry]:
    """The answers of one key, or of all; `among` folders, if verdicts hold for all at once."""
    noun, bounded = _NOUNS[chosen.kind]
    entry = partial(AnswerEntry, noun=noun, bounded=bounded, empty=tree.empty_label)
    keys = _keys(tree, chosen.key)
    abouts = [before | ({"key": key} if chosen.key == ALL_KEYS else {}) for key in keys]
    if chosen.kind == ABOVE:
        rows = read_rows(chosen.threshold, chosen.by)
        found = statements(tree, keys, rows, chosen.level, chosen.path, among=among)
        for about, own in zip(abouts, found, strict=True):
            yield from (entry(before=about | each.about, answer=each.answer) for each in own)
        return
    for about, key in zip(abouts, keys, strict=True):
        yield from (entry(before=about, answer=answer) for answer in _answers(tree, key, chosen))


def _keys(tree: Released, requested_key: str | None) -> Sequence[str | None]:
    """Return the keys of the query: "all" is every key, but in a tree with a key "all" this one."""
    keys = tree.question.keys
    if keys is not None and requested_key is None:
        raise ValueError(
            f"key: tree {tree.question.name} needs a key of {', '.join(keys.columns)}: --key KEY, "
            "or --key all"
        )
    if requested_key != ALL_KEYS or keys is None:
        return [requested_key]
    labels: Sequence[str | None] = tree.question.labels_between(0, tree.question.key_count)
    return [requested_key] if ALL_KEYS in labels else labels


def _check_rounding(entries: Sequence[AnswerEntry], name: str, chosen: argparse.Namespace) -> None:
    """Report once each value that was rounded.

    Raises:
        UserError: only exact answers are wanted.
    """
    for asked, answered in dict.fromkeys(each.rounding for each in entries if each.rounding):
        if chosen.exact:
            raise UserError(
                f"{chosen.release}: exact: requested {asked}; tree {name} has no edges there, "
                f"and can answer {answered}"
            )
        print_line(
            f"dptrees: note: requested {asked}, answered {answered}: tree {name} has no edges "
            "there (--exact refuses this)",
            file=sys.stderr,
        )


def _chosen_tree(tree: Released, chosen: argparse.Namespace) -> Released:
    """Return the tree that a query is about: at a confidence, or one of its columns."""
    if chosen.confidence is not None:
        tree = tree.at_confidence(chosen.confidence)
    if getattr(chosen, "column", None) is not None:
        tree = tree.select_column(chosen.column)
    return tree


def tree_name(folder: AnyFolder, chosen: argparse.Namespace) -> str:
    """The tree that the arguments name, or the only one.

    Raises:
        UserError: there is none of this name, or there are several.
    """
    names = folder.trees
    name: str | None = chosen.tree or (names[0] if len(names) == 1 else None)
    if name is None or name not in names:
        which = f"there is no tree {chosen.tree!r}" if chosen.tree else "choose one with --tree"
        raise UserError(f"{chosen.release}: {which}; it has {', '.join(names)}")
    return name


def _answers(
    tree: Released, key: str | None, chosen: argparse.Namespace
) -> Sequence[Answer | dict[str, object]]:
    """The answers of one key."""
    match chosen.kind:
        case "quantile":
            return [tree.quantile(each, key) for each in chosen.values]
        case "cdf":
            together = chosen.simultaneous
            return [tree.cdf(each, key, simultaneous=together) for each in chosen.values]
        case "count":
            return tree.counts(chosen.values, key)
        case "range":
            return [tree.range(chosen.lower, chosen.upper, key)]
        case "box":
            return [_box(tree, key, chosen)]
        case "sum":
            return [tree.sum(_paths(chosen), key)]
        case "top":
            return _top(tree, key, chosen)
        case _:
            return _nodes(tree, key, chosen)


def _box(tree: Released, key: str | None, chosen: argparse.Namespace) -> Answer:
    sides = {column: (lower, upper) for column, lower, upper in chosen.side}
    if len(sides) < len(chosen.side):
        raise ValueError("side: a column is given twice")
    return tree.box(sides, key)


def _paths(chosen: argparse.Namespace) -> list[str]:
    """Return the paths of the arguments, or of a file with one path a line."""
    option, file = "--paths-file", chosen.paths_file
    if chosen.paths is not None:
        if len(chosen.paths) > 1 or not chosen.paths[0].startswith("@"):
            return list(chosen.paths)
        option, file = "--paths", chosen.paths[0][1:]
    return read_lines(option, file)


def _top(tree: Released, key: str | None, chosen: argparse.Namespace) -> list[Answer]:
    level = None if chosen.level is None else tree.find_level(chosen.level)
    if chosen.n < 1:
        raise ValueError(f"n: {chosen.n} is not above 0")
    if chosen.among is not None:
        if level is not None or chosen.path is not None:
            raise ValueError("among: goes without --level and --path")
        return tree.top_among(read_lines("--among", chosen.among), chosen.n, key)
    if chosen.path is None:
        return tree.top(chosen.n, tree.height if level is None else level, key)
    return tree.top_below(chosen.path, chosen.n, level, key)


def _nodes(tree: Released, key: str | None, chosen: argparse.Namespace) -> list[Answer]:
    if chosen.by is not None and not chosen.children:
        raise ValueError("by: goes with --children")
    if chosen.path is not None:
        node = tree.at_path(chosen.path, key)
        if chosen.level is not None:
            raise ValueError("level: a path already identifies a node; leave --level out")
        return [node, *_children(tree, key, chosen)] if chosen.children else [node]
    if chosen.children:
        raise ValueError("children: goes with --path")
    level = tree.numbered_level(chosen.level)
    number = tree.find_node(chosen.value, level) if chosen.node is None else chosen.node
    return [tree.node(level, number, key)]


def _children(tree: Released, key: str | None, chosen: argparse.Namespace) -> list[Answer]:
    """In their natural order, or the largest first."""
    children = tree.children(chosen.path, key)
    if chosen.by == "count":
        children.sort(key=lambda child: -child.count)
    return children


def _print(entries: Sequence[AnswerEntry], confidence: float, chosen: argparse.Namespace) -> None:
    """A table with a heading, and what its intervals mean."""
    every, others = len(entries), ""
    if chosen.kind == ABOVE and chosen.by is None:
        entries = [each for each in entries if each.before["verdict"] != SURELY_NOT]
        others = (
            f"All {'other ' * bool(entries)}nodes surely hold fewer. "
            if len(entries) < every
            else ""
        )
    if not every:
        print_line("nothing was published there; --level names a level above")
        return
    if entries:
        table = wide_table(entries) if chosen.wide else narrow_table(entries, confidence)
        for line in table.lines():
            print_line(line)
    together = getattr(chosen, "simultaneous", False)
    noun, verdicts = ("nodes", "Verdicts and i") if chosen.kind == ABOVE else ("values", "I")
    held = f"for all {noun} at once" if together else "for each number separately"
    half = "± is half of an interval. " if chosen.wide and chosen.kind != "quantile" else ""
    margins = any(each.has_rank_margin for each in entries)
    what = "Ranks are off by no more than their margins" if margins else f"{verdicts}ntervals hold"
    print_line(f"{others}{half}{what} with {100 * confidence:g} % confidence, {held}.")
    for remark in answer_remarks(entries):
        print_line(remark)
