"""The keys of a release's trees against those that its first stage selected."""

from __future__ import annotations

from dpcore.release.plan import ReleasePlan
from dpcore.rows.key_table import KeyTable
from dpcore.rows.table_keys import TableKeys
from dpcore.selection.question import SelectionQuestion
from dpcore.selection.released import ReleasedSelection
from pipelines.proof.check import CheckFailed
from pipelines.release_folder import ReleaseFolder
from pipelines.selection.plan import selected_keys


def check_selected(folder: str, plan: ReleasePlan) -> None:
    """Sees that each selection is that of the keys of a tree.

    Args:
        folder: of the first stage.
        plan: of the release.

    Raises:
        CheckFailed: no tree has the keys that were selected.
    """
    release = ReleaseFolder(folder).release
    assert plan.selection is not None
    for question in plan.selection.questions:
        assert isinstance(question, SelectionQuestion)
        selected = release.tree(question.name)
        assert isinstance(selected, ReleasedSelection)
        table = KeyTable(selected.table)
        if not any(_has(tree.keys, table) for tree in plan.questions):
            columns = ", ".join(question.columns)
            raise CheckFailed(f"no tree has the keys of {columns} that {question.name} selected")


def _has(keys: object, selected: KeyTable) -> bool:
    """Whether the keys of a tree are those that were selected."""
    if not isinstance(keys, TableKeys) or keys.columns != selected.columns:
        return False
    return keys.table == selected_keys(selected, keys.unknown).table
