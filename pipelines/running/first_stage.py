"""A first stage of a release: a release of its own, in a folder inside the output.

It is made unless it exists already, and what it released is used by what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.release_folder import ReleaseFolder
from dptrees.pipelines.running.output import (
    FolderRequest,
    check_output,
    check_released,
    check_repairable,
)
from dptrees.pipelines.running.stage import Stage
from dptrees.pipelines.user_error import UserError
from dptrees.transforms import files
from dptrees.transforms.kept_plan import sweep_undrawn
from dptrees.transforms.layout import MANIFEST, NONCE, PLAN, RECORD
from dptrees.transforms.sweep import missing_files, sweep_temporary, sweep_unnamed


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

    def made(self) -> tuple[Stage, FolderRequest]:
        """Make the stage, unless it exists.

        Returns:
            the stage, with the plan that was released: another launcher may have written another
            one first; and the request that remains for the output.

        Raises:
            UserError: the output holds what was made of another one.
        """
        trees, output, request = self.trees, self.trees.output, self.trees.request
        folder = files.join(output, self.folder)
        configuration = replace(trees.configuration, output=folder)
        stage = replace(trees, configuration=configuration, planned=self.plan)
        if not check_output(folder, stage.plan, request):
            self._check_not_begun()
            check_repairable(output, request)
            stage.check_input()
            trees.check_input()
            if stage.booking:
                stage.booking.check_room(*(plan for _, plan in self.later), trees.planned)
            begun = any(files.exists(files.join(folder, name)) for name in (NONCE, PLAN))
            left = replace(request, repair=False, discard=request.discard and begun)
            stage = _made(replace(stage, request=left))
            return stage, replace(request, discard=request.discard and not begun)
        if missing_files(folder, ReleaseFolder(folder).files):
            if not request.repair:
                check_released(folder, request)  # says which
            stage = _made(stage)
        elif stage.booking:
            stage.booking.commit_existing()
        return stage, request

    def _check_not_begun(self) -> None:
        """Refuse to release anew what later stages were made, or begun, with.

        Raises:
            UserError: their own files exist, but not the files of this stage.
        """
        output = self.trees.output
        folders = (output, *(files.join(output, name) for name, _ in self.later))
        names = (MANIFEST, RECORD)
        if any(files.exists(files.join(each, name)) for each in folders for name in names):
            raise UserError(
                f"output: {output} contains a release, or the beginning of one, but not the "
                f"{self.noun} in {self.folder}; choose another output"
            )


def _made(stage: Stage) -> Stage:
    """Make a first stage, and return it with the plan that was released."""
    stage = stage.make()
    sweep_unnamed(stage.output, stage.plan)
    sweep_temporary(stage.output)
    sweep_undrawn(stage.output)
    return stage
