"""A plan is made once: what was begun with one goes on with it, whatever is planned later."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dptrees.dpcore import __version__
from dptrees.dpcore.release.manifest import CHECKSUM, manifest_checksum
from dptrees.pipelines.config import configuration as planning
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.proof.manifest import plain
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.run.first_stage import selected_keys
from dptrees.pipelines.run.planned_once import planned_once, with_kept_selection
from dptrees.pipelines.run.stage import Stage
from dptrees.transforms.folder.existing_release import ExistingReleaseError
from dptrees.transforms.folder.names import MANIFEST, PLAN, RECORD
from dptrees.transforms.steps.carry import SeriesError, check_turn
from dptrees.transforms.steps.kept_plan import KeptPlan, KeptPlanError
from tests.pipelines.conftest import NONCE, Workspace, search_path

NINE_TENTHS = Fraction(9, 10)


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a release with their bytes."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in found
        if path.suffix != ".html" and path.name != "run.json"
    }


def another_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan as another version might: each tree gets other budgets."""
    plan_release = planning.plan_release

    def less(name: str, guarantee: Any, workloads: Any) -> Any:
        budget = replace(guarantee.budget, amount=guarantee.budget.amount * NINE_TENTHS)
        found = plan_release(name, replace(guarantee, budget=budget), workloads)
        if found.stated is None:
            return replace(found, budget=guarantee.budget)
        return replace(found, stated=(guarantee.budget.amount, guarantee.delta))

    monkeypatch.setattr(planning, "plan_release", less)


def no_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be planned any more."""

    def refuse(*arguments: object) -> None:
        raise AssertionError("it was planned again")

    monkeypatch.setattr(planning, "plan_release", refuse)


def quantiles(settings: dict[str, Any]) -> None:
    """Request other quantiles, which shape no noise."""
    settings["trees"][0]["quantiles"] = [0.5]


def cells(settings: dict[str, Any]) -> None:
    """Request another domain."""
    settings["trees"][0]["domain"]["upper"] = 120


def beginning(workspace: Workspace) -> None:
    """Take the end of a release away, as if its run had been killed."""
    (workspace.output / MANIFEST).unlink(missing_ok=True)
    (workspace.output / "report.html").unlink(missing_ok=True)


def test_another_planner_gives_another_plan(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workspace.configure()
    before = load_configuration(str(path)).plan()
    another_planner(monkeypatch)
    assert load_configuration(str(path)).plan().digest != before.digest


def test_a_finished_release_without_its_plan_is_planned_again(
    again: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (again.output / PLAN).unlink()
    assert again.run("release", again.configure()).code == 0
    another_planner(monkeypatch)
    outcome = again.run("release", again.configure())
    assert outcome.code == 2 and "a release of another specification" in outcome.err


def test_floats_that_another_processor_rounds_otherwise_are_the_same_release(
    again: Workspace,
) -> None:
    (again.output / PLAN).unlink()
    for factor, code in ((1 + 1e-12, 0), (1 + 1e-6, 2)):
        edited(again.output / MANIFEST, lambda entries, by=factor: widen(entries, by))
        outcome = again.run("release", again.configure())
        assert outcome.code == code, outcome


def widen(entries: dict[str, Any], factor: float) -> None:
    """Change the last digits of a float of the specification."""
    domain = entries["spec"]["trees"][0]["domain"]
    domain["upper"] *= factor


def test_a_default_that_is_spelled_out_is_found_by_its_plan(again: Workspace) -> None:
    again.succeed("release", again.configure(lambda settings: settings.update(confidence=0.95)))

    def outside(settings: dict[str, Any]) -> None:
        settings["trees"][0]["weight"] = 1

    again.succeed("release", again.configure(outside))


# What a killed run has left: None for all parts.
LEFT: tuple[set[str] | None, ...] = (
    {PLAN},
    {PLAN, "nonce.json"},
    {PLAN, "nonce.json", RECORD},
    None,
)


def keep_only(workspace: Workspace, names: set[str] | None) -> None:
    """Take the end of a release away, and all files but some."""
    beginning(workspace)
    for name in contents(workspace.output):
        if names is not None and name not in names:
            (workspace.output / name).unlink()


def test_what_was_begun_is_finished_found_and_repaired_with_its_plan(
    again: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(again.output)
    no_planner(monkeypatch)
    for names in LEFT:
        keep_only(again, names)
        again.succeed("release", again.configure(), *NONCE)
        assert contents(again.output) == before, names
    found = again.succeed("release", again.configure())
    assert "already there; no rows were read" in found.out
    next((again.output / "nodes").iterdir()).unlink()
    again.succeed("release", again.configure(), "--repair")
    assert contents(again.output) == before


def test_other_quantiles_finish_with_the_same_noise(again: Workspace) -> None:
    before = contents(again.output)
    beginning(again)
    again.succeed("release", again.configure(quantiles))
    after = contents(again.output)
    same = {name for name in before if name.startswith(("nodes/", "cdf/"))} | {RECORD}
    assert same and all(after[name] == before[name] for name in same)
    plan = KeptPlan.from_bytes(after[PLAN])
    assert plan is not None and plan.spec == json.loads(after[MANIFEST])["spec"]


def test_another_configuration_before_noise_replaces_the_plan(again: Workspace) -> None:
    keep_only(again, {PLAN, "nonce.json"})
    again.succeed("release", again.configure(cells))
    assert again.run("verify", again.output, "--key", again.key).code == 0


def test_another_configuration_after_the_draw_is_refused(again: Workspace) -> None:
    beginning(again)
    before = contents(again.output)
    outcome = again.run("release", again.configure(cells))
    assert outcome.code == 2
    assert "was begun with another configuration: trees[0].domain.upper was 100, now" in outcome.err
    assert contents(again.output) == before
    assert again.run("release", again.configure(cells), "--discard").code == 0


def test_what_is_discarded_is_planned_anew(
    again: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = json.loads((again.output / PLAN).read_text())
    beginning(again)
    another_planner(monkeypatch)
    again.succeed("release", again.configure(), "--discard")
    assert json.loads((again.output / PLAN).read_text())["digest"] != before["digest"]


def test_a_beginning_of_an_earlier_version_is_planned_again(
    again: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(again.output)
    beginning(again)
    (again.output / PLAN).unlink()
    assert again.run("release", again.configure()).code == 0
    assert contents(again.output) == {n: data for n, data in before.items() if n != PLAN}

    beginning(again)
    another_planner(monkeypatch)
    outcome = again.run("release", again.configure())
    assert outcome.code == 2 and "with another key or another configuration" in outcome.err


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edit a file as somebody does who knows how its checksum is made."""
    entries = json.loads(path.read_text())
    change(entries)
    entries[CHECKSUM] = manifest_checksum(entries)
    path.write_text(json.dumps(entries, indent=1) + "\n")


