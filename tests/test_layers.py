"""The architecture, enforced on the source text: imports point downwards only.

dpcore is mathematics (no Beam, no file, no clock, no command line), transforms is Beam wiring,
pipelines is what a person runs; randomness enters through dpcore/noise/randomness.py alone, and
text leaves for the terminal through pipelines/terminal_text.py alone. Each rule is shown to fail on
a planted source.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

PROJECT = Path(__file__).resolve().parents[1]
LAYERS = ("dpcore", "transforms", "pipelines")
GATEWAY = PurePosixPath("dpcore/noise/randomness.py")
SIGNATURE = PurePosixPath("pipelines/proof/signature.py")
TERMINAL = PurePosixPath("pipelines/terminal_text.py")
YAML = PurePosixPath("pipelines/beam_yaml.py")
# Kinds and mechanisms are imported when a release first has them.
LOADER = PurePosixPath("dpcore/mechanisms.py")

# dpcore: third-party packages it may use, and what of the standard library it may not.
DPCORE_PACKAGES = {"numpy", "scipy", "pyarrow", "mmh3", "cryptography", "dp_accounting", "dpcore"}
FILES_CLOCK_COMMAND_LINE = {
    *("argparse", "builtins", "fileinput", "getopt", "glob", "importlib", "logging", "mmap", "os"),
    *("pathlib", "shutil", "socket", "sqlite3", "subprocess", "sys", "tempfile", "time", "urllib"),
    *("pyarrow.csv", "pyarrow.dataset", "pyarrow.feather", "pyarrow.fs", "pyarrow.orc"),
    *("pyarrow.parquet", "pyarrow.json"),
}
FILE_ATTRIBUTES = {
    *("OSFile", "fromfile", "load", "loadtxt", "memmap", "memory_map", "open_memmap"),
    *("read_bytes", "read_text", "save", "savetxt", "savez", "savez_compressed", "tofile"),
    *("write_bytes", "write_text"),
}
CLOCK_ATTRIBUTES = {"now", "today", "utcnow"}
CALLS = {"__import__", "input", "open", "print"}
STREAM_WRITES = {
    f"sys.{stream}.{write}" for stream in ("stdout", "stderr") for write in ("write", "writelines")
}

ABOVE_ALL = {"benchmarks", "examples", "tests"}
FORBIDDEN_BELOW = {
    "dpcore": ABOVE_ALL | {"apache_beam", "dptrees", "pipelines", "transforms"},
    "transforms": ABOVE_ALL | {"dptrees", "pipelines"},
    "pipelines": ABOVE_ALL,
}
UNKEYED_RANDOMNESS = {"random", "numpy.random", "scipy.stats.sampling", "scipy.stats.qmc"}
RANDOM_ATTRIBUTES = {"SystemRandom", "default_rng", "getrandbits", "random", "rvs"}
GATEWAY_ONLY = {"secrets", "cryptography"}
# What signs manifests, which is no noise and hides nothing.
SIGNING = {
    "cryptography.exceptions",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cryptography.hazmat.primitives.serialization",
}
NOUNLESS_NAMES = {"common", "helper", "helpers", "misc", "util", "utils"}


def imported(tree: ast.Module, path: PurePosixPath) -> Iterator[str]:
    """Yield the dotted names that a module imports: ``from a.b import c`` gives a.b and a.b.c."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = path.parts[: len(path.parts) - node.level] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            if module:
                yield module
            yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names)


def within(name: str, modules: set[str]) -> bool:
    """Return whether a dotted name is one of the modules or lies inside one."""
    parts = name.split(".")
    return any(".".join(parts[:length]) in modules for length in range(1, len(parts) + 1))


def attributes(tree: ast.Module) -> set[str]:
    """Return every attribute name read, of any owner: an alias hides nothing."""
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def calls(tree: ast.Module) -> set[str]:
    """Return the plain names that are called."""
    nodes = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {function.id for function in nodes if isinstance(function, ast.Name)}


def layer_violations(path: PurePosixPath, names: set[str]) -> Iterator[str]:
    """Yield imports that point upwards, and annotations that Beam could not read."""
    for name in sorted(names):
        if within(name, FORBIDDEN_BELOW[path.parts[0]]):
            yield f"imports {name}, which lies above it"
    if (path.parts[0] == "transforms" or path == YAML) and "__future__.annotations" in names:
        yield "makes annotations text, which Beam's type inference reads as Any"


