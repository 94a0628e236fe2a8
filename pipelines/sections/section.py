"""What every section of a configuration file is: keys with rules, all others refused."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, PlainValidator
from pydantic import model_validator as section_rule

from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken

Text = Annotated[str, PlainValidator(rules.text)]
Name = Annotated[str, PlainValidator(rules.name)]
Amount = Annotated[Fraction, PlainValidator(rules.amount)]


class Section(BaseModel):
    """A section whose keys are its fields; `misplaced` holds keys of another kind of section, each
    with a sentence about it."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        arbitrary_types_allowed=True,
        # Most sections are checked only as parts of the file, and need no validator of their own.
        defer_build=True,
    )
    misplaced: ClassVar[Mapping[str, str]] = {}

    @section_rule(mode="before")
    @classmethod
    def _check_keys(cls, values: object) -> object:
        result = rules.section(values)
        for key in result:
            if key in cls.misplaced:
                raise RuleBroken(cls.misplaced[key], at=f".{key}")
        known = [each.alias or name for name, each in cls.model_fields.items()]
        rules.known_keys(result, known)
        return result
