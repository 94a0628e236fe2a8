"""What the section of every tree has."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from pydantic import PlainValidator
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.questions.planning import ReleaseTerms, Workload
from dptrees.dpcore.rows.keys import Keys
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.by import BySection, PrivateKeys
from dptrees.pipelines.sections.error import RuleBroken
from dptrees.pipelines.sections.section import Amount, Name, Section

# Each leaf of each key is a row of the output.
MAX_LEAVES = 2**32


class TreeSection(Section):
    """What every tree has: a name and a domain; `workload` makes what it is planned for."""

    # The keys at which refusals of dpcore are put once the budget is known, by its own fields.
    refused: ClassVar[Mapping[str, str]] = {"domain": "domain"}
    name: Name
    domain: Any

    @abstractmethod
    def workload(self) -> Workload[Any]:
        """The workload of the tree, before there is a budget."""

    @property
    def private_keys(self) -> PrivateKeys | None:
        """What selects its keys from the data; None where they are listed, or there are none."""
        return None

    @property
    def leaves(self) -> int | None:
        """How many leaves it has under a key; None where nobody lists them."""
        return None

    def describe_rule(self, key: str, rule: str, terms: ReleaseTerms) -> str:
        """What is said of a choice that dpcore refused once the budget was known.

        Args:
            key: of this section.
            rule: what dpcore says is wrong with it.
            terms: of the release.
        """
        return rule


class KnownLeavesSection(TreeSection):
    """A tree of known leaves, once for each of its public keys."""

    group_by: BySection | None = None
    weight: Amount = Fraction(1)
    noise: Annotated[str, PlainValidator(rules.choice("best", "laplace", "gaussian"))] = "best"

    @section_rule(mode="after")
    def _check_size(self) -> Self:
        keys = 1 if self.keys is None else self.keys.size
        if (cells := self.leaves or 0) * keys > MAX_LEAVES:
            times = "" if self.keys is None else f" times {keys} keys"
            raise RuleBroken(
                f"{cells} cells{times} must be at most 2^32 in total, because each is a row of "
                "the output",
                at=f".{self.refused['domain']}",
            )
        return self

    @property
    def leaves(self) -> int | None:
        return int(self.domain.cells)

    @property
    def keys(self) -> Keys | None:
        """The keys, None for one tree over all rows."""
        return None if self.group_by is None else self.group_by.listed

    @property
    def private_keys(self) -> PrivateKeys | None:
        return None if self.group_by is None else self.group_by.private
