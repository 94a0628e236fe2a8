"""What the product relies on gives the same bits on every emulated processor."""

from __future__ import annotations

import pytest

from tests.processors.emulated import PROCESSORS, output_of

MODULE = "tests.processors.kept_functions"
EMULATED = tuple(name for name in PROCESSORS if name != "native")
# All instructions that can be passed over are passed over.
LEAST = "nehalem"


def results(processor: str, *arguments: str) -> dict[str, str]:
    """The digest of every function's results, by the function's name."""
    lines = output_of(processor, MODULE, arguments).splitlines()
    return {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """The names of functions whose results differ."""
    assert one.keys() == other.keys()
    return [name for name in one if one[name] != other[name]]


@pytest.fixture(scope="module")
def native() -> dict[str, str]:
    """The results on this machine as it is."""
    return results("native")


def test_on_the_least_processor(native: dict[str, str]) -> None:
    assert len(native) > 100
    assert differing(native, results(LEAST)) == []


def test_on_every_processor(native: dict[str, str]) -> None:
    found = {name: differing(native, results(name)) for name in EMULATED if name != LEAST}
    assert not any(found.values()), found


def test_emulation_changes_what_is_forbidden() -> None:
    """An environment without effect would prove nothing. Whatever this machine is, some emulated
    processor differs from it, or from another emulated one, in each library."""
    found = [results(name, "forbidden") for name in ("native", "haswell", LEAST)]
    changed = {name for name in found[0] if len({each[name] for each in found}) > 1}
    for library in ("NumPy", "OpenBLAS", "glibc"):
        assert any(name.startswith(library) for name in changed), f"{library} is not emulated"
