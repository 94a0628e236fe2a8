"""First stages of a run: private keys and bounds, released in a folder inside the output.

A first stage is made unless it exists already, and the trees are planned with what it released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dptrees.dpcore.choices.key_selection import ReleasedSelection
from dptrees.dpcore.release.plan import ReleasePlan, UnitBounds
from dptrees.dpcore.rows.key_tables import MOST_KEYS, KeyTable
from dptrees.pipelines.config.configuration import Configuration
from dptrees.pipelines.process import UserError
from dptrees.pipelines.proof.verified import chosen_bounds
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.run.output import (
    FolderRequest,
    check_output,
    check_released,
    check_repairable,
)
from dptrees.pipelines.run.stage import Stage
from dptrees.pipelines.sections.first_stages import BOUNDS_FOLDER, KEYS_FOLDER
from dptrees.pipelines.sections.tree import PrivateKeys
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import missing_files, sweep_temporary, sweep_unnamed
from dptrees.transforms.folder.names import MANIFEST, NONCE, PLAN, RECORD
from dptrees.transforms.steps.kept_plan import sweep_undrawn

if TYPE_CHECKING:
    from dptrees.pipelines.ledger.accounts import Account


@dataclass(frozen=True, kw_only=True)
class FirstStage:
    """A first stage of a release.

    Args:
        trees: the stage of the trees, planned with stand-ins for what is not released yet: errors
            in them, and a ledger without budget for them, are reported before anything is paid for.
        plan: of the first stage.
        folder: its name within the output.
        noun: what it releases, for messages.
        later: plans, and their folders within the output, of stages between it and the trees.
    """

    trees: Stage
    plan: ReleasePlan
    folder: str
    noun: str
    later: Sequence[tuple[str, ReleasePlan]] = ()

    @property
    def output(self) -> str:
        """Its own folder."""
        return files.join(self.trees.output, self.folder)

    @property
    def stage(self) -> Stage:
        """The stage, with the request of the whole output."""
        configuration = replace(self.trees.configuration, output=self.output)
        return replace(self.trees, configuration=configuration, planned=self.plan)

    def exists(self) -> bool:
        """Whether it is finished, and complete or to be repaired.

        Raises:
            UserError: its folder holds something else, or not all of it.
        """
        stage = self.stage
        if not check_output(stage.output, stage.plan, stage.request):
            return False
        if not stage.request.repair:
            check_released(stage.output, stage.request)
        return True

    def check_room(self) -> Account | None:
        """Refuse a ledger whose budget does not cover all stages that are to come.

        Returns:
            the account as it would be after all of them; None without a ledger.

        Raises:
            LedgerError: it does not.
        """
        booking = self.stage.booking
        if booking is None:
            return None
        return booking.check_room(*(plan for _, plan in self.later), self.trees.planned)

    def made(self) -> tuple[Stage, FolderRequest]:
        """Make the stage, unless it exists.

        Returns:
            the stage, with the plan that was released: another launcher may have written another
            one first; and the request that remains for the output.

        Raises:
            UserError: the output holds what was made of another one.
        """
        folder, stage, request = self.output, self.stage, self.trees.request
        if not check_output(folder, stage.plan, request):
            self.check_not_begun()
            stage.check_input()
            self.trees.check_input()
            self.check_room()
            begun, stage = self.pending()
            stage = _made(stage)
            return stage, replace(request, discard=request.discard and not begun)
        if missing_files(folder, ReleaseFolder(folder).files):
            if not request.repair:
                check_released(folder, request)  # says which
            stage = _made(stage)
        elif stage.booking:
            stage.booking.commit_existing()
        return stage, request

    def pending(self) -> tuple[bool, Stage]:
        """Whether it has begun in its folder, and the stage as it is to be made."""
        request, folder = self.trees.request, self.output
        begun = any(files.exists(files.join(folder, name)) for name in (NONCE, PLAN))
        left = replace(request, repair=False, discard=request.discard and begun)
        return begun, replace(self.stage, request=left)

    def check_not_begun(self) -> None:
        """Refuse to release anew what later stages were made, or begun, with.

        Raises:
            UserError: their own files exist, but not the files of this stage; or a release is to be
                repaired that is not finished.
        """
        output = self.trees.output
        folders = (output, *(files.join(output, name) for name, _ in self.later))
        names = (MANIFEST, RECORD)
        if any(files.exists(files.join(each, name)) for each in folders for name in names):
            raise UserError(
                f"output: {output} contains a release, or the beginning of one, but not the "
                f"{self.noun} in {self.folder}; choose another output"
            )
        check_repairable(self.trees.output, self.trees.request)


def _made(stage: Stage) -> Stage:
    """Make a first stage, and return it with the plan that was released."""
    stage = stage.make()
    sweep_unnamed(stage.output, stage.plan)
    sweep_temporary(stage.output)
    sweep_undrawn(stage.output)
    return stage


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
    return FirstStage(trees=trees, plan=plan, folder=KEYS_FOLDER, noun="selection of its keys")


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
        tree = release.tree(f"{KEYS_FOLDER}-{number}")
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
        folder=BOUNDS_FOLDER,
        noun="choice of the bounds of its unit",
        later=() if selection is None else ((KEYS_FOLDER, selection),),
    )
