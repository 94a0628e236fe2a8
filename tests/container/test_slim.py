"""A worker's image is small, and no file is missing that a release of any kind needs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.container.conftest import CONFIGURATION, ROWS, absent, give_away
from tests.container.locks import PROJECT, default_extras, extras
from tests.container.podman import MOUNTED, image, podman, root_of, run
from tests.golden.configurations import NAMES, NONCE, write_configuration, write_data
from tests.golden.hashes import integers

pytestmark = pytest.mark.usefixtures("images")
LARGEST_WORKER = 250_000_000
# Plans of relative errors and many chunks take a minute; the others have the same parts.
LONG = {"relative", "thresholds", "chunks-by-rho", "hierarchy-chunks"}
# The command `dptrees`, for many configurations in one process; it prints each exit code.
RELEASES = f"""
import sys
from importlib.metadata import entry_points
(command,) = entry_points(group="console_scripts", name="dptrees")
main = command.load()
for path in sys.argv[1:]:
    code = main(["release", path, "--nonce", "{NONCE}"])
    print("released", path, code, flush=True)
"""
# Each module that a compiler made, in an order that does not matter; it prints those that fail.
IMPORTS = """
import contextlib, importlib, sysconfig
from pathlib import Path
with contextlib.suppress(ImportError):
    import psycopg  # its binary part refuses to be imported first
folder = Path(sysconfig.get_paths()["purelib"])
names = {".".join(path.relative_to(folder).parts).split(".cpython")[0]
         for path in folder.rglob("*.cpython-*.so")}
for name in sorted(names):
    try:
        importlib.import_module(name)
    except Exception as error:
        print(name, type(error).__name__)
print(len(names), "modules")
"""
# As in the wheels: a circle if it is imported by itself, and a module for Tk, which is not there.
NEVER_IMPORTED = {
    "scipy.linalg._matfuncs_sqrtm_triu ImportError",
    "PIL._imagingtk ModuleNotFoundError",
}
# An input, and the extra that reads it.
INPUTS = (
    ('{format: parquet, path: "s3://bucket/rows/*.parquet"}', "aws"),
    ('{format: csv, path: "s3://bucket/rows/*.csv"}', "aws"),
    ('{format: parquet, path: "gs://bucket/rows/*.parquet"}', "gcp"),
    ("{format: bigquery, table: shop.web.visits, billed: analytics}", "gcp"),
    ("{format: delta, table: lake/visits, version: 0}", "delta"),
    ('{format: iceberg, table: shop.visits, version: "2026-11-01T00:00:00Z"}', "iceberg"),
    ("{format: postgresql, table: web.visits, connection: env:VISITS_URL}", "sql"),
)


def packed() -> dict[str, int]:
    """The bytes of each image as a registry stores it, by its name with its digest."""
    done = subprocess.run(
        ["deploy/container/build.sh", "pack"], cwd=PROJECT, capture_output=True, text=True
    )
    if "buildah" in done.stderr:
        absent(done.stderr)
    assert done.returncode == 0, done.stderr
    return {name: int(size) for name, size in re.findall(r"^(\S+) (\d+) bytes$", done.stdout, re.M)}


def test_worker_is_small_and_has_a_digest() -> None:
    sizes = packed()
    worker, launcher = sizes
    assert re.fullmatch(r"localhost/dptrees-worker@sha256:[0-9a-f]{64}", worker)
    assert re.fullmatch(r"localhost/dptrees-launcher@sha256:[0-9a-f]{64}", launcher)
    assert sizes[worker] <= LARGEST_WORKER, (
        f"{sizes[worker]:,} bytes: see docs/deploy/containers.md"
    )


def test_every_compiled_module_is_whole() -> None:
    done = run("worker", "-c", IMPORTS, options=("--entrypoint=python", "--network=none"))
    *failed, count = done.stdout.splitlines()
    assert set(failed) <= NEVER_IMPORTED, done.stderr
    assert int(count.split()[0]) > 150


def test_lists_of_files_are_those_of_the_image() -> None:
    program = (
        "from importlib.metadata import distributions; import os\n"
        "gone = [str(f) for d in distributions() for f in d.files or [] "
        "if not os.path.exists(d.locate_file(f))]\n"
        "print(len(gone), gone[:5])"
    )
    done = run("worker", "-c", program, options=("--entrypoint=python", "--network=none"))
    assert done.stdout == "0 []\n", done.stdout + done.stderr
    with root_of("worker") as root:
        names = {path.name for path in (root / "opt/dptrees").rglob("*")}
    assert not {"tests", "arrayobject.h"} & names


def test_image_says_its_extras() -> None:
    (found,) = json.loads(podman("image", "inspect", image("worker")).stdout)
    assert found["Labels"]["dptrees.extras"].split() == default_extras()


def test_every_kind_is_released_with_the_committed_integers(tmp_path: Path) -> None:
    write_data(tmp_path)
    names = sorted(set(NAMES) - LONG)
    for name in names:
        write_configuration(tmp_path, name)
    give_away(tmp_path)
    options = ("--entrypoint=python", f"--workdir={MOUNTED}", "--network=none")
    paths = [f"{name}.yaml" for name in names]
    done = run("worker", "-c", RELEASES, *paths, files=tmp_path, options=options)
    released = re.findall(r"^released (\S+)\.yaml 0$", done.stdout, re.M)
    assert released == names, done.stderr[-3000:]
    committed = json.loads((PROJECT / "tests/golden/integers.json").read_text())
    for name in names:
        assert integers(tmp_path / "out" / name) == committed[name]


@pytest.mark.parametrize(("requested", "extra"), INPUTS)
def test_an_input_that_is_not_in_the_image_names_its_extra(
    files: Path, requested: str, extra: str
) -> None:
    assert extra in set(extras()) - set(default_extras())
    path = files / "missing.yaml"
    path.write_text(CONFIGURATION.replace(ROWS, requested), encoding="utf-8")
    give_away(files)
    options = ("--network=none", "--env=VISITS_URL=postgresql://reader@localhost/visits")
    done = run("launcher", "release", "missing.yaml", files=files, options=options)
    assert done.returncode not in (0, 1)
    assert f"dptrees[{extra}]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
