"""The paths of a sparse tree as a release writes them: their parents, their last labels, the way
from the root.

A release names nodes by their paths alone. Many are read at once, without a Python object for each.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.address_texts import read_addresses
from dpcore.number_texts import text_buffers
from dpcore.sparse_domain import CodeDomain, SparseDomain
from dpcore.sparse_labels import LabelDomain, PathDomain

# A path is the labels above, a separator and the label of its own. Where labels are columns, a
# backslash stands before a separator inside a label.
_ESCAPED = r"(?s)^(?P<above>(?:[^\\]|\\.)*)/(?P<own>(?:[^\\/]|\\.)*)$"
_PLAIN = r"(?s)^(?P<above>.*)\x{{{0:x}}}(?P<own>[^\x{{{0:x}}}]*)$"


def root_path(domain: SparseDomain) -> str:
    """How the root is written.

    >>> root_path(CodeDomain(column="address", widths=(8, 24))), root_path(PathDomain(
    ...     column="url", depth=2))
    ('0.0.0.0/0', '')
    """
    return str(domain.paths(0, domain.root_keys)[0])


def parent_paths(domain: SparseDomain, level: int, paths: pa.Array) -> pa.Array:
    """The paths of the parents of nodes.

    Args:
        domain: of the tree.
        level: of the nodes, at least 1.
        paths: (n,) as released.

    Returns:
        (n,) large_string.

    >>> domain = LabelDomain(label_columns=("origin", "dest"))
    >>> parent_paths(domain, 2, pa.array(["JFK/A\\\\/B", "LGA/LAX"])).to_pylist()
    ['JFK', 'LGA']
    >>> parent_paths(CodeDomain(column="address", widths=(8, 8, 16)), 3,
    ...              pa.array(["10.1.0.7/32"])).to_pylist()
    ['10.1.0.0/16']
    """
    if level == 1:
        return pa.repeat(pa.scalar(root_path(domain), pa.large_string()), len(paths))
    texts = paths.cast(pa.large_string())
    if isinstance(domain, CodeDomain):
        bits = np.uint64(domain.bits - domain.prefix_bits[level - 1])
        return domain.paths(level - 1, pa.array(_codes(domain, texts) >> bits))
    return pc.struct_field(pc.extract_regex(texts, _pattern(domain)), "above")


def own_labels(domain: SparseDomain, level: int, paths: pa.Array) -> pa.Array:
    """What the path of a node adds to its parent's: the last label; a prefix of a code is whole.

    >>> domain = LabelDomain(label_columns=("origin", "dest"))
    >>> own_labels(domain, 2, pa.array(["JFK/A\\\\/B", "LGA/LAX"])).to_pylist()
    ['A/B', 'LAX']
    """
    texts = paths.cast(pa.large_string())
    if isinstance(domain, CodeDomain):
        return texts
    if level > 1:
        texts = pc.struct_field(pc.extract_regex(texts, _pattern(domain)), "own")
    if isinstance(domain, LabelDomain):
        texts = pc.replace_substring_regex(texts, r"(?s)\\(.)", r"\1")
    return texts


def line_of(domain: SparseDomain, path: str) -> list[str]:
    """The paths of a node and its ancestors, the root first, whether published or not.

    Args:
        domain: of the tree.
        path: as released; "" is the root.

    Raises:
        ValueError: the tree can have no node of this path.

    >>> line_of(PathDomain(column="url", depth=3), "a/b")
    ['', 'a', 'a/b']
    >>> line_of(PathDomain(column="url", depth=1), "a/b")
    Traceback (most recent call last):
    ...
    ValueError: path 'a/b': the tree can have no node of this path
    """
    root = root_path(domain)
    if path in ("", root):
        return [root]
    level = _level(domain, path)
    if not 1 <= level <= domain.height:
        raise ValueError(f"path {path!r}: the tree can have no node of this path")
    line = [path]
    for below in range(level, 0, -1):
        line.append(str(parent_paths(domain, below, pa.array([line[-1]]))[0]))
    return line[::-1]


def _pattern(domain: SparseDomain) -> str:
    assert isinstance(domain, (LabelDomain, PathDomain))
    return _ESCAPED if isinstance(domain, LabelDomain) else _PLAIN.format(ord(domain.separator))


def _level(domain: SparseDomain, path: str) -> int:
    """The level of a path; 0 if it is none."""
    if isinstance(domain, CodeDomain):
        return _code_level(domain, path)
    if isinstance(domain, PathDomain):
        return path.count(domain.separator) + 1
    if re.fullmatch(r"(?s)(?:[^\\]|\\[\\/])*", path) is None:
        return 0
    return re.sub(r"(?s)\\.", "", path).count("/") + 1


def _code_level(domain: CodeDomain, path: str) -> int:
    code, _, length = path.rpartition("/")
    digits = -(-domain.bits // 4)
    if domain.notation == "hex":
        is_code = re.fullmatch(f"[0-9a-f]{{{digits}}}", code) is not None
        is_code = is_code and int(code, 16) < 2**domain.bits
    else:
        is_code = int(read_addresses(pa.array([code], pa.large_string()))[0]) >= 0
    if not is_code or length not in map(str, domain.prefix_bits):
        return 0
    level = domain.prefix_bits.index(int(length))
    bits = np.uint64(domain.bits - domain.prefix_bits[level])
    keys = pa.array(_codes(domain, pa.array([path], pa.large_string())) >> bits)
    # Behind its prefix a code is 0.
    return level if str(domain.paths(level, keys)[0]) == path else 0


def _codes(domain: CodeDomain, paths: pa.Array) -> npt.NDArray[np.uint64]:
    """The codes of prefixes, 0 behind them, (n,)."""
    if domain.notation == "ipv4":
        plain = pc.replace_substring_regex(paths, "/.*$", "")
        return read_addresses(plain).astype(np.uint64)
    digits = -(-domain.bits // 4)
    offsets, data = text_buffers(paths)
    letters = data[offsets[:-1, None] + np.arange(digits)].astype(np.uint64)
    values = letters - np.uint64(ord("0"))
    values -= np.where(letters >= ord("a"), ord("a") - ord("0") - 10, 0).astype(np.uint64)
    shifts = np.arange(4 * (digits - 1), -1, -4).astype(np.uint64)
    codes: npt.NDArray[np.uint64] = np.bitwise_or.reduce(values << shifts, axis=1)
    return codes
