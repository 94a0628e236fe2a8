"""Memory that is freed and needed again at once, kept by the process.

Each batch of rows takes and frees arrays of some megabytes. By default glibc gives freed memory
back to the system when a few megabytes lie at the end of the heap, and the system clears every page
when it is taken again: a third of the time of a large release.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

# As glibc's malloc.h numbers them.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# Free memory at the end of the heap, and blocks that are taken from it; 32 MB is the largest.
_KEPT_BYTES, _HEAP_BYTES = 2**26, 2**25


def keep_freed_memory() -> None:
    """Let the process keep up to 64 MB that it has freed; nothing where malloc is not glibc's."""
    with suppress(OSError, AttributeError):
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        allocator.mallopt(_MMAP_THRESHOLD, _HEAP_BYTES)
