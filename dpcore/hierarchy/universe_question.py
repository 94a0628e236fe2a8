"""A question over a public universe of labels, whatever its mechanism.

The universe may be large, so a question travels without what follows from it: the shape of the tree
is taken from the universe again where the question arrives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np
import pyarrow as pa

from dpcore.arrays import Integers
from dpcore.hierarchy.domain import HierarchyDomain
from dpcore.hierarchy.universe import Universe
from dpcore.questions.parts import ChunkAnswer
from dpcore.questions.question import PublicTable
from dpcore.questions.tables import NODES, nodes_table
from dpcore.questions.tree_question import TreeQuestion
from dpcore.trees.chunks import Chunk
from dpcore.trees.forest import Forest, Measurements, RootSolutions


@dataclass(frozen=True, kw_only=True)
class UniverseQuestion(TreeQuestion):
    """The counts of all nodes of a hierarchy.

    Args:
        domain: the universe, and how rows fall into its leaves.
    """

    kind = "hierarchy"
    tables = (NODES,)

    domain: HierarchyDomain

    @property
    @abstractmethod
    def forest(self) -> Forest:
        """The trees in chunks."""

    def node_labels(self, level: int, nodes: Integers) -> pa.StringArray:
        """The paths of nodes."""
        return self.domain.tree.paths(level, nodes)

    def listed(self, level: int, nodes: Integers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """All but those that only continue a leaf of an upper level."""
        return self.domain.tree.is_named(level, nodes)

    def chunk_answer(
        self, chunk: Chunk, measured: Measurements, roots: RootSolutions
    ) -> ChunkAnswer:
        levels, _ = self.forest.solve(chunk, measured, roots)
        total = self.released_total(roots)
        return ChunkAnswer({NODES: nodes_table(self, chunk.key, levels, total)})

    @property
    def public_tables(self) -> tuple[PublicTable, ...]:
        return (self.domain.universe, *super().public_tables)

    def with_public_tables(self, shared: Callable[[PublicTable], PublicTable]) -> UniverseQuestion:
        universe = shared(self.domain.universe)
        assert isinstance(universe, Universe)
        copy = replace(self, domain=replace(self.domain, universe=universe))
        if "widths" in self.__dict__:
            copy.remember_widths(self.widths)
        return TreeQuestion.with_public_tables(copy, shared)  # type: ignore[return-value]

    def __getstate__(self) -> dict[str, object]:
        assert is_dataclass(self.plan)
        plan = {f.name: getattr(self.plan, f.name) for f in fields(self.plan) if f.name != "tree"}
        kept = {f.name: getattr(self, f.name) for f in fields(self)}
        kept |= {"plan": (type(self.plan), plan)}
        if "widths" in self.__dict__:
            kept["widths"] = self.widths
        return kept

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state)
        kind, plan = self.__dict__["plan"]
        self.__dict__["plan"] = kind(tree=self.domain.tree.shape, **plan)
