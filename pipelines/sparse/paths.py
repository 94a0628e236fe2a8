"""The paths of a sparse tree as its report shows them: their last labels, the way from the root.

What is a path, and what is above it, say the domains (`dpcore.sparse.domain.SparseDomain`).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain, last_labels
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain


def root_path(domain: SparseDomain) -> str:
    """How the root is written.

    >>> root_path(CodeDomain(column="address", widths=(8, 24))), root_path(PathDomain(
    ...     column="url", depth=2))
    ('0.0.0.0/0', '')
    """
    return str(domain.paths(0, domain.root_keys)[0])


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
        assert isinstance(domain, (LabelDomain, PathDomain))
        texts = last_labels(texts, domain.path_separator)
    if isinstance(domain, LabelDomain):
        texts = pc.replace_substring_regex(texts, r"(?s)\\(.)", r"\1")
    return texts


def ancestor_paths(domain: SparseDomain, path: str) -> list[str]:
    """The paths of a node and its ancestors, the root first, whether published or not.

    Args:
        domain: of the tree.
        path: as released; "" is the root.

    Raises:
        ValueError: the tree can have no node of this path.

    >>> ancestor_paths(PathDomain(column="url", depth=3), "a/b")
    ['', 'a', 'a/b']
    >>> ancestor_paths(PathDomain(column="url", depth=1), "a/b")
    Traceback (most recent call last):
    ...
    ValueError: path 'a/b': it has 2 labels, and the tree 1 below its root
    """
    level = domain.level_of_path(path)
    line = [path] if level else [root_path(domain)]
    for below in range(level, 0, -1):
        line.append(str(domain.parent_paths(below, pa.array([line[-1]]))[0]))
    return line[::-1]