def public_total(entries: dict[str, Any]) -> None:
    """Declare the number of rows public, so that the root would get no noise."""
    entries["spec"]["trees"][0]["public_total"] = True


def other_split(entries: dict[str, Any]) -> None:
    """Move budget from one level to another."""
    amounts = entries["spec"]["trees"][0]["level_amounts"]
    amounts.append(amounts.pop(0))


def above_budget(entries: dict[str, Any]) -> None:
    """Spend more than the configuration has."""
    entries["spec"]["budget"] = "100"


def test_an_edited_plan_is_never_drawn(again: Workspace) -> None:
    keep_only(again, {PLAN})
    whole = (again.output / PLAN).read_bytes()
    for change in (public_total, other_split, above_budget):
        (again.output / PLAN).write_bytes(whole)
        edited(again.output / PLAN, change)
        outcome = again.run("release", again.configure())
        assert outcome.code == 2, outcome.out
        assert "that no run under the key" in outcome.err or "cannot be used by this" in outcome.err
        assert set(contents(again.output)) == {PLAN}
    again.succeed("release", again.configure(), "--discard")


def test_a_damaged_plan(again: Workspace) -> None:
    beginning(again)
    for text in ("", "{}", "[1]", '{"format": 2}'):
        (again.output / PLAN).write_text(text)
        outcome = again.run("release", again.configure())
        assert outcome.code == 2
        assert outcome.err == (
            f"dptrees: output: {again.output / PLAN} is damaged, or another version of dptrees "
            "wrote it; start again with --discard, or choose another output\n"
        )
    again.succeed("release", again.configure(), "--discard")


