"""Emulated processors: environments in which NumPy, OpenBLAS, glibc and pyarrow choose other code.

These libraries look at the processor when they are loaded, and take the fastest code that it can
run. Each can be instructed to pass over instructions, so one machine with AVX-512 can run what
many processors would. `differing_functions` shows that the instructions take effect.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]

# NumPy 2.4 dispatches to X86_V3, X86_V4 and AVX512_*; the others are the names of NumPy 1 and 2.3.
# It warns of names that it does not know, and goes on.
_NO_AVX512 = "X86_V4 AVX512_SPR AVX512_ICL AVX512_CNL AVX512_CLX AVX512_SKX AVX512CD AVX512F"
_NO_AVX2 = f"X86_V3 {_NO_AVX512} AVX2 FMA3"
_OLD_GLIBC = "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ"

# All that an environment below may hold; a process starts with none of it but its own.
VARIABLES = (
    "NPY_DISABLE_CPU_FEATURES",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS",
    "GLIBC_TUNABLES",
    "ARROW_USER_SIMD_LEVEL",
)
_ALL: dict[str, dict[str, str]] = {
    # This machine, as it is.
    "native": {},
    "one_thread": {"OPENBLAS_NUM_THREADS": "1"},
    # The three environments in which differences were first measured.
    "numpy_without_avx512": {"NPY_DISABLE_CPU_FEATURES": "AVX512_ICL X86_V4"},
    "skylake": {
        "NPY_DISABLE_CPU_FEATURES": "AVX512_ICL X86_V4",
        "OPENBLAS_CORETYPE": "SkylakeX",
    },
    # Servers with AVX2 and without AVX-512: Intel of 2014, AMD up to 2021.
    "haswell": {
        "NPY_DISABLE_CPU_FEATURES": _NO_AVX512,
        "OPENBLAS_CORETYPE": "Haswell",
        "OPENBLAS_NUM_THREADS": "2",
        "ARROW_USER_SIMD_LEVEL": "AVX2",
    },
    "zen": {"NPY_DISABLE_CPU_FEATURES": _NO_AVX512, "OPENBLAS_CORETYPE": "Zen"},
    # No fused multiplication and addition in the functions of the C library, alone and with the
    # oldest code of OpenBLAS.
    "glibc_without_fma": {"GLIBC_TUNABLES": _OLD_GLIBC},
    "prescott": {
        "OPENBLAS_CORETYPE": "Prescott",
        "OPENBLAS_NUM_THREADS": "1",
        "GLIBC_TUNABLES": _OLD_GLIBC,
    },
    # All at once: what every x86-64 processor can run (SSE4.2 is the least that NumPy 2.4 takes).
    "nehalem": {
        "NPY_DISABLE_CPU_FEATURES": _NO_AVX2,
        "OPENBLAS_CORETYPE": "Nehalem",
        "OPENBLAS_NUM_THREADS": "1",
        "GLIBC_TUNABLES": _OLD_GLIBC,
        "ARROW_USER_SIMD_LEVEL": "NONE",
    },
}
# What the code of OpenBLAS for a processor runs; without it a process dies of an illegal
# instruction.
_NEEDED = {"SkylakeX": "avx512f", "Haswell": "avx2", "Zen": "avx2"}


def _is_runnable(settings: dict[str, str], flags: frozenset[str]) -> bool:
    """Return whether a machine with these flags has the instructions of an environment.

    >>> _is_runnable({"OPENBLAS_CORETYPE": "SkylakeX"}, frozenset(["avx", "avx2"]))
    False
    """
    needed = _NEEDED.get(settings.get("OPENBLAS_CORETYPE", ""))
    return needed is None or needed in flags


def _flags() -> frozenset[str]:
    """Return the instructions that Linux lists; all that is needed where it lists none."""
    listed = Path("/proc/cpuinfo")
    text = listed.read_text(encoding="utf-8") if listed.exists() else ""
    lines = [line for line in text.splitlines() if line.startswith("flags")]
    return frozenset(lines[0].split() if lines else _NEEDED.values())


# Those that this machine can take itself for.
PROCESSORS = {name: each for name, each in _ALL.items() if _is_runnable(each, _flags())}


def environment(processor: str) -> dict[str, str]:
    """Return the environment of a process that takes this machine for an emulated processor."""
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return inherited | PROCESSORS[processor]


def run_module(
    processor: str, module: str, *arguments: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a Python module in a process of its own on an emulated processor.

    Args:
        processor: one of `PROCESSORS`.
        module: the module's dotted name.
        arguments: its arguments.
        folder: the working directory; the project's folder by default.
    """
    search = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder or PROJECT,
        env=environment(processor) | {"PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )


def output_of(
    processor: str, module: str, arguments: Sequence[str] = (), folder: Path | None = None
) -> str:
    """Return what a module prints on an emulated processor.

    Raises:
        RuntimeError: the module fails.
    """
    done = run_module(processor, module, *arguments, folder=folder)
    if done.returncode:
        raise RuntimeError(f"{module} fails on {processor}: {done.stderr[-3000:]}")
    return done.stdout
