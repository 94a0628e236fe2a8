"""What the build of images sees, and what its recipe must not say."""

from __future__ import annotations

import re

import pytest

from tests.container.locks import PROJECT, PYTHONS

DOCKERFILE = (PROJECT / "deploy" / "container" / "Dockerfile").read_text(encoding="utf-8")
LET_IN = {
    line[1:]
    for line in (PROJECT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    if line.startswith("!")
}


def copied() -> set[str]:
    """What the recipe copies from the project."""
    lines = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, flags=re.MULTILINE)
    return {path for line in lines for path in line.split()}


def test_build_sees_what_it_copies_and_nothing_else() -> None:
    locks = "deploy/container/locks"
    seen = {locks if path.startswith(f"{locks}/") else path for path in copied()}
    assert seen == LET_IN
    lines = (PROJECT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert next(line for line in lines if not line.startswith("#")) == "*"


@pytest.mark.parametrize("python", PYTHONS)
def test_what_is_copied_is_there(python: str) -> None:
    for path in copied():
        assert list(PROJECT.glob(path.replace("${PYTHON_VERSION}", python)))


def test_every_path_into_the_images_is_taken_from_a_lock() -> None:
    installs = re.findall(
        r"pip install (.*?)(?:&&|$)", DOCKERFILE.replace("\\\n", ""), re.MULTILINE
    )
    assert len(installs) == 4
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)


def test_recipe_takes_no_secret_by_argument() -> None:
    arguments = set(re.findall(r"^ARG (\w+)", DOCKERFILE, flags=re.MULTILINE))
    wanted = {"PYTHON_VERSION", "BASE_IMAGE", "HARNESS_IMAGE", "VERSION", "REVISION"}
    assert arguments == wanted | {"EXTRAS", "SOURCE_DATE_EPOCH"}
    assert not re.search(r"release\.key|KEY=|PASSWORD|TOKEN", DOCKERFILE)


def test_page_tells_the_arguments_and_targets_that_there_are() -> None:
    page = (PROJECT / "docs" / "deploy" / "containers.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([A-Z_]+)`(?:, `([A-Z_]+)`)? \|", page, flags=re.MULTILINE)
    arguments = set(re.findall(r"^ARG (\w+)", DOCKERFILE, flags=re.MULTILINE))
    assert {name for names in told for name in names if name} == arguments
    targets = set(re.findall(r"^FROM .* AS (\w+)$", DOCKERFILE, flags=re.MULTILINE))
    assert set(re.findall(r"--target (\w+)", page)) <= targets
    python = re.search(r"^ARG PYTHON_VERSION=(.*)$", DOCKERFILE, flags=re.MULTILINE)
    assert python is not None
    for name in ("BASE_IMAGE", "HARNESS_IMAGE"):
        default = re.search(rf"^ARG {name}=(.*)$", DOCKERFILE, flags=re.MULTILINE)
        assert default is not None
        assert f"`{default[1].replace('${PYTHON_VERSION}', python[1])}`" in page
