"""What the section of every tree has."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, ClassVar

from pydantic import PlainValidator
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dpcore.ordered.make import KeyList
from pipelines.sections import rules
from pipelines.sections.by import BySection
from pipelines.sections.error import RuleBroken
from pipelines.sections.section import Amount, Name, Section

# Each leaf of each key is a row of the output.
MAX_LEAVES = 2**32


class TreeSection(Section):
    """What every tree has: a name, a domain, its keys, its share of the budget."""

    size_key: ClassVar[str] = ".domain.cells"
    name: Name
    domain: Any
    by: BySection | None = None
    weight: Amount = Fraction(1)
    noise: Annotated[str, PlainValidator(rules.choice("best", "laplace", "gaussian"))] = "best"

    @section_rule(mode="after")
    def _check_size(self) -> Self:
        keys = 1 if self.keys is None else self.keys.size
        if self.domain.cells * keys > MAX_LEAVES:
            times = "" if self.keys is None else f" times {keys} keys"
            raise RuleBroken(
                f"{self.domain.cells} cells{times} must be at most 2^32 in all, because each is a "
                "row of the output",
                at=self.size_key,
            )
        return self

    @property
    def keys(self) -> KeyList | None:
        """The public keys, None for one tree over all rows."""
        return None if self.by is None else self.by.key_list
