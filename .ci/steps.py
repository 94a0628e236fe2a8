"""The steps of .ci/run that run only when their inputs changed, and the record of their last pass.

    python3 .ci/steps.py list                the steps, and whether their inputs changed
    python3 .ci/steps.py inputs NAME         the files that a step depends on
    python3 .ci/steps.py record NAME DIGEST  note that the step passed with these inputs

.ci/passed.json holds, for each step, the digest of the inputs with which it last passed. Only
`.ci/run --record` and `.ci/run --all` (`make ci-all`) write it, after the step passed; never edit
it by hand. This program needs nothing but Python and git.
"""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
RECORD = Path(".ci", "passed.json")
# How every step is fetched and started, and which packages it uses.
EVERY_STEP = (".ci/cache.py", ".ci/fetch.mk", "pyproject.toml", "setup.py")
# What is followed from a test to the modules that it imports; the product is listed by hand below,
# because the releases on every engine and the Python tests run on each change.
FOLLOWED = ("benchmarks", "deploy", "tests")


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step that runs only when its inputs changed.

    Attributes:
        title: for the log.
        target: of make.
        inputs: patterns of git (`:(glob)`) of the files that the step is a test of, and of its
            tests; what the tests import from FOLLOWED and their conftest.py belong to them too.
        takes_hours: whether it runs by its name and with --all only.
    """

    title: str
    target: str
    inputs: tuple[str, ...]
    takes_hours: bool = False


STEPS = {
    "engines": Step(
        title="engines, the long tests: faults, restarts, examples, job servers, job jars",
        target="test-engines-long",
        inputs=(
            "deploy/cluster/**",
            "deploy/flink/**",
            "deploy/kubernetes/**",
            "deploy/spark/**",
            "docs/deploy/index.md",
            "docs/transform.md",
            "examples/*",
            "pipelines/check/**",
            "pipelines/cli/command.py",
            "pipelines/run/**",
            "tests/deploy/test_flink.py",
            "tests/deploy/test_job_jar.py",
            "tests/deploy/test_job_server.py",
            "tests/docs/test_deploy.py",
            "tests/engines/**",
            "tests/pipelines/test_transform_page.py",
            "transforms/**",
        ),
    ),
    "airflow": Step(
        title="schedules: Airflow 2 and 3, each in an environment of its own",
        target="test-airflow",
        inputs=(
            "deploy/airflow/**",
            "examples/daily.yaml",
            "pipelines/cli/**",
            "pipelines/monitoring.py",
            "pipelines/process.py",
            "pipelines/run/metrics.py",
            "tests/deploy/airflow_runs.py",
            "tests/deploy/test_airflow.py",
        ),
    ),
    "images": Step(
        title="images of worker and launcher: built, run without rights, their licences listed",
        target="test-images",
        inputs=(
            ".ci/images",
            ".ci/packages",
            ".dockerignore",
            "LICENSE",
            "MANIFEST.in",
            "deploy/container/**",
            "dpcore/__init__.py",
            "dptrees/**",
            "tests/container/**",
        ),
    ),
    "cloud": Step(
        title="Google Cloud: its clients, and stand-ins of its services",
        target="test-gcp",
        inputs=(
            ".ci/gcp.sh",
            "deploy/dataflow/**",
            "docs/deploy/dataflow.md",
            "pipelines/run/**",
            "tests/dataflow/**",
            "tests/transforms/secrets/**",
            "tests/transforms/tables/test_bigquery.py",
            "tests/transforms/test_google_storage.py",
            "transforms/folder/files.py",
            "transforms/keys.py",
            "transforms/readers/**",
            "transforms/steps/record.py",
            "transforms/tables/**",
        ),
    ),
    "black-box": Step(
        title="the black box: 10,000 releases of each kind of mechanism and of a neighbor",
        target="black-box",
        takes_hours=True,
        inputs=(
            "benchmarks/audit/black_box.py",
            "dpcore/bounding/**",
            "dpcore/noise/**",
            "dpcore/privacy/**",
            "dpcore/release/released.py",
            "tests/audit/test_black_box.py",
        ),
    ),
    "locked": Step(
        title="the packages of the images: a million rows on several threads",
        target="test-locked",
        inputs=(
            "deploy/container/locks/*",
            "dpcore/**",
            "pipelines/python/**",
            "pipelines/run/**",
            "tests/golden/**",
            "tests/pipelines/python/**",
            "tests/transforms/**",
            "transforms/**",
        ),
    ),
    "coverage": Step(
        title="how often stated intervals hold, of every kind",
        target="coverage",
        inputs=("benchmarks/coverage.py", "dpcore/**", "tests/accuracy/test_coverage_command.py"),
    ),
    "beam": Step(
        title="the oldest Beam that setup.py allows: releases of every kind, the local runner",
        target="test-oldest-beam",
        inputs=(
            "pipelines/beam_yaml.py",
            "pipelines/run/**",
            "tests/golden/**",
            "tests/pipelines/beam_yaml/**",
            "tests/pipelines/run/**",
            "tests/pipelines/test_kinds.py",
            "tests/pipelines/test_releasing.py",
            "tests/transforms/**",
            "transforms/**",
        ),
    ),
}


def listed_files(patterns: tuple[str, ...], project: Path) -> set[str]:
    """Return the files of patterns: those that git knows, and new ones that it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    command += [f":(glob){each}" for each in patterns]
    listed = subprocess.run(command, cwd=project, capture_output=True, check=True, text=True)
    return {path for path in listed.stdout.split("\0") if (project / path).is_file()}


