"""The section of a tree too large to list: codes, labels or paths, whose heavy nodes are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import PlainValidator, WithJsonSchema
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.sparse.domain import NOTATIONS, CodeDomain, SparseDomain
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain
from dptrees.dpcore.sparse.pruning import Pruning
from dptrees.dpcore.sparse.question import SparseWorkload
from dptrees.pipelines.schema.values import TEXT, rules_schema, several, whole
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, from_dpcore, nearest, shown
from dptrees.pipelines.sections.section import Amount
from dptrees.pipelines.sections.tree import TreeSection

_KNOWN_ONLY = "needs a domain whose leaves are public"


def _depth(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 64:
        raise RuleBroken(f"{shown(value)} must be a whole number from 1 to 64")
    return value


def _rows(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**40:
        raise RuleBroken(f"{shown(value)} must be a whole number from 0 to 2^40")
    return value


_RULES: dict[str, Callable[[object], Any]] = {
    "kind": rules.choice("sparse"),
    "column": rules.text,
    "columns": lambda value: rules.each_once(tuple(map(rules.text, rules.several(value)))),
    "bits": rules.whole_numbers,
    "notation": rules.choice(*NOTATIONS),
    "separator": rules.text,
    "depth": _depth,
}


_SCHEMA = rules_schema(_RULES, "sparse", columns=several(TEXT), depth=whole(minimum=1, maximum=64))


def read_sparse(value: object) -> SparseDomain:
    """Make the domain of a large tree of the plain values of a section.

    Raises:
        RuleBroken: at the key whose rule is broken.

    >>> read_sparse({"column": "address", "bits": [8, 8, 16]}).names
    ('/8', '/16', '/32')
    """
    section = rules.section(value)
    rules.known_keys(section, _RULES)
    given: dict[str, Any] = {
        key: rules.at(f".{key}", _RULES[key], each) for key, each in section.items()
    }
    given.pop("kind", None)
    make, fields = _form(given)
    try:
        return make(**fields)
    except ValueError as error:
        refused = from_dpcore(error, fields)
        at = {".widths": ".bits", ".label_columns": ".columns"}.get(refused.at, refused.at)
        raise RuleBroken(str(refused), at=at) from None


def _form(given: dict[str, Any]) -> tuple[Callable[..., SparseDomain], dict[str, Any]]:
    """How a leaf is written, and the fields of that kind of domain."""
    if "columns" in given:
        _check_alone(given, "columns", ())
        return LabelDomain, {"label_columns": given["columns"]}
    if "column" not in given:
        raise RuleBroken("needs column or columns")
    if "bits" in given:
        _check_alone(given, "bits", ("column", "notation"))
        widths = {"widths": given.pop("bits")}
        default = "ipv4" if sum(widths["widths"]) == 32 else "hex"
        return CodeDomain, widths | {"notation": default} | given
    if "depth" not in given:
        _check_alone(
            given, "a column of whole values; say bits for codes or depth for paths", ("column",)
        )
        return LabelDomain, {"label_columns": (given["column"],)}
    _check_alone(given, "depth", ("column", "separator"))
    return PathDomain, given


def _check_alone(given: Mapping[str, object], key: str, beside: tuple[str, ...]) -> None:
    for other in given:
        if other != key and other not in beside:
            raise RuleBroken(f"does not go with {key}", at=f".{other}")


class SparseTree(TreeSection):
    """One tree too large to list."""

    misplaced: ClassVar[Mapping[str, str]] = {
        "group_by": "a sparse tree has no keys; make the key its first label",
        **dict.fromkeys(
            ("quantiles", "guess", "widths", "fanouts", "estimation", "consistency"),
            "belongs to an ordered domain",
        ),
        **dict.fromkeys(("measure", "invariants", "node_weights", "level_budgets"), _KNOWN_ONLY),
    }
    domain: Annotated[SparseDomain, PlainValidator(read_sparse), WithJsonSchema(_SCHEMA)]
    objective: Annotated[str, PlainValidator(rules.choice("nodes"))] = "nodes"
    mechanism: Annotated[str, PlainValidator(rules.choice("planned", "threshold"))] = "planned"
    level_weights: Any = None
    prune_below: Annotated[int, PlainValidator(_rows)] = 0
    weight: Amount = Fraction(1)

    @section_rule(mode="after")
    def _check_weights(self) -> Self:
        _ = self.weights
        return self

    def workload(self) -> SparseWorkload:
        return SparseWorkload(
            name=self.name,
            domain=self.domain,
            weight=self.weight,
            weights=self.weights,
            pruning=Pruning(rows=self.prune_below),
        )

    @cached_property
    def weights(self) -> tuple[Fraction, ...] | None:
        """How much a row less in the threshold of each level below the root is worth."""
        if self.level_weights is None:
            return None
        return tuple(rules.at(".level_weights", self._weights, self.level_weights))

    def _weights(self, given: object) -> list[Fraction]:
        names = self.domain.names
        if not isinstance(given, Mapping):
            several = rules.several(given)
            if len(several) != len(names):
                raise RuleBroken(
                    f"must be {len(names)} numbers, one for each of {', '.join(names)}, not "
                    f"{len(several)}"
                )
            return [rules.amount(each) for each in several]
        weights = dict.fromkeys(names, Fraction(1))
        for name, each in given.items():
            if name not in weights:
                hint = nearest(str(name), names)
                raise RuleBroken(f"{shown(name)} is not a level below the root; {hint}")
            weights[name] = rules.at(f".{name}", rules.amount, each)
        return list(weights.values())
