"""Scripts of configurations that are refused, each with its sentence."""

from __future__ import annotations

from pathlib import Path

from tests.golden.rows import config, write_config
from tests.golden.script import N, X, blocks, filled, script
from tests.golden.shell import Shell

PURE = "{epsilon: 1, neighbors: add_remove}"

FAILURES = blocks("failures")

# Whole files.
FILES = {
    "empty": b"",
    "comment": b"# nothing\n",
    "bytes": b"release: \xff\xfe",
    "bell": b"a: b\nc: \x07",
    "list": b"- a\n- b\n",
    "text": b"release",
    "twice": b"release: a\noutput: b\nrelease: c\n",
    "number": b"1: a\n",
    "open": b"release: a\ninput: [b\n",
    "tab": b"release: a\n\tinput: b\n",
    "colon": b"release: a: b\n",
    "alias": b"release: *a\n",
    "two": b"release: a\n---\nrelease: b\n",
    "tag": b"release: !!python/object:os.system a\n",
    "date": b"release: 2013-02-30\n",
    "deep": b"release: " + b"[" * 5000,
    "fill": b"release: a\nprivacy: {epsilon: <fill in a number>}\n",
}


def refused(run: Shell, name: str) -> None:
    """Keep the sentence of a configuration."""
    before = len(run.texts)
    text = run("plan bad.yaml")
    for key in list(run.texts)[before:]:
        del run.texts[key]
    sentence = text.partition("dptrees: bad.yaml: ")[2].strip()
    run.keep(name, sentence or " ".join(text.split())[:300])


@script("failures")
def sections(run: Shell) -> None:
    """Sections of a configuration."""
    for line in FAILURES["sections"]:
        key, _, value = line.partition(":")
        write_config("bad", f"name: n, {N}", **{key: value.strip()})
        refused(run, line)


@script("failures")
def trees(run: Shell) -> None:
    """Keys of trees over numbers, and trees of other kinds."""
    for line in FAILURES["numbers"]:
        own = "" if line.startswith("domain:") else f", {N}"
        name = "" if line.startswith("name:") else "name: n, "
        write_config("bad", f"{name}{line}{own}", privacy=PURE)
        refused(run, line)
    kinds = FAILURES["kinds"]
    for line in kinds:
        write_config(
            "bad",
            f"name: n, {filled(line)}",
            privacy="{epsilon: 1, delta: 1e-6, neighbors: add_remove}",
        )
        refused(run, line)
    for line in (*kinds[21:], *FAILURES["numbers"][-60:-22]):
        own = "" if line in kinds else f", {N}"
        privacy = "{rho: 1, neighbors: substitute, unit: person, max_rows: 2}"
        write_config("bad", f"name: n, {filled(line)}{own}", privacy=privacy)
        refused(run, f"{privacy} {line}")


@script("failures")
def files(run: Shell) -> None:
    """Files that are no configuration, and two trees that do not fit."""
    for name, content in FILES.items():
        Path("bad.yaml").write_bytes(content)
        refused(run, name)
    pairs = {
        "one name": (f"name: n, {N}", f"name: n, {X}"),
        "two units": (f"name: n, {N}", f"name: n2, {X}, weight: -1"),
        "two types": ("name: a, domain: {column: n, categories: [a]}", f"name: n, {N}"),
        "many cells": (
            "name: a, domain: {column: n, lower: 0, upper: 1, cells: 3000000000}, "
            "group_by: {column: c, keys: [a, b]}",
        ),
    }
    for name, trees in pairs.items():
        Path("bad.yaml").write_text(config("bad", *trees, input="{format: csv, path: a.csv}"))
        refused(run, name)
    Path("bad.yaml").write_text(config("a/b", f"name: n, {N}", confidence="2", output="''"))
    refused(run, "several")
