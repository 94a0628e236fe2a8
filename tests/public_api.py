"""The public names of dptrees, in lines that can be compared with those that were committed.

    python -m tests.public_api --write

writes public_api.json. A name in it that disappears breaks somebody's program, configuration or
dashboard: docs/stability.md has the rules.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import dptrees
import dptrees.spark
from dptrees.pipelines.cli.command import command_parser
from dptrees.pipelines.cli.release_commands import CommandParser
from dptrees.pipelines.monitoring import PREFIX
from dptrees.pipelines.process import ExitCode
from tests.golden.configurations import write_data
from tests.golden.test_golden import released_by_steps

PROJECT = Path(__file__).resolve().parents[1]
COMMITTED = Path(__file__).with_name("public_api.json")
# A golden release of each kind of tree, and one of quantiles alone.
RELEASES = (
    *("cdf", "exponential", "hierarchy", "sparse-paths", "box-dense", "table", "distinct", "mean"),
    "sketch",
)


def python_names() -> Iterator[str]:
    """Names of ``import dptrees``, of their parameters, and of the methods of classes."""
    for name in dptrees.__all__:
        found = getattr(dptrees, name)
        yield name
        if inspect.isclass(found):
            if found.__init__ is not object.__init__ and not issubclass(found, Exception):
                yield from parameters(name, found)
            for member, value in inspect.getmembers(found):
                if member.startswith("_") or not is_ours(found, member):
                    continue
                yield f"{name}.{member}"
                if callable(value):
                    yield from parameters(f"{name}.{member}", value)
        elif callable(found):
            yield from parameters(name, found)
    yield "spark.release"
    yield from parameters("spark.release", dptrees.spark.release)


def is_ours(kind: type, member: str) -> bool:
    """Whether a class of dptrees defines a member, and not one of Beam or of Python."""
    owner = next(each for each in kind.__mro__ if member in vars(each))
    return owner.__module__.split(".")[0] == "dptrees"


def parameters(name: str, function: Any) -> Iterator[str]:
    """Parameters of a function by their names."""
    for each in inspect.signature(function).parameters.values():
        if each.name != "self":
            yield f"{name}({each.name})"


def command_names(parser: CommandParser, above: str = "dptrees") -> Iterator[str]:
    """Commands, their arguments and their options."""
    for action in parser.filled()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield f"{above} {name}"
                yield from command_names(inner, f"{above} {name}")
        elif action.help != argparse.SUPPRESS:
            names = action.option_strings or [str(action.metavar or action.dest)]
            yield from (f"{above} {name}" for name in names)


def configuration_keys(schema: Mapping[str, Any]) -> Iterator[str]:
    """Keys of a configuration by their paths, ``[]`` for an element of a list."""
    seen: set[tuple[str, str]] = set()

    def keys(part: Any, path: str) -> Iterator[str]:
        if not isinstance(part, dict):
            return
        reference = part.get("$ref", "")
        if reference and (reference, path) not in seen and path.count(".") < 6:
            seen.add((reference, path))
            yield from keys(schema["$defs"][reference.rpartition("/")[2]], path)
        for name, inner in part.get("properties", {}).items():
            yield (own := f"{path}.{name}".lstrip("."))
            yield from keys(inner, own)
        yield from keys(part.get("items"), f"{path}[]")
        for form in ("anyOf", "oneOf", "allOf"):
            for each in part.get(form, ()):
                yield from keys(each, path)

    yield from keys(schema, "")


def metric_names() -> Iterator[str]:
    """Names of metrics of runs and ledgers, and of Beam's counters."""
    folder = PROJECT / "pipelines"
    for path in (folder / "run" / "metrics.py", folder / "ledger" / "commands.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            given = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "name")]
            if node.func.id in {"_one", "Metric"}:
                for each in given:
                    if isinstance(each, ast.Constant):
                        yield PREFIX + str(each.value)
    counters = ast.parse((PROJECT / "transforms" / "conservation.py").read_text(encoding="utf-8"))
    for node in ast.walk(counters):
        is_named = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        if is_named and re.fullmatch("[A-Z]+_[A-Z]+", ast.unparse(node.targets[0])):
            yield f"counter {node.value.value}"


def release_names() -> Iterator[str]:
    """Files of releases, columns of their tables with types, and keys of manifests."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        try:
            write_data(Path())
            for name in RELEASES:
                folder = released_by_steps(name)
                for path in sorted(folder.rglob("*.parquet")):
                    kind = path.parent.name if path.parent != folder else path.stem.split("-")[0]
                    for column in pq.read_schema(path):
                        yield f"{name}: {kind}: {column.name}: {column.type}"
                for key in json.loads((folder / "manifest.json").read_text()):
                    yield f"{name}: manifest.json: {key}"
        finally:
            os.chdir(before)


def public_api() -> dict[str, list[str]]:
    """The public names, sorted, by the part of the interface."""
    from dptrees.pipelines.beam_yaml import URN
    from dptrees.pipelines.config.release_section import configuration_schema

    found = {
        "python": python_names(),
        "commands": command_names(command_parser()),
        "exit codes": (str(int(code)) for code in ExitCode),
        "configuration": configuration_keys(json.loads(configuration_schema())),
        "metrics": metric_names(),
        "releases": release_names(),
        "beam": iter([URN]),
    }
    return {part: sorted(set(names)) for part, names in found.items()}


def committed_api() -> dict[str, list[str]]:
    """The names that were committed."""
    found: dict[str, list[str]] = json.loads(COMMITTED.read_text(encoding="utf-8"))
    return found


def lost(old: Mapping[str, list[str]], new: Mapping[str, list[str]]) -> list[str]:
    """Names of the old interface that the new one does not have."""
    return [
        f"{part}: {name}"
        for part, names in old.items()
        for name in sorted(set(names) - set(new.get(part, ())))
    ]


if __name__ == "__main__":
    made = public_api()
    if "--write" in sys.argv:
        COMMITTED.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    else:
        print(*lost(committed_api(), made), sep="\n")
