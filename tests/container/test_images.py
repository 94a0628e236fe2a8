"""The images as a platform runs them: what is in them, a release, a worker, and a job of both."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import dptrees.dpcore
from tests.container.conftest import absent
from tests.container.harness import QUESTION, engine
from tests.container.podman import (
    MOUNTED,
    NAMES,
    UID,
    image,
    podman,
    root_of,
    run,
    running,
)
from tests.engines.conftest import release_files
from tests.engines.servers import ENGINES

pytestmark = pytest.mark.usefixtures("images")
NONCE = ("--nonce", "00112233445566778899aabbccddeeff")
# A worker starts within seconds; a machine that ten processes share is given a minute.
START_SECONDS = 180
POOL = f"dptrees-pool-{os.getpid()}"
BY_THE_POOL = (
    *("--runner=PrismRunner", f"--prism_location={MOUNTED}/prism"),
    *("--environment_type=EXTERNAL", "--environment_config=localhost:50000"),
)
# No shell: what replaces each is no program.
NO_SHELL = ("--volume=/dev/null:/bin/sh", "--volume=/dev/null:/bin/bash")


def inspected(name: str) -> dict[str, Any]:
    """What an image says of itself."""
    (told,) = json.loads(podman("image", "inspect", image(name)).stdout)
    return dict(told)


@pytest.mark.parametrize("name", NAMES)
def test_image_says_what_it_is(name: str) -> None:
    told = inspected(name)
    labels = told["Labels"]
    assert labels["org.opencontainers.image.version"] == dptrees.dpcore.__version__
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert told["User"] == f"{UID}:{UID}"
    entry = {"worker": ["/opt/apache/beam/boot"], "launcher": ["dptrees"]}
    assert told["Config"]["Entrypoint"] == entry[name]


@pytest.mark.parametrize("name", NAMES)
def test_image_holds_no_compiler_no_key_and_no_way_to_more_rights(name: str) -> None:
    with root_of(name) as root:
        programs = {path.name for path in root.glob("usr/*bin/*")}
        assert not {"cc", "gcc", "g++", "c++", "make", "ld", "sudo", "curl"} & programs
        rights = [
            path
            for folder in ("usr", "opt", "etc", "srv")
            for path in (root / folder).rglob("*")
            if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o6000
        ]
        assert rights == []
        assert [path for path in root.glob("opt/dptrees/**/*.key")] == []
        assert list((root / "tmp").iterdir()) == []


def test_launcher_prints_its_version_without_a_shell() -> None:
    done = run("launcher", "--version", options=(*NO_SHELL, "--network=none"))
    assert (done.returncode, done.stdout) == (0, f"dptrees {dptrees.dpcore.__version__}\n"), (
        done.stderr
    )


def test_key_for_a_group_is_refused_until_it_is_the_users_own(files: Path) -> None:
    """Check a secret as Kubernetes mounts it where pods have an fsGroup."""
    group, key = 20001, files / "release.key"
    secret, own = files / "secret.key", files / "own"
    own.mkdir()
    os.chown(own, UID, UID)
    key.rename(secret)
    os.chown(secret, 0, group)
    secret.chmod(0o440)
    key.symlink_to("secret.key")
    options = ("--network=none", f"--group-add={group}")
    release = ("release", "ages.yaml")
    refused = run("launcher", *release, files=files, options=options)
    assert refused.returncode == 2
    assert refused.stderr.endswith("can be read by others; allow its owner alone (chmod 600)\n")
    copy = ("--mode=600", "secret.key", "own/release.key")
    copied = run("launcher", *copy, files=files, options=(*options, "--entrypoint=install"))
    assert copied.returncode == 0, copied.stderr
    key.unlink()
    key.symlink_to("own/release.key")
    made = run("launcher", *release, files=files, options=("--network=none",))
    assert made.returncode == 0, made.stderr


def test_worker_answers_within_seconds_and_installs_nothing() -> None:
    with engine() as asking:
        options = ("--network=host",)
        place = f"--provision_endpoint={asking.address}"
        started = time.monotonic()
        with running(
            "worker", f"dptrees-worker-{os.getpid()}", "--id=1", place, options=options
        ) as me:
            assert asking.answered.wait(START_SECONDS), podman("logs", me).stderr[-3000:]
            print(f"a worker answered after {time.monotonic() - started:.1f} s")
    (answer,) = asking.answers
    assert (answer.instruction_id, answer.error) == (QUESTION, "")
    assert not any("Collecting" in line or "Downloading" in line for line in asking.logged)


def test_release_by_a_pool_of_workers_is_that_of_the_launcher(files: Path) -> None:
    """Launcher and workers in containers with one network of their own, which leads nowhere."""
    bring_prism(files)
    asked, nowhere = ("release", f"{MOUNTED}/ages.yaml", *NONCE), "--network=none"
    alone = run("launcher", *asked, files=files, options=(nowhere,))
    assert alone.returncode == 0, alone.stderr
    made = release_files(files / "out" / "ages")
    (files / "out").rename(files / "before")
    with running(
        "worker", POOL, "--worker_pool", files=files, options=(nowhere, *NO_SHELL)
    ) as pool:
        wait_for_pool(pool)
        beside = (f"--network=container:{pool}",)
        done = run("launcher", *asked, *BY_THE_POOL, files=files, options=beside)
        assert done.returncode == 0, done.stderr + podman("logs", pool).stderr
    assert release_files(files / "out" / "ages") == made


def bring_prism(files: Path) -> None:
    """Put Prism beside the rows, as the user's own: Beam sets its mode before it starts it."""
    prism = ENGINES / "bin" / "prism"
    if not prism.exists():
        absent("there is no Prism: run make engines")
    shutil.copy(prism, files / "prism")
    os.chown(files / "prism", UID, UID)


def wait_for_pool(name: str) -> None:
    """Wait until a pool takes requests."""
    limit = time.monotonic() + START_SECONDS
    asked = "import socket; socket.create_connection(('localhost', 50000), 1)"
    while podman("exec", name, "python", "-c", asked).returncode != 0:
        assert time.monotonic() < limit, podman("logs", name).stderr
