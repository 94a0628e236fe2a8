"""Sizes of clusters: how many workers, which is said in one place, their memory and disks, and for
which releases that is enough."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dptrees.pipelines.run.job import Leaves, process_memory
from tests.deploy.manifests import (
    DEPLOY,
    KUBERNETES,
    Manifest,
    gib,
    kustomizations,
    manifest_files,
    manifests,
    names,
    pods,
    rendered,
)

PROJECT = DEPLOY.parent
GIB = 2**30
SIZES = ("small", "medium", "large")
OVERLAYS = sorted((KUBERNETES / "overlays").glob("*/*"))
CLUSTERS = [KUBERNETES / each for each in ("session", "application", "spark")]
ROWS_MINUTES = 10
# Assumed of a core of a cluster beside the machine that docs/scale.md measured, as on Dataflow.
SLOWER = 2
COMMENT = re.compile(
    r": (?P<workers>\d+) workers of 1 core and (?P<gib>\d+) GiB\.\n"
    r"# For (?P<leaves>\d+) million leaves in memory, (?P<rows>\d+) billion rows in ten minutes, "
    r"or (?P<units>\d+) billion rows of a\n# privacy unit on the engine's disks"
)


def worker_counts(made: list[Manifest]) -> dict[str, int]:
    """Every place of rendered manifests that says how many workers a cluster has."""
    counts = {}
    for value in made:
        kind, spec = value["kind"], value.get("spec", {})
        if kind == "FlinkDeployment":
            slots = int(spec["flinkConfiguration"]["taskmanager.numberOfTaskSlots"])
            if "replicas" in spec["taskManager"]:
                counts["task managers"] = spec["taskManager"]["replicas"] * slots
            if "job" in spec:
                counts["parallelism of the job"] = spec["job"]["parallelism"]
        elif kind == "SparkApplication":
            counts["executors"] = spec["executor"]["instances"] * spec["executor"]["cores"]
        elif kind == "ConfigMap" and "workers" in value["data"]:
            counts["what launchers read"] = int(value["data"]["workers"])
        for pod in pods(value):
            for container in pod.get("spec", {}).get("containers", ()):
                options = "\n".join(container.get("args", ()))
                for number in re.findall(r"^--parallelism=(\d+)$", options, re.MULTILINE):
                    counts[f"parallelism of {container['name']}"] = int(number)
    return counts


@pytest.mark.parametrize("folder", CLUSTERS + OVERLAYS, ids=names(CLUSTERS + OVERLAYS))
def test_every_place_says_the_same_number_of_workers(folder: Path) -> None:
    counts = worker_counts(rendered(folder))
    assert counts and len(set(counts.values())) == 1, counts


def test_number_of_workers_is_written_once_for_each_cluster() -> None:
    """Where the operator takes one number from another, only one of them is written."""
    numbers = re.compile(r"(?:parallelism|workers|instances|replicas)\"?[:= ]+\"?(\d+)")
    written = {}
    for path in [*KUBERNETES.rglob("*.yaml"), *KUBERNETES.rglob("*.conf")]:
        lines = re.sub("#.*", "", path.read_text())
        # A Deployment has one pod, and a cluster one job manager.
        if found := [number for number in numbers.findall(lines) if number != "1"]:
            written[path.relative_to(KUBERNETES).as_posix()] = found
    assert written == {
        "session/flink.yaml": ["4"],
        "application/flink.yaml": ["4"],
        "spark/application.yaml": ["4"],
        # test_kubernetes.py compares this one with the line above.
        "spark/spark-submit.conf": ["4"],
        "sizes/medium/size.yaml": ["16"],
        "sizes/large/size.yaml": ["64"],
    }
    session = rendered(KUBERNETES / "session")
    (cluster,) = (each for each in session if each["kind"] == "FlinkDeployment")
    assert "job" not in cluster["spec"]
    (cluster,) = (
        each for each in rendered(KUBERNETES / "application") if each["kind"] == "FlinkDeployment"
    )
    # Else Flink's operator ignores the parallelism of the job.
    assert "replicas" not in cluster["spec"]["taskManager"]


@pytest.mark.parametrize("page", ["deploy/kubernetes.md", "deploy/containers.md"])
def test_pages_give_no_parallelism(page: str) -> None:
    """A reader who copies a command gets the cluster's own number."""
    assert not re.search(r"--parallelism=\d", (PROJECT / "docs" / page).read_text())


