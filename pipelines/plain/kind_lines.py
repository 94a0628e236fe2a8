"""What the terminal shows of a kind of tree, and the budget of one tree for an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dptrees.pipelines.description.description import Description, plain_description
from dptrees.pipelines.plain.lines import summary_lines
from dptrees.pipelines.target import ErrorTarget


@dataclass(frozen=True, kw_only=True)
class KindLines:
    """The lines of a kind of tree on the terminal.

    Attributes:
        describe: gives the description of a question's plan.
        target: the budget of one tree alone for an error, as plain values.
        summary: the summary of a released tree.
    """

    describe: Callable[[Any], Description] = plain_description
    target: Callable[[ErrorTarget], dict[str, Any]] = ErrorTarget.to_entry
    summary: Callable[[Any], Iterator[str]] = summary_lines
