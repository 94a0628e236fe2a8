"""The sections of a configuration file: which keys they have, and what each key holds.

Numbers come as int or Decimal (see `pipelines.yaml_document`); budgets and weights become exact
fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainValidator
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dpcore.domain import KeyList, OrderedDomain
from dpcore.estimators import Estimator
from dpcore.objectives import Objective
from dpcore.privacy import Budget, Measure, Neighbors
from dpcore.published_forest import Consistency
from pipelines import configuration_rules as rules
from pipelines.configuration_error import RuleBroken, from_dpcore, shown
from pipelines.domain_section import plain_value, read_domain
from pipelines.key_lists import Keys, read_key_list
from pipelines.objective_section import make_objective

DEFAULT_CONFIDENCE = 0.95
DEFAULT_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
# Each leaf of each key is a row of the output.
MAX_LEAVES = 2**32
_UNBOUNDED = (
    "bounding per person is not there yet, so the guarantee would not be what the file says"
)


def _unit(value: object) -> str:
    if value != "row":
        raise RuleBroken(f"{shown(value)} must be row; {_UNBOUNDED}")
    return "row"


def _keys(value: object) -> tuple[object, ...]:
    if value == "private":
        raise RuleBroken("private is not supported yet; list the keys")
    if isinstance(value, str):
        raise RuleBroken(f"{shown(value)} must be a list; for a file of keys use keys_file")
    return tuple(map(plain_value, rules.several(value)))


Text = Annotated[str, PlainValidator(rules.text)]
Name = Annotated[str, PlainValidator(rules.name)]
Amount = Annotated[Fraction, PlainValidator(rules.amount)]
Quantile = Annotated[float, PlainValidator(rules.quantile)]


class Section(BaseModel):
    """A section whose keys are its fields; `later` holds those that are not supported yet."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True
    )
    later: ClassVar[Mapping[str, str]] = {}

    @section_rule(mode="before")
    @classmethod
    def _check_keys(cls, values: object) -> object:
        given = rules.section(values)
        rules.known_keys(given, cls.model_fields, cls.later)
        return given


class InputSection(Section):
    """Where the rows lie: `path` is one glob or several."""

    format: Annotated[str, PlainValidator(rules.choice("parquet", "csv", later=("bigquery",)))]
    path: Annotated[tuple[Text, ...], BeforeValidator(rules.one_or_several)]


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


class BySection(Section):
    """A group-by column and the public list of its keys."""

    column: Text
    keys: Annotated[tuple[Any, ...] | None, PlainValidator(_keys)] = None
    keys_file: Text | None = None
    unknown: Annotated[str, PlainValidator(rules.choice("drop", "other"))] = "drop"

    @section_rule(mode="after")
    def _check_list(self) -> Self:
        rules.exactly_one(keys=self.keys, keys_file=self.keys_file)
        _ = self.key_list
        return self

    @cached_property
    def key_list(self) -> KeyList:
        """The keys, those of a file read once."""
        keys = self._keys_of_file() if self.keys is None else self.keys
        try:
            return KeyList(column=self.column, keys=keys, unknown=self.unknown)
        except ValueError as error:
            broken = from_dpcore(error, {"keys": keys})
            if broken.at and self.keys is None:
                raise RuleBroken(f"its keys {broken}", at=".keys_file") from None
            raise broken from None

    def _keys_of_file(self) -> Keys:
        try:
            return read_key_list(str(self.keys_file))
        except ValueError as error:
            raise RuleBroken(str(error), at=".keys_file") from None


class GuessSection(Section):
    """A public guess of the distribution: so many rows, and the part of them below some values."""

    rows: Amount
    below: Annotated[tuple[tuple[object, float], ...], PlainValidator(rules.guessed_parts)]


