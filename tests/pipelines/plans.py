"""Plans of a few trees, without rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.config.configuration import parse_configuration


def plan_of(*trees: Mapping[str, Any], **privacy: Any) -> ReleasePlan:
    """Plan a release of these trees; sentences of refusals begin with x.yaml."""
    sections = {
        "release": "planned",
        "input": {"format": "parquet", "path": "rows.parquet"},
        "output": "out",
        "key_file": "release.key",
        "privacy": privacy or {"epsilon": 1, "neighbors": "add_remove"},
        "trees": [dict(tree) for tree in trees],
    }
    return parse_configuration(yaml.safe_dump(sections), "x.yaml").plan()
