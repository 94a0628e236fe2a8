"""Manifest entry of a tree, whatever its kind: its budget and policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # which call this file
    from dptrees.dpcore.questions.roles import TreePrivacy
    from dptrees.dpcore.questions.tree_question import TreeQuestion


def budget_entry(question: TreePrivacy) -> dict[str, object]:
    """Budget of a tree, by its measure; nothing where that is an epsilon with a delta."""
    own = question.budget
    return {} if own is None else {own.measure.value: str(own.amount)}


def column_policies(question: TreeQuestion[Any]) -> dict[str, dict[str, object]]:
    """Policies for values that a tree's domain or keys do not list, by column."""
    kept = ("outside", "missing", "unknown")
    spec, columns = question.domain.spec(), ", ".join(question.domain.columns)
    policies: dict[str, dict[str, object]] = {
        columns: {name: spec[name] for name in kept if name in spec}
    }
    if question.keys is not None:
        by = ", ".join(question.keys.columns)
        policies.setdefault(by, {})["unknown key"] = question.keys.unknown
    return policies
