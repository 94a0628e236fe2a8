"""The folder of a release holds the release alone: nothing of failed runs, no other files."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tests.pipelines.conftest import Workspace, read_files, update

ORPHAN = "universe-0123456789abcdef.parquet"


def over_places(workspace: Workspace, *places: str) -> str:
    """A configuration of a tree over a table of places."""
    table = workspace.folder / f"places-{len(places)}.csv"
    table.write_text("\n".join(["place", *places]) + "\n")

    domain = {"kind": "hierarchy", "columns": ["place"], "table": str(table)}
    return workspace.configure(update(trees=[{"name": "places", "domain": domain}]))


def universes(workspace: Workspace) -> list[str]:
    return sorted(path.name for path in workspace.output.glob("universe-*"))


def test_a_run_that_fails_leaves_no_table_for_the_next_release(workspace: Workspace) -> None:
    # It begins and ends as Parquet does: a worker finds that the rest is damaged.
    good = workspace.file(2).read_bytes()
    column = pq.read_metadata(workspace.file(2)).row_group(0).column(1)
    start = column.dictionary_page_offset or column.data_page_offset
    workspace.file(2).write_bytes(good[:start] + bytes(20) + good[start + 20 :])
    failed = workspace.run("release", over_places(workspace, "north", "south"))
    assert failed.code == 2 and "is damaged" in failed.err
    assert sorted(path.name for path in workspace.output.iterdir()) == ["nonce.json", "plan.json"]
    workspace.file(2).write_bytes(good)
    workspace.succeed("release", over_places(workspace, "north", "south", "west"))
    assert len(universes(workspace)) == 1


def test_what_a_killed_run_left_goes_when_a_release_is_there(workspace: Workspace) -> None:
    workspace.output.mkdir()
    (workspace.output / ORPHAN).write_bytes(b"of another release")
    workspace.succeed("release", over_places(workspace, "north", "south"))
    assert len(universes(workspace)) == 1 and ORPHAN not in universes(workspace)


@pytest.mark.parametrize("name", ["notes.txt", "other/manifest.json", "manifest.json.bak"])
def test_a_release_is_not_begun_beside_other_files(workspace: Workspace, name: str) -> None:
    mine = workspace.output / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    outcome = workspace.release()
    assert outcome.code == 2 and outcome.err == (
        f"dptrees: output: {workspace.output} holds {name.split('/')[0]}, which does not belong "
        "to a release; choose a new or empty folder\n"
    )
    assert read_files(workspace.output) == {name: b"mine"}


def test_hidden_files_are_left_out(workspace: Workspace) -> None:
    workspace.output.mkdir()
    (workspace.output / ".gitignore").write_text("*")
    workspace.make()
    assert (workspace.output / ".gitignore").read_text() == "*"
