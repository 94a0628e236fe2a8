"""Plans and estimates of strategies are the same bits on emulated processors."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
# What NumPy, OpenBLAS and glibc take this machine for.
PROCESSORS = {
    "prescott": {
        "NPY_DISABLE_CPU_FEATURES": "AVX512_ICL X86_V4 X86_V3",
        "OPENBLAS_CORETYPE": "Prescott",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F",
    },
    "haswell": {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "2"},
}
NATIVE = {"OPENBLAS_NUM_THREADS": "1"}


@cache
def printed(processor: str, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if "OPENBLAS" not in name}
    return subprocess.run(
        [sys.executable, "-m", "tests.dpcore.factorised.plans_in_digests", *arguments],
        cwd=PROJECT,
        env=environment | PROCESSORS.get(processor, NATIVE),
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize("processor", PROCESSORS)
def test_plans_and_estimates_are_the_same_on(processor: str) -> None:
    assert printed(processor).splitlines() == printed("native").splitlines()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86-64 is emulated")
def test_the_processors_are_others() -> None:
    """Else the test above would show nothing."""
    assert printed("prescott", "lapack") != printed("native", "lapack")
