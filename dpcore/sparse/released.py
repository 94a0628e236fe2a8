"""Answers about a released sparse tree: its heavy nodes, and bounds for the nodes left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arithmetic.sums import hypotenuse
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.questions.answer_errors import unpublished_answer
from dptrees.dpcore.questions.released import (
    NODES,
    Answer,
    Released,
    in_natural_order,
    named_level,
    sum_label,
)
from dptrees.dpcore.sparse.pruning import HIGHEST_CONFIDENCE, published_bounds
from dptrees.dpcore.sparse.question import SparseQuestion


class ReleasedSparse(Released):
    """The answers about one large tree; each level is a part."""

    unordered = "is sparse, and has no order"

    question: SparseQuestion

    @property
    def height(self) -> int:
        return int(self.question.plan.height)

    @property
    def level_names(self) -> tuple[str, ...]:
        """Root first."""
        return tuple(level.name for level in self.question.plan.levels)

    def find_level(self, name: str) -> int:
        return named_level(self.level_names, name)

    def at_confidence(self, confidence: float) -> ReleasedSparse:
        return ReleasedSparse(self.question, self._read, confidence)

    def simultaneous(self, count: int) -> ReleasedSparse:
        found = ReleasedSparse(self.question, self._read)
        found.confidence = self._confidence_among(count)
        return found

    def unpublished(self, level: int | None, path: str | None = None) -> list[Answer]:
        level = level if path is None else self._levels_below(path, level)[2]
        return [unpublished_answer(self.question.unpublished_most(level))] if level else []

    def named(self, name: str, key: object = None) -> Answer:
        self._check_no_key(key)
        path = self.question.domain.as_written(name)
        level = self.question.domain.level_of_path(path)
        if len(self._find(level, path)):
            return self.at_path(name)
        return unpublished_answer(self.question.unpublished_most(level), path)

    def rows(self, level: int) -> pa.Table:
        """The rows of the nodes table of a level.

        Raises:
            ValueError: there is no such level.
        """
        if not 0 <= level <= self.question.plan.height:
            raise ValueError(f"level: {level} is not between 0 and {self.question.plan.height}")
        return self._read(NODES, self.question.name, 0, level)

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """Return the largest published nodes, as `Released.top` does."""
        self._check_no_key(key)
        rows = self.rows(level)
        order = np.argsort(-rows["count"].to_numpy(), kind="stable")[:count]
        return self._answers(rows.take(pa.array(order)))

    def at_path(self, path: str, key: object = None) -> Answer:
        """The count of the node of a path, as the labels are written; "" is the root.

        Raises:
            ValueError: the tree can have no node of this path; or none was published, and the
                sentence says what its count can be.
        """
        self._check_no_key(key)
        path = self.question.domain.as_written(path)
        level = self.question.domain.level_of_path(path)
        found = self._find(level, path)
        if len(found) == 0:
            raise ValueError(
                f"path {path!r}: no node of this path was published, so it has from 0 to "
                f"{self.question.unpublished_most(level)} rows"
            )
        return self._answers(found)[0]

    def children(self, path: str, key: object = None) -> list[Answer]:
        """The counts of the published nodes right below the node of a path.

        Raises:
            ValueError: the tree can have no node of this path, none was published, or it is a leaf.
        """
        self._check_no_key(key)
        domain = self.question.domain
        path = domain.as_written(path)
        level = domain.level_of_path(path)
        if level == domain.height or len(self._find(level, path)) == 0:
            raise ValueError(f"path {path!r}: no node of this path with children was published")
        rows = self.rows(level + 1)
        if level:
            parents = domain.parent_paths(level + 1, rows["label"].combine_chunks())
            rows = rows.filter(pc.equal(parents, path))
        answers = self._answers(rows)
        return in_natural_order(answers) if domain.has_texts else answers

    def top_below(
        self, path: str, count: int, level: int | None, key: object = None
    ) -> list[Answer]:
        """Return the largest published nodes below a path, as `Released.top_below` does."""
        self._check_no_key(key)
        path, above, level = self._levels_below(path, level)
        domain, rows = self.question.domain, self.rows(level)
        if above:
            paths = rows["label"].combine_chunks()
            for at in range(level, above, -1):
                paths = domain.parent_paths(at, paths)
            rows = rows.filter(pc.equal(paths, path))
        order = np.argsort(-rows["count"].to_numpy(), kind="stable")[:count]
        return self._answers(rows.take(pa.array(order)))

    def _levels_below(self, path: str, level: int | None) -> tuple[str, int, int]:
        """A path as labels are written, its level, and a level below it, if none is given the next.

        Raises:
            ValueError: the tree can have no node of this path, or the level is not below it.
        """
        path = self.question.domain.as_written(path)
        above = self.question.domain.level_of_path(path)
        level = min(above + 1, self.height) if level is None else level
        if level <= above:
            raise ValueError(f"level: {self.level_names[level]} is not below path {path!r}")
        return path, above, level

    def sum(self, paths: Sequence[object], key: object = None) -> Answer:
        """Return the sum of published nodes, as `Released.sum` does.

        The noise of one node is independent of another's. The interval adds up the intervals of
        the nodes, each at the confidence at which all of them hold together, since a noisy count
        is conditional on having passed its threshold.

        Raises:
            ValueError: no such path, one that was not published, or rows would count twice.
        """
        self._check_no_key(key)
        names = [self.question.domain.as_written(str(path)) for path in paths]
        self._check_apart(names)
        answers = [self.at_path(name) for name in names]
        unknown = [answer.label for answer in answers if answer.std_error is None]
        if unknown:
            raise ValueError(
                f"sum: of {unknown[0]!r} only a node below was published, so the error of its "
                "count is not known"
            )
        if len(answers) == 1:
            return answers[0]
        ends = [
            self._ends(name, answer, len(answers))
            for name, answer in zip(names, answers, strict=True)
        ]
        total, count = self._total_count, sum(answer.count for answer in answers)
        return Answer(
            label=sum_label([answer.label for answer in answers]),
            estimate=math.fsum(answer.estimate or 0.0 for answer in answers),
            std_error=hypotenuse(*(answer.std_error or 0.0 for answer in answers)),
            ci_low=float(sum(max(low, 0) for low, _ in ends)),
            ci_high=float(sum(high for _, high in ends)),
            count=count,
            fraction=count / total if total else None,
        )

    def _check_apart(self, names: Sequence[str]) -> None:
        """Refuse paths that are there twice, or lead to nodes below each other."""
        domain = self.question.domain
        if not names:
            raise ValueError("sum: nothing is named that could be summed")
        seen = set[str]()
        for name in names:
            if name in seen:
                raise ValueError(f"sum: {name!r} is there twice, so its rows would count twice")
            seen.add(name)
        for name in names:
            above = pa.array([name], pa.large_string())
            for level in range(domain.level_of_path(name), 0, -1):
                above = domain.parent_paths(level, above)
                parent = "" if level == 1 and "" in seen else above[0].as_py()
                if parent in seen:
                    raise ValueError(
                        f"sum: {name!r} lies within {parent!r}, so its rows would count twice"
                    )

    def _ends(self, name: str, answer: Answer, among: int) -> tuple[int, int]:
        """The least and the largest count of a node at the confidence at which as many hold."""
        level = self.question.domain.level_of_path(name)
        noisy = np.array([answer.estimate], np.int64)
        low, high = self._bounds(level, noisy, self._confidence_among(among))
        return int(low[0]), int(high[0])

    def _confidence_among(self, count: int) -> float:
        """The confidence at which so many intervals hold together; beyond what the law's tail says
        1, for the certain interval."""
        confidence = 1 - (1 - self.confidence) / count
        return confidence if confidence <= HIGHEST_CONFIDENCE else 1.0

    def _bounds(self, level: int, noisy: Integers, confidence: float) -> tuple[Integers, Integers]:
        """The least and the largest counts of published nodes of a level."""
        plan, law = self.question.plan, self.question.plan.law(level)
        if law is None:
            return noisy, noisy
        return published_bounds(law, plan.threshold(level), noisy, confidence)

    def _find(self, level: int, path: str) -> pa.Table:
        """The row of the node of a path on its level, if it was published."""
        rows = self.rows(level)
        return rows.filter(pc.equal(rows["label"], path)) if level else rows

    @property
    def _total_count(self) -> int:
        return int(self.rows(0)["count"][0].as_py())

    def _answers(self, rows: pa.Table) -> list[Answer]:
        total, found = self._total_count, rows.to_pylist()
        if self.confidence != self.question.confidence and found:
            # What is known of an implied node is certain.
            noisy = [row for row in found if row["estimate"] is not None]
            counts = np.array([row["estimate"] for row in noisy], np.int64)
            ends = self._bounds(found[0]["level"], counts, self.confidence)
            for row, low, high in zip(noisy, *(each.tolist() for each in ends), strict=True):
                row |= {"ci_low": max(0.0, low), "ci_high": max(0.0, high)}
        return [_answer(row, total) for row in found]


def _answer(row: Mapping[str, Any], total: int) -> Answer:
    names = ("label", "estimate", "std_error", "ci_low", "ci_high", "count")
    known = {name: row[name] for name in names}
    return Answer(**known, fraction=row["count"] / total if total else None)
