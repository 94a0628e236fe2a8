"""Plans and releases of every kind have the same bytes on every emulated processor."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.processors.differences import differences
from tests.processors.emulated import PROCESSORS, run_module

MODULE = "tests.processors.releases"
# Each differs from the others in NumPy, OpenBLAS, glibc or pyarrow; `nehalem` has none of
# AVX, AVX2, FMA and AVX-512 (NumPy's X86_V3 and X86_V4).
EMULATED = tuple(
    each for each in ("skylake", "haswell", "prescott", "nehalem") if each in PROCESSORS
)
QUICK = ("golden/cdf-rho", "golden/box-sparse")
# Releases of all kinds, mechanisms and budgets; of those that are made alike the cheapest.
CHOSEN = (
    *("golden/cdf-approximate", "golden/quantiles-by", "golden/exponential-intervals"),
    *("golden/exponential-rounds", "golden/binary-full"),
    *("golden/independent", "golden/histogram-l1"),
    *("golden/ranges", "golden/smallest-first", "golden/nodes", "golden/adaptive"),
    *("golden/adaptive-by-rho", "golden/hierarchy-by-rho"),
    *("golden/calendar", "golden/sums", "golden/as-measured", "golden/adaptive-hierarchy"),
    *("golden/sparse-paths", "golden/box-count-min"),
    *("golden/box-count-sketch", "golden/box-paper", "golden/box-adaptive"),
    *("golden/factorised-substitute", "golden/refined", "golden/invariants"),
    *("golden/box-substitute", "golden/sparse-labels", "extra/for-counts-short"),
    *("extra/relative-short", "extra/planned-rho", "extra/factorised-delta"),
    *("kind/thresholds", "kind/selection", "kind/keys of a table", "kind/mixed"),
    "command/format-3-series",
    *QUICK,
)


def files(folder: Path) -> dict[str, str]:
    """The digest of every file of releases, by its path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".run.json")  # which holds times
    }


def made(processor: str, folder: Path, names: tuple[str, ...]) -> Path:
    """Make releases in a process on an emulated processor; return the folder that holds them."""
    done = run_module(processor, MODULE, str(folder / processor), *names)
    assert done.returncode == 0, f"{processor}: {done.stderr[-3000:]}"
    return folder / processor / "made"


def check_same(one: Path, other: Path) -> None:
    """See that two folders hold the same bytes, or fail with the fields that differ."""
    ours = files(one)
    assert len(ours) > 10
    if ours != files(other):
        pytest.fail("\n".join(str(each) for each in differences(one, other)))


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All chosen releases, made on this machine as it is."""
    return made("native", tmp_path_factory.mktemp("native"), CHOSEN)


@pytest.mark.parametrize("processor", EMULATED)
def test_same_bytes(processor: str, native: Path, tmp_path: Path) -> None:
    check_same(native, made(processor, tmp_path, CHOSEN))


def test_same_bytes_of_two_releases(tmp_path: Path) -> None:
    """The least of the test above, for every run of the quick tests."""
    one, other = (made(each, tmp_path, QUICK) for each in ("native", "nehalem"))
    check_same(one, other)
