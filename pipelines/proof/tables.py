"""Checks of a release's files and tables: what does not depend on the data is computed anew.

All files of the manifest must be there, unchanged, and none beside. In trees with public leaves
the labels, keys and places of all rows follow from the specification, and standard errors from
the noise scales; in adaptive trees they follow from the column ``ended`` too, which is the
tree's shape. A guarantee that was edited throughout, checksums included, still contradicts these
errors. The page and a series' totals to date are made again and compared, and the composition is
certified anew.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dptrees.dpcore import __version__
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.composition import MovedCounts, certified_delta
from dptrees.dpcore.privacy.conversion import zcdp_rho
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.questions.messages import Part
from dptrees.dpcore.questions.planning import ReportedErrors
from dptrees.dpcore.questions.question import PublicTable
from dptrees.dpcore.questions.released import CDF, ERROR_COLUMNS, NODES, QUANTILES
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.release.plan import ReleasePlan, total_spending
from dptrees.dpcore.release.released import ReleaseReader, release_rows
from dptrees.dpcore.rows.key_tables import KeyTable
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.runs import with_span
from dptrees.dpcore.trees.chunks import SPINE
from dptrees.pipelines.config.registry import is_tree
from dptrees.pipelines.proof.check import CheckFailed, NotChecked
from dptrees.pipelines.query.release_folder import (
    FolderError,
    ReleaseFolder,
    file_checksum,
    is_remote,
    parquet_file,
    read_file,
)
from dptrees.pipelines.report.summary import REPORT
from dptrees.pipelines.sections.first_stages import BOUNDS_FOLDER as BOUNDS
from dptrees.pipelines.sections.first_stages import KEYS_FOLDER
from dptrees.transforms.folder import files
from dptrees.transforms.folder.layout import (
    PART_KINDS,
    SEALED_KINDS,
    part_file,
    planned_parts,
    universe_of_parquet,
)
from dptrees.transforms.folder.names import (
    MANIFEST,
    NONCE,
    PLAN,
    RECORD,
    SIGNATURE,
    TO_DATE,
    concluded_file,
    keys_name,
    universe_name,
)

# dp-accounting takes time and memory in proportion to sigma, and to the number of counts.
_LARGEST_SIGMA, _MOST_COUNTS = 3000.0, 200
# Its losses lie on a grid, each rounded up by at most a step: so much further on, it can say no
# delta that is larger than the true one, but for the tails that it cuts off and for rounding.
_STEP, _TAILS, _ROUNDING = 1e-4, 1e-13, 1.001


def check_composition(plan: ReleasePlan) -> str:
    """The trees' budgets add up to no more than is stated."""
    spent = total_spending(plan.questions)
    if plan.stated is None:
        rho = plan.budget.measure is Measure.RHO
        amount, other = (spent.rho, spent.epsilon) if rho else (spent.epsilon, spent.rho)
        if amount > plan.budget.amount or other or spent.delta:
            raise CheckFailed(f"the trees spend {amount}, above {plan.budget.amount}")
        name = plan.budget.measure.value
        return f"the trees spend {name} {_short(amount)} of {_short(plan.budget.amount)}"
    epsilon, delta = plan.stated
    if not plan.composed and plan.budget.amount != epsilon:
        raise CheckFailed(f"the specification's budget {plan.budget.amount} is not {epsilon}")
    left, left_delta = epsilon - spent.epsilon, delta - spent.delta
    if left < 0 or left_delta < 0:
        raise CheckFailed(
            f"the trees spend epsilon {spent.epsilon} and delta {spent.delta}, above {epsilon} and "
            f"{delta}"
        )
    if not spent.rho:
        return f"the trees spend epsilon {_short(spent.epsilon)} and delta {_short(spent.delta)}"
    return _certified(spent.moved, max(spent.rho, plan.budget.amount), left, left_delta)


