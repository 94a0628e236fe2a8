"""The locks of deploy/container/locks, read as pip reads them."""

from __future__ import annotations

import importlib.util
import re
import runpy
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]
LOCKS = PROJECT / "deploy" / "container" / "locks"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")


def environment(python: str, machine: str) -> dict[str, str]:
    """What markers see in an image.

    >>> environment("3.11", "aarch64")["python_version"]
    '3.11'
    """
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.9",
        "python_version": python,
        "sys_platform": "linux",
    }


def entries(text: str) -> list[tuple[Requirement, int]]:
    r"""Each requirement of a lock, and how many hashes it has.

    >>> entries("six==1.17.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n    # via x\n")
    [(<Requirement('six==1.17.0')>, 2)]
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    logical = "\n".join(lines).replace("\\\n", " ").splitlines()
    found = []
    for line in logical:
        requirement, *hashes = re.split(r"\s+--hash=sha256:", line.strip())
        if requirement:
            found.append((Requirement(requirement), len(hashes)))
    return found


def lock_text(python: str, chosen: Iterable[str]) -> str:
    """The lock of a Python with its additions for some extras, as the recipe puts them together."""
    names = [f"python{python}", *(f"python{python}-{extra}" for extra in chosen)]
    return "".join((LOCKS / f"{name}.txt").read_text(encoding="utf-8") for name in names)


def locked(
    python: str, machine: str = "x86_64", chosen: Iterable[str] | None = None, name: str = ""
) -> dict[str, str]:
    """The version of each package that a lock installs, by its normal name.

    Args:
        python: its version.
        machine: the architecture.
        chosen: the extras; None for all of them.
        name: of another lock than that of dptrees.
    """
    if name:
        text = (LOCKS / f"{name}.txt").read_text(encoding="utf-8")
    else:
        text = lock_text(python, extras() if chosen is None else chosen)
    seen = environment(python, machine)
    return {
        canonicalize_name(each.name): next(iter(each.specifier)).version
        for each, _ in entries(text)
        if each.marker is None or each.marker.evaluate(seen)
    }


def packaging() -> Mapping[str, Any]:
    """What setup.py says to setuptools."""
    with patch("setuptools.setup") as setup:
        runpy.run_path(str(PROJECT / "setup.py"))
    said: Mapping[str, Any] = setup.call_args.kwargs
    return said


def program(name: str) -> ModuleType:
    """A program of deploy/container, which belongs to no package."""
    path = PROJECT / "deploy" / "container" / f"{name}.py"
    made = importlib.util.spec_from_file_location(name, path)
    assert made is not None and made.loader is not None
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module


def extras() -> list[str]:
    """The extras that images can have, as the Makefile names them."""
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    (line,) = re.findall(r"^LOCKED_EXTRAS := (.*)$", makefile, flags=re.MULTILINE)
    return str(line).split()


def default_extras() -> list[str]:
    """The extras of an image that is built without the argument EXTRAS."""
    recipe = (PROJECT / "deploy" / "container" / "Dockerfile").read_text(encoding="utf-8")
    (line,) = re.findall(r'^ARG EXTRAS="(.*)"$', recipe, flags=re.MULTILINE)
    return str(line).split()
