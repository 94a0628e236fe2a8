"""Paths of the nodes of a sparse tree, taken apart: the path above, the last label, a code.

A release names nodes by their paths alone. Many are read at once, without a Python object for each;
the domains that write them say what is a path (`dpcore.sparse.domain.SparseDomain.level_of_path`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.rows.number_texts import text_buffers
from dptrees.dpcore.sparse.addresses import read_addresses

# A path is the labels above, a separator and the label of its own. Where labels are columns, a
# backslash comes before a separator inside a label.
_ESCAPED = r"(?s)^(?P<above>(?:[^\\]|\\.)*)/(?P<own>(?:[^\\/]|\\.)*)$"
_PLAIN = r"(?s)^(?P<above>.*)\x{{{0:x}}}(?P<own>[^\x{{{0:x}}}]*)$"


def paths_above(paths: pa.Array, separator: str | None) -> pa.Array:
    """Paths without their last labels.

    Args:
        paths: large_string, (n,), each of two labels or more.
        separator: between the labels; None: a slash, with a backslash before one inside a label.

    Returns:
        large_string, (n,).

    >>> paths_above(pa.array(["JFK/A\\\\/B", "LGA/LAX"], pa.large_string()), None).to_pylist()
    ['JFK', 'LGA']
    """
    return pc.struct_field(pc.extract_regex(paths, _pattern(separator)), "above")


def last_labels(paths: pa.Array, separator: str | None) -> pa.Array:
    """The last labels of paths, as they are written; see `paths_above`.

    >>> last_labels(pa.array(["a/b//", "a/b"], pa.large_string()), "/").to_pylist()
    ['', 'b']
    """
    return pc.struct_field(pc.extract_regex(paths, _pattern(separator)), "own")


def _pattern(separator: str | None) -> str:
    return _ESCAPED if separator is None else _PLAIN.format(ord(separator))


def prefix_codes(paths: pa.Array, hex_digits: int | None) -> npt.NDArray[np.uint64]:
    """The codes of prefixes, 0 behind them.

    Args:
        paths: large_string, (n,), as `dpcore.sparse.addresses.prefix_texts` writes them.
        hex_digits: how many hexadecimal digits a code has; None: it is an IPv4 address.

    Returns:
        uint64, (n,).

    >>> prefix_codes(pa.array(["0.0.1.0/24"], pa.large_string()), None).tolist()
    [256]
    >>> prefix_codes(pa.array(["0ff/12"], pa.large_string()), 3).tolist()
    [255]
    """
    if hex_digits is None:
        return read_addresses(pc.replace_substring_regex(paths, "/.*$", "")).astype(np.uint64)
    offsets, data = text_buffers(paths)
    letters = data[offsets[:-1, None] + np.arange(hex_digits)].astype(np.uint64)
    values = letters - np.uint64(ord("0"))
    values -= np.where(letters >= ord("a"), ord("a") - ord("0") - 10, 0).astype(np.uint64)
    shifts = np.arange(4 * (hex_digits - 1), -1, -4).astype(np.uint64)
    codes: npt.NDArray[np.uint64] = np.bitwise_or.reduce(values << shifts, axis=1)
    return codes


def refused_path(path: str, why: str) -> ValueError:
    """The refusal of a text that is no path of a domain, as one sentence.

    >>> str(refused_path("a/b", "it has 2 labels, and the tree 1 level"))
    "path 'a/b': it has 2 labels, and the tree 1 level"
    """
    return ValueError(f"path {path!r}: {why}")
