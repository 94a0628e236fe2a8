"""Fan-outs of the fewest nodes, against all shapes of small trees."""

from __future__ import annotations

from collections.abc import Iterator

from dptrees.dpcore.papers.plans import best_fanouts
from dptrees.dpcore.papers.rameshwar import covering_nodes
from dptrees.dpcore.privacy.unit import Measure

Shape = tuple[int, ...]


def all_shapes(
    leaves: int, below: tuple[int, ...] = (), size: int = 1
) -> Iterator[tuple[int, ...]]:
    """Every shape whose root has no child too many."""
    yield (-(-leaves // size), *below)
    for fanout in range(2, -(-leaves // size)):
        yield from all_shapes(leaves, (fanout, *below), size * fanout)


def test_no_shape_of_a_small_tree_is_better() -> None:
    """The squared error: nodes of all coverings, times the levels' noise; then the fewest levels,
    then the first fan-outs in order."""
    for measure in Measure:
        power = 2 if measure is Measure.EPSILON else 1
        for leaves in range(2, 25):
            ranked = min(
                (len(shape) ** power * sum(covering_nodes(leaves, shape)), len(shape), shape)
                for shape in all_shapes(leaves)
            )
            assert best_fanouts(leaves, measure) == ranked[-1]
