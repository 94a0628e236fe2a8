"""The locks are the parts of one lock, and slim.py keeps every file that a loader reads."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.container.locks import LOCKS, PYTHONS, extras, program


@pytest.mark.parametrize("python", PYTHONS)
def test_parts_have_one_entry_for_each_package(python: str) -> None:
    """A package that two extras need has the same version and hashes in both."""
    divide, found = program("divide_lock"), {}
    for name in ("", *(f"-{extra}" for extra in extras())):
        path = LOCKS / f"python{python}{name}.txt"
        text = path.read_text(encoding="utf-8")
        entries = divide.lock_entries(text)
        head, _, rest = text.partition("\n")
        assert head.startswith("# The packages of dptrees")
        assert "".join(lines for _, lines in entries) == rest
        package = {each: [lines for name, lines in entries if name == each] for each, _ in entries}
        for each, lines in package.items():
            assert found.setdefault(each, lines) == lines


def test_a_library_without_its_symbols_is_loaded_as_before(tmp_path: Path) -> None:
    """The symbols of the wheels are gone from the file, not from the module."""
    slim = program("slim")
    paths = sorted(Path(sys.prefix).rglob("apache_beam/coders/stream.*.so"))
    content = paths[0].read_bytes()
    less = slim.without_symbols(content)
    assert len(less) < len(content) / 2
    assert slim.without_symbols(less) == less
    copy = tmp_path / paths[0].name
    copy.write_bytes(less)
    made = importlib.util.spec_from_file_location("apache_beam.coders.stream", copy)
    assert made is not None and made.loader is not None
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    stream = module.OutputStream()
    stream.write_var_int64(300)
    assert stream.get() == b"\xac\x02"


def test_the_list_of_a_package_follows_its_files(tmp_path: Path) -> None:
    record = tmp_path / "a-1.dist-info" / "RECORD"
    record.parent.mkdir()
    (tmp_path / "a.py").write_text("changed\n")
    record.write_text('a.py,sha256=old,3\n"tests/a,b.py",sha256=x,1\na-1.dist-info/RECORD,,\n')
    program("slim").record_files(record)
    lines = record.read_text().splitlines()
    assert lines[0].startswith("a.py,sha256=") and lines[0].endswith(",8")
    assert lines[1:] == ["a-1.dist-info/RECORD,,"]
