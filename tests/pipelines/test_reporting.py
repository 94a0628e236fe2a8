"""`dptrees report` on hierarchies: what it shows on request, what it reads, what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.report import report
from dptrees.pipelines.show import page_nodes as report_nodes
from tests.pipelines.conftest import ROWS, Outcome, Workspace, assert_refused
from tests.pipelines.report_page import parse_elements

CODES = [f"{place:04d}" for place in range(2_400)]


class Codes(Workspace):
    """A release of two hierarchies and an ordered tree; the first hierarchy is in six chunks."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        pq.write_table(pa.table({"code": CODES}), folder / "codes.parquet")
        codes = [CODES[(7 * place) % len(CODES)] for place in range(ROWS)]
        self.write_rows(code=pa.array(codes))

    @property
    def settings(self) -> dict[str, Any]:
        domain = {"kind": "hierarchy", "column": "code", "digits": [1, 1, 2]}
        domain |= {"levels": ["part", "group", "item"], "table": str(self.folder / "codes.parquet")}
        codes, whole = {"name": "codes", "domain": domain}, super().settings
        keyed = codes | {"name": "keyed", "group_by": whole["trees"][1]["group_by"]}
        return whole | {"trees": [codes, keyed, whole["trees"][0]]}

    def report(self, *arguments: str) -> Outcome:
        """Run `dptrees report` on it."""
        return self.run("report", self.output, *arguments)

    @property
    def page(self) -> str:
        """The page as it lies in the folder."""
        return (self.output / "report.html").read_text()


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A workspace that holds this release; its chunks stay small while the module's tests run."""
    with pytest.MonkeyPatch.context() as patch:
        defaults = HierarchyQuestion.__init__.__kwdefaults__
        patch.setitem(defaults, "chunk_leaves", 400)
        workspace = Codes(tmp_path_factory.mktemp("codes"))
        workspace.make()
        yield workspace


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are opened from now on."""
    names: list[str] = []
    plain = ReleaseFolder.file

    def recorded(self: ReleaseFolder, name: str, checksum: str) -> pq.ParquetFile:
        names.append(name.split("/")[-1].rsplit("-", 1)[0])
        return plain(self, name, checksum)

    monkeypatch.setattr(ReleaseFolder, "file", recorded)
    return names


def read_batches(folder: ReleaseFolder, **limits: int) -> pa.Table:
    return pa.Table.from_batches(folder.batches("nodes", "codes", **limits))


def test_upper_levels_are_read_from_the_spine_alone(codes: Codes, opened: list[str]) -> None:
    folder = codes.made()
    _ = folder.plan  # which reads the universe
    opened.clear()
    whole = folder.rows("nodes", "codes")
    assert len(opened) == 7
    opened.clear()
    upper = read_batches(folder, levels=2)
    assert opened == ["codes-000000-spine"]
    assert upper["label"].to_pylist() == ["", "0", "1", "2"]
    lower = read_batches(folder, levels=3)
    assert lower.equals(whole.filter(pa.compute.less(whole["level"], 3)))
    assert read_batches(folder, levels=4).equals(whole)


def test_other_keys_are_not_read(codes: Codes, opened: list[str]) -> None:
    folder = codes.made()
    _ = folder.plan  # which reads the universe
    opened.clear()
    rows = pa.Table.from_batches(folder.batches("nodes", "keyed", keys=1, levels=2))
    assert len(opened) == 1
    assert set(rows["key"].cast(pa.string()).to_pylist()) == {"north"}


def test_report_shows_the_paths_that_are_requested(
    codes: Codes, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MAX_TREES", 1)
    monkeypatch.setattr(report_nodes, "MAX_NODES", 4)
    assert codes.report().code == 0
    plain = codes.page
    assert set(opened) == {"universe", "codes-000000-spine"}
    opened.clear()
    outcome = codes.report("--tree", "codes", "--path", "2399", "--path", "05")
    assert (outcome.code, outcome.err) == (0, "")
    chunks = {"codes-000000-000001", "codes-000000-000005"}
    assert set(opened) == {"universe", "codes-000000-spine", *chunks}
    (tree,) = parse_elements(codes.page).data["trees"]
    assert tree["asked"] == ["2399", "05"]
    leaves = tree["keys"][0]["levels"][3]
    assert leaves["labels"] == [*(f"{place:02d}" for place in range(100)), "99"]
    found = codes.run("query", codes.output, "node", "--tree", "codes", "--path", "2399")
    assert f"{leaves['count'][-1]}" in found.out.split()
    codes.report()
    assert codes.page == plain


def test_key_and_tree_of_a_report(codes: Codes) -> None:
    assert codes.report("--tree", "keyed", "--path", "0000").code == 0
    trees = parse_elements(codes.page).data["trees"]
    assert [tree.get("asked") for tree in trees] == [[], ["0000"], None]
    assert [len(key["levels"]) for key in trees[1]["keys"]] == [4, 4]


REFUSED = [
    (("--path", "01"), "choose one with --tree; it has codes, keyed"),
    (("--tree", "codes"), "tree: goes with --path"),
    (("--tree", "codes", "--path", "99"), "path '99': the universe has no node of this path."),
    (("--tree", "all", "--path", "01"), "path: tree all is ordered, and its nodes have no paths"),
    (("--tree", "none", "--path", "01"), "there is no tree 'none'; it has codes, keyed, all"),
    (("--tree", "codes", *["--path", "0000"] * 1501), "too many for one page"),
]


def test_what_cannot_be_shown_is_reported_in_one_sentence(
    codes: Codes, released: Workspace
) -> None:
    for arguments, sentence in REFUSED:
        assert_refused(codes, codes.report(*arguments), sentence)
    outcome = released.run("report", released.output, "--path", "01")
    assert_refused(released, outcome, "path: the release has no tree of paths")


def test_a_page_with_chosen_paths_is_verified(codes: Codes) -> None:
    assert codes.report("--tree", "codes", "--path", "2399").code == 0
    assert "page: report.html is the page of these" in codes.run("verify", codes.output).out
    page = codes.output / "report.html"
    for old, new in (
        ("</h1>", ", edited</h1>"),
        ('"2399"', '"no such path"'),
        ("paths {", "paths ["),
    ):
        whole = page.read_text()
        page.write_text(whole.replace(old, new))
        assert page.read_text() != whole
        outcome = codes.run("verify", codes.output)
        assert outcome.code == 2 and "report.html is not the page" in outcome.err, old
        page.write_text(whole)
