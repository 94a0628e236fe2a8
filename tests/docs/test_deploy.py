"""docs/deploy names the versions that are used, and commands that the tests' clusters run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path
from xml.etree import ElementTree

import apache_beam
import pytest

from deploy.cluster.processes import ENGINES, OPENED

PROJECT = Path(__file__).resolve().parents[2]
DEPLOY = PROJECT / "docs" / "deploy"
XML = {"m": "http://maven.apache.org/POM/4.0.0"}
PAGES = ("flink.md", "spark.md")


def versions(page: str) -> dict[str, str]:
    """The table of versions: what by name.

    >>> versions("| what | version | x |\\n|---|---|---|\\n| Java | 17 | y |")
    {'Java': '17'}
    """
    _, _, table = page.partition("| what | version |")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", table.split("\n\n")[0], re.MULTILINE)
    return dict(rows)


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """The versions that the page tells."""
    return versions((DEPLOY / "index.md").read_text(encoding="utf-8"))


def pom(engine: str, managed: str = "") -> dict[str, str]:
    """The dependencies of an engine's jars, artifact to version, with properties filled in; of
    those that it only manages, with ``m:dependencyManagement/``."""
    root = ElementTree.parse(PROJECT / "deploy" / engine / "pom.xml").getroot()
    properties = root.find("m:properties", XML)
    assert properties is not None
    named = {each.tag.split("}")[1]: str(each.text) for each in properties}
    found = {}
    for each in root.iterfind(f"{managed}m:dependencies/m:dependency", XML):
        version = each.findtext("m:version", "", XML)
        artifact = each.findtext("m:artifactId", "", XML)
        found[artifact] = re.sub(r"\$\{(.*?)\}", lambda name: named[name[1]], version)
    return found


def test_python(told: dict[str, str]) -> None:
    first, _, last = told["Python"].partition(" to ")
    setup = (PROJECT / "setup.py").read_text(encoding="utf-8")
    assert f'python_requires=">={first}"' in setup
    classifiers = metadata("apache-beam").get_all("Classifier") or []
    for minor in range(int(first.split(".")[1]), int(last.split(".")[1]) + 1):
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers
    assert tuple(map(int, first.split("."))) <= sys.version_info[:2]


def test_beam(told: dict[str, str]) -> None:
    setup = (PROJECT / "setup.py").read_text(encoding="utf-8")
    oldest, _, newest = told["Beam for Python"].partition(" to ")
    major, minor = map(int, newest.split("."))
    pinned = set(re.findall(r'"apache-beam(?:\[\w+\])?(>=[\d.,<]+)"', setup))
    assert pinned == {f">={oldest},<{major}.{minor + 1}"}
    assert apache_beam.__version__.rpartition(".")[0] == newest


def test_engines(told: dict[str, str]) -> None:
    flink, spark = pom("flink"), pom("spark")
    assert set(pom("flink", "m:dependencyManagement/").values()) == {told["Flink"]}
    minor = told["Flink"].rpartition(".")[0]
    assert flink[f"beam-runners-flink-{minor}"] == told["Beam's runners in Java"]
    assert spark["beam-runners-spark-3"] == told["Beam's runners in Java"]
    assert {spark[name] for name in spark if name.startswith("spark-")} == {told["Spark"]}
    fetched = (PROJECT / ".ci" / "fetch.mk").read_text(encoding="utf-8")
    assert f"PRISM_VERSION := {told['Prism']}\n" in fetched


@pytest.mark.engines
@pytest.mark.parametrize(
    ("engine", "jar"), [("Flink", "flink/lib/flink-core"), ("Spark", "spark/lib/spark-core_2.12")]
)
def test_jars(told: dict[str, str], engine: str, jar: str) -> None:
    if not (ENGINES / jar).parent.is_dir():
        assert not os.environ.get("DPTREES_REQUIRE_ENGINES"), "no jars: make engines"
        pytest.skip("no jars: make engines")
    assert (ENGINES / f"{jar}-{told[engine]}.jar").is_file()


@pytest.mark.skipif(shutil.which("java") is None, reason="no java")
def test_java(told: dict[str, str]) -> None:
    command = ["java", "-version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    found = re.search(r'version "(\d+)', printed)
    assert found is not None and found[1] == told["Java"]


def sources() -> str:
    """What starts the clusters, and the tests that give options to jobs on them."""
    below = (*PROJECT.glob("deploy/cluster/*.py"), *PROJECT.glob("tests/engines/*.py"))
    read = "".join(path.read_text(encoding="utf-8") for path in below)
    return read + (PROJECT / "deploy" / "flink" / "config.yaml").read_text(encoding="utf-8")


def unknown(page: str, known: str) -> list[str]:
    """Classes of engines and properties of jobs that a page names and nothing uses.

    Lines that say that something is not run here or is refused are left out.
    """
    lines = [line for line in page.splitlines() if not re.search("not run here|refused", line)]
    text = "\n".join(lines)
    classes = re.findall(r"\borg\.apache\.[\w.]+\.(\w+)", text)
    options = re.findall(r"--([a-z][\w-]+)[= `]", text)
    return [name for name in [*classes, *options] if name not in known]


@pytest.mark.parametrize("name", PAGES)
def test_pages_name_what_is_run(name: str) -> None:
    page = (DEPLOY / name).read_text(encoding="utf-8")
    known = sources() + " add-opens start "
    assert unknown(page, known) == []
    opened = re.search(r"for each P of (.*?)[:;]", page, re.DOTALL)
    assert opened is not None
    named = set(re.split(r",\s+|\s+and\s+", opened[1].strip()))
    assert named == set(OPENED)


def test_planted_class_and_option_are_found() -> None:
    page = "java org.apache.spark.deploy.Planted --planted-port 1\n--other=2 is not run here\n"
    assert unknown(page, "--known-port") == ["Planted", "planted-port"]
