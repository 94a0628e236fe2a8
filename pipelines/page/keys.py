"""Which keys of a tree its part of the page shows: the largest, where they can all be looked at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import NODES
from dptrees.pipelines.page.extent import MAX_KEYS, MAX_POINTS, key_codes, left_out
from dptrees.pipelines.page.nodes import ReleasedTables

# Of more, the first are shown: the roots of all would have to be read.
_LOOKED_AT = 2_000


@dataclass(frozen=True, kw_only=True)
class ShownKeys:
    """Some keys of a tree, the largest first; [None] where it has none.

    Args:
        labels: of the keys.
        codes: likewise.
        size: how many the tree has.
        largest: whether they are the largest, or the first.
    """

    labels: list[str | None]
    codes: list[int]
    size: int
    largest: bool = True

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def read(self) -> int:
        """How many keys of the tree, from the first on, hold them all."""
        return max(self.codes) + 1

    @property
    def left_out(self) -> str:
        """What the page says of the others."""
        return left_out(len(self), self.size, "keys", "largest" if self.largest else "first")


def shown_number(question: Question, trees: int) -> int:
    """Return the number of keys that leaves each a curve of 70 points."""
    return min(question.key_count, max(1, min(MAX_KEYS, MAX_POINTS // trees // 70)))


def shown_keys(release: ReleasedTables, question: Question, trees: int) -> ShownKeys:
    """The keys of a tree on the page, by their released counts.

    Args:
        release: the tables.
        question: the tree.
        trees: how many share the page.
    """
    size = question.key_count
    most = shown_number(question, trees)
    if size > _LOOKED_AT:
        labels, codes = question.labels_between(0, most), list(range(most))
        return ShownKeys(labels=labels, codes=codes, size=size, largest=False)
    labels = question.labels_between(0, size)
    counts = np.zeros(size, np.int64)
    for batch in release.batches(NODES, question.name, levels=1) if size > 1 else ():
        roots = np.flatnonzero(batch.column("level").to_numpy() == 0)
        counts[key_codes(batch, labels)[roots]] = batch.column("count").to_numpy()[roots]
    order = np.argsort(-counts, kind="stable")[:most].tolist()
    return ShownKeys(labels=[labels[place] for place in order], codes=order, size=size)
