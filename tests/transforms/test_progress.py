"""Progress reaches those who listen, and reveals only what is known before the rows are read."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from glob import glob

import pytest

from dptrees.transforms.conservation import advance, listen
from dptrees.transforms.folder.layout import planned_parts


def test_listeners_come_and_go() -> None:
    first: list[tuple[str, int]] = []
    second: list[tuple[str, int]] = []
    stop_first = listen(lambda *reported: first.append(reported))
    stop_second = listen(lambda *reported: second.append(reported))
    advance("read", 3)
    stop_first()
    advance("write", 1)
    stop_second()
    advance("write", 1)
    assert first == [("read", 3)]
    assert second == [("read", 3), ("write", 1)]


@pytest.fixture
def reported(make_plan, data, tmp_path, run) -> Iterator[Callable[[], Counter[str]]]:
    """Runs a job, and returns what it reports."""
    found: Counter[str] = Counter()
    plan = make_plan("value", "carrier", fanouts=(4, 4, 2), chunk_leaves=8)
    stop = listen(lambda stage, amount: found.update({stage: amount}))

    def reports() -> Counter[str]:
        run(plan, data, tmp_path / "out")
        assert found["write"] == len(list(planned_parts(plan)))
        return found

    yield reports
    stop()


def test_a_job_reports_the_bytes_of_its_files_and_the_parts_of_its_plan(reported, data) -> None:
    found = reported()
    assert found.keys() == {"read", "write"} and found["read"] == sum(sizes(data))


def test_bytes_that_splits_do_not_divide(reported, data, small_splits) -> None:
    assert sum(sizes(data)) - 4 <= reported()["read"] <= sum(sizes(data))


def sizes(data: str) -> list[int]:
    return [os.path.getsize(path) for path in glob(data)]
