"""Settings that a partition is planned for, and choices that its plan must have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dptrees.dpcore.partitions.plan import Estimation, Holding
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.sketches.shape import SketchKind

# A node is split where its estimate exceeds so many standard errors of a count of its children.
SPLIT_ERRORS = 4.0
# How a budget can be shared among levels.
SHARES = ("planned", "equal", "lemma_5")


@dataclass(frozen=True, kw_only=True)
class PartitionSetting:
    """The setting that a plan is made for.

    Args:
        bits: of a code, at least 1.
        diameters: gamma of the nodes of each depth 0..bits, that of the whole being 1.
        dimensions: d, of the domain.
        budget: of the whole tree.
        unit: what neighbors differ in.
        public_total: the number of rows is public.
    """

    bits: int
    diameters: Callable[[int], float]
    dimensions: int
    budget: Budget
    unit: PrivacyUnit
    public_total: bool = False


@dataclass(frozen=True, kw_only=True)
class PartitionChoices:
    """The requested choices; None leaves a choice to the planner.

    Args:
        rows: N, a public guess of how many rows there are: it shapes the plan, nothing else.
        rows_at_most: a public bound of how many rows there can be.
        depth: of the finest level, in bits.
        bits_apart: bits between levels.
        most: k, nodes of a level that are split at most.
        parts: a node is split only with 1 / parts of all rows.
        split_errors: a node is split where its estimate exceeds so many standard errors of its
            children's noise; 0: never mind. None, which only the adaptive partition knows: as
            planned.
        shares: of the budget among levels: "planned", "equal" or "lemma_5".
        estimation: of the counts.
        holding: of exact counts.
        memory: of exact counts, in bytes, on one worker; growing takes more where `most` lets it.
        width: w, of sketches; by default as wide as memory allows.
        hash_rows: j, of sketches; 1 by default.
        sketch: the kind of sketches; count sketches by default. Any of these three needs them.
        root: whether the root is measured; it costs a share. Even shares and `parts` need it.
        decided_apart: whether numbers of their own decide what is split, so that estimates are
            unbiased given the partition; of the adaptive partition, whose default it is.
    """

    rows: int | None = None
    rows_at_most: int | None = None
    depth: int | None = None
    bits_apart: int | None = None
    most: int | None = None
    parts: int | None = None
    split_errors: float | None = SPLIT_ERRORS
    shares: str = "planned"
    estimation: Estimation | None = None
    holding: Holding | None = None
    memory: int | None = None
    width: int | None = None
    hash_rows: int | None = None
    sketch: SketchKind | None = None
    root: bool = False
    decided_apart: bool = False

    def __post_init__(self) -> None:
        if self.shares not in SHARES:
            raise Refusal("shares", f"{self.shares!r} is none of {', '.join(SHARES)}")
        whole = ("rows", "rows_at_most", "depth", "bits_apart", "most", "parts", "memory")
        for name in (*whole, "hash_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise Refusal(name, f"{value} is not at least 1")
        if self.bits_apart is not None and self.bits_apart > 8:
            raise Refusal("bits_apart", f"{self.bits_apart} is above 8, 256 children at once")
        if self.split_errors is not None and self.split_errors < 0:
            raise Refusal("split_errors", f"{self.split_errors} is below 0")

    @property
    def sketch_choice(self) -> str | None:
        """A choice that only sketches have, by its name; None where there is none."""
        names = ("width", "hash_rows", "sketch")
        return next((name for name in names if getattr(self, name) is not None), None)

    @classmethod
    def from_mechanism(cls, mechanism: str, **given: Any) -> PartitionChoices:
        """The choices of a mechanism by its name, where nothing else is given.

        "planned" is for counts, by the mechanism expected to be closest. "privhp" is what this
        project makes of PrivHP. "privhp_paper" is what the paper has:
        halvings, Lemma 5, k nodes of each level, Algorithm 4. "pmm" is the same with all nodes.

        Raises:
            Refusal: a choice that is out of range, or that PMM does not have; `decided_apart`,
                which only "planned" and "adaptive" have.

        Source: Holland et al., Algorithms 2 to 4; He, Vershynin, Zhu 2023 (PMM).
        """
        if mechanism == "adaptive":
            return cls(**{"split_errors": None, "decided_apart": True} | given)
        if mechanism == "planned":
            return cls(**{"split_errors": None} | given)
        if "decided_apart" in given:
            raise Refusal("decided_apart", "is a choice of mechanism planned or adaptive alone")
        if mechanism in ("privhp", "privtree"):
            return cls(**given)
        paper: dict[str, Any] = {
            "bits_apart": 1,
            "split_errors": 0.0,
            "shares": "lemma_5",
            "estimation": Estimation.EVEN_SHARES,
            "root": True,
        }
        if mechanism == "pmm":
            for name in ("most", "parts"):
                if name in given:
                    raise Refusal(name, "PMM splits every node; it has no such choice")
            paper["most"] = 2**64
        return cls(**paper | given)
