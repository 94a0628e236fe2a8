"""A bar on the terminal while a job runs in this process; silent where there is no terminal.

It shows shares of work that are known before the data is read: bytes of the input's files and parts
of the plan.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from transforms.progress import listen


@contextmanager
def progress_bar(input_bytes: int, parts: int) -> Iterator[None]:
    """Shows progress until the block ends.

    Args:
        input_bytes: of all input files.
        parts: of the release.
    """
    shared = {"file": sys.stderr, "disable": not sys.stderr.isatty(), "leave": False}
    with (
        tqdm(
            total=max(1, input_bytes), desc="reading", unit="B", unit_scale=True, **shared
        ) as read,
        tqdm(total=parts, desc="writing", unit="part", **shared) as written,
    ):
        bars = {"read": read, "write": written}
        stop = listen(lambda stage, amount: bars[stage].update(amount))
        try:
            yield
        finally:
            stop()
