"""The bounds of a unit that a finished first stage released."""

from __future__ import annotations

from dpcore.unit_bounds.question import ReleasedBound
from pipelines.release_folder import ReleaseFolder


def chosen_bounds(folder: str) -> tuple[tuple[str, int], ...]:
    """The bounds that a finished first stage released, by their keys.

    Args:
        folder: of the first stage.
    """
    release = ReleaseFolder(folder).release
    names = [question.name for question in release.plan.questions]
    return tuple((name, _bound(release.tree(name))) for name in names)


def _bound(tree: object) -> int:
    assert isinstance(tree, ReleasedBound)
    return tree.bound
