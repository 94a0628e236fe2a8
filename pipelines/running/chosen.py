"""The bounds that a finished first stage released."""

from __future__ import annotations

from collections.abc import Iterator

from dptrees.dpcore.choices.unit_bounds import ReleasedBound
from dptrees.dpcore.choices.value_bounds import ReleasedValueBounds
from dptrees.pipelines.release_folder import ReleaseFolder


def chosen_bounds(folder: str) -> tuple[tuple[str, float], ...]:
    """The bounds that a finished first stage released, by their names.

    Args:
        folder: of the first stage.
    """
    return tuple(_bounds(folder))


def _bounds(folder: str) -> Iterator[tuple[str, float]]:
    release = ReleaseFolder(folder).release
    for question in release.plan.questions:
        tree = release.tree(question.name)
        if isinstance(tree, ReleasedValueBounds):
            yield from ((f"{question.name}.{side}", each) for side, each in tree.bounds.items())
        else:
            assert isinstance(tree, ReleasedBound)
            yield question.name, tree.bound
