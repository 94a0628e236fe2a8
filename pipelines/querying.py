"""``dptrees query``: answers from a release's folder."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from dpcore.hierarchy.released import ReleasedHierarchy
from dpcore.ordered.released import ReleasedCdf
from dpcore.questions.released import Answer, ReleasedTree
from dpcore.sparse.released import ReleasedSparse
from pipelines.release_folder import ReleaseFolder
from pipelines.terminal_text import escaped, print_json, print_line
from pipelines.user_error import UserError


def run_query(chosen: argparse.Namespace) -> int:
    """Answers what the arguments of the command ask and prints it.

    Raises:
        UserError: the tree, the key or a value is none of the release's.
    """
    folder = ReleaseFolder(chosen.release)
    names = [question.name for question in folder.plan.questions]
    name = chosen.tree or (names[0] if len(names) == 1 else None)
    if name not in names:
        which = f"there is no tree {chosen.tree!r}" if chosen.tree else "say which tree with --tree"
        raise UserError(f"{chosen.release}: {which}; it has {', '.join(names)}")
    tree = folder.release.tree(name)
    try:
        if isinstance(tree, ReleasedSparse):
            rows = _sparse_answers(tree, chosen)
        else:
            if chosen.confidence is not None:
                tree = tree.at_confidence(chosen.confidence)
            rows = _answers(tree, chosen)
    except ValueError as error:
        raise UserError(f"{chosen.release}: {error}") from None
    if chosen.json:
        print_json({"tree": name, "key": chosen.key, "answers": rows}, default=str)
    else:
        _print(rows)
    return 0


def _answers(tree: ReleasedTree, chosen: argparse.Namespace) -> list[dict[str, object]]:
    if chosen.kind in ("cdf", "quantile", "range"):
        if not isinstance(tree, ReleasedCdf):
            raise ValueError(
                f"{chosen.kind}: tree {tree.question.name} is a hierarchy, not ordered"
            )
        if chosen.kind == "quantile":
            return [_quantile(tree.quantile(_fraction(q), chosen.key)) for q in chosen.values]
        return [asdict(answer) for answer in _ranges(tree, chosen)]
    if chosen.kind == "top":
        return [asdict(answer) for answer in _top(tree, chosen)]
    return [asdict(answer) for answer in _nodes(tree, chosen)]


def _sparse_answers(tree: ReleasedSparse, chosen: argparse.Namespace) -> list[dict[str, object]]:
    name = tree.question.name
    if chosen.kind not in ("node", "top"):
        raise ValueError(f"{chosen.kind}: tree {name} is sparse, and has no order")
    if chosen.key is not None:
        raise ValueError(f"key: tree {name} has no keys")
    if chosen.confidence is not None:
        raise ValueError(f"confidence: the intervals of tree {name} are those of the release")
    if chosen.kind == "top":
        if chosen.n < 1:
            raise ValueError(f"n: {chosen.n} is not above 0")
        height = tree.question.plan.height
        level = height if chosen.level is None else tree.level_of(chosen.level)
        return [asdict(answer) for answer in tree.top(chosen.n, level)]
    if chosen.path is None:
        raise ValueError(f"node: in tree {name} nodes are found by --path")
    if chosen.level is not None:
        raise ValueError("level: a path names its node; leave --level out")
    nodes = [tree.at_path(chosen.path)]
    if chosen.children:
        nodes += tree.children(chosen.path)
    return [asdict(answer) for answer in nodes]


def _ranges(tree: ReleasedCdf, chosen: argparse.Namespace) -> list[Answer]:
    if chosen.kind == "range":
        return [tree.range(chosen.lower, chosen.upper, chosen.key)]
    together = chosen.simultaneous
    return [tree.cdf(value, chosen.key, simultaneous=together) for value in chosen.values]


def _top(tree: ReleasedTree, chosen: argparse.Namespace) -> list[Answer]:
    level = _level(tree, chosen.level)
    if chosen.n < 1:
        raise ValueError(f"n: {chosen.n} is not above 0")
    return tree.top(chosen.n, level, chosen.key)


def _nodes(tree: ReleasedTree, chosen: argparse.Namespace) -> list[Answer]:
    if chosen.path is not None:
        if not isinstance(tree, ReleasedHierarchy):
            raise ValueError(f"path: tree {tree.question.name} is no hierarchy; use --value")
        if chosen.level is not None:
            raise ValueError("level: a path names its node; leave --level out")
        node = tree.at_path(chosen.path, chosen.key)
        return [node, *tree.children(chosen.path, chosen.key)] if chosen.children else [node]
    if chosen.children:
        raise ValueError("children: goes with --path")
    if chosen.level is None:
        raise ValueError("level: is needed with --node and --value")
    level = _level(tree, chosen.level)
    number = tree.node_of(chosen.value, level) if chosen.node is None else chosen.node
    return [tree.node(level, number, chosen.key)]


def _level(tree: ReleasedTree, asked: str | None) -> int:
    """The number of a level, given by its number or, in a hierarchy, by its name; by default that
    of the leaves."""
    height = tree.question.plan.tree.height
    if asked is None:
        return height
    if isinstance(tree, ReleasedHierarchy):
        return tree.level_of(asked)
    if not (asked.isdecimal() and int(asked) <= height):
        raise ValueError(f"level: {asked} is not between 0 and {height}")
    return int(asked)


def _fraction(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"quantile: {text!r} is not a number") from None


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
