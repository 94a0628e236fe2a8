"""Series of boxes and of people, made once."""

from __future__ import annotations

import pytest

from tests.pipelines.series.runs import Boxes, NewPeople, People


@pytest.fixture(scope="session")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Boxes:
    """All periods. Tests only read it."""
    made = Boxes(tmp_path_factory.mktemp("boxes"))
    made.released_periods(made.periods)
    return made


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> People:
    """All periods. Tests only read it."""
    made = People(tmp_path_factory.mktemp("people"))
    made.released_periods(made.periods)
    return made


@pytest.fixture(scope="session")
def new_people(tmp_path_factory: pytest.TempPathFactory) -> NewPeople:
    """All periods. Tests only read it."""
    made = NewPeople(tmp_path_factory.mktemp("new_people"))
    made.released_periods(made.periods)
    return made
