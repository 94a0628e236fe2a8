"""The wheel and the source distribution: how they are built, and what is checked before a version.

    python .ci/distribution.py build FOLDER   build both of the last commit, bit for bit the same
    python .ci/distribution.py check FOLDER   run every check on them, from clean environments
    python .ci/distribution.py sizes FOLDER   print the size of an installation with each extra

`check` and `sizes` need the programs of `make release-check`, in the environment that runs this
file. `check` fails at the first check that does not hold.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import setuptools

PROJECT = Path(__file__).resolve().parents[1]
MINORS = range(10, 15)
# Extras that are not for users.
DEVELOPERS = ("dev", "docs", "test")
RELEASE = """
release: ages
input: {format: parquet, path: rows.parquet}
output: out/ages
key_file: release.key
privacy: {epsilon: 1, neighbors: add_remove}
trees:
  - {name: age, domain: {column: age, type: integer, lower: 0, upper: 100}}
"""
ROWS = """
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.table({"age": [number % 90 for number in range(9000)]}), "rows.parquet")
"""
PYTHON = """
import dptrees
config = {"privacy": {"epsilon": 1, "neighbors": "add_remove"},
          "trees": [{"name": "age", "domain": {"column": "age", "type": "integer", "lower": 0,
                                               "upper": 90}}]}
made = dptrees.release({"age": [number % 90 for number in range(9000)]}, config)
assert made["age"].quantiles([0.5]).to_dicts()[0]["value"] is not None
assert dptrees.open("out/ages")["age"].cdf(45) is not None
"""


class CheckError(Exception):
    """A check that does not hold, in one sentence."""


def run(*command: str | Path, cwd: Path = PROJECT, more: Mapping[str, str] | None = None) -> str:
    """Run a program and return its output.

    Raises:
        CheckError: it fails; its output is in the message.
    """
    environment = os.environ | dict(more or {})
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CheckError(
            f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}"
        )
    return done.stdout


def commit_time() -> str:
    """Seconds since 1970 of the last commit: the time of every file in a distribution."""
    return run("git", "log", "-1", "--format=%ct").strip()


def export_commit(folder: Path) -> None:
    """Write the files of the last commit, and nothing else, into a folder."""
    archive = folder / "commit.tar"
    # A user's own settings would change the ends of lines, the rights and the list of files.
    plain = ("core.autocrlf=false", "core.eol=lf", "core.attributesFile=", "tar.umask=0022")
    settings = [word for each in plain for word in ("-c", each)]
    run("git", *settings, "archive", "--output", archive, "HEAD")
    with tarfile.open(archive) as files:
        # An attribute, not an argument: Python 3.10.11 and 3.11.3 have no filters.
        files.extraction_filter = getattr(tarfile, "tar_filter", None)
        files.extractall(folder)
    archive.unlink()


def repacked(sdist: bytes, seconds: int) -> bytes:
    """Return a source distribution without the time, the user and the order of its build.

    Args:
        sdist: a ``.tar.gz`` as setuptools makes it.
        seconds: the time of all files, since 1970.
    """
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(sdist)) as old,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.mtime, plain.size = member.type, seconds, member.size
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(plain, old.extractfile(member) if member.isfile() else None)
    return gzip.compress(packed.getvalue(), mtime=seconds)


def build(folder: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution of the last commit.

    Both depend on the commit and on setuptools alone: not on the time, the place or the user.

    Args:
        folder: receives both files.

    Returns:
        The paths of the wheel and the source distribution.
    """
    if tuple(map(int, setuptools.__version__.split(".")[:2])) < (70, 1):
        raise CheckError("setuptools 70.1 or newer is needed: pip install --upgrade setuptools")
    folder.mkdir(parents=True, exist_ok=True)
    seconds = commit_time()
    before = os.umask(0o022)  # a wheel has the modes of its files
    try:
        with tempfile.TemporaryDirectory() as work:
            source, made = Path(work, "source"), Path(work, "made")
            source.mkdir()
            export_commit(source)
            time = {"SOURCE_DATE_EPOCH": seconds}
            run(sys.executable, "setup.py", "-q", "sdist", "-d", made, cwd=source, more=time)
            options = ("--no-deps", "--no-index", "--no-build-isolation", "-q", "-w", made)
            run(sys.executable, "-m", "pip", "wheel", *options, source, more=time)
            (archive,), (wheel,) = made.glob("*.tar.gz"), made.glob("*.whl")
            (folder / archive.name).write_bytes(repacked(archive.read_bytes(), int(seconds)))
            shutil.copyfile(wheel, folder / wheel.name)
    finally:
        os.umask(before)
    return folder / wheel.name, folder / archive.name


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_same_bits(wheel: Path, sdist: Path) -> str:
    """Build both again, at another time and place and with other rights of new files; compare."""
    before = os.umask(0o077)
    try:
        with tempfile.TemporaryDirectory() as work:
            for old, new in zip((wheel, sdist), build(Path(work)), strict=True):
                if digest(old) != digest(new):
                    raise CheckError(f"{old.name}: a second build has other bytes")
    finally:
        os.umask(before)
    return ", ".join(f"{path.name} {digest(path)[:16]}" for path in (wheel, sdist))


