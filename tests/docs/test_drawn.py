"""Pages that follow from the code are as committed: `make drawn` draws them anew."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.docs import commands, configuration
from tests.docs.drawn import PAGES


@pytest.mark.parametrize("page", PAGES)
def test_page_is_as_drawn(page: ModuleType) -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.drawing(), "run make drawn"


@pytest.mark.parametrize(
    "row",
    [
        "| `neighbors` | `add_remove`, `substitute` | required |",
        "| `confidence` | a number above 0, at most 0.9999 | `0.95` |",
        "| `dataset` | letters, digits, `.`, `_`, `-` | not given |",
        "| `path` | a string, or a list | required |",
        "| `quantiles` | a list: a number from 0 to 1 | not given |",
    ],
)
def test_rules_choices_and_defaults_are_those_of_the_models(row: str) -> None:
    assert f"\n{row}\n" in configuration.drawing()


def test_every_command_is_there_with_its_options() -> None:
    drawn = commands.drawing()
    assert "\n## `query cdf`\n" in drawn and "dptrees query RELEASE cdf VALUE ..." in drawn
    assert "| `--simultaneous` | intervals that hold at all values" in drawn
    assert "1% of --rows-guess" in drawn
