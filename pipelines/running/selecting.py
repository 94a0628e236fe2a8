"""The first stage of a release with private keys: which keys there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dpcore.rows.key_table import MOST_KEYS, KeyTable
from dpcore.selection.question import ReleasedSelection
from pipelines.configuration import Configuration
from pipelines.release_folder import ReleaseFolder
from pipelines.running.output import FolderRequest, check_output, check_released, check_repairable
from pipelines.running.stage import Stage
from pipelines.sections.by import PrivateKeys
from pipelines.selection.plan import FOLDER
from pipelines.user_error import UserError
from transforms import files
from transforms.kept_plan import sweep_undrawn
from transforms.layout import MANIFEST, NONCE, PLAN, RECORD
from transforms.sweep import missing_files, sweep_temporary, sweep_unnamed


def with_keys(trees: Stage) -> tuple[Configuration, FolderRequest]:
    """Select the keys of trees, unless they are selected already.

    Args:
        trees: with private keys, planned with placeholders for keys: errors in them, and a ledger
            without budget for them, are reported before the keys are paid for.

    Returns:
        the configuration with the keys, and the request that remains for the output.

    Raises:
        UserError: the output holds a release whose selection is gone; or no key was selected.
    """
    configuration, output, wanted = trees.configuration, trees.output, trees.request
    plan = configuration.selection
    assert plan is not None
    folder = files.join(output, FOLDER)
    stage = replace(trees, configuration=replace(configuration, output=folder), planned=plan)
    if not check_output(folder, stage.plan, wanted):
        _check_not_begun(output)
        check_repairable(output, wanted)
        stage.check_input()
        trees.check_input()
        if stage.booking:
            stage.booking.check_room(trees.planned)
        begun = any(files.exists(files.join(folder, name)) for name in (NONCE, PLAN))
        left = replace(wanted, repair=False, discard=wanted.discard and begun)
        stage = _made(replace(stage, request=left))
        wanted = replace(wanted, discard=wanted.discard and not begun)
    elif missing_files(folder, ReleaseFolder(folder).files):
        if not wanted.repair:
            check_released(folder, wanted)  # says which
        stage = _made(stage)
    elif stage.booking:
        stage.booking.commit_existing()
    selected = selected_keys(folder, configuration)
    # Another launcher may have written another plan first: the trees get what that one leaves.
    return replace(configuration, selected=selected, kept_selection=stage.planned), wanted


def _made(stage: Stage) -> Stage:
    """Make the first stage, and return it with the plan that was released."""
    stage = stage.make()
    sweep_unnamed(stage.output, stage.plan)
    sweep_temporary(stage.output)
    sweep_undrawn(stage.output)
    return stage


def _check_not_begun(output: str) -> None:
    """Refuses to select keys anew for trees that were made, or begun, of others.

    Raises:
        UserError: the trees' own files are there, but not the selection of their keys.
    """
    if files.exists(files.join(output, MANIFEST)) or files.exists(files.join(output, RECORD)):
        raise UserError(
            f"output: {output} holds a release, or the beginning of one, but not the selection of "
            f"its keys in {FOLDER}; choose another output"
        )


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
                f"trees[{first}].by: {few} of {', '.join(private.columns.columns)} were selected, "
                "and what the selection spent is spent; another share, threshold or columns, in "
                "another output, would select others"
            )
        result[private] = KeyTable(tree.table)
    return result
