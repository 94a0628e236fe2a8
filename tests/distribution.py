"""Which tests one process runs, where several run the tests of engines.

xdist has marks for this, which it writes into the names of tests: with pytest 9.2 they are without
effect, and one that failed cannot be found again by its name.
"""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling

# What is started once for all tests with this parameter.
STARTED = re.compile(
    r"\[(?:[^\]]*-)?(local|local_processes|prism|flink|flink_cluster|flink_processors|spark|spark_cluster"
    r"|spark_forgetful|3\.3|2\.11)(?:-[^\]]*)?\]$"
)


def group_of(test: str) -> str:
    """What a test has in common with others.

    >>> group_of("tests/engines/test_faults.py::test_killed[flink_cluster-Read/Read]")
    'flink_cluster'
    >>> group_of("tests/engines/test_same_bits.py::test_example[routes-spark]")
    'spark'
    >>> group_of("tests/engines/test_start.py::test_start")
    'tests/engines/test_start.py'
    """
    found = STARTED.search(test)
    return found[1] if found else test.split("::")[0]


class ByWhatIsStarted(LoadScopeScheduling):
    """Gives all tests of a group to one process, large groups first."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
