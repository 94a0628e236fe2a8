"""The first stage of a release with private keys: which keys there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dptrees.dpcore.choices.key_selection import ReleasedSelection
from dptrees.dpcore.rows.key_tables import MOST_KEYS, KeyTable
from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.release_folder import ReleaseFolder
from dptrees.pipelines.running.first_stage import FirstStage
from dptrees.pipelines.running.output import FolderRequest
from dptrees.pipelines.running.stage import Stage
from dptrees.pipelines.sections.by import PrivateKeys
from dptrees.pipelines.selection.plan import FOLDER
from dptrees.pipelines.user_error import UserError


def with_keys(trees: Stage) -> tuple[Configuration, FolderRequest]:
    """Select the keys of trees, unless they are selected already.

    Args:
        trees: with private keys, planned with placeholders for keys.

    Returns:
        the configuration with the keys, and the request that remains for the output.

    Raises:
        UserError: the output holds a release whose selection is gone; or no key was selected.
    """
    configuration = trees.configuration
    stage, left = keys_stage(trees).made()
    selected = selected_keys(stage.output, configuration)
    return replace(configuration, selected=selected, kept_selection=stage.planned), left


def keys_stage(trees: Stage) -> FirstStage:
    """The first stage that selects the keys of trees.

    Args:
        trees: with private keys.
    """
    plan = trees.configuration.selection
    assert plan is not None
    return FirstStage(trees=trees, plan=plan, folder=FOLDER, noun="selection of its keys")


def selected_keys(folder: str, configuration: Configuration) -> Mapping[PrivateKeys, KeyTable]:
    """The keys that a finished first stage released.

    Args:
        folder: of the first stage.
        configuration: of the release.

    Raises:
        UserError: for a tree none was selected.
    """
    release, result = ReleaseFolder(folder).release, {}
    for number, (private, first) in enumerate(configuration.selections.items()):
        tree = release.tree(f"{FOLDER}-{number}")
        assert isinstance(tree, ReleasedSelection)
        if not tree.table.num_rows or tree.table.num_rows > MOST_KEYS:
            few = "no keys" if not tree.table.num_rows else f"more than {MOST_KEYS} keys"
            raise UserError(
                f"trees[{first}].group_by: {few} of {', '.join(private.columns.columns)} were "
                "selected, and the budget of the selection is spent; use another fraction, "
                "threshold or columns, and another output"
            )
        result[private] = KeyTable(tree.table)
    return result
