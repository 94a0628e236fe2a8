"""Prose uses the field's terms: the words of the project's former dialect do not come back.

    python -m tests.test_words docs transforms

prints each occurrence in these folders with its file and line.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# Folders and pages whose prose is clean: add a folder here once its count is 0.
CLEAN = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md"),
    *(".ci/README.md", "docs", "examples", "benchmarks"),
    *("dpcore", "dptrees", "transforms", "pipelines"),
    *("tests/accuracy", "tests/audit", "tests/docs", "tests/dpcore", "tests/golden"),
    *("tests/pipelines", "tests/processors", "tests/releases"),
    *("tests/reproduction", "tests/synthetic", "tests/transforms/readers"),
)
DIALECT = re.compile(
    r"\b(?:told|tells?|telling|ask(?:s|ed|ing)?|stands?(?!-)|standing|stood|mend(?:s|ed|ing)?"
    r"|whoever|astray|moments|texts|of which|those of|what is (?:kept|asked)|who has the rows"
    r"|classical sum|settled|house|rooms?|faces?|roads?|fates?)\b",
    re.IGNORECASE,
)
# Quotations that may hold such a word, by file.
ALLOWED: dict[str, tuple[str, ...]] = {
    # Inputs of the long steps of CI: to be reworded with the next change of these.
    "tests/docs/test_deploy.py": ("tells",),
    "tests/pipelines/ledger/asked.py": ("ask of a ledger", "asks for"),
    # A row that tests/pipelines/test_inputs_page.py reads.
    "docs/inputs.md": ("| texts, bytes |",),
    # To be reworded with the functions of this module.
    "pipelines/show/figures.py": ("texts of what is none",),
}

_CODE = re.compile(
    r"(?<!`)(`+)(?!`)(?:(?!\n\s*\n|\n\|).)+?(?<!`)\1(?!`)|\]\([^)]*\)|<!--.*?-->|--\w[\w-]*",
    re.DOTALL,
)
# A name of a parameter or an attribute before its description.
_NAMED = re.compile(r"^ +(?:\w+, )*\w+:(?= )", re.MULTILINE)
_FENCE = re.compile(r"^( *)```.*?^\1```|\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n|\n)+")
_DOCTEST = re.compile(r"^ *>>>.*?(?:\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def prose_of_page(text: str) -> Iterator[tuple[int, str]]:
    """Yield a page of Markdown as (line, text), its code blocks blank."""
    yield 1, _INDENTED.sub(_blank, _FENCE.sub(_blank, text))


def prose_of_module(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module, and its runs of comments, as (line, text)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            text = node.body[0].value  # type: ignore[attr-defined]
            yield text.lineno, _NAMED.sub("", _DOCTEST.sub(_blank, text.value))
    start, last, run = 0, -1, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line = token.start[0]
            if line != last + 1:
                yield start, run
                start, run = line, ""
            run, last = run + token.string.lstrip("#") + "\n", line
    yield start, run


def prose_of_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield what follows a # in each line of a file such as YAML, as (line, text)."""
    yield 1, re.sub(r"^[^#\n]*", "", text, flags=re.MULTILINE)


def prose_of_notebook(text: str) -> Iterator[tuple[int, str]]:
    """Yield the Markdown cells of a notebook as (1, text)."""
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "markdown":
            yield 1, "".join(cell["source"])


PROSE = {
    ".md": prose_of_page,
    ".py": prose_of_module,
    ".yaml": prose_of_comments,
    ".ipynb": prose_of_notebook,
}


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def _blank_code(found: re.Match[str]) -> str:
    # A closing bracket of a link does not join the words around it.
    return "*" + "\n" * found[0].count("\n")


def occurrences(path: Path) -> list[tuple[int, str]]:
    """Return the words of the dialect in the prose of a file, as (line, word)."""
    quotations = ALLOWED.get(path.relative_to(PROJECT).as_posix(), ())
    return dialect_in(path.read_text(encoding="utf-8"), path.suffix, quotations)


def dialect_in(source: str, suffix: str, quotations: Sequence[str] = ()) -> list[tuple[int, str]]:
    """Return the words of the dialect in the prose of a source, as (line, word)."""
    found = []
    for line, text in PROSE[suffix](source):
        for quotation in quotations:
            text = text.replace(quotation, "*")
        text = re.sub(r"\n[#> ]+", lambda space: "\n", _CODE.sub(_blank_code, text))
        spaced = re.sub(r"[^\S\n]", " ", text)
        for match in DIALECT.finditer(spaced.replace("\n", " ")):
            found.append((line + spaced.count("\n", 0, match.start()), match[0]))
    return found


def prose_files(folder: str) -> list[Path]:
    """Return the files with prose of a folder, or the page of this name."""
    place = PROJECT / folder
    paths = [place] if place.is_file() else sorted(place.rglob("*"))
    return [path for path in paths if path.suffix in PROSE]


def found_in(folders: Sequence[str]) -> list[str]:
    """Return each occurrence in the files of folders, with its place."""
    return [
        f"{path.relative_to(PROJECT).as_posix()}:{line}: {word}"
        for folder in folders
        for path in prose_files(folder)
        for line, word in occurrences(path)
    ]


def test_the_dialect_does_not_come_back() -> None:
    assert all(prose_files(folder) for folder in CLEAN)
    assert found_in(CLEAN) == []


NOTEBOOK = '{"cells": [{"cell_type": "markdown", "source": ["Ask"]}]}'
PLANTED = (
    (".md", "A release\ntells of\nit.\n", [(2, "tells")]),
    (".md", "Cells, of\nwhich some\n", [(1, "of which")]),
    (".md", "`told` and\n```\nasked\n```\n\n    told\n\n[a](asked.md)\n", []),
    (".py", 'def f(texts):\n    """Of texts.\n\n    texts: sum\n    """\n', [(2, "texts")]),
    (".py", "told = 1\n# Whoever\n# mends it\n", [(2, "Whoever"), (3, "mends")]),
    (".py", '"""Sum.\n\n>>> told\n1\n"""\n', []),
    (".yaml", "told: 1  # as told\n", [(1, "told")]),
    (".ipynb", NOTEBOOK, [(1, "Ask")]),
)


def test_planted_words_are_found() -> None:
    for suffix, source, expected in PLANTED:
        assert dialect_in(source, suffix) == expected, source


if __name__ == "__main__":
    print(*found_in(sys.argv[1:] or CLEAN), sep="\n")