def check_names(wheel: Path, sdist: Path) -> str:
    """The wheel owns one name, and the source distribution installs the same files."""
    with zipfile.ZipFile(wheel) as files:
        names = {name for name in files.namelist() if ".dist-info/" not in name}
    tops = {name.split("/")[0] for name in names}
    if tops != {"dptrees"}:
        raise CheckError(f"{wheel.name}: it installs {', '.join(sorted(tops))}, not dptrees alone")
    with tempfile.TemporaryDirectory() as work:
        options = ("--no-deps", "--no-index", "--no-build-isolation", "-q", "--target", work)
        run(sys.executable, "-m", "pip", "install", *options, "--no-compile", sdist)
        placed = {
            path.relative_to(work).as_posix(): path.read_bytes()
            for path in Path(work, "dptrees").rglob("*")
            if path.is_file()
        }
        with zipfile.ZipFile(wheel) as files:
            if placed != {name: files.read(name) for name in names}:
                raise CheckError(f"{sdist.name}: it installs other files than the wheel")
    return f"{len(names)} files, all below dptrees/"


def check_changelog(version: str) -> str:
    """The CHANGELOG has a section of the version; at a tag it has its date."""
    text = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(version)} \((.+)\)$", text, re.MULTILINE)
    if found is None:
        raise CheckError(f"CHANGELOG.md: it has no section '## {version} (...)'")
    tags = run("git", "tag", "--points-at", "HEAD").split()
    if f"v{version}" in tags and not re.fullmatch(r"\d{4}-\d\d-\d\d", found[1]):
        raise CheckError(f"CHANGELOG.md: the section of {version} needs a date, not ({found[1]})")
    if tags and f"v{version}" not in tags:
        raise CheckError(f"the tag {tags[0]} is not of version {version}")
    state = f"tag v{version}" if tags else f"no tag yet: git tag v{version}"
    return f"section {version} ({found[1]}); {state}"


def pythons() -> Iterator[tuple[str, str]]:
    """The Pythons of this machine that setup.py allows: version and path."""
    places = os.environ.get("DPTREES_PYTHONS", "").split()
    for minor in MINORS:
        named = [each for each in places if f"3.{minor}" in each]
        found = named[0] if named else shutil.which(f"python3.{minor}")
        if found and (named or starts(found)):
            yield f"3.{minor}", found


def starts(python: str) -> bool:
    """Whether an interpreter can be started: a name on the path may lead to none."""
    return subprocess.run([python, "-V"], capture_output=True, check=False).returncode == 0


def make_environment(folder: Path, python: str, wheel: Path, extra: str = "") -> Path:
    """Make an environment with the wheel and what it requires; return its programs' folder."""
    uv = Path(sys.executable).with_name("uv")
    run(uv, "venv", "-q", "--python", python, folder)
    wanted = f"dptrees{f'[{extra}]' if extra else ''} @ {wheel.resolve().as_uri()}"
    run(uv, "pip", "install", "-q", "--python", folder / "bin" / "python", wanted)
    run(uv, "pip", "check", "-q", "--python", folder / "bin" / "python")
    return folder / "bin"


