"""The first stage of a release with bounds of a unit that are chosen privately."""

from __future__ import annotations

from dptrees.dpcore.release.plan import UnitBounds
from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.running.chosen import chosen_bounds
from dptrees.pipelines.running.first_stage import FirstStage
from dptrees.pipelines.running.output import FolderRequest
from dptrees.pipelines.running.stage import Stage
from dptrees.pipelines.selection.plan import FOLDER as SELECTION
from dptrees.pipelines.unit_bounds.plan import FOLDER


def with_unit_bounds(trees: Stage) -> tuple[Configuration, FolderRequest]:
    """Choose the bounds of the unit of trees, unless they are chosen already.

    Args:
        trees: with bounds that are chosen, planned with 1 in their place.

    Returns:
        the configuration with the bounds, and the request that remains for the output.

    Raises:
        UserError: the output holds a release whose choice of bounds is gone.
    """
    stage, left = bounds_stage(trees).made()
    chosen = UnitBounds(plan=stage.planned, values=chosen_bounds(stage.output))
    return trees.configuration.with_chosen(chosen), left


def bounds_stage(trees: Stage) -> FirstStage:
    """The first stage that chooses the bounds of the unit of trees.

    Args:
        trees: with bounds that are chosen.
    """
    bounds, selection = trees.configuration.bounds, trees.configuration.selection
    assert bounds is not None
    return FirstStage(
        trees=trees,
        plan=bounds.plan,
        folder=FOLDER,
        noun="choice of the bounds of its unit",
        later=() if selection is None else ((SELECTION, selection),),
    )
