"""The sections of a configuration file: which keys they have, and what each key holds.

Numbers come as int or Decimal (see `pipelines.sections.yaml_document`); budgets and weights become
exact fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    PlainValidator,
    Tag,
)
from pydantic import model_validator as section_rule
from typing_extensions import Self

from pipelines.hierarchy.section import HierarchyTree
from pipelines.ordered.section import OrderedTree
from pipelines.sections import rules
from pipelines.sections.error import RuleBroken
from pipelines.sections.input import InputSection
from pipelines.sections.privacy import PrivacySection
from pipelines.sections.section import Name, Section, Text
from pipelines.sparse.section import SparseTree

DEFAULT_CONFIDENCE = 0.95


def _kind(tree: object) -> str:
    """The tag of a tree's section, by the kind of its domain; `key_path` leaves tags out."""
    domain = tree.get("domain") if isinstance(tree, Mapping) else None
    kind = domain.get("kind") if isinstance(domain, Mapping) else None
    return f"<{kind}>" if kind in ("hierarchy", "sparse") else "<ordered>"


AnyTree = Annotated[
    Annotated[OrderedTree, Tag("<ordered>")]
    | Annotated[HierarchyTree, Tag("<hierarchy>")]
    | Annotated[SparseTree, Tag("<sparse>")],
    Discriminator(_kind),
]


def _distinct_names(trees: tuple[AnyTree, ...]) -> tuple[AnyTree, ...]:
    names = [tree.name for tree in trees]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise RuleBroken(f"{name} is the name of an earlier tree too", at=f"[{index}].name")
    return trees


class ReleaseSection(Section):
    """The whole file."""

    release: Name
    input: InputSection
    output: Text
    key_file: Annotated[str | None, PlainValidator(rules.key_file)] = None
    key: Annotated[str | None, PlainValidator(rules.key_reference)] = None
    confidence: Annotated[float, PlainValidator(rules.confidence)] = DEFAULT_CONFIDENCE
    privacy: PrivacySection
    trees: Annotated[
        tuple[AnyTree, ...], BeforeValidator(rules.several), AfterValidator(_distinct_names)
    ]

    @section_rule(mode="after")
    def _one_key(self) -> Self:
        rules.exactly_one(key_file=self.key_file, key=self.key)
        return self
