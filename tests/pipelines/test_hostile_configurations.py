"""No configuration takes longer or more memory than its size explains: it is refused in a sentence.

Aliases that repeat aliases, deep nesting, patterns, and numbers of few characters and many digits.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest

import dptrees
from dptrees.pipelines.config.configuration import parse_configuration
from dptrees.pipelines.process import UserError
from dptrees.pipelines.sections.document import ConfigurationError
from tests.pipelines.configuration_text import text_with, tree_with

DEFAULT = text_with(input="{format: parquet, path: a}")


@contextmanager
def seconds(most: int) -> Iterator[None]:
    """Stop what does not end: a busy machine is slow, but none of these is."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(most)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def python_config(epsilon: Any) -> dict[str, Any]:
    domain = {"column": "x", "categories": [1]}
    privacy = {"epsilon": epsilon, "neighbors": "add_remove"}
    return {"privacy": privacy, "trees": [{"name": "a", "domain": domain}]}


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Imports are no part of the time."""
    parse_configuration(DEFAULT).plan()
    dptrees.plan(python_config(1))


def repeated(levels: int, width: int, *, merged: bool = False) -> str:
    """Each level repeats the one before."""
    lines = ["a0: &a0 {k: 1}\n" if merged else "a0: &a0 [x, y]\n"]
    for level in range(1, levels + 1):
        parts = ", ".join([f"*a{level - 1}"] * width)
        value = f"{{<<: [{parts}]}}" if merged else f"[{parts}]"
        lines.append(f"a{level}: &a{level} {value}\n")
    return "".join(lines)


GROWING = [
    (repeated(9, 9), "2,097,152 values"),
    (repeated(40, 9), "2,097,152 values"),
    (repeated(22, 2), "2,097,152 values"),
    (repeated(12, 9, merged=True), "2,097,152 values"),
    (repeated(2000, 1), "64 levels"),
    (f"x: {'[' * 70}{']' * 70}\n", "64 levels"),
    (f"x: {'{a: ' * 70}1{'}' * 70}\n", "64 levels"),
    (f"x: {'[' * 500}{']' * 500}\n", "deep"),
    ("".join(f"{' ' * depth}a:\n" for depth in range(300)), "levels|deep"),
    ("x: &x [*x]\n", "deep"),
]


def test_documents_that_grow_are_refused() -> None:
    for text, rule in GROWING:
        with seconds(30), pytest.raises(ConfigurationError, match=rule):
            parse_configuration(text + DEFAULT)


def test_a_list_may_be_shared() -> None:
    keys = "keys: &keys [" + ", ".join(map(str, range(1000))) + "]\n"
    text = keys + "again: [" + ", ".join(["*keys"] * 50) + "]\n"
    with seconds(60), pytest.raises(ConfigurationError, match="unknown key"):  # so it was read
        parse_configuration(text + DEFAULT)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a*)*b", "(.*)*x"])
def test_a_pattern_takes_linear_time(pattern: str) -> None:
    for length in (60, 5_000):
        value = "a" * length + "c"
        parameters = f"parameters: {{p: {{pattern: '{pattern}', default: '{value}'}}}}\n"
        with seconds(30), pytest.raises(ConfigurationError, match=r"p\.default"):
            parse_configuration(DEFAULT + parameters)


def test_a_pattern_that_re2_does_not_have_is_refused() -> None:
    for pattern in ("(", "(?=a)a", r"(a)\1", "((a{1000}){1000}){1000}"):
        with seconds(30), pytest.raises(ConfigurationError, match="regular expression of RE2"):
            parse_configuration(DEFAULT + f"parameters: {{p: {{pattern: '{pattern}'}}}}\n")


def test_a_pattern_matches_the_whole_string() -> None:
    given = "parameters: {p: {pattern: 'a|b', default: a}}\n"
    parse_configuration(DEFAULT + given)
    for other in ("ab", '"a\\n"', "xa"):
        with pytest.raises(ConfigurationError, match="pattern"):
            parse_configuration(DEFAULT + given.replace("default: a", f"default: {other}"))


NUMBERS = ["1e999999999", "-1e999999999", "1e-999999999", "1" + "0" * 4000, "1" + "0" * 9000]
BUDGETS = ["epsilon: N", "rho: N", "epsilon: 1, delta: N"]
BOUNDS = {"lower: 0": "lower: N", "upper: 10": "upper: N", "cells: 20": "cells: N"}
KEYS = ["quantiles: [N]", "weight: N", "guess: {rows: N}", "level_budgets: [N]"]
PLACES = [
    *(DEFAULT.replace("epsilon: 1", each) for each in BUDGETS),
    DEFAULT.replace("neighbors", "unit: u, max_rows: N, neighbors"),
    *(DEFAULT.replace(*each) for each in BOUNDS.items()),
    *(DEFAULT.replace("name: ages,", f"name: ages, {each},") for each in KEYS),
    DEFAULT + "confidence: N\n",
    tree_with(domain="{column: x, categories: [N]}"),
    tree_with(domain="{column: x, values: [0, N]}"),
    tree_with(domain="{column: x, type: duration, lower: 0, upper: N}"),
    tree_with(domain="{kind: sparse, column: x, bits: [N]}"),
]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: f"{text[:14]} of {len(text)}")
def test_numbers_of_many_digits_are_refused(number: str) -> None:
    for place in PLACES:
        with seconds(30), pytest.raises((ConfigurationError, UserError)):
            parse_configuration(place.replace("N", number)).plan()


@pytest.mark.parametrize("name", ["integer", "1e999999999", "1e-999999999"])
def test_python_refuses_them_too(name: str) -> None:
    number = 10**10_000 if name == "integer" else Decimal(name)
    with seconds(30):
        with pytest.raises(dptrees.Error, match="1e400"):
            dptrees.plan(python_config(number))
        for budget in (number, "1e999999999", "1e-999999999"):
            with pytest.raises(dptrees.Error, match="1e400"):
                dptrees.Session(epsilon=budget)
