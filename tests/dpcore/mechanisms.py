"""Mechanisms of the questions that tests make."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from dptrees.dpcore.adaptive.drawn_trees import DrawnTree
from dptrees.dpcore.adaptive.mechanism import AdaptiveAnswerErrors
from dptrees.dpcore.questions.released import Released
from dptrees.dpcore.questions.released_tree import ReleasedTree

M = TypeVar("M")
Q = TypeVar("Q")


def take_mechanism(kind: type[M], given: dict[str, Any], **fixed: Any) -> M:
    """Return a mechanism of a kind; its fields are taken out of what is given for a question."""
    names = [field.name for field in fields(kind) if field.name in given]  # type: ignore[arg-type]
    return kind(**(fixed | {name: given.pop(name) for name in names}))


def changed(question: Q, **changes: Any) -> Q:
    """Return a question with other fields, of its mechanism too."""
    mechanism: Any = question.mechanism  # type: ignore[attr-defined]
    names = [field.name for field in fields(mechanism) if field.name in changes]
    own = replace(mechanism, **{name: changes.pop(name) for name in names})
    return replace(question, mechanism=own, **changes)  # type: ignore[type-var]


def drawn_tree(tree: Released, key: int = 0) -> DrawnTree:
    """Return the drawn tree of a released adaptive tree, for the code of a key."""
    assert isinstance(tree, ReleasedTree)
    errors = tree.errors
    assert isinstance(errors, AdaptiveAnswerErrors)
    return errors.drawn(key)
