"""The mechanisms of a partition, by what a specification names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dptrees.dpcore.partitions.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.partitions.mechanism import PartitionMechanism
from dptrees.dpcore.partitions.plan import PartitionPlan
from dptrees.dpcore.partitions.privtree import PrivTreePlan

MECHANISMS: dict[str, type[PartitionMechanism]] = {
    "adaptive": AdaptivePartitionPlan,
    "partition": PartitionPlan,
    "privtree": PrivTreePlan,
}


def mechanism_from_spec(spec: Mapping[str, Any]) -> PartitionMechanism:
    """The plan of a specification, as its `spec` writes it."""
    return MECHANISMS[str(spec["mechanism"])].from_spec(spec)
