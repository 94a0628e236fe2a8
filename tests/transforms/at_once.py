"""Calls on threads that begin at the same moment."""

import threading
from collections.abc import Callable
from typing import Any


def run_at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Return the results of calls, in their order; an error in place of a call that fails.

    >>> run_at_once(lambda: 1, lambda: 2)
    [1, 2]
    """
    barrier, results = threading.Barrier(len(calls)), [None] * len(calls)

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = calls[number]()
        except Exception as error:
            results[number] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
