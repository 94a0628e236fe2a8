"""No public name disappears unnoticed: docs/stability.md has the rules of a removal."""

from __future__ import annotations

import pytest

from tests.public_api import committed_api, lost, public_api


@pytest.fixture(scope="module")
def api() -> dict[str, list[str]]:
    """The public names of this state of the project."""
    return public_api()


def test_no_public_name_disappears(api: dict[str, list[str]]) -> None:
    gone = lost(committed_api(), api)
    assert gone == [], (
        "public names disappeared: keep each for one more version (docs/stability.md). If its time "
        "is over, name it under Removed in CHANGELOG.md and run python -m tests.public_api --write"
    )


def test_every_public_name_is_committed(api: dict[str, list[str]]) -> None:
    new = lost(api, committed_api())
    assert new == [], "new public names: run python -m tests.public_api --write"


def test_a_name_that_disappears_is_found(api: dict[str, list[str]]) -> None:
    for part in committed_api():
        name = api[part][-1]
        without = api | {part: [each for each in api[part] if each != name]}
        assert lost(api, without) == [f"{part}: {name}"]


def test_every_part_has_its_names(api: dict[str, list[str]]) -> None:
    """The readers of the interface find what everyone uses."""
    for part, name in {
        "python": "Release.save(path)",
        "commands": "dptrees release --discard",
        "exit codes": "75",
        "configuration": "trees[].domain.column",
        "metrics": "dptrees_run_exit_code",
        "releases": "cdf: nodes: estimate: double",
        "beam": "dptrees:transform:release:v1",
    }.items():
        assert name in api[part], (part, name)
