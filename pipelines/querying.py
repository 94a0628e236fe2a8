"""``dptrees query``: answers from a release's folder."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from dpcore.questions.released import Answer, Released
from pipelines.release_folder import ReleaseFolder
from pipelines.series.series_folder import WindowFolder, opened
from pipelines.terminal_text import escaped, print_json, print_line
from pipelines.user_error import UserError


def run_query(chosen: argparse.Namespace) -> int:
    """Answers what the arguments of the command ask and prints it.

    Raises:
        UserError: the tree, the key or a value is none of the release's.
    """
    folders = opened(chosen.release, chosen.window, chosen.to_date, running=chosen.running)
    name = tree_name(folders[0].folder, chosen)
    try:
        rows = [
            each.told | row
            for each in folders
            for row in _answers(_asked(each.folder.release.tree(name), chosen), chosen)
        ]
    except ValueError as error:
        raise UserError(f"{chosen.release}: {error}") from None
    if chosen.json:
        print_json({"tree": name, "key": chosen.key, "answers": rows}, default=str)
    else:
        _print(rows)
    return 0


def _asked(tree: Released, chosen: argparse.Namespace) -> Released:
    """A tree as it is asked: at a confidence, or one of its columns."""
    if chosen.confidence is not None:
        tree = tree.at_confidence(chosen.confidence)
    if getattr(chosen, "column", None) is not None:
        tree = tree.of_column(chosen.column)
    return tree


def tree_name(folder: ReleaseFolder | WindowFolder, chosen: argparse.Namespace) -> str:
    """The tree that the arguments name, or the only one.

    Raises:
        UserError: there is none of this name, or there are several.
    """
    names = [question.name for question in folder.plan.questions]
    name: str | None = chosen.tree or (names[0] if len(names) == 1 else None)
    if name is None or name not in names:
        which = f"there is no tree {chosen.tree!r}" if chosen.tree else "say which tree with --tree"
        raise UserError(f"{chosen.release}: {which}; it has {', '.join(names)}")
    return name


def _answers(tree: Released, chosen: argparse.Namespace) -> Iterator[dict[str, object]]:
    if chosen.kind == "quantile":
        for quantile in chosen.values:
            yield _quantile(tree.quantile(quantile, chosen.key))
        return
    asked = {"top": _top, "node": _nodes, "range": _range, "cdf": _cdf, "box": _box}
    for answer in asked[chosen.kind](tree, chosen):
        yield {name: _known(value) for name, value in asdict(answer).items()}


def _known(value: object) -> object:
    """None for an end of an interval of which nothing is known: JSON has no infinity."""
    return None if isinstance(value, float) and math.isinf(value) else value


def _cdf(tree: Released, chosen: argparse.Namespace) -> list[Answer]:
    together = chosen.simultaneous
    return [tree.cdf(value, chosen.key, simultaneous=together) for value in chosen.values]


def _range(tree: Released, chosen: argparse.Namespace) -> list[Answer]:
    return [tree.range(chosen.lower, chosen.upper, chosen.key)]


def _box(tree: Released, chosen: argparse.Namespace) -> list[Answer]:
    sides = {column: (lower, upper) for column, lower, upper in chosen.side}
    if len(sides) < len(chosen.side):
        raise ValueError("side: a column is there twice")
    return [tree.box(sides, chosen.key)]


def _top(tree: Released, chosen: argparse.Namespace) -> list[Answer]:
    level = tree.height if chosen.level is None else tree.level_of(chosen.level)
    if chosen.n < 1:
        raise ValueError(f"n: {chosen.n} is not above 0")
    return tree.top(chosen.n, level, chosen.key)


def _nodes(tree: Released, chosen: argparse.Namespace) -> list[Answer]:
    if chosen.path is not None:
        node = tree.at_path(chosen.path, chosen.key)
        if chosen.level is not None:
            raise ValueError("level: a path names its node; leave --level out")
        return [node, *tree.children(chosen.path, chosen.key)] if chosen.children else [node]
    if chosen.children:
        raise ValueError("children: goes with --path")
    level = tree.numbered_level(chosen.level)
    number = tree.node_of(chosen.value, level) if chosen.node is None else chosen.node
    return [tree.node(level, number, chosen.key)]


def _quantile(row: Mapping[str, object]) -> dict[str, object]:
    """The numbers where the domain's values are numbers, else the texts."""
    names = ("value", "ci_low", "ci_high")
    numeric = any(row[name] is not None for name in names)
    return {"q": row["q"]} | {name: row[name if numeric else f"{name}_text"] for name in names}


def _print(rows: Sequence[Mapping[str, object]]) -> None:
    """A table with a heading, numbers to the right."""
    if not rows:
        print_line("nothing was published there")
        return
    heading = list(rows[0])
    cells = [heading, *([_text(row[name]) for name in heading] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(heading))]
    for line in cells:
        print_line("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else escaped(str(value))