def copied(tmp_path: Path) -> Path:
    """A copy of the manifests, to change."""
    return Path(shutil.copytree(KUBERNETES, tmp_path / "kubernetes"))


def test_planted_difference_is_found(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    fields = folder / "sizes" / "fields" / "kustomization.yaml"
    text = fields.read_text()
    select = "      - select: {kind: ConfigMap, name: dptrees-session}\n"
    fields.write_text(text.replace(select + "        fieldPaths: [data.workers]\n", ""))
    counts = worker_counts(rendered(folder / "overlays" / "large" / "daily-on-flink"))
    assert counts == {"task managers": 64, "what launchers read": 4}


def comment(folder: Path) -> dict[str, int]:
    """What an overlay says of its size, for people."""
    found = COMMENT.search((folder / "kustomization.yaml").read_text())
    assert found is not None, folder
    return {name: int(number) for name, number in found.groupdict().items()}


def find_pool(made: list[Manifest]) -> tuple[Manifest, Manifest]:
    """The pod of a worker pool, and the pool."""
    for value in made:
        for pod in pods(value):
            for container in pod.get("spec", {}).get("initContainers", ()):
                if container["name"] == "worker-pool":
                    return pod, container
    raise AssertionError("no worker pool")


@pytest.mark.parametrize("folder", OVERLAYS, ids=names(OVERLAYS))
def test_overlay_says_what_it_makes_and_what_it_is_enough_for(folder: Path) -> None:
    said, made = comment(folder), rendered(folder)
    pod, pool = find_pool(made)
    assert set(worker_counts(made).values()) == {said["workers"]}
    assert pool["resources"]["requests"]["cpu"] == "1"
    memory = gib(pool["resources"]["limits"]["memory"])
    assert memory == gib(pool["resources"]["requests"]["memory"]) == said["gib"]
    assert process_memory(Leaves(listed=said["leaves"] * 10**6)) <= memory * GIB

    scale = (PROJECT / "docs" / "scale.md").read_text()
    row = re.search(r"([\d.]+) ns per row, read and counted", scale)
    assert row is not None
    seconds = SLOWER * float(row[1]) * 1e-9
    assert said["rows"] == said["workers"] * ROWS_MINUTES * 60 / seconds // 10**9

    bounding = (PROJECT / "docs" / "bounding.md").read_text()
    unit = re.search(r"waiting rows take 3\s+to (\d+) bytes a row", bounding)
    assert unit is not None
    (engine,) = pod["spec"]["containers"]
    disk = gib(engine["resources"]["limits"]["ephemeral-storage"]) * GIB * said["workers"]
    assert said["units"] == disk // int(unit[1]) // 10**9
    # With so many shards as docs/bounding.md names, a worker bounds them in its memory.
    assert "at most 4 million rows a shard" in bounding
    bytes_of_row = 100
    assert process_memory(Leaves()) + 4_000_000 * bytes_of_row <= memory * GIB


@pytest.mark.parametrize("size", SIZES)
def test_launcher_holds_the_leaves_too(size: str) -> None:
    folder = KUBERNETES / "overlays" / size / "daily-on-flink"
    (job,) = (
        each
        for each in rendered(folder)
        if each["kind"] == "CronJob" and each["metadata"]["name"] == "dptrees-daily"
    )
    ((launcher,),) = (pod["spec"]["containers"] for pod in pods(job))
    memory = gib(launcher["resources"]["limits"]["memory"]) * GIB
    assert memory == gib(launcher["resources"]["requests"]["memory"]) * GIB
    # docs/scale.md: from 810,000 to 8,100,000 leaves it grows by some 80 bytes a leaf.
    scale = (PROJECT / "docs" / "scale.md").read_text()
    lines = re.findall(r"^ +[\d,]+ +([\d,]+) +[\d.]+ +[\d.]+ +(\d+) ", scale, re.MULTILINE)
    (few, low), (many, high) = (
        (int(leaves.replace(",", "")), int(size) * 10**6) for leaves, size in lines[:2]
    )
    slope = (high - low) / (many - few)
    assert 50 < slope < 150
    assert low + slope * (comment(folder)["leaves"] * 10**6 - few) <= memory


def test_sizes_are_those_of_the_page() -> None:
    page = (PROJECT / "docs" / "deploy" / "kubernetes.md").read_text()
    rows = re.findall(
        r"^\| `(\w+)` \| (\d+) \| (\d+) GiB \| (\d+) million \| (\d+) billion \| (\d+) billion \|$",
        page,
        re.MULTILINE,
    )
    fields = ("workers", "gib", "leaves", "rows", "units")
    shown = {name: dict(zip(fields, map(int, row), strict=True)) for name, *row in rows}
    for size in SIZES:
        for overlay in (KUBERNETES / "overlays" / size).iterdir():
            assert comment(overlay) == shown[size]
    assert tuple(shown) == SIZES


def images(value: Any) -> list[str]:
    """Every image that a manifest names."""
    if isinstance(value, list):
        return [image for each in value for image in images(each)]
    if not isinstance(value, dict):
        return []
    own = [value["image"]] if isinstance(value.get("image"), str) else []
    return own + [image for each in value.values() for image in images(each)]


def listed() -> list[dict[str, str]]:
    """The images of the one place that says which they are."""
    text = (KUBERNETES / "images" / "kustomization.yaml").read_text()
    return list(yaml.safe_load(text)["images"])


def test_images_are_those_of_the_manifests() -> None:
    """The list of images is complete, has no other, and changes none as it is."""
    named = {f"{each['name']}:{each['newTag']}" for each in listed()}
    written = {image for path in manifest_files() for image in images(manifests(path))}
    found = {image for folder in kustomizations() for image in images(rendered(folder))}
    assert found == written == named


def test_digest_in_the_one_place_reaches_every_image(tmp_path: Path) -> None:
    """Pin each image by the command; no manifest then names one by a tag."""
    folder = copied(tmp_path)
    place = folder / "images" / "kustomization.yaml"
    before = place.read_text()
    references = [
        f"registry.example/team/{each['name'].rpartition('/')[2]}@sha256:{index:064x}"
        for index, each in enumerate(listed())
    ]
    assert pin("--file", str(place), *references).returncode == 0
    folders = [folder / path.relative_to(KUBERNETES) for path in kustomizations()]
    found = {image for each in folders for image in images(rendered(each))}
    assert found == set(references)
    assert "newTag" not in place.read_text().partition("\nimages:\n")[2]
    assert place.read_text().startswith(before.partition("\nimages:\n")[0])
    # Another version replaces the digest.
    other = f"registry.example/team/dptrees-worker@sha256:{'f' * 64}"
    assert pin("--file", str(place), other).returncode == 0
    assert place.read_text().count(f"digest: sha256:{'f' * 64}\n") == 1
    assert place.read_text().count("    digest: ") == len(references)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("dptrees-worker:0.1.0", "must be IMAGE@sha256: with 64 hexadecimal digits"),
        (f"dptrees-worker:0.1.0@sha256:{'0' * 64}", "and no tag"),
        ("dptrees-worker@sha256:00", "must be IMAGE@sha256:"),
        (f"nginx@sha256:{'0' * 64}", "is not an image of the manifests (REGISTRY/dptrees-worker"),
    ],
)
def test_a_reference_that_pins_nothing_is_refused(
    tmp_path: Path, reference: str, reason: str
) -> None:
    place = copied(tmp_path) / "images" / "kustomization.yaml"
    before = place.read_text()
    done = pin("--file", str(place), f"flink@sha256:{'0' * 64}", reference)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{reference.partition('@')[0]}")
    assert reason in done.stderr
    assert place.read_text() == before


def pin(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command that names images by digest."""
    command = [sys.executable, str(DEPLOY / "container" / "pin.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)
