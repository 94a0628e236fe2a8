"""``dptrees query``: answers from a release's folder."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from dpcore.release import Answer, ReleasedTree
from pipelines.release_folder import ReleaseFolder
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
        if chosen.confidence is not None:
            tree = tree.at_confidence(chosen.confidence)
        rows = _answers(tree, chosen)
    except ValueError as error:
        raise UserError(f"{chosen.release}: {error}") from None
    if chosen.json:
        print(json.dumps({"tree": name, "key": chosen.key, "answers": rows}, default=str))
    else:
        _print(rows)
    return 0


def _answers(tree: ReleasedTree, chosen: argparse.Namespace) -> list[dict[str, object]]:
    key = chosen.key
    if chosen.kind == "quantile":
        return [_quantile(tree.quantile(_fraction(text), key)) for text in chosen.values]
    return [asdict(answer) for answer in _counts(tree, chosen, key)]


def _counts(tree: ReleasedTree, chosen: argparse.Namespace, key: object) -> list[Answer]:
    if chosen.kind == "cdf":
        together = chosen.simultaneous
        return [tree.cdf(value, key, simultaneous=together) for value in chosen.values]
    if chosen.kind == "range":
        return [tree.range(chosen.lower, chosen.upper, key)]
    height = tree.question.plan.tree.height
    level = height if chosen.level is None else chosen.level
    if not 0 <= level <= height:
        raise ValueError(f"level: {level} is not between 0 and {height}")
    if chosen.kind == "top":
        if chosen.n < 1:
            raise ValueError(f"n: {chosen.n} is not above 0")
        return tree.top(chosen.n, level, key)
    node = tree.node_of(chosen.value, level) if chosen.node is None else chosen.node
    return [tree.node(level, node, key)]


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
    heading = list(rows[0])
    cells = [heading, *([_text(row[name]) for name in heading] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(heading))]
    for line in cells:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
