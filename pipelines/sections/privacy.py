"""The section `privacy`: the guarantee of the whole release."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, ClassVar

from pydantic import PlainValidator
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dpcore.privacy.budget import Budget, Measure, Neighbors
from dpcore.release.split import Split
from pipelines.sections import rules
from pipelines.sections.error import RuleBroken, shown
from pipelines.sections.section import Amount, Section

_UNBOUNDED = (
    "bounding per person is not there yet, so the guarantee would not be what the file says"
)


def _unit(value: object) -> str:
    if value != "row":
        raise RuleBroken(f"{shown(value)} must be row; {_UNBOUNDED}")
    return "row"


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
    split: Annotated[str, PlainValidator(rules.choice(*(each.value for each in Split)))] = "weights"

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
