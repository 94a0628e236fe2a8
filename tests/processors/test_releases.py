"""Plans and releases of every kind have the same bytes on every emulated processor."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processors.differences import differences
from tests.processors.emulated import PROCESSORS, output_of

# Each differs from the others in NumPy, OpenBLAS, glibc or pyarrow; `nehalem` has none of
# AVX, AVX2, FMA and AVX-512 (NumPy's X86_V3 and X86_V4).
EMULATED = tuple(
    each for each in ("skylake", "haswell", "prescott", "nehalem") if each in PROCESSORS
)
# Releases of all kinds, mechanisms and budgets; of those that are made alike the cheapest.
CHOSEN = (
    *("golden/cdf-approximate", "golden/quantiles-by", "golden/exponential-intervals"),
    *("golden/exponential-rounds", "golden/binary-full"),
    *("golden/independent", "golden/histogram-l1"),
    *("golden/ranges", "golden/top-down", "golden/sketch", "golden/nodes", "golden/adaptive"),
    "golden/adaptive-shrunk",
    *("golden/adaptive-by-rho", "golden/hierarchy-by-rho", "golden/planned-for-counts"),
    *("golden/calendar", "golden/sums", "golden/as-measured", "golden/adaptive-hierarchy"),
    *("golden/sparse-paths", "golden/box-count-min"),
    *("golden/box-count-sketch", "golden/box-paper", "golden/box-adaptive"),
    *("golden/factorised-substitute", "golden/refined", "golden/invariants"),
    *("golden/box-substitute", "golden/sparse-labels", "extra/for-counts-short"),
    *("extra/relative-short", "extra/planned-rho", "extra/factorised-delta"),
    *("kind/thresholds", "kind/selection", "kind/keys of a table", "kind/mixed"),
    "command/format-3-series",
    *("golden/cdf-rho", "golden/box-sparse"),
)


def files(folder: Path) -> dict[str, str]:
    """The digest of every file of releases, by its path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".run.json")  # which holds times
    }


def check_same(one: Path, other: Path) -> None:
    """See that two folders hold the same bytes, or fail with the fields that differ."""
    ours = files(one)
    assert len(ours) > 10
    if ours != files(other):
        pytest.fail("\n".join(differences(one, other)))


@dataclass(frozen=True, kw_only=True)
class Native:
    """The folder of releases that this machine made as it is, and the powers and sums of floats
    that were seen meanwhile."""

    folder: Path
    seen: str


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    """All chosen releases."""
    folder = tmp_path_factory.mktemp("native")
    seen = output_of("native", "tests.processors.operators", [str(folder), *CHOSEN])
    return Native(folder=folder / "made", seen=seen)


@pytest.mark.parametrize("processor", EMULATED)
def test_same_bytes(processor: str, native: Native, tmp_path: Path) -> None:
    output_of(processor, "tests.processors.releases", [str(tmp_path), *CHOSEN])
    check_same(native.folder, tmp_path / "made")


def test_releases_raise_no_float(native: Native) -> None:
    """No power of floats and no sum() of floats is made while releases of every kind are."""
    assert native.seen == ""
