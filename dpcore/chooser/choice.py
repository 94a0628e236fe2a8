"""The mechanism of a tree of known leaves, where several are open: the one expected to be closest.

An adaptive tree is taken where a public guess of the rows and predicted errors say that it is
closer, else whole levels; the data never decide. Of ordered domains more may be open
(`dpcore.chooser.ordered`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

from dptrees.dpcore.adaptive.candidate import AdaptiveCandidate
from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.levels.candidate import TreeWorkload
from dptrees.dpcore.questions.workload import ReleaseTerms, Share, Workload
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.keys import Keys


@dataclass(frozen=True, kw_only=True)
class MechanismChoice(Workload[Any]):
    """A tree whose mechanism is open: an adaptive tree, or whole levels.

    Args:
        whole: the tree by whole levels.
        adaptive: as an adaptive tree, with the guess; None: it is not open.
        guessed_rows: of a tree, of each key; None: there is no guess, or it only serves counts.
    """

    whole: TreeWorkload[Any]
    adaptive: TreeWorkload[Any] | None = None
    guessed_rows: Fraction | float | None = None

    @property
    def error_unit(self) -> str | None:
        if self.guessed_rows is None:
            return self.whole.error_unit
        return None if self.adaptive is None else self.adaptive.error_unit

    def planned(self, share: Share, terms: ReleaseTerms) -> Any:
        adaptive = self._adaptive(share, terms)
        return self.whole.planned(share, terms) if adaptive is None else adaptive

    def _adaptive(self, share: Share, terms: ReleaseTerms) -> Any:
        """Plan an adaptive tree, where it can be had and is expected to be closer; else None."""
        if self.adaptive is None:
            return None
        try:
            is_better = self._tree.is_better(self.adaptive.setting(share, terms))
            return self.adaptive.planned(share, terms) if is_better else None
        except ValueError:  # too large a tree, or too small a budget: whole levels may do
            return None

    def predicted(self, question: Any) -> float:
        return self.resolved(question).predicted(question)

    def error_in_rows(self, question: Any) -> float:
        if isinstance(question.mechanism, AdaptiveMechanism):
            return self.predicted(question)
        return self.resolved(question).error_in_rows(question)

    def condition(self, question: Any) -> str | None:
        return self.resolved(question).condition(question)

    def with_keys(self, keys: Keys) -> MechanismChoice:
        own = ((each.name, getattr(self, each.name)) for each in fields(self))
        changed: dict[str, Any] = {
            name: each.with_keys(keys) for name, each in own if isinstance(each, Workload)
        }
        return replace(self, keys=keys, **changed)

    def resolved(self, question: Any) -> Workload[Any]:
        is_adaptive = isinstance(question.mechanism, AdaptiveMechanism)
        return self.adaptive if self.adaptive and is_adaptive else self.whole

    def linear(self) -> Workload[Any]:
        return self.whole

    def why(self, question: Any) -> str | None:
        if self.guessed_rows is None:
            return None
        rows = f"{float(self.guessed_rows):,.0f} rows"
        return f"chosen for the guess of {rows}: {self._reason(question)}"

    def _reason(self, question: Any) -> str:
        """Why the guess chose the mechanism of a plan, adaptive or of whole levels."""
        tree = self._tree
        if isinstance(question.mechanism, AdaptiveMechanism):
            read = "counts" if tree.counts else "estimates"
            return f"an adaptive tree, as its {read} are expected to be closer than {tree.compared}"
        try:
            reason = tree.why_not(question)
        except ValueError as error:
            rule = error.rule if isinstance(error, Refusal) else error
            reason = f"an adaptive tree cannot be had: {rule}"
        return f"{tree.otherwise}, as {reason}"

    @property
    def _tree(self) -> AdaptiveCandidate:
        assert self.adaptive is not None
        assert isinstance(self.adaptive.candidate, AdaptiveCandidate)
        return self.adaptive.candidate
