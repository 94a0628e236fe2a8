"""The plan of a release in a folder, made of its manifest, and the answers that need it."""

from __future__ import annotations

from typing import Any

from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.questions.messages import Part
from dptrees.dpcore.questions.released import QUANTILES
from dptrees.dpcore.release.guarantee import guarantee_numbers, stated_guarantee
from dptrees.dpcore.release.manifest import CHECKSUM, LATER_NUMBERS, manifest_checksum
from dptrees.dpcore.release.plan import ReleasePlan, plan_from_spec
from dptrees.dpcore.release.released import ReleaseReader
from dptrees.dpcore.rows.key_tables import KeyTable
from dptrees.pipelines.query.folders import AnyFolder
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.transforms.folder.layout import universe_of_parquet
from dptrees.transforms.folder.names import keys_name, universe_name


def read_plan(folder: ReleaseFolder) -> ReleasePlan:
    """Return the plan of a release, with what its manifest says of each tree.

    Raises:
        FolderError: a file that the specification names is missing or damaged.
        KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError,
            AssertionError, RecursionError: the manifest was edited or damaged.
    """
    manifest = folder.manifest
    spec = manifest["spec"]
    assert isinstance(spec, dict)
    universes: dict[str, Universe] = {}

    def universe(digest: str) -> Universe:
        # The release holds it once for all its trees.
        if digest not in universes:
            universes[digest] = _read_universe(folder, digest)
        return universes[digest]

    plan = plan_from_spec(spec, universe, lambda digest: _read_keys(folder, digest))
    for question, tree in zip(plan.questions, manifest["trees"], strict=True):
        question.recall(tree)
    _check_guarantee(plan, manifest)
    return plan


def _check_guarantee(plan: ReleasePlan, manifest: Any) -> None:
    """Sees that the manifest is as it was written, and its guarantee that of its specification.

    Raises:
        ValueError: it was edited or damaged.
    """
    expected, stated = guarantee_numbers(plan), manifest["guarantee"]
    assert isinstance(stated, dict)
    earlier = {name for name in LATER_NUMBERS if name not in stated}
    expected = {name: each for name, each in expected.items() if name not in earlier}
    if {name: stated.get(name) for name in expected} != expected:
        raise ValueError("its guarantee is not that of its specification")
    # Format 2 had no checksum.
    if manifest["spec"]["format"] != 2 and manifest[CHECKSUM] != manifest_checksum(manifest):
        raise ValueError("it was edited or damaged: its checksum does not match")


def _read_universe(folder: ReleaseFolder, digest: str) -> Universe:
    """The universe of a hierarchy."""
    name = universe_name(digest)
    universe = universe_of_parquet(folder.file(name, str(folder.manifest["files"][name])))
    if universe.is_parted:
        # The bytes are those that the manifest names: all leaves are not read for it again.
        universe.remember_digest(digest)
    if universe.digest != digest:
        raise ValueError(f"{name} is not the universe that the specification names")
    return universe


def _read_keys(folder: ReleaseFolder, digest: str) -> KeyTable:
    """A table of keys, which the release holds once for all its trees."""
    name = keys_name(digest)
    result = KeyTable(folder.table(name, str(folder.manifest["files"][name])))
    if result.digest != digest:
        raise ValueError(f"{name} is not the table of keys that the specification names")
    return result


def guarantee(folder: AnyFolder) -> str:
    """Return the whole guarantee of a release in one line."""
    return stated_guarantee(folder.plan)


def reader(folder: ReleaseFolder) -> ReleaseReader:
    """Return the release, which reads its parts when they are requested."""
    quantiles = folder.quantiles()
    concluded = {} if quantiles is None else {QUANTILES: quantiles}
    return ReleaseReader(folder.plan, folder.part, concluded)


def holds_upper(plan: ReleasePlan, place: tuple[str, str, int, int], levels: int) -> bool:
    """Whether a part has nodes of so many levels from the root.

    Args:
        plan: of the release.
        place: of the part: its kind, tree, key and chunk.
        levels: how many.
    """
    kind, tree, key, index = place
    return plan.question(tree).holds_upper(Part(kind=kind, tree=tree, key=key, index=index), levels)