def _certified(moved: MovedCounts | None, rho: Fraction, epsilon: Fraction, delta: Fraction) -> str:
    """The delta that a rho has at an epsilon, by conversion, by certificate, and by dp-accounting
    where it is installed and can say."""
    if moved is None:
        if rho > zcdp_rho(epsilon, delta):
            raise CheckFailed(f"rho {rho} does not convert to delta {delta} at epsilon {epsilon}")
        return f"rho {_short(rho)} converts to delta {_short(delta)} at epsilon {_short(epsilon)}"
    actual = certified_delta(moved, epsilon)
    if actual > delta and rho > zcdp_rho(epsilon, delta):
        raise CheckFailed(
            f"the noise has delta {actual:g} at epsilon {_short(epsilon)}, above {_short(delta)}"
        )
    sentence = f"certified delta {actual:g} at epsilon {_short(epsilon)}, at most {_short(delta)}"
    second = _by_dp_accounting(moved, float(epsilon))
    if second is None:
        return sentence
    if second > float(delta) * _ROUNDING + _TAILS:
        raise CheckFailed(f"dp-accounting computes delta {second:g}, above {_short(delta)}")
    return f"{sentence}; dp-accounting: {second:g}"


def _by_dp_accounting(moved: MovedCounts, epsilon: float) -> float | None:
    """A second opinion; None where it cannot be had."""
    try:
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError:
        return None
    counts = sum(count for _, count in moved)
    if counts > _MOST_COUNTS:
        return None
    composed = pld.identity(value_discretization_interval=_STEP)
    for law, count in moved:
        if isinstance(law, DiscreteGaussian):
            sigma = math.sqrt(law.sigma_squared)
            if sigma > _LARGEST_SIGMA:
                return None
            one = pld.from_discrete_gaussian_mechanism(
                sigma, sensitivity=1, value_discretization_interval=_STEP
            )
        elif isinstance(law, DiscreteLaplace):
            one = pld.from_discrete_laplace_mechanism(
                float(1 / law.scale), sensitivity=1, value_discretization_interval=_STEP
            )
        else:
            return None
        composed = composed.compose(one.self_compose(count))
    return float(composed.get_delta_for_epsilon(epsilon + counts * _STEP))


def _short(amount: Fraction) -> str:
    return f"{float(amount):g}"


_TOLERANCE, _DRAWN_ROUNDING = 1e-6, 1e-9

ReadRows = Callable[[Part], pa.Table]


def check_drawn(question: TreeQuestion[Any], read: ReadRows) -> None:
    """Check that the errors in the tables of an adaptive tree follow from the released trees.

    Args:
        question: the tree.
        read: gives the rows of its parts, whose public columns match the specification.

    Raises:
        CheckFailed: they are not.
    """
    for keys, nodes, points in _groups(question, read):
        try:
            for reported in question.mechanism.reported_errors(question.rule, keys, nodes, points):
                _compare(question, reported)
        except ValueError as error:
            raise CheckFailed(f"tree {question.name}: {error}") from None


def _groups(
    question: TreeQuestion[Any], read: ReadRows
) -> Iterator[tuple[int, pa.Table, pa.Table | None]]:
    """Some keys at a time: how many, the rows of all their nodes, and the points of their CDF."""
    chunking = question.forest.chunking
    spine = [SPINE] if chunking.spine.height else []
    for first, places in groupby(question.places, key=lambda place: place.group):
        numbers = [place.number for place in places]
        keys = 1 if chunking.split_level else chunking[chunking.number(first, 0)].rows

        def together(kind: str, of: Sequence[int], first: int = first) -> pa.Table:
            parts = (Part(kind=kind, tree=question.name, key=first, index=each) for each in of)
            return pa.concat_tables(map(read, parts))

        points = together(CDF, numbers) if CDF in question.tables else None
        yield keys, together(NODES, [*spine, *numbers]), points


