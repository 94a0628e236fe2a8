"""How much of a job's work is done: counters, which every engine shows beside its own, and
listeners of the process that does the work.

No counter depends on the rows: not on how many were read, not how many a policy dropped, nor the
size of anything computed from exact counts. An engine's page, its log and its history are read by
more people than the data is, and an exact count shown there would be a release without noise.

Listeners get only fractions of work known beforehand (bytes of input files, parts of the plan). On
engines whose workers are other processes nobody listens.
"""

from collections.abc import Callable

from apache_beam.metrics import Metrics

NAMESPACE = "dptrees"

Listener = Callable[[str, int], None]

_listeners: list[Listener] = []

SPLITS_READ = Metrics.counter(NAMESPACE, "splits_read")
"""Splits of input files read to their end; as many as the files' layout has."""

CHUNKS_MEASURED = Metrics.counter(NAMESPACE, "chunks_measured")
"""Chunks of trees, and shards of sparse ones, whose noise was drawn; as many as the plan has."""

PARTS_WRITTEN = Metrics.counter(NAMESPACE, "parts_written")
"""Parts of the release written; as many as the plan has."""

BYTES_WRITTEN = Metrics.counter(NAMESPACE, "bytes_written")
"""Bytes of those parts: a function of the noisy release alone."""


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
