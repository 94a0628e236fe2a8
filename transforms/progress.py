"""Progress of a job that runs in this process, reported to any listener.

Only fractions of work known beforehand are reported (bytes of input files, parts of the plan):
nothing that depends on what the rows hold. On engines whose workers are other processes nobody
listens.
"""

from collections.abc import Callable

Listener = Callable[[str, int], None]

_listeners: list[Listener] = []


def listen(listener: Listener) -> Callable[[], None]:
    """Calls ``listener(stage, amount)`` as work is done; returns what ends it."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def advance(stage: str, amount: int) -> None:
    """Report that an amount of a stage's work is done.

    >>> seen = []
    >>> stop = listen(lambda stage, amount: seen.append((stage, amount)))
    >>> advance("read", 10); stop(); advance("read", 10); seen
    [('read', 10)]
    """
    for listener in _listeners:
        listener(stage, amount)