def purity_violations(path: PurePosixPath, tree: ast.Module, names: set[str]) -> Iterator[str]:
    """Yield what dpcore may not touch: files, the clock, the command line, other packages."""
    allowed = {"os", "os.urandom"} if path == GATEWAY else set()
    if path == LOADER:
        allowed = {"importlib", "importlib.import_module"}
    for name in sorted(names - allowed):
        if within(name, FILES_CLOCK_COMMAND_LINE):
            yield f"imports {name}: dpcore has no file, clock or command line"
        elif name.split(".")[0] not in DPCORE_PACKAGES | set(sys.stdlib_module_names):
            yield f"imports {name}, a package that dpcore does not use"
    for name in sorted(attributes(tree) & (FILE_ATTRIBUTES | CLOCK_ATTRIBUTES)):
        yield f"uses .{name}: dpcore has no file and no clock"
    for name in sorted(calls(tree) & CALLS):
        yield f"calls {name}(): dpcore has no file and no terminal"


def gateway_os_violations(tree: ast.Module) -> Iterator[str]:
    """Yield uses of ``os`` other than os.urandom in the gateway."""
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for name in sorted(used - {"os.urandom"}):
        if name.startswith("os."):
            yield f"uses {name}: the gateway may use os.urandom only"


def randomness_violations(path: PurePosixPath, tree: ast.Module, names: set[str]) -> Iterator[str]:
    """Yield randomness that is not keyed, and entropy or ciphers outside the gateway."""
    for name in sorted(names):
        if within(name, UNKEYED_RANDOMNESS):
            yield f"imports {name}: all randomness is keyed"
        if path == SIGNATURE and within(name, SIGNING):
            continue
        if path != GATEWAY and within(name, GATEWAY_ONLY | {"os.urandom", "os.getrandom"}):
            yield f"imports {name}, which belongs to {GATEWAY}"
    for name in sorted(attributes(tree) & RANDOM_ATTRIBUTES):
        yield f"uses .{name}: all randomness is keyed"
    if path != GATEWAY:
        for name in sorted(attributes(tree) & {"urandom", "getrandom"}):
            yield f"uses .{name}, which belongs to {GATEWAY}"


def terminal_violations(tree: ast.Module) -> Iterator[str]:
    """Yield what prints past the module that escapes control characters."""
    written = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for name in sorted(calls(tree) & {"print"} | written & STREAM_WRITES):
        yield f"uses {name}: text reaches the terminal through {TERMINAL}"


def violations(path: str, source: str) -> list[str]:
    """Return every rule that the source of one module of the three packages breaks."""
    where = PurePosixPath(path)
    tree = ast.parse(source)
    names = {name.removeprefix("dptrees.") for name in imported(tree, where)}
    found = [*layer_violations(where, names), *randomness_violations(where, tree, names)]
    if where.parts[0] == "dpcore":
        found += purity_violations(where, tree, names)
    if where != TERMINAL:
        found += terminal_violations(tree)
    if where == GATEWAY:
        found += gateway_os_violations(tree)
    return found


MODULES = sorted(
    path.relative_to(PROJECT).as_posix()
    for layer in LAYERS
    for path in (PROJECT / layer).rglob("*.py")
)


