"""A release's tables in memory, and its page taken apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import ReleaseReader
from dptrees.transforms.folder.layout import planned_parts


class Tables:
    """Tables in memory; all rows of a tree at once."""

    def __init__(
        self,
        plan: ReleasePlan,
        rows: Callable[[str, str], pa.Table],
        quantiles: pa.Table | None = None,
    ) -> None:
        self.plan, self._rows, self._quantiles = plan, rows, quantiles
        self.manifest = {"dptrees": "0.1"}

    def batches(
        self, kind: str, tree: str, *, keys: int | None = None, levels: int | None = None
    ) -> list[pa.RecordBatch]:
        return self._rows(kind, tree).to_batches()

    def part(self, kind: str, tree: str, key: int, index: int) -> pa.Table:
        raise AssertionError("an ordered tree needs no single part")

    def quantiles(self) -> pa.Table | None:
        return self._quantiles


class ReleaseTables(Tables):
    """The tables of a release that was made in memory.

    Attributes:
        read: the parts that were requested one by one: the first key and the index of each.
    """

    def __init__(self, release: ReleaseReader) -> None:
        super().__init__(release.plan, self.rows, release.quantiles)
        self._release = release
        self.read: list[tuple[int, int]] = []

    def rows(self, kind: str, tree: str) -> pa.Table:
        """All rows of a tree."""
        parts = (
            part for part in planned_parts(self.plan) if (part.kind, part.tree) == (kind, tree)
        )
        return pa.concat_tables(self._release._read(kind, tree, p.key, p.index) for p in parts)

    def part(self, kind: str, tree: str, key: int, index: int) -> pa.Table:
        self.read.append((key, index))
        return self._release._read(kind, tree, key, index)


class Elements(HTMLParser):
    """The tags of a page, their attributes, and the text of each script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        inside = self.lasttag if self.cdata_elem else None
        (self.scripts if inside == "script" else self.texts).append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def data(self) -> dict[str, Any]:
        return next(json.loads(text) for text in self.scripts if text.startswith('{"trees"'))


@lru_cache
def parse_elements(page: str) -> Elements:
    return Elements(page)