def megabytes(folder: Path) -> int:
    """The size of all files of a folder, in MB."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) // 10**6


def check_release(programs: Path, folder: Path) -> None:
    """Make and read a release in an empty folder, by the command and by Python."""
    folder.mkdir()
    (folder / "release.yaml").write_text(RELEASE)
    run(programs / "python", "-c", ROWS, cwd=folder)
    command = programs / "dptrees"
    run(command, "keygen", "release.key", cwd=folder)
    run(command, "plan", "release.yaml", cwd=folder)
    run(command, "release", "release.yaml", cwd=folder)
    run(command, "query", "out/ages", "cdf", "45", cwd=folder)
    run(command, "verify", "out/ages", cwd=folder)
    run(command, "report", "out/ages", cwd=folder)
    run(programs / "python", "-m", "dptrees", "verify", "out/ages", cwd=folder)
    run(programs / "python", "-W", "error::FutureWarning", "-c", PYTHON, cwd=folder)


def check_pythons(wheel: Path) -> str:
    """Every Python of this machine installs the wheel and makes a release with it."""
    sizes = []
    for version, python in pythons():
        with tempfile.TemporaryDirectory() as work:
            programs = make_environment(Path(work, "environment"), python, wheel)
            check_release(programs, Path(work, "project"))
            sizes.append(f"{version} ({megabytes(Path(work, 'environment'))} MB)")
    if not sizes:
        raise CheckError("no Python from 3.10 on is on the path: name them in DPTREES_PYTHONS")
    return ", ".join(sizes)


def extras(wheel: Path) -> list[str]:
    """The extras of the wheel that are for users."""
    with zipfile.ZipFile(wheel) as files:
        (metadata,) = (name for name in files.namelist() if name.endswith("/METADATA"))
        text = files.read(metadata).decode()
    found = re.findall(r"^Provides-Extra: (.+)$", text, re.MULTILINE)
    return sorted(set(found) - set(DEVELOPERS))


def check_extras(wheel: Path) -> str:
    """Every extra can be installed beside the others, on the oldest and the newest Python."""
    uv, named = Path(sys.executable).with_name("uv"), extras(wheel)
    counts = []
    for minor in (MINORS[0], MINORS[-1]):
        with tempfile.TemporaryDirectory() as work:
            path = Path(work, "requirements.in")
            path.write_text(f"dptrees[{','.join(named)}] @ {wheel.resolve().as_uri()}\n")
            options = ("--python-version", f"3.{minor}", "--quiet", "--no-header", "--no-annotate")
            lines = run(uv, "pip", "compile", *options, path).splitlines()
        counts.append(f"3.{minor}: {sum('==' in line for line in lines)} packages")
    return f"{', '.join(named)} ({'; '.join(counts)})"


def write_sbom(wheel: Path, folder: Path) -> str:
    """Write what an installation without extras consists of, by the standard CycloneDX."""
    with tempfile.TemporaryDirectory() as work:
        programs = make_environment(Path(work, "environment"), sys.executable, wheel)
        path = folder / f"{wheel.name.split('-py3')[0]}.cdx.json"
        tool = Path(sys.executable).with_name("cyclonedx-py")
        options = ("--output-reproducible", "--of", "JSON", "-o", path)
        run(tool, "environment", *options, programs / "python")
    return path.name


def print_sizes(folder: Path) -> None:
    """Print the megabytes of an installation, without and with each extra, as a table."""
    wheel, _ = build(folder)
    print("| extra | MB more | packages |\n|---|---:|---:|")
    least = 0
    for extra in ("", *extras(wheel)):
        with tempfile.TemporaryDirectory() as work:
            programs = make_environment(Path(work, "environment"), sys.executable, wheel, extra)
            size = megabytes(Path(work))
            count = len(list(programs.parent.glob("lib/*/site-packages/*.dist-info")))
        least = least or size
        print(f"| {extra or 'none'} | {size - least if extra else size} | {count} |", flush=True)


def check(folder: Path) -> None:
    """Build both distributions into a folder, check them, and print a line for each check.

    Raises:
        CheckError: the first check that does not hold.
    """
    if changed := run("git", "status", "--porcelain"):
        raise CheckError(f"the checkout differs from its last commit:\n{changed}")
    wheel, sdist = build(folder)
    version = wheel.name.split("-")[1]
    programs = Path(sys.executable).parent
    checks = (
        ("changelog", lambda: check_changelog(version)),
        ("the same bits", lambda: check_same_bits(wheel, sdist)),
        ("one name", lambda: check_names(wheel, sdist)),
        ("metadata", lambda: metadata_report(programs, wheel, sdist)),
        ("extras", lambda: check_extras(wheel)),
        ("releases", lambda: check_pythons(wheel)),
        ("list of packages", lambda: write_sbom(wheel, folder)),
    )
    for name, each in checks:
        print(f"ok       {name}: {each()}", flush=True)


def metadata_report(programs: Path, wheel: Path, sdist: Path) -> str:
    """Let twine read the metadata as an index would."""
    run(programs / "twine", "check", "--strict", wheel, sdist)
    return "accepted by twine check --strict"


def main(arguments: Sequence[str]) -> int:
    """Run a command of this file; return its exit code."""
    commands = {"build": build, "check": check, "sizes": print_sizes}
    if len(arguments) != 2 or arguments[0] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        commands[arguments[0]](Path(arguments[1]).resolve())
    except CheckError as error:
        print(f"failed   {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
