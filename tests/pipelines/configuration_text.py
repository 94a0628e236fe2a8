"""Configurations as text, in which a test replaces sections, and the sentences that refuse them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dptrees.pipelines.config.configuration import parse_configuration
from dptrees.pipelines.sections.document import ConfigurationError

NUMBERS = "{column: x, lower: 0, upper: 10, cells: 20}"
PURE = "epsilon: 1, neighbors: add_remove"
SECTIONS = {
    "release": "ages-2024",
    "input": "{format: csv, path: ages/*.csv}",
    "output": "out/ages",
    "key_file": "release.key",
    "privacy": f"{{{PURE}}}",
    "trees": f"[{{name: ages, domain: {NUMBERS}}}]",
}


def text_with(**changes: str | None) -> str:
    """Return a configuration in which some top-level sections are replaced, added or left out."""
    chosen = {key: value for key, value in (SECTIONS | changes).items() if value is not None}
    return "".join(f"{key}: {value}\n" for key, value in chosen.items())


def trees_text(*trees: str) -> str:
    """Return the section of trees, each given by its keys, named t0, t1 and so on."""
    named = (f"{{name: t{place}, {keys}}}" for place, keys in enumerate(trees))
    return f"[{', '.join(named)}]"


def tree_with(**changes: str | None) -> str:
    """Return a configuration of one tree in which some keys are replaced, added or left out."""
    keys: dict[str, str | None] = {"name": "ages", "domain": NUMBERS}
    chosen = {key: value for key, value in (keys | changes).items() if value is not None}
    return text_with(trees="[{" + ", ".join(f"{k}: {v}" for k, v in chosen.items()) + "}]")


def refusal(text: str, *, planned: bool = False) -> str:
    """Return the sentence with which a configuration, or its plan, is refused."""
    try:
        configuration = parse_configuration(text, "x.yaml")
        if planned:
            configuration.plan()
    except ConfigurationError as error:
        sentence = str(error)
    else:
        pytest.fail(f"this is not refused:\n{text}")
    assert sentence.startswith("x.yaml: ") and "\n" not in sentence
    return sentence.removeprefix("x.yaml: ")


def check_refusals(cases: Iterable[tuple[str, str]], *, planned: bool = False) -> None:
    """Check the beginning of the sentence with which each text is refused."""
    found = [(refusal(text, planned=planned), sentence) for text, sentence in cases]
    faults = [each for each in found if not each[0].startswith(each[1])]
    assert found and not faults, "\n".join(f"{said!r} is not {words!r}" for said, words in faults)
