"""How much time of a processor a function takes, or a process has taken."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen


def takes_less(seconds: float, function: Callable[[], object], runs: int = 3) -> bool:
    """Whether one of some runs takes less time of a processor.

    Time on the clock is that of all who share a machine, and a run whose caches others emptied
    meanwhile takes longer; what the function itself needs, it needs in each. Other threads of the
    process are not counted. One that remembers what it found is given one run.
    """
    for _ in range(runs):
        begun = time.thread_time()
        function()
        if time.thread_time() - begun < seconds:
            return True
    return False


def wait_for_work(process: Popen[bytes], seconds: float) -> None:
    """Wait until a process has taken so many seconds of a processor, or has ended.

    A process that is to be killed at work has done as much by then on a loaded machine.
    """
    limit = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < limit:
        # The fields behind the name, which is in brackets: user and system time are 14 and 15.
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        if sum(map(int, fields[11:13])) >= seconds * os.sysconf("SC_CLK_TCK"):
            return
        time.sleep(0.01)
