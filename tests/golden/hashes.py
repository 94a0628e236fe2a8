"""Hashes of all that the golden releases give, to be compared before and after a refactoring.

    python -m tests.golden.hashes > before.txt        (and later: ... | diff before.txt -)

The hashes are of the bytes of files, so both runs need one version of pyarrow. `test_texts`
compares the content of the same files with that which is committed.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.pipelines.cli.command import main
from tests.golden.configurations import (
    BY,
    NAMES,
    NONCE,
    write_configuration,
    write_data,
    yaml_trees,
)
from tests.golden.shell import Shell, hashed


def said(*arguments: str) -> str:
    """What a command prints, behind its exit code."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    return f"{code} {out.getvalue()} {err.getvalue()}"


def released(name: str) -> Path:
    """Make a golden release in the working directory, where its data lies; return its folder."""
    configuration = write_configuration(Path(), name)
    reported = said("release", str(configuration), "--nonce", NONCE)
    if not reported.startswith("0 "):
        raise SystemExit(f"{name} failed: {reported}")
    return Path("out", name)


def integers(folder: Path) -> str:
    """A hash of a release's record and of the integers and strings of its tables, equal
    on every machine; of quantiles alone, which are floats, of nine digits."""
    digest = hashlib.sha256((folder / "record.json").read_bytes())
    for path in sorted(folder.rglob("*.parquet")):
        table = pq.read_table(path)
        whole = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
        if path.parent.name not in ("nodes", "cdf", "sketch"):
            whole = []  # what follows from counts; a universe is public
        for column in whole:
            values = table[column].combine_chunks()
            numbers = pa.types.is_integer(values.type) and values.null_count == 0
            text = values.to_numpy().tobytes() if numbers else repr(values.to_pylist()).encode()
            digest.update(column.encode() + text)
        if path.name == "quantiles.parquet" and not (folder / "cdf").exists():
            for row in table.select(["value", "ci_low", "ci_high"]).to_pylist():
                digest.update(repr([each and f"{each:.9g}" for each in row.values()]).encode())
    return digest.hexdigest()[:24]


def questions(tree: str) -> Iterator[list[str]]:
    """Questions that a tree answers."""
    if "hypercube" in tree:
        own = ["--column", "delay"]
        yield from (["quantile", "0.3", *own], ["range", "10", "60", *own], ["top", "--level", "0"])
        yield ["box", "--side", "delay", "10", "60", "--side", "minutes", "0", "100"]
        return
    if "sketch" in tree:
        yield ["count", "300", "7", "nowhere"]
    yield ["top", "-n", "3"]
    if "kind: table" in tree:
        yield from (["quantile", "0.3", "--column", "delay"], ["node", "--path", "carrier UA"])
        yield ["box", "--side", "delay", "10", "60", "--side", "carrier", "UA", "UA"]
    elif "kind:" in tree:
        yield ["node", "--path", "", "--children"]
    elif "column: day" not in tree and "categories" not in tree:
        yield from (["cdf", "30", "100"], ["quantile", "0.3"], ["range", "10", "60"])


def lines(name: str) -> Iterator[str]:
    """A line for the plan, for every file of the release, and for every answer."""
    path = str(write_configuration(Path(), name))
    for form in ([], ["--json"]):
        yield f"{name} plan{' '.join(form)} {hashed(said('plan', path, *form).encode())}"
    folder = released(name)
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield f"{name} {file.relative_to(folder)} {hashed(file.read_bytes())}"
    for index, tree in enumerate(yaml_trees(name)):
        where = ["--tree", f"t{index}", *(["--key", "UA"] if BY in tree else [])]
        for requested in questions(tree):
            answer = hashed(said("query", str(folder), *requested, *where).encode())
            yield f"{name} query t{index} {requested[0]} {answer}"


def asked(run: Shell, name: str) -> None:
    """Plan a golden release, make it and query it, in the working directory with its data."""
    path = write_configuration(Path(), name)
    run(f"plan {path}")
    run(f"plan {path} --json")
    run.release(str(path))
    run.files(f"out/{name}")
    for index, tree in enumerate(yaml_trees(name)):
        where = ["--tree", f"t{index}", *(["--key", "UA"] if BY in tree else [])]
        for requested in questions(tree):
            run(shlex.join(["query", f"out/{name}", *requested, *where]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        write_data(Path())
        for chosen in sys.argv[1:] or NAMES:
            print(*lines(chosen), sep="\n", flush=True)
