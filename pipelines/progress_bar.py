"""A bar on the terminal while a job runs; where there is no terminal, only a remark on a quiet job.

It shows shares of work that are known before the data is read: bytes of the input's files and parts
of the plan. Where the workers are other processes, nothing says of the reading; the parts written
are then those that are seen in the output.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tqdm import tqdm

from dptrees.pipelines.faults.log import LOG, remark
from dptrees.transforms.conservation import listen

# Seconds between two looks at the output.
LOOK_EVERY = 2.0
# After so many seconds without a new part of the output this is remarked, and again after as many.
QUIET_SECONDS = 300.0


@contextmanager
def progress_bar(
    input_bytes: int, parts: int, parts_present: Callable[[], int] | None = None
) -> Iterator[None]:
    """Shows progress until the block ends.

    Args:
        input_bytes: of all input files.
        parts: of the release.
        parts_present: how many parts the output holds, where workers are other processes.
    """
    shared = {"file": sys.stderr, "disable": LOG.is_json or not sys.stderr.isatty(), "leave": False}
    with (
        tqdm(
            total=max(1, input_bytes), desc="reading", unit="B", unit_scale=True, **shared
        ) as read,
        tqdm(total=parts, desc="writing", unit="part", **shared) as written,
    ):
        bars = {"read": read, "write": written}
        stop = listen(lambda stage, amount: bars[stage].update(amount))
        looking = _Look(written, parts, parts_present)
        if parts_present:
            looking.start()
        try:
            yield
        finally:
            stop()
            looking.over.set()
            if looking.ident is not None:
                looking.join()


class _Look(threading.Thread):
    """Look from time to time how many parts there are, and remark that none came for long."""

    def __init__(
        self, bar: tqdm[object], parts: int, parts_present: Callable[[], int] | None
    ) -> None:
        super().__init__(daemon=True)
        self._bar, self._parts, self._present = bar, parts, parts_present
        self.over = threading.Event()

    def run(self) -> None:
        """Until the job is over. What cannot be seen is not shown: the job says its own errors."""
        assert self._present is not None
        # Without a bar nobody waits for the number.
        every = min(QUIET_SECONDS / 5, LOOK_EVERY * (15 if self._bar.disable else 1))
        seen, since = 0, time.monotonic()
        while not self.over.wait(every):
            with suppress(Exception):
                present = min(self._parts, self._present())
                if present > seen:
                    seen, since = present, time.monotonic()
                self._bar.n = seen
                self._bar.refresh()
            if time.monotonic() - since >= QUIET_SECONDS:
                remark(
                    f"the job has not written a part of the release for {QUIET_SECONDS:.0f} s "
                    f"({seen} of {self._parts} are there): it is reading, or waiting for workers; "
                    "see the engine's own page. --timeout stops such a run"
                )
                since = time.monotonic()
