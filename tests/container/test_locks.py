"""Locks that install what setup.py asks for, on each Python, and name no place to fetch from."""

from __future__ import annotations

import re
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.container.locks import (
    LOCKS,
    MACHINES,
    PROJECT,
    PYTHONS,
    default_extras,
    entries,
    environment,
    extras,
    locked,
    packaging,
)

TEXTS = sorted(LOCKS.glob("*.txt"))


def unsatisfied(wanted: list[str], python: str, machine: str, extra: str = "") -> list[str]:
    """The requirements that a lock with one extra leaves out or has in another version."""
    found = locked(python, machine, [extra] if extra else [])
    seen = environment(python, machine) | {"extra": extra}
    missing = []
    for each in map(Requirement, wanted):
        if each.marker is not None and not each.marker.evaluate(seen):
            continue
        version = found.get(canonicalize_name(each.name))
        if version is None or not each.specifier.contains(version, prereleases=True):
            missing.append(f"{each}: {version}")
    return missing


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_lock_has_what_setup_asks_for(python: str, machine: str) -> None:
    said = packaging()
    assert unsatisfied(list(said["install_requires"]), python, machine) == []
    for extra in extras():
        assert unsatisfied(said["extras_require"][extra], python, machine, extra) == []


@pytest.mark.parametrize("python", PYTHONS)
def test_an_addition_repeats_nothing_and_goes_with_every_other(python: str) -> None:
    common = set(locked(python, chosen=[]))
    versions: dict[str, set[str]] = {}
    for extra in extras():
        added = locked(python, chosen=[extra]).items() - locked(python, chosen=[]).items()
        assert added
        for name, version in added:
            assert name not in common
            versions.setdefault(name, set()).add(version)
    assert [name for name, found in versions.items() if len(found) > 1] == []


def test_every_extra_of_the_product_can_be_in_an_image() -> None:
    """Other extras are for notebooks and for developers."""
    others = {"notebook", "docs", "spark", "yaml", "test", "dev"}
    assert set(extras()) == set(packaging()["extras_require"]) - others
    assert set(default_extras()) <= set(extras())


@pytest.mark.parametrize("extra", ["", "aws", "gcp"])
@pytest.mark.parametrize("python", PYTHONS)
def test_lock_has_what_beam_asks_for(python: str, extra: str) -> None:
    wanted = requires("apache-beam")
    assert wanted
    assert unsatisfied(wanted, python, "x86_64", extra) == []


def test_a_lock_that_lacks_a_package_is_told() -> None:
    said = packaging()["extras_require"]["iceberg"]
    assert unsatisfied(said, "3.11", "x86_64", "iceberg") == []
    assert unsatisfied(said, "3.11", "x86_64", "aws") != []
    assert unsatisfied(["numpy>=99"], "3.11", "x86_64") != []
    assert unsatisfied(["no-such-package"], "3.11", "x86_64") == ["no-such-package: None"]


def test_each_package_has_hashes_and_no_place() -> None:
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        found = entries(text)
        assert found and all(hashes > 0 for _, hashes in found), path
        assert all(len(each.specifier) == 1 and "==" in str(each) for each, _ in found), path
        assert not re.search(r"https?:|index-url|find-links| @ ", text), path


def test_one_pyarrow_writes_the_same_bytes_on_all() -> None:
    assert len({locked(python, chosen=[])["pyarrow"] for python in PYTHONS}) == 1


def test_harness_is_of_the_beam_that_is_locked() -> None:
    folder = PROJECT / "deploy" / "container"
    (beam,) = {locked(python)["apache-beam"] for python in PYTHONS}
    assert f"_sdk:{beam}\n" in (folder / "Dockerfile").read_text(encoding="utf-8")
    assert f"\nBEAM={beam}\n" in (folder / "bases.sh").read_text(encoding="utf-8")