def test_every_module_keeps_to_its_layer() -> None:
    assert {f"{layer}/__init__.py" for layer in LAYERS} <= set(MODULES)
    found = [
        f"{path} {violation}"
        for path in MODULES
        for violation in violations(path, (PROJECT / path).read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


SHAPES = "dpcore/trees/shapes.py"
PLANTED: dict[str, tuple[str, ...]] = {
    SHAPES: (
        "import apache_beam as beam",
        "from dptrees.transforms.steps.count import merged",
        "import dptrees.pipelines",
        "from ... import transforms",
        "def late():\n    import apache_beam",
        "if False:\n    from dptrees.pipelines import command",
        "import importlib\nimportlib.import_module('apache_beam')",
        "__import__('apache_beam')",
        "import pandas",
        "data = open('rows')",
        "from pathlib import Path",
        "import os",
        "import os.path",
        "from io import open\nimport tempfile",
        "import pyarrow.parquet as pq",
        "from pyarrow import fs",
        "import numpy as np\nnp.save('rows', x)",
        "from time import perf_counter",
        "from datetime import datetime\nx = datetime.now()",
        "import datetime\nx = datetime.date.today()",
        "import argparse",
        "import sys",
        "print(1)",
        "import secrets",
        "from cryptography.hazmat.primitives import ciphers",
    ),
    "dpcore/noise/randomness.py": (
        "import os\nos.remove('key')",
        "from os import remove",
        "import numpy as np\nx = np.random.default_rng()",
    ),
    "transforms/noise.py": (
        "from cryptography.hazmat.primitives.ciphers import Cipher",
        "from os import urandom",
        "import os\nx = os.urandom(8)",
        "import random",
        "from dptrees.pipelines import command",
        "from tests import conftest",
        "from __future__ import annotations",
        "print(1)",
    ),
    "pipelines/proof/signature.py": (
        "from cryptography.hazmat.primitives import ciphers",
        "import secrets",
    ),
    "pipelines/noise.py": ("from cryptography.hazmat.primitives.asymmetric import ed25519",),
    "pipelines/beam_yaml.py": ("from __future__ import annotations",),
    "pipelines/cli/command.py": (
        "def late(label):\n    print(label)",
        "import sys\nsys.stderr.write(label)",
        "from secrets import token_bytes",
        "from random import shuffle",
        "import numpy.random",
        "from numpy.random import default_rng",
        "from numpy import random",
        "import numpy as np\nx = np.random.normal()",
        "from scipy import stats\nx = stats.norm.rvs(9)",
        "import pyarrow.compute as pc\nx = pc.random(9)",
    ),
}
ALLOWED: dict[str, tuple[str, ...]] = {
    SHAPES: (
        "from __future__ import annotations\nimport math\nfrom . import plan",
        "import io\nimport pyarrow.compute as pc\nx = io.BytesIO()",
        '"""random, os.urandom and open() in a docstring."""',
        "from datetime import date\nx = date(2013, 1, 1)",
        "from dptrees.dpcore.noise.randomness import RandomStream",
    ),
    "dpcore/noise/randomness.py": (
        "import os\nx = os.urandom(32)",
        "from os import urandom\nimport secrets, hmac",
        "from cryptography.hazmat.primitives.ciphers import Cipher",
    ),
    "transforms/noise.py": ("import os, time\nimport apache_beam\nfrom dpcore import noise",),
    "pipelines/cli/command.py": ("import sys\nfrom transforms import noise\nx = open('config')",),
}


def test_planted_violations_are_found() -> None:
    missed = [
        (path, source)
        for path, sources in PLANTED.items()
        for source in sources
        if not violations(path, source)
    ]
    assert missed == []


def test_allowed_sources_pass() -> None:
    found = [
        (path, source, violations(path, source))
        for path, sources in ALLOWED.items()
        for source in sources
        if violations(path, source)
    ]
    assert found == []


def nounless(paths: list[str]) -> list[str]:
    """Return the modules and folders whose name says nothing about what they hold."""
    return [
        path for path in paths if set(PurePosixPath(path).with_suffix("").parts) & NOUNLESS_NAMES
    ]


def test_every_module_is_named_by_a_noun() -> None:
    folders = (*LAYERS, "tests", "benchmarks", "examples", "deploy")
    found = [
        path.relative_to(PROJECT).as_posix()
        for folder in folders
        for path in (PROJECT / folder).rglob("*.py")
    ]
    assert "tests/test_layers.py" in found
    assert nounless(found) == []
    planted = ["dpcore/utils.py", "pipelines/helpers/x.py", "tests/common.py"]
    assert nounless(planted) == planted


def first_circle(sources: Mapping[str, str]) -> list[str]:
    """Return the modules of a circle of imports, empty where there is none.

    Imports for annotations alone count too: they show one noun that was cut into two files.

    Args:
        sources: text by module, dotted.
    """
    imports = {
        module: {
            name
            for name in imported(ast.parse(text), PurePosixPath(*module.split(".")))
            if name in sources and name != module
        }
        for module, text in sources.items()
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def test_no_modules_import_each_other() -> None:
    paths = [path for layer in LAYERS for path in (PROJECT / layer).rglob("*.py")]
    modules = {
        path: ".".join(["dptrees", *path.relative_to(PROJECT).with_suffix("").parts])
        for path in paths
    }
    assert len(paths) > 200
    assert first_circle({modules[path]: path.read_text() for path in paths}) == []
    annotated = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import A\n"
    assert set(first_circle({"p.a": "from p.b import b\n", "p.b": annotated})) == {"p.a", "p.b"}
    assert first_circle({"p.a": "from p.b import b\n", "p.b": "import p.c\n", "p.c": ""}) == []
