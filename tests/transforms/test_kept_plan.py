"""The plan of a folder: one of two writers wins, and what is not sealed is not used."""

import json
from dataclasses import replace
from typing import Any

import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.manifest import CHECKSUM, manifest_checksum
from dptrees.transforms.folder.names import PLAN
from dptrees.transforms.steps.kept_plan import (
    KeptPlan,
    KeptPlanError,
    check_kept,
    find_drawn,
    find_kept,
    keep,
    kept_by,
    sweep_undrawn,
)

REQUEST = {"release": "visits", "privacy": {"epsilon": "1"}}


@pytest.fixture
def plans(make_plan):
    """Two plans of one request, and one of another."""
    key = ReleaseKey(bytes(32))
    one, two = make_plan(), make_plan(cells=29)
    other = KeptPlan.sealed(two, REQUEST | {"confidence": 0.9}, key)
    return KeptPlan.sealed(one, REQUEST, key), KeptPlan.sealed(two, REQUEST, key), other


def draw(folder):
    """Leave a record, as a job that has drawn noise does."""
    (folder / "record.json").write_text("{}")


def test_the_first_plan_of_a_request_stays(plans, tmp_path) -> None:
    """Another request replaces it until noise is drawn."""
    one, two, other = plans
    folder = str(tmp_path)
    assert keep(folder, one) == one
    assert keep(folder, two) == one == find_kept(folder)
    assert not [path for path in tmp_path.iterdir() if path.name != PLAN]
    assert keep(folder, other) == other
    draw(tmp_path)
    with pytest.raises(KeptPlanError, match="was begun with another plan"):
        keep(folder, one)
    assert find_kept(folder) == other


def test_what_shapes_no_noise_is_replaced_at_any_time(plans, tmp_path) -> None:
    one, *_ = plans
    keep(str(tmp_path), one)
    draw(tmp_path)
    requested = replace(one, request=REQUEST | {"confidence": 0.5})
    assert keep(str(tmp_path), requested) == requested == find_kept(str(tmp_path))


def test_a_draw_of_an_earlier_version_gets_no_plan(plans, tmp_path) -> None:
    draw(tmp_path)
    assert keep(str(tmp_path), plans[0]) == plans[0]
    assert find_kept(str(tmp_path)) is None


def test_a_job_of_another_plan_records_nothing(plans, tmp_path, make_plan) -> None:
    one, *_ = plans
    check_kept(str(tmp_path), make_plan(cells=29).digest)  # it keeps none
    keep(str(tmp_path), one)
    check_kept(str(tmp_path), make_plan().digest)
    with pytest.raises(KeptPlanError, match="was begun with another plan"):
        check_kept(str(tmp_path), make_plan(cells=29).digest)


EDITS: dict[str, Any] = {
    "request": {},
    "spec": {"trees": []},
    "trees": [],
    "digest": 64 * "0",
    "dptrees": "0.0.1",
    "seal": 64 * "0",
}


def test_a_plan_whose_seal_is_not_its_own_is_refused(tmp_path, make_plan, reference) -> None:
    kept = kept_by(str(tmp_path), make_plan(), REQUEST, reference.checked())
    edits = [replace(kept, **{name: value}) for name, value in EDITS.items()]
    # Under the earlier format the entries that only the later one seals could be edited.
    for edited in (*edits, replace(kept, format=1, trees=[])):
        (tmp_path / PLAN).write_bytes(edited.to_bytes())
        with pytest.raises(KeptPlanError, match="that no run under the key"):
            kept_by(str(tmp_path), make_plan(), REQUEST, reference.checked())


def test_a_plan_of_the_earlier_format_is_used(plans, tmp_path, make_plan, reference) -> None:
    key = reference.checked()
    earlier = replace(KeptPlan.sealed(make_plan(), REQUEST, key.load()), format=1)
    earlier = replace(earlier, seal=earlier.own_seal(key.load()))
    (tmp_path / PLAN).write_bytes(earlier.to_bytes())
    assert kept_by(str(tmp_path), make_plan(), REQUEST, key) == earlier
    for name in ("request", "spec", "seal", "format"):
        edited = replace(earlier, **{name: EDITS.get(name, 2)})
        (tmp_path / PLAN).write_bytes(edited.to_bytes())
        with pytest.raises(KeptPlanError, match="that no run under the key"):
            kept_by(str(tmp_path), make_plan(), REQUEST, key)


NO_TEXT = (None, True, 7, [], {}, "\udc80")
NO_OBJECT = (None, True, 7, "x", [])
NO_LIST = (None, True, 7, "x", {}, [None], [[]], ["x"])
DAMAGES: dict[str, tuple[Any, ...]] = {
    "format": (None, True, 0, 3, "2", [], {}),
    "dptrees": NO_TEXT,
    "digest": NO_TEXT,
    "key_id": NO_TEXT,
    "seal": NO_TEXT,
    "request": NO_OBJECT,
    "spec": (*NO_OBJECT, {}, *({"trees": value} for value in NO_LIST)),
    "trees": NO_LIST,
    "more": (1,),
}


@pytest.mark.parametrize("format", [1, 2])
def test_every_damage_is_found(plans, tmp_path, format) -> None:
    """Also where somebody wrote another checksum."""
    path = tmp_path / PLAN
    path.write_bytes(replace(plans[0], format=format).to_bytes())
    entries = json.loads(path.read_bytes())
    assert find_kept(str(tmp_path)) is not None
    names = entries.keys() - {CHECKSUM}
    changes = [{n: old for n, old in entries.items() if n != name} for name in names]
    changes += [entries | {name: value} for name in DAMAGES for value in DAMAGES[name]]
    for change in changes:
        path.write_text(json.dumps(change | {CHECKSUM: manifest_checksum(change)}))
        with pytest.raises(KeptPlanError, match="is damaged, or another version"):
            find_kept(str(tmp_path))


def test_what_is_no_plan_is_found(tmp_path, plans) -> None:
    texts = [b"", b"{", b"\xff", b"[]", b"null", b"{}", 100_000 * b"[", b"9" * 5_000]
    for text in texts:
        (tmp_path / PLAN).write_bytes(text)
        with pytest.raises(KeptPlanError, match="is damaged, or another version"):
            find_kept(str(tmp_path))
    data = plans[0].to_bytes()
    assert KeptPlan.from_bytes(data) == plans[0]
    entries = json.loads(data)
    for name in entries:
        assert KeptPlan.from_bytes(json.dumps(entries | {name: "x"}).encode()) is None
    assert KeptPlan.from_bytes(data[:-9]) is None


def test_beside_a_manifest_it_counts_only_as_what_was_drawn(
    make_plan, rows, run_steps, tmp_path, reference
) -> None:
    folder, plan = tmp_path / "out", make_plan()
    run_steps(plan, rows, folder)
    assert find_drawn(str(folder)) is None
    key = reference.checked()
    own, other = (
        KeptPlan.sealed(each, REQUEST, key.load()) for each in (plan, make_plan(cells=29))
    )
    for kept, found in ((own, own), (other, None)):
        (folder / PLAN).write_bytes(kept.to_bytes())
        assert find_drawn(str(folder)) == found
        sweep_undrawn(str(folder))
        assert (folder / PLAN).exists() == (found is not None)