def _compare(question: TreeQuestion[Any], reported: ReportedErrors) -> None:
    kind, expected, found = reported
    exact = _DRAWN_ROUNDING * (1.0 + np.abs(expected[0]))  # ends are differences of such numbers
    for column, one, other in zip(ERROR_COLUMNS, expected[1:], found, strict=True):
        known = np.nan_to_num(one, nan=-1.0)
        relative = np.abs(known) if column == "std_error" else 1.0
        if not (np.abs(known - other) <= exact + _TOLERANCE * relative).all():
            raise CheckFailed(
                f"{kind} of tree {question.name}: {column} is not that of the resulting tree"
            )


# Leaves of all keys: beyond, a release of no rows takes minutes.
_MOST_LEAVES = 2**22
_RELATIVE_TOLERANCE = 1e-6
_PUBLIC = ("tree", "first", "last", "key", "level", "node", "label", "upper", "q")
_FOLLOW = "labels, keys and standard errors follow from the specification"

Names = dict[tuple[str, str, int, int], str]


def check_tables(folder: str, names: Names, plan: ReleasePlan) -> str:
    """Check that the public columns of the tables follow from the specification.

    Args:
        folder: of the release.
        names: of the files of parts by kind, tree, key and chunk.
        plan: of the specification.

    Returns:
        What was compared, and the names of the trees whose rows do not follow.
    """
    known = [each for each in plan.questions if isinstance(each, TreeQuestion)]
    runs = [each for each in plan.questions if isinstance(each, SeriesQuestion) and each.adds_up]
    if not known and not runs:
        return "no tree whose rows follow from the specification"
    leaves = sum(each.key_count * each.domain.cells for each in known)
    leaves += sum(each.dense_cells * len(each.closing) for each in runs)
    if leaves > _MOST_LEAVES:
        return f"not checked: {leaves} leaves are more than {_MOST_LEAVES}"
    quantiles = [table for run in runs for table in _compare_run(folder, names, plan, run)]
    if quantiles:
        name = concluded_file(QUANTILES)
        _compare_tables(name, pa.concat_tables(quantiles), _read(folder, name))
    uncompared = [each.name for each in plan.questions if each not in (*known, *runs)]
    others = f"; not compared: {', '.join(uncompared)}" if uncompared else ""
    if not known:
        return _FOLLOW + others
    empty = _empty(plan, known)
    for question in known:
        for part in question.parts():
            name = names[part.kind, part.tree, part.key, part.index]
            expected = empty.part(part.kind, part.tree, part.key, part.index)
            _compare_tables(
                name, expected, _read(folder, name), errors=question.mechanism.errors_are_known
            )
    _compare_quantiles(folder, empty)
    drawn = [each for each in known if not each.mechanism.errors_are_known]
    for question in drawn:
        check_drawn(
            question,
            lambda part: _read(folder, names[part.kind, part.tree, part.key, part.index]),
        )
    together = f", of {', '.join(each.name for each in drawn)} with the resulting trees"
    return _FOLLOW + (together if drawn else "") + others


def _empty(plan: ReleasePlan, questions: Sequence[TreeQuestion[Any]]) -> ReleaseReader:
    """A release of no rows."""
    return release_rows(replace(plan, questions=tuple(questions)), [], ReleaseKey(bytes(32)))


def _compare_run(
    folder: str, names: Names, plan: ReleasePlan, run: SeriesQuestion
) -> list[pa.Table]:
    """Compare the parts of a tree of a run of a series, with all spans of periods that the run
    released, and return its quantiles for comparison."""
    spans = [(span, run.released_tree(span)) for span in run.closing]
    empty = [(span, _empty(plan, [question])) for span, question in spans]
    for part in spans[0][1].parts():
        place = (part.kind, run.name, part.key, part.index)
        tables = [with_span(each.part(*place), run.name, span) for span, each in empty]
        _compare_tables(names[place], pa.concat_tables(tables), _read(folder, names[place]))
    actual = [(span, each.quantiles) for span, each in empty]
    return [with_span(table, run.name, span) for span, table in actual if table is not None]


def _compare_quantiles(folder: str, empty: ReleaseReader) -> None:
    if empty.quantiles is not None:
        name = concluded_file(QUANTILES)
        _compare_tables(name, empty.quantiles, _read(folder, name))


