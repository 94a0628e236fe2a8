"""Runs of the command in this process; their output, without what differs between two runs."""

from __future__ import annotations

import contextlib
import hashlib
import html
import io
import json
import logging
import os
import re
import shlex
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import dptrees
from dptrees.pipelines.cli.command import main
from tests.golden.configurations import NONCE

# Times, digests of files, sizes of files, seconds, and the version: by pattern and replacement.
VARIES = [
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"-[0-9a-f]{16}\.parquet"), "-DIGEST.parquet"),
    (re.compile(r"(checksum\W{1,9})[0-9a-f]{16,64}"), r"\1DIGEST"),
    (re.compile(r"[\d,]+ bytes"), "SIZE bytes"),
    (re.compile(r'("(?:sha256|checksum|dptrees|size|bytes)": )("[^"]*"|\d+)'), r"\1..."),
    (re.compile(r'("(?:seconds|elapsed|duration\w*|time|pid|host)": )("[^"]*"|[\d.]+)'), r"\1..."),
    (re.compile(rf"\b{re.escape(dptrees.__version__)}\b"), "VERSION"),
]


def normal(text: str) -> str:
    """Return a text without folders, times, digests of files, sizes and the version."""
    for folder in (os.getcwd(), os.path.realpath(os.getcwd())):
        text = text.replace(folder, "HERE")
    for pattern, replacement in VARIES:
        text = pattern.sub(replacement, text)
    return text


def hashed(data: bytes) -> str:
    """Return the first 24 hexadecimal digits of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:24]


def described(path: Path) -> str:
    """Return a hash of the content of a file, whatever version of a library wrote it.

    For a table it is a hash of its names, types, values and row groups.
    """
    if path.suffix in (".parquet", ".arrow"):
        file = pq.ParquetFile(path)
        table, groups = file.read(), file.metadata.num_row_groups
        return table_hash(table, groups)
    if path.suffix in (".json", ".html", ".csv", ".yaml", ".txt"):
        return hashed(normal(manifest_text(path.read_text(encoding="utf-8"))).encode())
    return hashed(path.read_bytes())


def manifest_text(text: str) -> str:
    """Return a manifest without the digests of its files, any other text as it is."""
    if not text.startswith("{"):
        return text
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        if isinstance(found.get("files"), dict):
            found["files"] = list(found["files"])
        text = json.dumps(found, indent=1)
    return text


def table_hash(table: pa.Table, groups: int) -> str:
    """Return a hash of names, types and values, to the last bit of a float."""
    parts = [f"{groups} {[(field.name, str(field.type)) for field in table.schema]}".encode()]
    for column in table.columns:
        is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if is_number:
            parts.append(column.is_null().combine_chunks().to_numpy(False).tobytes())
            parts.append(column.fill_null(0).combine_chunks().to_numpy(False).tobytes())
        else:
            parts.append(repr(column.to_pylist()).encode())
    return hashed(b"".join(parts))


def table_text(table: pa.Table) -> str:
    """Return all names, types and values of a table."""
    types = [f"{field.name}: {field.type}" for field in table.schema]
    return "\n".join([*types, *(repr(column.to_pylist()) for column in table.columns)])


def page_text(path: Path) -> str:
    """Return the words of a page, a line for each run of text, without styles and scripts."""
    page = path.read_text(encoding="utf-8")
    page = re.sub(r"<(style|script|svg)\b.*?</\1>", "", page, flags=re.DOTALL)
    words = (html.unescape(each).strip() for each in re.split(r"<[^>]*>", page))
    return "\n".join(each for each in words if each)


class Shell:
    """The output of one case, by the command or call that gave it."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def keep(self, name: str, text: object) -> None:
        """Add a text; a name may come again."""
        again = sum(each.split(" #")[0] == name for each in self.texts)
        self.texts[f"{name} #{again + 1}" if again else name] = normal(str(text))

    def __call__(self, line: str) -> str:
        """Run a command; keep and return its exit code and what it prints."""
        out, err, level = io.StringIO(), io.StringIO(), logging.getLogger().level
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), quiet():
            try:
                code, reported = main(shlex.split(line)), ""
            except SystemExit as stop:  # the usage that argparse prints depends on its version
                code, reported = int(stop.code or 0), err.getvalue().strip().rpartition("\n")[2]
        logging.getLogger().setLevel(level)
        reported = reported.partition(" (choose from")[0] or err.getvalue()
        text = "\n".join([*([f"exit code {code}"] if code else []), out.getvalue(), reported])
        self.keep(line, text)
        return text

    def release(self, path: str, options: str = "") -> None:
        """Make a release with the fixed nonce."""
        nonce = "" if "--through" in options else f" --nonce {NONCE}"
        self(f"release {path}{nonce} {options}".strip())

    def files(self, folder: str) -> None:
        """Keep a line for each file of a folder: its name and a hash of its content."""
        found = (path for path in Path(folder).rglob("*") if path.is_file())
        named = {normal(path.relative_to(folder).as_posix()): path for path in found}
        lines = (f"{name} {described(path)}" for name, path in sorted(named.items()))
        self.keep(f"files of {folder}", "\n".join(lines))

    def page(self, path: str) -> None:
        """Keep the words of a page."""
        self.keep(f"words of {path}", page_text(Path(path)))

    def python(self, name: str, call: Callable[[], Any]) -> Any:
        """Keep what a call returns or refuses, and its warnings; return the result."""
        with warnings.catch_warnings(record=True) as warned, captured() as out:
            warnings.simplefilter("always")
            try:
                result = call()
                text = result if isinstance(result, str) else repr(result)
            except Exception as error:
                is_ours = type(error).__module__.split(".")[0] == "dptrees"
                sentence = dptrees.error_sentence(error) or (str(error) if is_ours else "")
                if not sentence:
                    raise
                result, text = None, f"refused: {sentence}"
        told = [each.message for each in warned if issubclass(each.category, UserWarning)]
        lines = [f"warning: {each}" for each in told]
        self.keep(name, "\n".join([text, *lines, out.getvalue()]))
        return result


@contextlib.contextmanager
def captured() -> Iterator[io.StringIO]:
    """Both streams of the process, as one text."""
    both = io.StringIO()
    with contextlib.redirect_stdout(both), contextlib.redirect_stderr(both):
        yield both


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Leave out warnings of libraries, which name their files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
