"""How many rows of a file of text are malformed: its lines less the rows that were read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.readers.read import open_file

_BLOCK = 2**22
# In which the ends of lines are bytes.
_ASCII_LIKE = ("utf-8", "utf8", "ascii", "latin", "iso8859", "cp125", "windows-125")


def malformed_lines(path: str, rows: int, options: Mapping[str, Any]) -> int | None:
    """Return how many lines of a text file are no rows; None where lines do not show it.

    Args:
        path: of the file, which was read to its end.
        rows: the number of its rows.
        options: of its reader.
    """
    heads = 0
    if (csv := options.get("csv")) is not None:
        if csv.newlines or not _ends_are_bytes(getattr(csv, "encoding", "utf-8")):
            return None
        heads = 0 if getattr(csv, "columns", ()) else 1
    return max(0, count_lines(path) - heads - rows)


def _ends_are_bytes(encoding: str) -> bool:
    return encoding.lower().replace("_", "-").startswith(_ASCII_LIKE)


def count_lines(path: str) -> int:
    """How many lines of a file have anything but blanks' first byte: none are empty."""
    file = open_file(path)
    stream = pa.input_stream(file, compression="detect") if isinstance(file, str) else file
    total, before = 0, True
    with closing(stream):
        while data := stream.read(_BLOCK):
            codes = np.frombuffer(data, np.uint8)
            ends = (codes == ord("\n")) | (codes == ord("\r"))
            starts = ~ends & np.concatenate([[before], ends[:-1]])
            total, before = total + int(np.count_nonzero(starts)), bool(ends[-1])
    return total
