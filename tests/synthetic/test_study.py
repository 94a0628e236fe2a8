"""benchmarks/synthetic: the study in its smallest form, and the page that it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic import __main__ as command
from benchmarks.synthetic import measures, sources, study
from benchmarks.synthetic.generators import GENERATORS, grown_steps, privtree_release, sparse_bytes
from benchmarks.synthetic.grown_tree import ExactCounts, depth
from benchmarks.synthetic.study import Case, Extent

TINY = Extent(sizes=((200, 1.0), (300, 0.5)), runs=3, rows=200)


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pool of processes for a few hundredths of a second."""
    monkeypatch.setattr(study, "mapped", lambda function, cases: [*map(function, cases)])


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_a_case_repeats_and_has_every_generator_that_can(columns: int) -> None:
    case = Case(source="Beta(2, 8)", rows=300, epsilon=1.0, columns=columns, runs=3)
    found = study.run_case(case)
    assert found == study.run_case(case)
    assert set(found) == {each.name for each in GENERATORS if each.columns >= columns}
    assert found["uniform"][1] == 0 < found["PMM"][1]
    assert found["dptrees"][0].value < found["uniform"][0].value


def test_main_tables_have_a_row_a_size_and_bold_bests(one_process: None) -> None:
    page = study.main_tables(TINY)
    assert page.count("| 200, 1 |") == 3 * (3 + 1)
    assert page.count("**") >= 2 * 2 * 9


def test_other_tables(one_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = study.parameter_tables(TINY)
    assert "| 1, 64, exact counts, 0.8 |" in parameters and "| 2, 64, 512, 5, 0.8 |" in parameters
    monkeypatch.setattr(study, "TRANSPORTED", 50)
    assert "| 5, the data itself |" in study.measure_tables(TINY)
    monkeypatch.setattr(study, "SIZES", ((200, 1.0),))
    assert study.settings_table(TINY).count("\n") == 1 + len(study.CHOICES)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("rows", [1, 1000, 10**9, 10**18])
def test_steps_spend_all_and_stay_within_the_codes(dimensions: int, rows: int) -> None:
    steps = grown_steps(rows, 1.0, dimensions)
    assert sum(step.epsilon for step in steps) == pytest.approx(1.0)
    assert 1 <= sum(step.bits for step in steps) <= depth(dimensions)
    assert all(step.bits % dimensions == 0 for step in steps)


@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_privtree_without_noise_is_the_data(dimensions: int) -> None:
    rng = np.random.default_rng(0)
    points = sources.gaussians(rng, 300, dimensions)
    partition = privtree_release(points, 1e12, rng)
    assert measures.tree_bound(points, partition, rounds=4) == pytest.approx(2.0**-4)


def test_sparse_counts_are_a_table_where_this_is_smaller() -> None:
    counts = ExactCounts(np.random.default_rng(0).random((100, 1)))
    assert sparse_bytes(counts, 3) == 8 * 8
    assert sparse_bytes(counts, 40) == 16 * 100


def test_the_page_is_written_between_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sections = {
        name: (f"## {name}", lambda extent, name=name: f"{name}, {extent.rows} rows\n\n### below")
        for name in ("one", "two")
    }
    monkeypatch.setattr(command, "SECTIONS", sections)
    page = tmp_path / "page.md"
    page.write_text(f"above\n{command.BEGIN}\n## two\n\nold\n{command.END}\nbelow\n")
    assert command.main(["--short", "--only", "one", "--write", str(page)]) == 0
    one = "## one\n\none, 10000 rows\n\n### below"
    assert page.read_text() == (
        f"above\n{command.BEGIN}\n## two\n\nold\n\n{one}\n{command.END}\nbelow\n"
    )
    assert command.main(["--short", "--write", str(page)]) == 0
    two = "## two\n\ntwo, 10000 rows\n\n### below"
    assert page.read_text() == (f"above\n{command.BEGIN}\n{two}\n\n{one}\n{command.END}\nbelow\n")
    capsys.readouterr()
    assert command.main(["--short"]) == 0
    assert capsys.readouterr().out == f"{one}\n\n{two}\n"
