"""How much memory a function takes at most."""

import tracemalloc
from collections.abc import Callable


def stays_below(peak: float, function: Callable[[], object], runs: int = 3) -> bool:
    """Whether one of some runs allocates at most `peak` bytes at a time.

    What other threads of the process allocate meanwhile is traced as well, so that one run above
    shows nothing; what the function itself takes, it takes in each.
    """
    for _ in range(runs):
        tracemalloc.start()
        try:
            function()
            if tracemalloc.get_traced_memory()[1] < peak:
                return True
        finally:
            tracemalloc.stop()
    return False
