"""Rows that another engine holds and counts, in place of rows in memory or of files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from dptrees.pipelines.running.stage import Stage


class EngineRows(ABC):
    """Rows that an engine of its own counts for a release, such as a Spark DataFrame."""

    @property
    @abstractmethod
    def table(self) -> object:
        """The engine's table, which identifies the rows in this process."""

    @abstractmethod
    def counted(self, stage: Stage) -> AbstractContextManager[Stage]:
        """Return a stage whose rows the engine counts, until the block ends.

        Raises:
            InputError, Error: the release cannot be made so; nothing is read or spent.
        """
