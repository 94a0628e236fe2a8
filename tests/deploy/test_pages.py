"""Pages of docs/ agree with each other, and with the files of deploy/ and examples/ they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def test_beam_yaml_shows_its_example() -> None:
    page = (PROJECT / "docs" / "beam-yaml.md").read_text()
    shown = re.search(r"<!-- file: (\S+) -->\n```yaml\n(.*?)```", page, re.DOTALL)
    assert shown is not None
    assert (PROJECT / shown[1]).read_text().endswith(shown[2])


def test_schedules_shows_the_variables_and_their_defaults() -> None:
    page = (PROJECT / "docs" / "deploy" / "schedules.md").read_text()
    schedule = (PROJECT / "deploy" / "airflow" / "dptrees_daily.py").read_text()
    defaults = dict(re.findall(r"var\.value\.get\('(\w+)', '(.*?)'\)", schedule))
    shown = dict(re.findall(r"^\| `(dptrees_\w+)` \| .* \| `?([^`|]*?)`? \|$", page, re.MULTILINE))
    assert shown.keys() == defaults.keys() and len(defaults) == 5
    for name, default in defaults.items():
        assert shown[name] == default or (default == "" and shown[name].startswith("none"))


def documents_of_images() -> dict[str, str]:
    """The pages about images and the recipes of images, by their path."""
    pages = ("docs/deploy/containers.md", "docs/deploy/dataflow.md", "docs/deploy/kubernetes.md")
    recipes = (
        "deploy/container/Dockerfile",
        "deploy/dataflow/Dockerfile",
        "deploy/dataflow/spec.py",
    )
    return {path: (PROJECT / path).read_text() for path in (*pages, *recipes)}


def image_faults(texts: dict[str, str]) -> list[str]:
    """Images that the page of containers lacks, and other images for a purpose than elsewhere."""
    page = texts["docs/deploy/containers.md"]
    built = {"worker", "launcher", "template"}
    found = [each for each in sorted(built) if f"`REGISTRY/dptrees-{each}:VERSION`" not in page]
    purposes = {
        r"sdk_container_image=(\S+?)[\s`]": "REGISTRY/dptrees-worker:VERSION",
        r"LAUNCHER=(\S+)": "REGISTRY/dptrees-launcher:VERSION",
        r"spec\.py (REGISTRY\S+)": "REGISTRY/dptrees-template:VERSION",
    }
    for path, text in texts.items():
        names = set(re.findall(r"REGISTRY/dptrees-(\w+)", text))
        found += [f"{path}: {name}" for name in sorted(names - built)]
        for pattern, image in purposes.items():
            found += [f"{path}: {each}" for each in re.findall(pattern, text) if each != image]
    return found


def test_pages_name_the_same_images() -> None:
    texts = documents_of_images()
    assert image_faults(texts) == []
    page = texts["docs/deploy/dataflow.md"]
    for old, new in (
        ("dptrees-worker:VERSION \\", "dptrees-launcher:VERSION \\"),
        ("-template", "-flex"),
    ):
        assert image_faults(texts | {"docs/deploy/dataflow.md": page.replace(old, new)}) != []


@pytest.mark.parametrize(
    "path", ["docs/deploy/dataflow.md", "docs/deploy/containers.md", "deploy/dataflow/Dockerfile"]
)
def test_builds_see_the_files_that_they_copy(path: str) -> None:
    """The last argument of each build is a folder that has the files, and does not ignore them."""
    text = re.sub(r" *\\\n#? *", " ", (PROJECT / path).read_text())
    builds = re.findall(r"docker build -f (\S+) (?:.*? )?(\S+)$", text, re.MULTILINE)
    assert builds
    for recipe, context in builds:
        seen = PROJECT / context
        copied = re.findall(
            r"^COPY (?!--from)(.*) \S+$", (PROJECT / recipe).read_text(), re.MULTILINE
        )
        ignored = seen / ".dockerignore"
        let_in = [""]
        if ignored.exists():
            let_in = re.findall(r"^!(.*)$", ignored.read_text(), re.MULTILINE)
        for each in " ".join(copied).split():
            each = each.replace("${PYTHON_VERSION}", "3.11")
            assert list(seen.glob(each)), f"{each} is not in {context}"
            assert each.startswith(tuple(let_in)), f"{each} is ignored"
