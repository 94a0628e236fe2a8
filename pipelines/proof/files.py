"""The files of a release against its manifest: all of them, unchanged, and none beside."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.questions.messages import Part
from dptrees.dpcore.questions.question import PublicTable
from dptrees.dpcore.questions.released import QUANTILES
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.key_tables import KeyTable
from dptrees.pipelines.proof.check import CheckFailed
from dptrees.pipelines.release_folder import (
    FolderError,
    file_checksum,
    file_names,
    parquet_file,
    read_file,
)
from dptrees.pipelines.reporting import REPORT
from dptrees.pipelines.selection.plan import FOLDER
from dptrees.pipelines.unit_bounds.plan import FOLDER as BOUNDS
from dptrees.transforms.folder.layout import (
    MANIFEST,
    NONCE,
    PLAN,
    RECORD,
    SEALED_KINDS,
    SIGNATURE,
    TO_DATE,
    concluded_file,
    keys_name,
    part_file,
    planned_parts,
    universe_name,
    universe_of_parquet,
)

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


def check_files(folder: str, manifest: Mapping[str, Any], plan: ReleasePlan) -> str:
    """Every file has the bytes that the manifest names, and no other file lies there, but for the
    first stages, which are releases of their own, and totals to date of a series.

    A copy may lack what is sealed for the next run of a series, all of a kind.
    """
    within = [FOLDER] if plan.selection is not None else []
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
