"""The sections of a configuration file: which keys they have, and what each key holds.

Numbers come as int or Decimal (see `pipelines.sections.yaml_document`); budgets and weights become
exact fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, ClassVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    PlainValidator,
    Tag,
)
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dpcore.privacy.budget import Budget, Measure, Neighbors
from pipelines.hierarchy.section import HierarchyTree
from pipelines.ordered.section import OrderedTree
from pipelines.sections import rules
from pipelines.sections.error import RuleBroken, shown
from pipelines.sections.section import Amount, Name, Section, Text
from pipelines.sparse.section import SparseTree
from transforms.readers.csv_format import DEFAULT_FORMAT, POLICIES, CsvFormat

DEFAULT_CONFIDENCE = 0.95
_UNBOUNDED = (
    "bounding per person is not there yet, so the guarantee would not be what the file says"
)


def _unit(value: object) -> str:
    if value != "row":
        raise RuleBroken(f"{shown(value)} must be row; {_UNBOUNDED}")
    return "row"


class InputSection(Section):
    """Where the rows lie: `path` is one glob or several. The others tell what a row of CSV is."""

    format: Annotated[str, PlainValidator(rules.choice("parquet", "csv", later=("bigquery",)))]
    path: Annotated[tuple[Text, ...], BeforeValidator(rules.one_or_several)]
    newlines: Annotated[bool | None, PlainValidator(rules.truth)] = None
    malformed: Annotated[str | None, PlainValidator(rules.choice(*POLICIES))] = None

    @section_rule(mode="after")
    def _csv_only(self) -> Self:
        for key in ("newlines", "malformed"):
            if self.format != "csv" and getattr(self, key) is not None:
                raise RuleBroken("stands beside the format csv only", at=f".{key}")
        return self

    @property
    def csv(self) -> CsvFormat:
        """What a row of a CSV file is."""
        default = DEFAULT_FORMAT
        return CsvFormat(
            newlines=default.newlines if self.newlines is None else self.newlines,
            malformed=self.malformed or default.malformed,
        )


class PrivacySection(Section):
    """The guarantee of the whole release."""

    later: ClassVar[Mapping[str, str]] = {
        "max_rows": _UNBOUNDED,
        "max_keys": _UNBOUNDED,
    }
    epsilon: Amount | None = None
    rho: Amount | None = None
    delta: Annotated[Fraction | None, PlainValidator(rules.delta)] = None
    neighbors: Annotated[str, PlainValidator(rules.choice(*(each.value for each in Neighbors)))]
    unit: Annotated[str, PlainValidator(_unit)] = "row"

    @section_rule(mode="after")
    def _one_budget(self) -> Self:
        rules.exactly_one(epsilon=self.epsilon, rho=self.rho)
        if self.delta is not None and self.epsilon is None:
            raise RuleBroken("stands beside epsilon, not rho", at=".delta")
        return self

    @property
    def budget(self) -> Budget:
        """The whole release's, but for a delta."""
        if self.epsilon is not None:
            return Budget(measure=Measure.EPSILON, amount=self.epsilon)
        assert self.rho is not None
        return Budget(measure=Measure.RHO, amount=self.rho)


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
