"""The roles of a tree stay small, and together are what a tree offers."""

from __future__ import annotations

from abc import ABC

from dptrees.dpcore.questions import question
from dptrees.dpcore.questions.question import Question

MOST_MEMBERS = 14
ROLES = [
    each
    for each in Question.__mro__[1:]
    if each.__module__ == question.__name__ and each is not Question
]


def members(role: type) -> set[str]:
    """Return the public names that a role has, its bases' included."""
    owners = [each for each in role.__mro__ if each not in (ABC, object)]
    names = {name for owner in owners for name in (*vars(owner), *owner.__annotations__)}
    return {name for name in names if not name.startswith("_")}


def test_a_caller_sees_few_members() -> None:
    for role in ROLES:
        assert 1 <= len(members(role)) <= MOST_MEMBERS, role


def test_roles_differ() -> None:
    public = [role for role in ROLES if not role.__name__.startswith("_")]
    assert len(public) == 8
    assert len({frozenset(members(role)) for role in public}) == len(public)


def test_what_a_tree_has_beside_its_roles_is_its_keys_and_tables() -> None:
    beside = {name for name in vars(Question) if not name.startswith("_")}
    beside -= {name for role in ROLES for name in members(role)}
    assert beside == {
        *("keys", "confidence", "weight", "key_count", "key_labels", "labels_between", "key_label"),
        *("run", "needs_one_key", "measured_trees", "public_tables", "with_public_tables"),
    }
