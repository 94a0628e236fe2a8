"""The plan of a folder: one of two writers wins, and what is not sealed is not used."""

import json
from dataclasses import replace

import pytest

from dpcore.noise.randomness import ReleaseKey
from transforms.kept_plan import (
    KeptPlan,
    KeptPlanError,
    check_kept,
    find_drawn,
    find_kept,
    keep,
    kept_by,
    sweep_undrawn,
)
from transforms.layout import PLAN

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
    one, two, _ = plans
    folder = str(tmp_path / "out")
    assert keep(folder, one) == one
    assert keep(folder, two) == one
    assert find_kept(folder) == one
    assert not [path for path in (tmp_path / "out").iterdir() if path.name != PLAN]


def test_another_request_replaces_a_plan_until_noise_is_drawn(plans, tmp_path) -> None:
    one, _, other = plans
    assert keep(str(tmp_path), one) == one
    assert keep(str(tmp_path), other) == other
    draw(tmp_path)
    with pytest.raises(KeptPlanError, match="was begun with another plan"):
        keep(str(tmp_path), one)
    assert find_kept(str(tmp_path)) == other


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


@pytest.mark.parametrize("name", ["request", "spec", "seal"])
def test_a_plan_whose_seal_is_not_its_own_is_refused(
    plans, tmp_path, make_plan, reference, name
) -> None:
    kept = kept_by(str(tmp_path), make_plan(), REQUEST, reference.checked())
    change = {"seal": 64 * "0", "request": {}, "spec": {**kept.spec, "budget": "2"}}
    edited = replace(kept, **{name: change[name]})
    (tmp_path / PLAN).write_bytes(edited.to_bytes())
    with pytest.raises(KeptPlanError, match="that no run under the key"):
        kept_by(str(tmp_path), make_plan(), REQUEST, reference.checked())


def test_a_flipped_byte_is_found(plans) -> None:
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
