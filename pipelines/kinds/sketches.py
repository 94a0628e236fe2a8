"""Trees that are sketches: the noisy counts of values that nobody lists, in few cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from pydantic import PlainValidator, WithJsonSchema
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.questions.planning import Noise
from dptrees.dpcore.sketched.domain import TYPES, SketchDomain
from dptrees.dpcore.sketched.question import MOST_CELLS, SketchQuestion
from dptrees.dpcore.sketched.released import CHOSEN, ReleasedSketch
from dptrees.dpcore.sketched.workload import (
    CELL_BYTES,
    SketchWorkload,
    guessed_law,
    predicted_error,
)
from dptrees.dpcore.sketches.sketch import MAX_ROWS, SketchKind
from dptrees.dpcore.sparse.domain import NOTATIONS
from dptrees.pipelines.kinds.numbers import noise_table, plan_of_number
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken, from_dpcore, shown
from dptrees.pipelines.sections.rules import Amount
from dptrees.pipelines.sections.tree import TEXT, TreeSection, rules_schema, whole, words
from dptrees.pipelines.show.description import (
    NODES_SHOWN,
    Description,
    Errors,
    described_page,
    heading,
    largest_line,
)
from dptrees.pipelines.show.figures import significant, with_margin
from dptrees.pipelines.show.mechanisms import KindLines
from dptrees.pipelines.show.page_nodes import ReleasedTables, clip
from dptrees.pipelines.show.tree_page import DROPPED, PageRoom, TreePage, policies

_BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_RULES: dict[str, Callable[[object], Any]] = {
    "kind": rules.choice("sketch"),
    "column": rules.text,
    "type": rules.choice(*TYPES),
    "bits": rules.whole_numbers,
    "notation": rules.choice(*NOTATIONS),
}
_SCHEMA = rules_schema(_RULES, "sketch", column=TEXT, type=words(*TYPES))


def read_sketch(value: object) -> SketchDomain:
    """Make the domain of a sketch of the plain values of a section.

    Raises:
        RuleBroken: at the key whose rule is broken.

    >>> read_sketch({"kind": "sketch", "column": "address", "bits": [16, 16]}).notation
    'ipv4'
    """
    given = rules.fields(value, _RULES)
    if "column" not in given:
        raise RuleBroken("is required", at=".column")
    if "bits" in given:
        if "type" in given:
            raise RuleBroken("does not go with bits: codes are whole numbers", at=".type")
        widths = given.pop("bits")
        given = {"notation": "ipv4" if sum(widths) == 32 else "hex", "widths": widths} | given
    elif "notation" in given:
        raise RuleBroken("goes with bits", at=".notation")
    try:
        return SketchDomain(**given)
    except ValueError as error:
        refused = from_dpcore(error, given)
        raise RuleBroken(str(refused), at=refused.at.replace(".widths", ".bits")) from None


def _width(value: object) -> int:
    """A power of two from 2 to 2^30.

    >>> _width(1024)
    1024
    """
    width = value if isinstance(value, int) else 0
    if width not in (1 << bits for bits in range(1, MOST_CELLS.bit_length())):
        raise RuleBroken(f"{shown(value)} must be a power of two from 2 to 2^30")
    return width


def _memory(value: object) -> int:
    """A number of bytes: a whole number, or one of KiB, MiB or GiB.

    >>> _memory("64 MiB")
    67108864
    """
    found = re.fullmatch(r"(\d{1,12}) ?([KMG]iB)", value) if isinstance(value, str) else None
    size = value if found is None else int(found[1]) * _BYTES[found[2]]
    if isinstance(size, bool) or not isinstance(size, int) or not 16 <= size <= 8 * MOST_CELLS:
        raise RuleBroken(
            f"{shown(value)} must be a number of bytes from 16 to 8 GiB, such as 64 MiB"
        )
    return size


_GUESS = rules.Whole(1, 2**40)
_SIZE = {"anyOf": [whole(minimum=16), TEXT]}


class SketchTree(TreeSection):
    """The counts of values that nobody lists."""

    refused: ClassVar[Mapping[str, str]] = {
        "domain": "domain",
        "noise": "noise",
        "memory": "memory",
        "width": "width",
        "rows": "hashes",
    }
    misplaced: ClassVar[Mapping[str, str]] = {
        "group_by": "a sketch has no keys; count a column that holds key and value",
        **dict.fromkeys(
            ("quantiles", "guess", "widths", "fanouts", "objective", "optimize_for", "mechanism"),
            "belongs to an ordered domain; a sketch has the counts of single values",
        ),
        **dict.fromkeys(("measure", "invariants", "node_weights"), "belongs to a hierarchy"),
        "prune_below": "belongs to a sparse tree; a sketch lists no values",
    }
    domain: Annotated[SketchDomain, PlainValidator(read_sketch), WithJsonSchema(_SCHEMA)]
    rows: Annotated[int, PlainValidator(_GUESS)] = 10**6
    values: Annotated[int, PlainValidator(_GUESS)] = 2**20
    width: Annotated[int | None, PlainValidator(_width), WithJsonSchema(whole(minimum=2))] = None
    hashes: Annotated[int | None, PlainValidator(rules.Whole(1, MAX_ROWS))] = None
    memory: Annotated[int | None, PlainValidator(_memory), WithJsonSchema(_SIZE)] = None
    type: Annotated[
        str | None, PlainValidator(rules.choice(*(each.value for each in SketchKind)))
    ] = None
    weight: Amount = Fraction(1)
    noise: Annotated[str, PlainValidator(rules.choice("best", "laplace", "gaussian"))] = "best"

    @section_rule(mode="after")
    def _check_size(self) -> Self:
        _ = self.workload()
        return self

    def workload(self) -> SketchWorkload:
        given: dict[str, Any] = {"width": self.width, "memory": self.memory}
        try:
            return SketchWorkload(
                name=self.name,
                domain=self.domain,
                rows=self.rows,
                values=self.values,
                hashes=self.hashes,
                type=None if self.type is None else SketchKind(self.type),
                weight=self.weight,
                noise=Noise(self.noise),
                **given,
            )
        except ValueError as error:
            raise from_dpcore(error, given) from None


def sketch_plan(question: SketchQuestion) -> dict[str, Any]:
    """Return the plan as plain values, with what it takes."""
    return {
        **plan_of_number(question, "cell_std_error"),
        "memory_bytes": CELL_BYTES * question.cells,
        "std_error": predicted_error(question.shape, question.law, *question.guess),
        "guess": dict(zip(("rows", "values"), question.guess, strict=True)),
    }


def sketch_description(question: SketchQuestion) -> Description:
    """Describe the plan of a sketch: its tables and their noise."""
    shape, levels = question.shape, len(question.sketches.levels)
    tables = "one table" if levels == 1 else f"{levels} tables, one for each length of prefixes,"

    def errors(entry: Mapping[str, Any]) -> Errors:
        return Errors(
            notes=(
                f"predicted standard error of a rare value's count: "
                f"{significant(entry['std_error'])} rows, for {guessed_law(*question.guess)}",
            )
        )

    return Description(
        entry=lambda: sketch_plan(question),
        errors=errors,
        size=f"a {_NAMES[shape.kind]} of the values of {clip(question.domain.column)}",
        budget=question.budget,
        table=noise_table(question, "each cell", title="Cells", of=" of a cell"),
        facts={
            "Size": f"{tables} of {shape.rows} hash function{'s' * (shape.rows > 1)} by "
            f"{shape.width:,} columns, {CELL_BYTES * question.cells:,} bytes",
        },
    )


_NAMES = {SketchKind.COUNT_MIN: "count-min sketch", SketchKind.COUNT_SKETCH: "count sketch"}


def sketch_summary(tree: ReleasedSketch) -> Iterator[str]:
    """The error of a value, and the heaviest codes where they can be found."""
    question = tree.question
    yield from heading(question, question.columns)
    error, margin = tree.rare_error()
    yield f"  a value's count has a standard error of {significant(error)} rows"
    yield f"  and is within {significant(margin)} rows of a rare value's estimate"
    if tree.height:
        # Without the error, since noise that left equal cells does not make them exact.
        heaviest = tree.top(NODES_SHOWN, tree.height)
        yield from (largest_line(replace(each, std_error=None)) for each in heaviest)


SKETCH_LINES = KindLines(describe=sketch_description, summary=sketch_summary)
# Codes on the page.
_MOST = 20


def sketch_tree(release: ReleasedTables, question: SketchQuestion, room: PageRoom) -> TreePage:
    """The errors of a sketch, and its heaviest codes where they can be found."""
    tree = ReleasedSketch(question, release.part)
    error, margin = tree.rare_error()
    found = tree.top(max(1, _MOST // room.trees), tree.height) if tree.height else []
    said = {
        "column": clip(question.domain.column),
        "error": significant(error),
        "margin": significant(margin),
        "heaviest": [
            [clip(each.label), with_margin(each.estimate or 0.0, each.ci_low, each.ci_high)]
            for each in found
        ],
        "chosen": CHOSEN if found else "",
        "policies": [
            {**row, "missing": row["missing"] or DROPPED} for row in policies(question, {})
        ],
    }
    return described_page(
        release, question, sketch_description(question), said, template="sketch/page.html.j2"
    )