def _read(folder: str, name: str) -> pa.Table:
    try:
        return parquet_file(os.path.join(folder, *name.split("/"))).read()
    except (OSError, pa.ArrowException):
        raise CheckFailed(f"{name} is not a Parquet file") from None


def _compare_tables(
    name: str, expected: pa.Table, actual: pa.Table, *, errors: bool = True
) -> None:
    if expected.schema.names != actual.schema.names or len(expected) != len(actual):
        raise CheckFailed(f"{name} has not the columns and rows of the specification")
    for column in expected.schema.names:
        one, other = (_plain(table[column]) for table in (expected, actual))
        if column in _PUBLIC:
            if not one.equals(other):
                raise CheckFailed(f"{name}: {column} is not that of the specification")
        elif column == "std_error" and errors and not _close(one, other):
            raise CheckFailed(f"{name}: {column} is not that of the noise of the specification")


def _plain(column: pa.ChunkedArray) -> pa.Array:
    dictionary = pa.types.is_dictionary(column.type)
    plain = column.cast(column.type.value_type) if dictionary else column
    return plain.combine_chunks()


def _close(one: pa.Array, other: pa.Array) -> bool:
    expected, found = (
        pc.fill_null(each, -1.0).to_numpy(zero_copy_only=False) for each in (one, other)
    )
    return bool(np.allclose(expected, found, rtol=_RELATIVE_TOLERANCE, atol=0.0, equal_nan=True))


def check_page(folder: str) -> str:
    """Compare the page with that which the tables give.

    Raises:
        CheckFailed: it is another one.
        NotChecked: it is another one, and another version made the release.
    """
    from dptrees.pipelines.report.report import is_report_html

    try:
        page = read_file(os.path.join(folder, REPORT))
    except FileNotFoundError:
        return f"there is no {REPORT}"
    except OSError:
        raise CheckFailed(f"{REPORT} cannot be read") from None
    try:
        release = ReleaseFolder(folder)
        questions = release.plan.questions
    except FolderError as error:
        raise NotChecked(str(error)) from None
    if not all(map(is_tree, questions)):
        raise CheckFailed(f"{REPORT} is not a page that this program makes")
    if not is_report_html(page, release):
        reason = (
            f"{REPORT} is not the page that this version makes from the tables: it was edited, or "
            "another version made it; do not trust it, and make it again with dptrees report"
        )
        made = release.manifest["dptrees"]
        raise CheckFailed(reason) if made == __version__ else NotChecked(reason)
    return f"{REPORT} is the page of these tables"


def check_to_date(folder: str, plan: ReleasePlan, *, is_exact: bool) -> str:
    """Compare the totals to date with those that this run and the ones before it give.

    Args:
        folder: of the run.
        plan: of it.
        is_exact: floats of this version's arithmetic are in it.

    Raises:
        CheckFailed: a table is another one, or is not one of them.
        NotChecked: an earlier run is not there, or floats of an earlier version differ.
    """
    # Which needs Beam's filesystems.
    from dptrees.pipelines.query.series_totals import to_date_tables

    names = {each for each in file_names(folder) if each.split("/")[0] == TO_DATE}
    if not names:
        return f"there is no {TO_DATE}"
    try:
        for name, table in to_date_tables(plan, folder):
            file = f"{TO_DATE}/{name}"
            if file not in names:
                raise CheckFailed(f"{file} is missing")
            names.remove(file)
            if not _read_table(os.path.join(folder, *file.split("/"))).equals(table):
                if not is_exact:
                    raise NotChecked(
                        f"{file} is of a version whose last digits depended on the processor"
                    )
                raise CheckFailed(f"{file} is not the total of the released periods")
    except FolderError as error:
        raise NotChecked(f"{TO_DATE} needs the runs before it: {error}") from None
    if names:
        raise CheckFailed(f"{min(names)} is not one of the totals of the released periods")
    return f"{TO_DATE} is the total of the released periods"


