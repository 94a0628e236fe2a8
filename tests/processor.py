"""How much time of a processor a function takes."""

import time
from collections.abc import Callable


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
