"""Keys with two names: both give the same plan, errors have the name that was written."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dptrees
from dptrees.pipelines.beam_yaml.section import configuration_of_text
from dptrees.pipelines.configuration import Configuration, ConfigurationError, parse_configuration
from dptrees.pipelines.draft.draft import draft
from dptrees.pipelines.python.requested import requested_configuration
from dptrees.pipelines.sections.aliases import ALIASES, translated
from dptrees.pipelines.sections.yaml_document import parse_document
from tests.docs.configuration import drawing

PROJECT = Path(__file__).resolve().parents[2]
HEAD: dict[str, Any] = {
    "release": "a",
    "input": {"format": "parquet", "path": "x"},
    "output": "o",
    "key_file": "k",
    "privacy": {"epsilon": 1, "neighbors": "add_remove"},
}
AGE = {"column": "age", "type": "integer", "lower": 0, "upper": 64, "out_of_range": "drop"}
UNIT = {"neighbors": "add_remove", "unit": "person"}
# By the section that has the key: keys of the file, in documented names.
CASES: dict[str, dict[str, Any]] = {
    "trees[]": {
        "trees": [
            {
                "name": "t",
                "domain": {"column": "age", "type": "integer", "lower": 0, "upper": 64},
                "group_by": {"column": "outside", "keys": ["by", "for", "group_by"]},
                "optimize_for": "estimates",
            }
        ]
    },
    "trees[].domain": {"trees": [{"name": "t", "domain": AGE}]},
    "trees[].domain.columns[]": {
        "trees": [
            {
                "name": "t",
                "domain": {"kind": "hypercube", "columns": [AGE, {**AGE, "column": "share"}]},
                "optimize_for": "counts",
            }
        ]
    },
    "trees[].by": {
        "privacy": {"epsilon": 1, "delta": 1e-6, "neighbors": "add_remove"},
        "trees": [
            {
                "name": "t",
                "domain": AGE,
                "group_by": {"column": "by", "keys": "private", "fraction": 0.25},
            }
        ],
    },
    "privacy.max_rows": {
        "privacy": {**UNIT, "epsilon": 1, "max_rows": {"fraction": 0.25, "at_most": 50}},
        "trees": [{"name": "t", "domain": AGE}],
    },
    "privacy.max_keys": {
        "privacy": {
            **UNIT,
            "epsilon": 1,
            "max_rows": 4,
            "max_rows_per_key": 1,
            "max_keys": {"fraction": 0.25},
        },
        "trees": [{"name": "t", "domain": AGE, "group_by": {"column": "c", "keys": [1, 2, 3]}}],
    },
    "trees[].domain.lower": {
        "trees": [
            {
                "name": "t",
                "domain": {
                    "column": "x",
                    "cells": 16,
                    "lower": {"fraction": 0.125},
                    "upper": {"fraction": 0.25, "at_most": 1000},
                },
            }
        ]
    },
    "trees[].intervals": {
        "trees": [
            {
                "name": "t",
                "domain": AGE,
                "objective": "quantiles",
                "quantiles": [0.5],
                "mechanism": "exponential",
                "intervals": {"fraction": 0.25},
            }
        ]
    },
}
CASES["trees[].domain.upper"] = CASES["trees[].domain.lower"]


def values(section: str) -> dict[str, Any]:
    """A configuration in documented names."""
    return HEAD | copy.deepcopy(CASES[section])


def earlier(given: dict[str, Any]) -> dict[str, Any]:
    """The same configuration in earlier names."""
    result, _ = translated(given, "text")
    assert isinstance(result, dict)
    return result


def parsed(given: dict[str, Any]) -> Configuration:
    return parse_configuration(json.dumps(given), "a.yaml")


def digests(configuration: Configuration) -> list[bytes]:
    """Digests of all plans that are made before there are rows."""
    plans = [configuration.plan(), configuration.selection]
    bounds = configuration.bounds
    return [each.digest for each in [*plans, bounds and bounds.plan] if each is not None]


def places() -> Iterator[tuple[str, str, str]]:
    for alias in ALIASES:
        for section in alias.sections:
            yield section, alias.name, alias.earlier


@pytest.mark.parametrize("section", CASES)
def test_both_names_give_the_same_plans(section: str) -> None:
    given = values(section)
    before = earlier(given)
    assert before != given
    own = parsed(before)
    for configuration in (
        parsed(given),
        requested_configuration(given, {}, {}),
        configuration_of_text(json.dumps(given))
        if not own.chooses_bounds | bool(own.selections)
        else parsed(given),
    ):
        assert digests(configuration) == digests(own)
        assert configuration.request["trees"] == own.request["trees"]
        assert configuration.request["privacy"] == own.request["privacy"]


@pytest.mark.parametrize(("section", "name", "before"), list(places()))
def test_every_name_is_of_a_key_that_its_section_has(section: str, name: str, before: str) -> None:
    _, spelling = translated(values(section), "text")
    written = {(re.sub(r"\[\d+\]", "[]", place), key) for place, key in spelling.written.items()}
    assert (f"{section}.{before}", name) in written


def test_typed_objects_have_both_names() -> None:
    domain = {"column": "age", "type": "integer", "lower": 0, "upper": 64}
    by = dptrees.By(column="sex", keys=["f", "m"])
    privacy = dptrees.Privacy(epsilon=1)
    new = dptrees.Tree("t", domain, group_by=by, optimize_for="estimates")
    old = dptrees.Tree("t", domain, by=by, for_="estimates")
    one, other = (
        requested_configuration(dptrees.Config(privacy=privacy, trees=[tree]), {}, {})
        for tree in (new, old)
    )
    assert one.plan().digest == other.plan().digest
    both = dptrees.Tree("t", domain, group_by=by, by=by)
    with pytest.raises(ConfigurationError) as refused:
        requested_configuration(dptrees.Config(privacy=privacy, trees=[both]), {}, {})
    assert str(refused.value) == (
        "config: trees[0].group_by: is the same key as by, its earlier name; give group_by alone"
    )


def test_both_names_at_once_are_refused() -> None:
    given = values("trees[].by")
    given["trees"][0]["group_by"]["share"] = 0.1
    with pytest.raises(ConfigurationError) as refused:
        parsed(given)
    assert str(refused.value) == (
        "a.yaml: trees[0].group_by.fraction: is the same key as share, its earlier name; give "
        "fraction alone"
    )


@pytest.mark.parametrize(
    ("section", "changes", "sentences"),
    [
        (
            "trees[].by",
            {"fraction": 2},
            [
                "trees[0].group_by.fraction: 2 must be below 1",
                "trees[0].by.share: 2 must be below 1",
            ],
        ),
        (
            "trees[].by",
            {"keys": "some"},
            ["trees[0].group_by.keys: 'some' must be", "trees[0].by.keys: 'some' must be"],
        ),
        (
            "trees[].domain",
            {"out_of_range": "keep"},
            ["trees[0].domain.out_of_range: ", "trees[0].domain.outside: "],
        ),
        (
            "trees[].domain.columns[]",
            {"out_of_range": "keep"},
            ["trees[0].domain.columns[1].out_of_range: ", "trees[0].domain.columns[1].outside: "],
        ),
        (
            "privacy.max_rows",
            {"fraction": 1},
            ["privacy.max_rows.fraction: 1 must", "privacy.max_rows.share: 1 must"],
        ),
        (
            "privacy.max_keys",
            {"share": 1},
            ["privacy.max_keys.share: 1 must", "privacy.max_keys.share: 1 must"],
        ),
        (
            "trees[].domain.lower",
            {"fraction": "${x}"},
            ["trees[0].domain.lower.fraction: ${x}", "trees[0].domain.lower.share: ${x}"],
        ),
        # After the checks of sections: all fractions together.
        (
            "trees[].domain.lower",
            {"fraction": 0.9},
            ["trees[0].domain.lower.fraction: all", "trees[0].domain.lower.share: all"],
        ),
        (
            "trees[].by",
            {"fractions": 0.1},
            [
                "trees[0].group_by.fractions: unknown key; did you mean fraction?",
                "trees[0].by.fractions: unknown key; did you mean fraction?",
            ],
        ),
    ],
)
def test_errors_name_keys_as_they_are_written(
    section: str, changes: dict[str, Any], sentences: list[str]
) -> None:
    given = values(section)
    place: Any = given
    for part in section.replace("[]", ".0").replace(".by", ".group_by").split("."):
        place = place[-1 if part == "0" else part]
    if "share" in changes:
        del place["fraction"]
    place |= changes
    for configured, sentence in zip((given, earlier(given)), sentences, strict=True):
        with pytest.raises(ConfigurationError) as refused:
            parsed(configured)
        assert str(refused.value).startswith(f"a.yaml: {sentence}")


def test_errors_of_a_plan_name_keys_as_they_are_written() -> None:
    given = values("trees[].by")
    given["trees"].append(copy.deepcopy(given["trees"][0]) | {"name": "u"})
    given["trees"][1]["group_by"]["threshold"] = 9
    rule = "must have the fraction and the threshold of trees[0].{0}, which selects the same keys"
    for configured, name in ((given, "group_by"), (earlier(given), "by")):
        with pytest.raises(ConfigurationError) as refused:
            parsed(configured)
        assert str(refused.value) == f"a.yaml: trees[1].{name}: {rule.format(name)}"


def test_a_key_at_another_place_is_unknown() -> None:
    given = values("trees[].domain")
    given["trees"][0]["out_of_range"] = "drop"
    with pytest.raises(ConfigurationError, match=r"^a\.yaml: trees\[0\]\.out_of_range: unknown"):
        parsed(given)


def test_data_of_the_author_is_not_translated() -> None:
    given = values("trees[]")
    given["parameters"] = {"group_by": {"default": "a"}}
    given["report"] = {"columns": {"outside": "Outside"}}
    result = earlier(given)
    assert result["parameters"] == given["parameters"]
    assert result["report"] == given["report"]
    assert result["trees"][0]["by"] == given["trees"][0]["group_by"]


def test_what_is_written_for_people_has_the_documented_names() -> None:
    texts = [draft("a.yaml", None, None), drawing()]
    texts += [path.read_text() for path in (PROJECT / "examples").glob("*.yaml")]
    for alias in ALIASES:
        for text in texts:
            assert not re.search(rf"^[ |`#-]*{alias.earlier}[`:]", text, re.MULTILINE)


def test_the_page_lists_all_names() -> None:
    page = (PROJECT / "docs" / "configuration-names.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page, re.MULTILINE))
    assert rows == {alias.name: alias.earlier for alias in ALIASES}


def test_an_anchor_of_the_file_is_translated_at_each_place() -> None:
    text = "trees: [{domain: &d {out_of_range: drop}}, {domain: *d}]"
    result, _ = translated(parse_document(text, "text"), "text")
    assert result == {"trees": [{"domain": {"outside": "drop"}}] * 2}
