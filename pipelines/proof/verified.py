"""A release that is being verified: its manifest, its plan, its first stages, and their checks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

from dptrees.dpcore.choices.key_selection import ReleasedSelection, SelectionQuestion
from dptrees.dpcore.choices.unit_bounds import ReleasedBounds
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.key_tables import KeyTable, TableKeys
from dptrees.pipelines.process import UserError
from dptrees.pipelines.proof.check import Check, CheckFailed, Finding, run_checks
from dptrees.pipelines.proof.manifest import (
    check_entries,
    check_guarantee,
    check_noise,
    check_sensitivities,
    is_exact,
    read_plan,
)
from dptrees.pipelines.proof.signature import is_signed, load_signer
from dptrees.pipelines.proof.tables import (
    Names,
    check_composition,
    check_draw,
    check_files,
    check_page,
    check_parts,
    check_tables,
    check_to_date,
    read_keys,
    read_universe,
)
from dptrees.pipelines.query.release_folder import (
    ReleaseFolder,
    holds_release,
    read_file,
    read_manifest,
)
from dptrees.pipelines.sections.first_stages import BOUNDS_FOLDER as BOUNDS
from dptrees.pipelines.sections.first_stages import KEYS_FOLDER, selected_keys
from dptrees.transforms.folder.names import MANIFEST, SIGNATURE
from dptrees.transforms.keys import KeyReference


def chosen_bounds(folder: str) -> tuple[tuple[str, float | str], ...]:
    """The bounds that a finished first stage released, by their names.

    Args:
        folder: of the first stage.

    Raises:
        UserError: of a column none was chosen.
    """
    release = ReleaseFolder(folder).release
    bounds: dict[str, float | str] = {}
    for question in release.plan.questions:
        tree = release.tree(question.name)
        assert isinstance(tree, ReleasedBounds)
        if None in tree.bounds.values():
            raise UserError(
                f"{tree.question.bounds_in_words}: no values stood clear above noise, and the "
                "budget of the choice is spent; use a larger fraction or more rows, or state the "
                "bounds, and another output"
            )
        bounds |= tree.bounds
    return tuple(bounds.items())


def check_selected(folder: str, plan: ReleasePlan) -> None:
    """Sees that each selection is that of the keys of a tree.

    Args:
        folder: of the first stage.
        plan: of the release.

    Raises:
        CheckFailed: no tree has the keys that were selected.
    """
    release = ReleaseFolder(folder).release
    assert plan.selection is not None
    for question in plan.selection.questions:
        assert isinstance(question, SelectionQuestion)
        selected = release.tree(question.name)
        assert isinstance(selected, ReleasedSelection)
        table = KeyTable(selected.table)
        if not any(_has(tree.keys, table) for tree in plan.questions):
            columns = ", ".join(question.columns)
            raise CheckFailed(f"no tree has the keys of {columns} that {question.name} selected")


def _has(keys: object, selected: KeyTable) -> bool:
    """Whether the keys of a tree are those that were selected."""
    if not isinstance(keys, TableKeys) or keys.columns != selected.columns:
        return False
    return keys.table == selected_keys(selected, keys.unknown).table


@dataclass(frozen=True)
class Verified:
    """A release that is being verified.

    Args:
        folder: of it.
    """

    folder: str

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """Manifest as it is stored."""
        return read_manifest(self.folder)

    @cached_property
    def plan(self) -> ReleasePlan:
        """Plan of the manifest's specification, with nothing taken from other entries.

        Raises:
            CheckFailed: it cannot be planned.
        """
        universe = cache(partial(read_universe, self.folder, self.manifest))
        keys = cache(partial(read_keys, self.folder, self.manifest))
        return read_plan(self.manifest, universe, keys)

    def specification(self) -> str:
        """The specification can be planned, and the universes it names are there."""
        tables = {each.digest for q in self.plan.questions for each in q.public_tables}
        universes = f", public tables: {len(tables)}" if tables else ""
        return f"trees: {len(self.plan.questions)}{universes}, digest {self.plan.digest.hex()[:16]}"

    def manifest_checks(self) -> list[Check]:
        """The checks of the manifest alone."""
        manifest, known = self.manifest, ("manifest", "specification")
        return [
            Check(name="manifest", made=partial(check_entries, manifest)),
            Check(name="specification", made=self.specification, after=("manifest",)),
            Check(name="guarantee", made=lambda: check_guarantee(manifest, self.plan), after=known),
            Check(name="sensitivities", made=lambda: check_sensitivities(self.plan), after=known),
            Check(name="noise", made=lambda: check_noise(manifest, self.plan), after=known),
            Check(name="composition", made=lambda: check_composition(self.plan), after=known),
            Check(name="parts", made=lambda: check_parts(manifest, self.plan), after=known),
        ]

    def file_checks(self) -> list[Check]:
        """The checks of what lies beside the manifest."""
        manifest = self.manifest
        checks = [
            Check(
                name="draw", made=partial(check_draw, self.folder, manifest), after=("manifest",)
            ),
            Check(
                name="files",
                made=lambda: check_files(self.folder, manifest, self.plan),
                after=("parts",),
            ),
            Check(name="tables", made=self.tables, after=("files",)),
            Check(name="page", made=lambda: check_page(self.folder), after=("guarantee", "files")),
        ]
        if isinstance(manifest.get("series"), dict):
            checks.append(Check(name="to date", made=self.to_date, after=("guarantee", "files")))
        if self.has_chosen_bounds:
            checks.append(Check(name="bounds", made=self.bounds, after=("files",)))
        if self.is_staged:
            checks.append(Check(name="selection", made=self.selection, after=("files",)))
        return checks

    def to_date(self) -> str:
        """The totals to date are sums over the released periods."""
        return check_to_date(self.folder, self.plan, is_exact=is_exact(self.manifest))

    def selection(self) -> str:
        """Check that the first stage, which selected the keys, is the release that the
        specification names, complete, and with the keys of the trees; a published copy may lack
        it."""
        stage = self.stage
        if not self.has_stage:
            return f"{KEYS_FOLDER} is missing, so the keys were not compared with the selected ones"
        _check_stage(KEYS_FOLDER, stage)
        assert self.plan.selection is not None
        if stage.plan != replace(self.plan.selection, dataset=self.plan.dataset):
            raise CheckFailed(f"{KEYS_FOLDER} is not the selection in the specification")
        check_selected(stage.folder, self.plan)
        return (
            f"{KEYS_FOLDER} is complete, matches this specification, and has the keys of the trees"
        )

    def bounds(self) -> str:
        """Check that the first stage, which chose bounds of the unit, is the release that the
        specification names, complete, and chose the bounds of the trees; a published copy may lack
        it."""
        stage, bounds = self.bounds_stage, self.plan.bounds
        if not holds_release(stage.folder):
            return f"{BOUNDS} is missing, so the bounds were not compared with the chosen ones"
        _check_stage(BOUNDS, stage)
        assert bounds is not None
        if stage.plan != replace(bounds.plan, dataset=self.plan.dataset):
            raise CheckFailed(f"{BOUNDS} is not the choice in the specification")
        if chosen_bounds(stage.folder) != bounds.values:
            raise CheckFailed(f"{BOUNDS} chose other bounds than those of the specification")
        return f"{BOUNDS} is complete, matches this specification, and chose the bounds of the unit"

    @property
    def has_chosen_bounds(self) -> bool:
        """Whether the manifest mentions a first stage, which chose bounds of the unit."""
        spec = self.manifest.get("spec")
        return isinstance(spec, dict) and spec.get("bounds") is not None

    @property
    def bounds_stage(self) -> Verified:
        """The first stage of a release with chosen bounds."""
        return Verified(os.path.join(self.folder, BOUNDS))

    @property
    def first_stages(self) -> list[Verified]:
        """The first stages that are at hand, in their order."""
        stages = [self.bounds_stage] if self.has_chosen_bounds else []
        stages += [self.stage] if self.is_staged else []
        return [each for each in stages if holds_release(each.folder)]

    @property
    def is_staged(self) -> bool:
        """Whether the manifest mentions a first stage, which selected the keys."""
        spec = self.manifest.get("spec")
        return isinstance(spec, dict) and spec.get("selection") is not None

    @property
    def has_stage(self) -> bool:
        """Whether the first stage is at hand."""
        return self.is_staged and holds_release(self.stage.folder)

    @property
    def stage(self) -> Verified:
        """The first stage of a release with private keys."""
        return Verified(os.path.join(self.folder, KEYS_FOLDER))

    def tables(self) -> str:
        """The tables hold what follows from the specification."""
        names: Names = {}
        for part in self.manifest["parts"]:
            kind = str(part["file"]).split("/")[0]
            names[kind, part["tree"], part["key"], part["chunk"]] = part["file"]
        return check_tables(self.folder, names, self.plan)

    def signature(self, signer: str) -> str:
        """The manifest's bytes are signed by a signer."""

        key = load_signer(signer)
        try:
            actual = read_file(os.path.join(self.folder, SIGNATURE))
        except FileNotFoundError:
            raise CheckFailed(
                f"there is no {SIGNATURE}: the release was not signed, or dptrees release must "
                "run again to sign it"
            ) from None
        except OSError as error:
            raise CheckFailed(f"{SIGNATURE} cannot be read: {error.strerror}") from None
        if not is_signed(read_file(os.path.join(self.folder, MANIFEST)), actual, key):
            raise CheckFailed(f"{SIGNATURE} is not that of {signer} and this manifest")
        return f"by {signer}"

    def key(self, reference: KeyReference) -> str:
        """The key of the release is at hand."""
        if reference.ring().find_key(self.manifest["key_id"]) is None:
            raise CheckFailed(
                f"{reference.reference} does not hold the key {self.manifest['key_id']}"
            )
        return f"{self.manifest['key_id']} is in {reference.reference}"


def _check_stage(name: str, stage: Verified) -> None:
    """Check a first stage as a release of its own.

    Raises:
        CheckFailed: naming the stage and its check.
    """
    for each in run_checks([*stage.manifest_checks(), *stage.file_checks()]):
        if each.ok is False:
            raise CheckFailed(f"{name}: {each.check}: {each.told}")


def raise_first(release: str, findings: list[Finding]) -> None:
    """Names the first check that failed.

    Raises:
        UserError: there is one.
    """
    for each in findings:
        if each.ok is False:
            raise UserError(f"{release}: {each.check}: {each.told}")