KILLED = """
import os, signal, sys
from dptrees.transforms.folder import files
from dptrees.pipelines.cli.command import main
moment = sys.argv.pop(1)
finished = files._finished

def named(path, *arguments):
    done = finished(path, *arguments)
    if os.path.basename(path) == moment:
        os.kill(os.getpid(), signal.SIGKILL)
    return done

files._finished = named
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("moment", [PLAN, "nonce.json", RECORD])
def test_killed_and_finished_by_another_planner(
    workspace: Workspace, released: Workspace, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = workspace.configure()
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, moment, "release", path, *NONCE],
        env=os.environ | {"PYTHONPATH": search_path()},
        cwd=workspace.folder,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert (workspace.output / moment).exists()
    another_planner(monkeypatch)
    workspace.succeed("release", path, *NONCE)
    assert contents(workspace.output) == contents(released.output)


def test_of_two_launchers_the_second_takes_the_plan_of_the_first(
    workspace: Workspace, released: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one writes its plan after the second has planned."""
    check_input = Stage.check_input

    def overtaken(stage: Stage) -> Any:
        if not (workspace.output / PLAN).exists():
            workspace.output.mkdir(parents=True)
            shutil.copy(released.output / PLAN, workspace.output)
        return check_input(stage)

    monkeypatch.setattr(Stage, "check_input", overtaken)
    path = workspace.configure()
    another_planner(monkeypatch)
    workspace.succeed("release", path, *NONCE)
    assert contents(workspace.output) == contents(released.output)


