"""Makes the releases that are not there yet."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Sequence

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.method import Absent, Method
from benchmarks.accuracy.records import Records
from benchmarks.accuracy.tasks import measure_errors


def record_key(method: Method, case: Case) -> str:
    """Name that distinguishes releases of one method and case from others."""
    return (
        f"{method.name} | {case.data.name} | {case.rows} | {case.privacy} | {case.quantile_count}"
    )


def measure(
    methods: Sequence[Method], cases: Sequence[Case], releases: int, records: Records
) -> None:
    """Makes as many releases of every case by every method that answers it as are missing.

    A method that is absent is said once, with what it says of itself.
    """
    made, reported = records.made(), set()
    for case in cases:
        for method in methods:
            first = made.get(record_key(method, case), 0)
            if not method.answers(case) or first >= releases:
                continue
            try:
                _measure_one(method, case, range(first, releases), records)
            except Absent as absent:
                if (said := f"{method.name}, {case.privacy}: {absent}") not in reported:
                    print(f"absent: {said}", file=sys.stderr, flush=True)
                    reported.add(said)


def _measure_one(method: Method, case: Case, numbers: range, records: Records) -> None:
    start = time.process_time()
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for answers in method.run(case, numbers):
        for name, read in answers.items():
            for task, error in measure_errors(case, read).items():
                errors[name][task].append(error)
    records.add(
        {
            "key": record_key(method, case),
            "method": method.name,
            "data": case.data.name,
            "group": case.data.group,
            "rows": case.rows,
            "privacy": str(case.privacy),
            "releases": len(numbers),
            "seconds": round(time.process_time() - start, 3),
            "errors": errors,
        }
    )
