"""Progress reaches those who listen, and reveals only what is known before the rows are read."""

import os
from collections import Counter
from glob import glob

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


def test_a_job_reports_the_bytes_of_its_files_and_the_parts_of_its_plan(
    make_plan, data, tmp_path, run
) -> None:
    plan = make_plan("value", "carrier", fanouts=(4, 4, 2), chunk_leaves=8)
    reported: Counter[str] = Counter()
    stop = listen(lambda stage, amount: reported.update({stage: amount}))
    try:
        run(plan, data, tmp_path / "out")
    finally:
        stop()
    assert reported == {
        "read": sum(map(os.path.getsize, glob(data))),
        "write": len(list(planned_parts(plan))),
    }


def test_bytes_that_splits_do_not_divide(make_plan, data, tmp_path, run, small_splits) -> None:
    reported: Counter[str] = Counter()
    stop = listen(lambda stage, amount: reported.update({stage: amount}))
    try:
        run(make_plan("value"), data, tmp_path / "out")
    finally:
        stop()
    total = sum(map(os.path.getsize, glob(data)))
    assert total - 4 <= reported["read"] <= total