def test_a_published_copy_is_verified_on_another_machine(
    again: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = again.configure()
    another_planner(monkeypatch)
    again.succeed("verify", again.output, "--data", path)


def test_a_plan_beside_a_manifest_that_is_not_its_own(again: Workspace) -> None:
    edited(again.output / PLAN, other_split)
    outcome = again.run("verify", again.output)
    assert outcome.code == 2 and "draw: spec is not that of plan.json" in outcome.err


def daily(period: int, **series: object) -> Callable[[dict[str, Any]], None]:
    """Make the small release a run of a series."""

    def change(settings: dict[str, Any]) -> None:
        settings["privacy"] = {"rho": 1, "neighbors": "add_remove"}
        settings["series"] = {"periods": 4, "period": period, "fanout": 2} | series

    return change


def test_a_series_goes_on_with_its_plan(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for period in (1, 2):
        assert workspace.release(daily(period)).code == 0
    undisturbed = contents(workspace.output)
    shutil.rmtree(workspace.output / "period-0002")

    no_planner(monkeypatch)
    workspace.succeed("release", workspace.configure(daily(2)), *NONCE)
    assert contents(workspace.output) == undisturbed


def test_a_series_keeps_no_plan_that_was_edited(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert workspace.release(daily(1)).code == 0
    first = workspace.output / "period-0001"
    for name in (PLAN, MANIFEST):
        edited(first / name, sure)
    outcome = workspace.release(daily(2))
    assert outcome.code == 2 and "that no run under the key" in outcome.err
    assert not (workspace.output / "period-0002").exists()

    (first / PLAN).unlink()
    outcome = workspace.release(daily(2))
    assert outcome.code == 2 and "is a run of another series" in outcome.err


def sure(entries: dict[str, Any]) -> None:
    """State more confidence, which keeps the specification consistent."""
    for tree in entries["spec"]["trees"]:
        tree["levels"] = [each | {"weight": "2"} for each in tree["levels"]]


def private(settings: dict[str, Any]) -> None:
    """Let the keys of the second tree be selected."""
    settings["privacy"] |= {"epsilon": 8, "delta": 1e-3}
    settings["trees"][1]["group_by"] = {"column": "place", "keys": "private"}


@pytest.mark.parametrize("left", ["the keys", "the plan of the trees"])
def test_a_release_with_private_keys_is_finished_with_its_plans(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    workspace.make(private)
    undisturbed = contents(workspace.output)
    beginning(workspace)
    if left == "the keys":  # the trees were not begun
        (workspace.output / "keys" / MANIFEST).unlink()
        for name in contents(workspace.output):
            if not name.startswith("keys/"):
                (workspace.output / name).unlink()
        undisturbed = {n: data for n, data in undisturbed.items() if n.startswith("keys/")}
    another_planner(monkeypatch)
    workspace.make(private)
    assert undisturbed.items() <= contents(workspace.output).items()
    outcome = workspace.release(private)
    assert outcome.code == 0 and "already there" in outcome.out


def test_trees_are_planned_over_the_selection_of_another_launcher(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another launcher writes the plan of the first stage after this one has planned its own, and
    its selection spends more of the delta."""

    def few(settings: dict[str, Any]) -> None:
        private(settings)
        settings["trees"][1]["noise"] = "gaussian"

    configuration = load_configuration(workspace.configure(few))
    selection, own = configuration.selection, configuration._selection(NINE_TENTHS)
    assert selection is not None and selection.spending.own[1] < own.spending.own[1]
    place, check_input = workspace.output / "keys" / PLAN, Stage.check_input
    key = configuration.key.load()

    def overtaken(stage: Stage) -> Any:
        if not place.exists():
            place.parent.mkdir(parents=True)
            place.write_bytes(KeptPlan.sealed(own, configuration.request, key).to_bytes())
        return check_input(stage)

    monkeypatch.setattr(Stage, "check_input", overtaken)
    workspace.make(few)
    trees, keys = (
        json.loads((folder / MANIFEST).read_text())["spec"]
        for folder in (workspace.output, place.parent)
    )
    assert trees["selection"] == keys == plain(own.spec())
    delta = ReleaseFolder(str(workspace.output)).plan.spending.own[1]
    assert delta + own.spending.own[1] <= Fraction(1, 1000)
    assert workspace.run("verify", workspace.output).code == 0
    outcome = workspace.release(few)
    assert outcome.code == 0 and "already there" in outcome.out


def test_a_plan_of_trees_over_another_selection_is_refused(workspace: Workspace) -> None:
    assert workspace.release(private).code == 0
    loaded = load_configuration(workspace.configure(private))
    kept = with_kept_selection(loaded)
    selected = selected_keys(str(workspace.output / "keys"), kept)
    planned_once(replace(kept, selected=selected))
    other = replace(kept, selected=selected, kept_selection=loaded._selection(NINE_TENTHS))
    with pytest.raises(ExistingReleaseError, match="the first stage that selected the keys"):
        planned_once(other)


def shorter_intervals(entries: dict[str, Any]) -> None:
    """Change the widths of the intervals of a plan, and nothing that shapes noise."""
    widths = entries["trees"][0]["interval_widths"]
    widths.update(shorter(widths))


def shorter(value: Any) -> Any:
    """The value with each float halved."""
    if isinstance(value, dict):
        return {name: shorter(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shorter(each) for each in value]
    return value / 2 if isinstance(value, float) else value


def test_a_plan_with_other_intervals_is_refused_before_anything_is_drawn(again: Workspace) -> None:
    before = json.loads((again.output / PLAN).read_text())
    edited(again.output / PLAN, shorter_intervals)
    assert json.loads((again.output / PLAN).read_text())["trees"] != before["trees"]
    for names in (None, {PLAN}):
        keep_only(again, names)
        edits = contents(again.output)
        outcome = again.run("release", again.configure())
        assert outcome.code == 2 and outcome.err.count("\n") == 1
        assert "holds a plan that no run under the key" in outcome.err
        assert contents(again.output) == edits


def test_a_plan_of_the_earlier_format_is_finished(
    again: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its seal does not cover the widths of intervals, which are computed again."""
    undisturbed = contents(again.output)
    beginning(again)
    kept = KeptPlan.from_bytes(undisturbed[PLAN])
    assert kept is not None and kept.format == 2
    earlier = replace(kept, format=1, trees=shorter(kept.trees))
    assert earlier.trees != kept.trees
    earlier = replace(
        earlier, seal=earlier.own_seal(load_configuration(again.configure()).key.load())
    )
    (again.output / PLAN).write_bytes(earlier.to_bytes())
    no_planner(monkeypatch)
    again.succeed("release", again.configure())
    assert contents(again.output) == undisturbed | {PLAN: earlier.to_bytes()}


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no trees": lambda entries: entries.pop("trees"),
    "trees are an object": lambda entries: entries.update(trees={}),
    "a tree is no object": lambda entries: entries.update(trees=[None]),
    "no trees in the specification": lambda entries: entries["spec"].pop("trees"),
    "a tree of the specification is no object": lambda entries: entries["spec"].update(trees=[7]),
    "an empty specification": lambda entries: entries.update(spec={}),
    "an empty request": lambda entries: entries.update(request={}),
    "a request is a list": lambda entries: entries.update(request=[]),
    "no seal": lambda entries: entries.pop("seal"),
    "an empty key id": lambda entries: entries.update(key_id=""),
    "a key id is a number": lambda entries: entries.update(key_id=7),
    "a seal is no ASCII": lambda entries: entries.update(seal="\udc80"),
    "no number": lambda entries: entries["request"].update(confidence=float("nan")),
    "another format": lambda entries: entries.update(format=1),
    "a later format": lambda entries: entries.update(format=3),
    "another entry": lambda entries: entries.update(more=1),
}


def test_a_damaged_plan_ends_in_one_sentence(again: Workspace) -> None:
    beginning(again)
    whole = (again.output / PLAN).read_bytes()
    for name, damage in DAMAGES.items():
        (again.output / PLAN).write_bytes(whole)
        edited(again.output / PLAN, damage)
        before = contents(again.output)
        outcome = again.run("release", again.configure())
        assert outcome.code == 2, name
        assert outcome.err.startswith("dptrees: ") and outcome.err.count("\n") == 1, name
        assert contents(again.output) == before, name


def check_seal_is_checked(configuration: Any, plan: Path) -> None:
    """Before the plan is read."""
    planned_once(configuration)
    edited(plan, lambda entries: entries.update(seal=64 * "0"))
    with pytest.raises(KeptPlanError, match="that no run under the key"):
        planned_once(configuration)


def test_the_seal_is_checked_before_a_plan_is_read(again: Workspace) -> None:
    """Else a plan could be put into the folder, and removed before this run seals its own."""
    beginning(again)
    check_seal_is_checked(load_configuration(again.configure()), again.output / PLAN)
    shutil.rmtree(again.output)
    again.succeed("release", again.configure(daily(1)))  # the run before
    second = load_configuration(again.configure(daily(2)))
    check_seal_is_checked(second, again.output / "period-0001" / PLAN)


@pytest.mark.parametrize(
    ("share", "is_near"), [(Fraction(1, 10**12), True), (Fraction(1, 10**6), False)]
)
def test_a_series_of_an_earlier_version_goes_on_with_its_plan(
    workspace: Workspace, share: Fraction, is_near: bool
) -> None:
    assert workspace.release(daily(1)).code == 0
    first = workspace.output / "period-0001"
    (first / PLAN).unlink()
    configuration = load_configuration(workspace.configure(daily(2)))
    made = planned_once(configuration)
    check_turn(made, configuration.output)

    def spend_less(entries: dict[str, Any]) -> None:
        level = entries["spec"]["trees"][0]["levels"][0]
        rest = Fraction(level["level_amounts"][-1]) * (1 - share)
        level["level_amounts"][-1] = str(rest)

    edited(first / MANIFEST, spend_less)
    found = planned_once(configuration)
    assert (found != made) == is_near
    if is_near:
        check_turn(found, configuration.output)
    else:
        with pytest.raises(SeriesError, match="is a run of another series"):
            check_turn(found, configuration.output)


def test_a_release_does_not_end_with_the_plan_of_another_launcher(again: Workspace) -> None:
    """A release that requested other quantiles, which shape no noise, wrote its plan last."""
    undisturbed = contents(again.output)
    edited(again.output / PLAN, lambda entries: entries["spec"]["trees"][0].update(quantiles=[0.5]))
    assert again.run("verify", again.output).code == 2
    assert again.run("release", again.configure()).code == 0
    assert again.run("verify", again.output).code == 0
    assert contents(again.output) == {n: d for n, d in undisturbed.items() if n != PLAN}


@pytest.mark.parametrize("version", [__version__, "0.0.1"])
def test_the_version_of_a_plan_is_named_where_it_is_another(again: Workspace, version: str) -> None:
    beginning(again)
    configuration = load_configuration(again.configure())
    kept = KeptPlan.from_bytes((again.output / PLAN).read_bytes())
    assert kept is not None
    spec = {**kept.spec, "unit": "none"}
    edited_plan = replace(kept, spec=spec, dptrees=version)
    seal = edited_plan.own_seal(configuration.key.load())
    edited_plan = replace(edited_plan, seal=seal)
    (again.output / PLAN).write_bytes(edited_plan.to_bytes())
    with pytest.raises(ExistingReleaseError, match="cannot be used by this program") as refused:
        planned_once(configuration)
    is_named = ", of dptrees 0.0.1," in str(refused.value)
    assert is_named == ("use that version" in str(refused.value)) == (version != __version__)
