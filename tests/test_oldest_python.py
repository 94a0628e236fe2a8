"""No program uses what only later patch releases of a supported Python have.

mypy knows additions of Python 3.11 and later; it does not know those that were made within 3.10,
3.11, ... A distribution may have the first release of a series for years: Debian 12 has 3.11.2.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
FOLDERS = (".ci", "benchmarks", "deploy", "dpcore", "examples", "pipelines", "tests", "transforms")
# An argument of functions of the standard library, or a name of it: the first releases with it.
ARGUMENTS = {
    ("extract", "filter"): "3.10.12, 3.11.4",
    ("extractall", "filter"): "3.10.12, 3.11.4",
    ("unpack_archive", "filter"): "3.10.12, 3.11.4",
    ("getaddresses", "strict"): "3.10.15, 3.11.10, 3.12.6",
    ("parseaddr", "strict"): "3.10.15, 3.11.10, 3.12.6",
}
NAMES = {
    "tarfile": ("data_filter", "tar_filter", "fully_trusted_filter", "FilterError"),
    "sys": ("get_int_max_str_digits", "set_int_max_str_digits"),
    "sys.int_info": ("default_max_str_digits", "str_digits_check_threshold"),
}
WORDS = {name for name, _ in ARGUMENTS} | {name for names in NAMES.values() for name in names}


def too_new(text: str) -> Iterator[str]:
    """Yield what a module uses of later patch releases.

    >>> list(too_new("archive.extractall(folder, filter='data')"))
    ['line 1: extractall(filter=...)']
    >>> list(too_new("from tarfile import data_filter\\nsys.set_int_max_str_digits(0)"))
    ['line 1: tarfile.data_filter', 'line 2: sys.set_int_max_str_digits']
    """
    # Parsing every module takes seconds.
    if not any(word in text for word in WORDS):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            for argument in node.keywords:
                if (name, argument.arg) in ARGUMENTS:
                    yield f"line {node.lineno}: {name}({argument.arg}=...)"
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if node.attr in NAMES.get(owner, ()):
                yield f"line {node.lineno}: {owner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                if each.name in NAMES.get(node.module or "", ()):
                    yield f"line {node.lineno}: {node.module}.{each.name}"


def test_no_module_needs_a_later_patch_release() -> None:
    modules = {folder: sorted((PROJECT / folder).rglob("*.py")) for folder in FOLDERS}
    assert all(modules.values())
    found = [
        f"{path.relative_to(PROJECT)}, {use}"
        for path in chain.from_iterable(modules.values())
        for use in too_new(path.read_text(encoding="utf-8"))
    ]
    assert not found
