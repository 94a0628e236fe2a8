"""What the report says of values that are outside, missing or not listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dptrees.pipelines.page.extent import clip

DROPPED = "row not counted in this tree"
# Of an ordered domain.
CELL_POLICIES = {
    "clamp": "counted in the first or last cell",
    "drop": DROPPED,
    "first": "counted in the first cell",
    "last": "counted in the last cell",
}
_KEYS = {"drop": DROPPED, "other": "counted under the key other"}


def policies(question: Any, words: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The rows of the table of policies: for the columns of a tree, and its keys.

    Args:
        question: the tree.
        words: what a policy of its domain does, by its name.
    """
    spec, tree = question.domain.spec(), clip(question.name)
    column = clip(", ".join(question.domain.columns))
    said = {name: str(spec.get(name)) for name in ("outside", "missing", "unknown")}
    yield {"column": column, "tree": tree} | {
        name: words.get(policy, "") for name, policy in said.items()
    }
    if question.keys is not None:
        unknown = _KEYS.get(str(question.keys.unknown), "")
        row = {"column": clip(", ".join(question.keys.columns)), "tree": f"{tree} (keys)"}
        yield row | {"outside": "", "missing": unknown, "unknown": unknown}
