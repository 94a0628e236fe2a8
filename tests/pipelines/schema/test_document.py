"""The JSON Schema of a configuration: as committed, and right about all configurations here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from dptrees.pipelines.config.release_section import configuration_schema
from dptrees.pipelines.sections.document import parse_document
from tests.golden.configurations import ADD_REMOVE

PROJECT = Path(__file__).resolve().parents[3]
COMMITTED = PROJECT / "docs" / "configuration.schema.json"
SCHEMA = json.loads(configuration_schema())
# That of Beam YAML is a pipeline, which holds a configuration.
EXAMPLES = sorted(set((PROJECT / "examples").glob("*.yaml")) - {PROJECT / "examples" / "beam.yaml"})
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEAD = "release: a\ninput: {format: parquet, path: x}\noutput: o\nkey_file: k\n"
PRIVACY = "privacy: {epsilon: 1, neighbors: add_remove}\n"


def plain(value: Any) -> Any:
    """Values as an editor has them: dates are strings."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, Decimal):
        return float(value)
    return str(value) if isinstance(value, date) else value


def errors(text: str, schema: dict[str, Any] = SCHEMA) -> list[str]:
    found = Draft202012Validator(schema).iter_errors(plain(parse_document(text, "text")))
    return [f"{error.json_path}: {error.message}" for error in found]


def key_schema(name: str) -> dict[str, Any]:
    """The schema of a key of the whole file alone."""
    return {"$defs": SCHEMA["$defs"], **SCHEMA["properties"][name]}


def blocks() -> Iterator[tuple[str, int, str]]:
    """The YAML blocks of the documents that are configurations, or parts of one."""
    docs = PROJECT / "docs"
    for path in sorted(docs.rglob("*.md")):
        for number, block in enumerate(BLOCK.findall(path.read_text())):
            yield path.relative_to(docs).as_posix(), number, block


def test_the_committed_schema_is_current() -> None:
    assert COMMITTED.read_text() == configuration_schema()
    Draft202012Validator.check_schema(SCHEMA)


def test_every_example_is_valid() -> None:
    faults = {path.name: errors(path.read_text()) for path in EXAMPLES}
    assert faults and not any(faults.values()), faults


def block_errors(block: str) -> list[str]:
    """What is wrong with a block of a document."""
    if block.count("\ngroup_by: ") > 1:  # a list of alternatives
        return []
    values = parse_document(block, "a block")
    if isinstance(values, list):
        trees = [each for each in values if isinstance(each, dict) and "domain" in each]
        if trees == values:
            return errors(block, key_schema("trees"))
        return [f"not every entry is a tree: {trees}"] if trees else []
    if not isinstance(values, dict) or not set(values) <= set(SCHEMA["properties"]):
        return []
    # `ReleaseTrees` takes configurations without an input and an output.
    whole = {"release", "trees"} <= set(values) and bool({"input", "output"} & set(values))
    found = errors(block) if whole else []
    for key, value in values.items():
        found += errors(json.dumps(plain(value)), key_schema(key))
    return found


def test_every_block_of_the_documents_is_valid() -> None:
    found = {(name, number): block_errors(block) for name, number, block in blocks()}
    assert len(found) > 50 and not {place: each for place, each in found.items() if each}


def test_releases_of_every_kind_are_valid() -> None:
    faults = {}
    for name, (budget, *trees) in ADD_REMOVE.items():
        listed = "".join(f"  - {{name: t{index}, {tree}}}\n" for index, tree in enumerate(trees))
        text = f"{HEAD}privacy: {{{budget}, neighbors: add_remove}}\ntrees:\n{listed}"
        faults[name] = errors(text)
    assert not any(faults.values()), faults


WRONG = [
    ("privacy: {epsilon: 1, neighbours: add_remove}", "$.privacy"),
    ("privacy: {epsilon: one, neighbors: add_remove}", "$.privacy.epsilon"),
    ("privacy: {epsilon: 1, neighbors: both}", "$.privacy.neighbors"),
    (PRIVACY + "confidence: 2", "$.confidence"),
    (PRIVACY + "tree: []", "$"),
    (PRIVACY + "trees: []", "$.trees"),
    (PRIVACY + "trees: [{name: t, domain: {column: x, lower: 0}}]", "$.trees[0]"),
    (PRIVACY + "trees: [{name: t, domain: {column: x, categories: [a], cels: 1}}]", "$.trees"),
    (PRIVACY + "trees: [{name: t, domain: {kind: tree, column: x}}]", "$.trees[0]"),
]


def test_what_is_wrong_is_seen() -> None:
    for text, where in WRONG:
        assert any(error.startswith(where) for error in errors(f"{HEAD}{text}\n")), text


def test_a_parameter_may_stand_for_a_value() -> None:
    trees = "trees: [{name: t, domain: {column: x, lower: '${a}', upper: 9, cells: '${c}'}}]\n"
    given = "privacy: {epsilon: '${e}', neighbors: add_remove}\n"
    assert errors(f"{HEAD}{given}{trees}".replace("output: o", "output: o/${a}")) == []