def _read_table(path: str) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException):
        raise CheckFailed(f"{path} cannot be read") from None


# What may lie in a release's folder and is not named by its manifest.
BESIDE = (MANIFEST, NONCE, PLAN, RECORD, SIGNATURE, REPORT)
_PART_ENTRIES = {"file", "rows", "sha256", "tree", "key", "chunk"}


def read_universe(folder: str, manifest: Mapping[str, Any], digest: str) -> Universe:
    """The universe of a digest, from the release.

    Raises:
        ValueError: it is not there, or another one.
    """
    name = universe_name(digest)
    universe = universe_of_parquet(_named_file(folder, manifest, name))
    if universe.digest != digest:
        raise ValueError(f"{name} is not the universe that the specification names")
    return universe


def read_keys(folder: str, manifest: Mapping[str, Any], digest: str) -> KeyTable:
    """The table of keys of a digest, from the release.

    Raises:
        ValueError: it is not there, or another one.
    """
    name = keys_name(digest)
    keys = KeyTable(_named_file(folder, manifest, name).read())
    if keys.digest != digest:
        raise ValueError(f"{name} is not the table of keys that the specification names")
    return keys


def _named_file(folder: str, manifest: Mapping[str, Any], name: str) -> pq.ParquetFile:
    path = os.path.join(folder, name)
    try:
        actual = file_checksum(path)
    except (OSError, FolderError):
        raise ValueError(f"{name} cannot be read") from None
    files = manifest.get("files")
    if not isinstance(files, dict) or files.get(name) != actual:
        raise ValueError(f"{name} does not match its checksum in the manifest")
    return parquet_file(path)


def check_parts(manifest: Mapping[str, Any], plan: ReleasePlan) -> str:
    """Check that the manifest names each part of the plan once, and no other part."""
    parts, files = manifest["parts"], manifest["files"]
    if not isinstance(parts, list) or not isinstance(files, dict):
        raise CheckFailed("the lists of files cannot be read")
    for number, (part, entry) in enumerate(zip(sorted(planned_parts(plan)), parts, strict=False)):
        _check_part(part, entry, f"parts[{number}]")
    planned = sum(1 for _ in planned_parts(plan))
    if planned != len(parts):
        raise CheckFailed(f"{len(parts)} parts are in the manifest; the plan has {planned}")
    known = {_public_name(table) for each in plan.questions for table in each.public_tables}
    if any(each.measured_trees[0].spec().get(QUANTILES) for each in plan.questions):
        known.add(concluded_file(QUANTILES))
    for name in sorted(known - files.keys()):
        raise CheckFailed(f"{name} is planned, but is not in the manifest")
    for name in sorted(files.keys() - known):
        raise CheckFailed(f"{name} is in the manifest, but is not planned")
    return f"as planned: parts {planned}, other files {len(files)}"


def _public_name(table: PublicTable) -> str:
    return (keys_name if isinstance(table, KeyTable) else universe_name)(table.digest)


def _check_part(part: Part, entry: object, place: str) -> None:
    if not isinstance(entry, dict) or entry.keys() != _PART_ENTRIES:
        raise CheckFailed(f"{place} is no entry of a part")
    if (entry["tree"], entry["key"], entry["chunk"]) != (part.tree, part.key, part.index):
        raise CheckFailed(f"{place} is not the part that the plan has in its place")
    if entry["file"] != part_file(part, str(entry["sha256"])):
        raise CheckFailed(f"{place}.file is not the name of its part and its bytes")


def file_names(folder: str) -> list[str]:
    """The paths, within a release's folder, of all files in it and in the folders in it.

    Raises:
        FolderError: they cannot be listed.
    """
    if is_remote(folder):
        return _remote_names(folder)
    results: list[str] = []
    for below, folders, names in os.walk(folder):
        # A link to a folder is no part of a release, but must not hide.
        links = [name for name in folders if os.path.islink(os.path.join(below, name))]
        results += [os.path.relpath(os.path.join(below, name), folder) for name in [*names, *links]]
    return sorted(name.replace(os.sep, "/") for name in results)