class TreeSection(Section):
    """One tree: a domain, its keys, what it is for, how it is made, its share of the budget."""

    name: Name
    domain: Annotated[OrderedDomain, PlainValidator(read_domain)]
    by: BySection | None = None
    objective: Annotated[
        str, PlainValidator(rules.choice("cdf", "quantiles", "ranges", "nodes"))
    ] = "cdf"
    quantiles: Annotated[
        tuple[Quantile, ...], BeforeValidator(rules.several), AfterValidator(rules.each_once)
    ] = ()
    guess: GuessSection | None = None
    widths: Annotated[tuple[int, ...], PlainValidator(rules.whole_numbers)] = ()
    level_weights: Annotated[tuple[float, ...], PlainValidator(rules.weights)] = ()
    mechanism: Annotated[
        str,
        PlainValidator(
            rules.choice("planned", "tree", "binary", "histogram", "independent", later=("privhp",))
        ),
    ] = "planned"
    fanouts: Annotated[tuple[int, ...] | None, PlainValidator(rules.whole_numbers)] = None
    level_budgets: Annotated[
        Literal["equal", "optimal"] | tuple[Fraction, ...] | None,
        PlainValidator(rules.level_budgets),
    ] = None
    estimation: Annotated[
        str, PlainValidator(rules.choice(*(each.value for each in Estimator)))
    ] = "full"
    consistency: Annotated[
        str | None, PlainValidator(rules.choice(*(each.value for each in Consistency)))
    ] = None
    weight: Amount = Fraction(1)

    @section_rule(mode="after")
    def _check_size(self) -> Self:
        keys = 1 if self.keys is None else self.keys.size
        if self.domain.cells * keys > MAX_LEAVES:
            times = "" if self.keys is None else f" times {keys} keys"
            raise RuleBroken(
                f"{self.domain.cells} cells{times} must be at most 2^32 in all, because each is a "
                "row of the output",
                at=".domain.cells",
            )
        return self

    @property
    def keys(self) -> KeyList | None:
        """The public keys, None for one tree over all rows."""
        return None if self.by is None else self.by.key_list

    @section_rule(mode="after")
    def _check_objective(self) -> Self:
        for key, kind in (("guess", "quantiles"), ("widths", "ranges"), ("level_weights", "nodes")):
            if getattr(self, key) and self.objective != kind:
                raise RuleBroken(f"belongs to the objective {kind}", at=f".{key}")
        if self.objective == "nodes":
            if self.fanouts is None:
                raise RuleBroken("is needed for the objective nodes: whose nodes?", at=".fanouts")
            if not self.level_weights:
                raise RuleBroken("is needed for the objective nodes", at=".level_weights")
        _ = self.planned_for
        return self

    @cached_property
    def planned_for(self) -> Objective:
        """What the plan is best for."""
        try:
            return make_objective(
                self.objective,
                self.domain,
                quantiles=self.asked_quantiles,
                guess=None if self.guess is None else (self.guess.rows, self.guess.below),
                widths=self.widths,
                level_weights=self.level_weights,
            )
        except ValueError as error:
            raise from_dpcore(
                error,
                {"guess": self.guess, "widths": self.widths, "level_weights": self.level_weights},
            ) from None

    @property
    def asked_consistency(self) -> Consistency:
        """The one given; by default top down, and of independent prefixes the closest CDF, since
        only that keeps what makes them different."""
        if self.consistency is not None:
            return Consistency(self.consistency)
        return Consistency.L2 if self.mechanism == "independent" else Consistency.TOP_DOWN

    @property
    def asked_quantiles(self) -> tuple[float, ...]:
        """The quantiles given, or the default ones where the tree is for quantiles."""
        if self.quantiles or self.objective != "quantiles":
            return self.quantiles
        return DEFAULT_QUANTILES


def _distinct_names(trees: tuple[TreeSection, ...]) -> tuple[TreeSection, ...]:
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
        tuple[TreeSection, ...], BeforeValidator(rules.several), AfterValidator(_distinct_names)
    ]

    @section_rule(mode="after")
    def _one_key(self) -> Self:
        rules.exactly_one(key_file=self.key_file, key=self.key)
        return self