def imported_files(path: str, project: Path) -> Iterator[str]:
    """Yield the modules of FOLLOWED that a module imports."""
    for node in ast.walk(ast.parse((project / path).read_bytes())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        for name in names:
            module = Path(*name.split("."))
            for file in (module.with_suffix(".py"), module / "__init__.py"):
                if module.parts[0] in FOLLOWED and (project / file).is_file():
                    yield file.as_posix()


def companions(path: str, project: Path) -> Iterator[str]:
    """Yield what runs whenever a test does: the conftest.py of its folders, and its imports."""
    if path.startswith("tests/"):
        beside = [folder / "conftest.py" for folder in Path(path).parents]
        yield from (each.as_posix() for each in beside if (project / each).is_file())
    yield from imported_files(path, project)


def input_files(name: str, project: Path = PROJECT) -> list[str]:
    """Return the paths of a step's inputs."""
    waiting = listed_files((*EVERY_STEP, *STEPS[name].inputs), project)
    found: set[str] = set()
    while waiting:
        path = waiting.pop()
        found.add(path)
        if path.endswith(".py") and path.startswith(tuple(f"{each}/" for each in FOLLOWED)):
            waiting |= set(companions(path, project)) - found
    return sorted(found)


def input_digest(name: str, project: Path = PROJECT) -> str:
    """Return the digest of a step: how it is defined, and each of its inputs as it is on disk."""
    step = STEPS[name]
    digest = hashlib.sha256(json.dumps([name, step.target, EVERY_STEP, step.inputs]).encode())
    for path in input_files(name, project):
        content = (project / path).read_bytes()
        executable = bool((project / path).stat().st_mode & 0o100)
        entry = [path, executable, hashlib.sha256(content).hexdigest()]
        digest.update(json.dumps(entry).encode())
    return digest.hexdigest()


def recorded(project: Path = PROJECT) -> dict[str, str]:
    """Return the digest with which each step last passed."""
    path = project / RECORD
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def listed_steps(project: Path = PROJECT) -> list[str]:
    """Return a line for each step: name, state, digest, target and title."""
    lines, passed = [], recorded(project)
    for name, step in STEPS.items():
        digest = input_digest(name, project)
        state = "changed" if not step.takes_hours else "waiting"
        if passed.get(name) == digest:
            state = "unchanged"
        lines.append("\t".join([name, state, digest, step.target, step.title]))
    return lines


def record(name: str, digest: str, project: Path = PROJECT) -> None:
    """Note that a step passed with the inputs of this digest, which must still be the inputs."""
    if digest != input_digest(name, project):
        raise SystemExit(f"The inputs of the step {name} changed while it ran: run it again.")
    passed = {each: value for each, value in recorded(project).items() if each in STEPS}
    text = json.dumps(passed | {name: digest}, indent=2, sort_keys=True) + "\n"
    (project / RECORD).write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Run the command line."""
    match arguments:
        case ["list"]:
            print(*listed_steps(), sep="\n")
        case ["inputs", name]:
            print(*input_files(name), sep="\n")
        case ["record", name, digest]:
            record(name, digest)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
