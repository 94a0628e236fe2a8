"""The tool that plants faults: which faults, and what it reports of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import mutants
from tests.mutants import Copy, Mutant, choose, folder_tests, read_sample

HALF = """def half(x, *, up):
    if not up and x >= 0:
        return (x
            - 1) // 2
    return 0.5 * x
"""
PATH = "dpcore/room/half.py"
CHECK = """from dptrees.dpcore.room.half import half

def test_half():
    assert half(7, up=False) == 3 and half(3, up=True) == 1.5
"""


def planted(line: int, old: str, new: str) -> Mutant:
    return Mutant(path=PATH, line=line, old=old, new=new)


def test_every_place_is_changed_once_and_the_rest_of_the_line_stays() -> None:
    pytest.importorskip("cosmic_ray")
    found = {seed: choose({PATH: HALF}, None, 99, str(seed)) for seed in range(20)}
    assert {len(each) for each in found.values()} == {10}
    assert found[0] != found[1] and found[0] == choose({PATH: HALF}, None, 99, "0")
    changed: dict[int, set[str]] = {}
    for each in (each for chosen in found.values() for each in chosen):
        assert each.old == HALF.splitlines()[each.line - 1]
        changed.setdefault(each.line, set()).add(each.new.strip())
    assert changed == {
        2: {
            *("if up and x >= 0:", "if not not up and x >= 0:", "if not up or x >= 0:"),
            *("if not up and x > 0:", "if not up and x < 0:"),
            *("if not up and x >= 1:", "if not up and x >= -1:"),
        },
        4: {
            *("+ 1) // 2", "- 2) // 2", "- 0) // 2", "- 1) * 2", "- 1) / 2"),
            *("- 1) // 3", "- 1) // 1"),
        },
        5: {"return 1.5 * x", "return -0.5 * x", "return 0.5 / x"},
    }


def test_a_change_and_a_size_limit_the_choice() -> None:
    pytest.importorskip("cosmic_ray")
    assert {each.line for each in choose({PATH: HALF}, {PATH: {5}}, 99, "")} == {5}
    assert len(choose({PATH: HALF}, None, 3, "")) == 3


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    """A copy of a project of one module and one test."""
    project = tmp_path / "project"
    for path, text in ((PATH, HALF), ("tests/dpcore/room/test_half.py", CHECK)):
        (project / path).parent.mkdir(parents=True)
        (project / path).write_text(text)
    (project / "dptrees").mkdir()
    (project / "dptrees" / "dpcore").symlink_to("../dpcore")
    (project / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    monkeypatch.setattr(mutants, "PROJECT", project)
    return Copy(tmp_path / "copy")


def test_fates_of_faults(copy: Copy) -> None:
    sum_line = "            - 1) // 2"
    for mutant, fate in (
        (planted(4, sum_line, "            + 1) // 2"), "caught by the quick tests of its folder"),
        (planted(4, sum_line, "            - 0) // 2"), "survived"),
        (planted(4, "no such line", "another"), "gone"),
    ):
        assert copy.fate(mutant, 1) == fate
    assert (copy.folder / PATH).read_text() == HALF
    assert (mutants.PROJECT / PATH).read_text() == HALF


def test_tests_that_fail_without_a_fault_end_the_run(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy, "run", lambda *tests: (1, "FAILED a.py::b[c - d] - AssertionError"))
    with pytest.raises(SystemExit, match="fail without a mutant too"):
        copy.fate(planted(5, "    return 0.5 * x", "    return 0.5 / x"), 1)
    assert (copy.folder / PATH).read_text() == HALF


def test_tests_of_a_module_are_those_of_its_folder() -> None:
    tests = folder_tests("dpcore/rows/policies.py", mutants.PROJECT)
    assert {"tests/dpcore/rows/test_sums.py", "dptrees/dpcore/rows/policies.py"} <= set(tests)
    assert len(tests) == len(set(tests))
    beside = folder_tests("dpcore/arrays.py", mutants.PROJECT)
    assert all(each.count("/") == 2 for each in beside[1:])
    assert "tests/dpcore/numbers/test_mean.py" in folder_tests("dpcore/numbers.py", mutants.PROJECT)


def test_the_fixed_sample_changes_lines_that_exist() -> None:
    """Renames and moves take the sample along; else it measures less with every one of them."""
    sample = read_sample(300)
    assert len(sample) == len(set(sample)) == 300
    assert all(each.old != each.new for each in sample)
    assert [each for each in sample if not (mutants.PROJECT / each.path).exists()] == []
    lines = {each.path: (mutants.PROJECT / each.path).read_text().splitlines() for each in sample}
    assert sum(each.place(lines[each.path]) is None for each in sample) <= 15