def _remote_names(folder: str) -> list[str]:
    try:
        names = [path.rsplit("/", 1)[-1] for path in files.names_below(folder)]
        for kind in PART_KINDS:
            below = files.names_below(files.join(folder, kind))
            names += [f"{kind}/{path.rsplit('/', 1)[-1]}" for path in below]
        return sorted(names)
    except files.OutputError as error:
        raise FolderError(error.sentence.removeprefix("output: "), again=error.again) from None


def check_files(folder: str, manifest: Mapping[str, Any], plan: ReleasePlan) -> str:
    """Every file has the bytes that the manifest names, and no other file lies there, but for the
    first stages, which are releases of their own, and totals to date of a series.

    A copy may lack what is sealed for the next run of a series, all of a kind.
    """
    within = [KEYS_FOLDER] if plan.selection is not None else []
    within += [BOUNDS] if plan.bounds is not None else []
    within += [TO_DATE] if plan.run is not None else []
    expected = {str(part["file"]): str(part["sha256"]) for part in manifest["parts"]}
    expected |= {str(name): str(each) for name, each in manifest["files"].items()}
    try:
        present = set(file_names(folder))
        left_out = _left_out(expected, present)
        for kind in left_out:
            expected = {name: each for name, each in expected.items() if _kind(name) != kind}
        for name in sorted(expected.keys() - present):
            raise CheckFailed(f"{name} is missing")
        for name in sorted(present - expected.keys() - set(BESIDE)):
            if _kind(name) in within:
                continue
            raise CheckFailed(f"{name} is there, but is not in the manifest")
        for name, checksum in expected.items():
            if file_checksum(os.path.join(folder, *name.split("/"))) != checksum:
                raise CheckFailed(f"{name} does not match its checksum in the manifest")
        for part in manifest["parts"]:
            if _kind(str(part["file"])) in left_out:
                continue
            rows = _rows(os.path.join(folder, *str(part["file"]).split("/")))
            if type(part["rows"]) is not int or part["rows"] != rows:
                raise CheckFailed(
                    f"{part['file']} does not have the number of rows in the manifest"
                )
    except FolderError as error:
        raise CheckFailed(str(error)) from None
    sentence = f"all {len(expected)} are there and unchanged, and there are no others"
    sentence += f" but the files of {TO_DATE}" if plan.run else ""
    return sentence + "".join(f"; {kind}/ is left out of this copy" for kind in left_out)


def _kind(name: str) -> str:
    """The folder of a file within its release."""
    return name.split("/")[0]


def _left_out(expected: Iterable[str], present: Collection[str]) -> list[str]:
    """The folders of sealed files that a published copy lacks as a whole: only the next run of the
    series reads them."""
    named, there = {_kind(each) for each in expected}, {_kind(each) for each in present}
    return [kind for kind in SEALED_KINDS if kind in named - there]


def check_draw(folder: str, manifest: Mapping[str, Any]) -> str:
    """What lies beside the manifest of the draw says the same as the manifest; a published copy
    may lack it."""
    compared = []
    for file, names in ((RECORD, ("record",)), (NONCE, ("nonce", "key_id")), (PLAN, ("spec",))):
        try:
            beside = json.loads(read_file(os.path.join(folder, file)))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, FolderError):
            raise CheckFailed(f"{file} cannot be read") from None
        for name in names:
            if not isinstance(beside, dict) or beside.get(name) != manifest[name]:
                raise CheckFailed(f"{name} is not that of {file}")
        compared += [file] if file != PLAN else []
    return f"nonce, key and record match {' and '.join(compared)}" if compared else "none beside"


def _rows(path: str) -> int:
    try:
        return int(parquet_file(path).metadata.num_rows)
    except (OSError, pa.ArrowException):
        raise CheckFailed(f"{path} is not a Parquet file") from None
