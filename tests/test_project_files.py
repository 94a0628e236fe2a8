"""Files for contributors and hosting platforms: form, links, and the commands that they name."""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import dptrees
from dptrees.dpcore.specification import Refusal

PROJECT = Path(__file__).resolve().parents[1]
PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", ".ci/README.md")
WORKFLOWS = (".github/workflows/ci.yml", ".github/workflows/release.yml")
PIPELINE = ".gitlab-ci.yml"
FORMS = tuple(
    f".github/ISSUE_TEMPLATE/{name}.yml"
    for name in ("accuracy", "defect", "documentation", "proposal")
)
# The schemas that the package check-jsonschema contains.
SCHEMAS = {
    "citation-file-format": ("CITATION.cff",),
    "github-workflows": WORKFLOWS,
    "github-issue-forms": FORMS,
    "github-issue-config": (".github/ISSUE_TEMPLATE/config.yml",),
    "gitlab-ci": (PIPELINE,),
}
PAPERS = {
    "Optimal Tree-Based Mechanisms for Differentially Private Approximate CDFs",
    "Efficient Use of Differentially Private Binary Trees",
    "On Differentially Private Counting on Trees",
    "Private Synthetic Data Generation in Small Memory",
}


def read(name: str) -> str:
    """Return the text of a file of the project."""
    return (PROJECT / name).read_text(encoding="utf-8")


def load(name: str) -> Any:
    """Return a file of YAML or JSON as Python values."""
    return yaml.safe_load(read(name))


# Links.


def anchors(page: str) -> set[str]:
    """Return the anchors of the headings of a page, as the platforms and the site make them."""
    found = set()
    for title, given in re.findall(r"^#+ (.*?)(?: \{#(\S+)\})?$", page, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found |= {slug, given} if given else {slug}
    return found


def broken_links(name: str, text: str) -> list[str]:
    """Return the links of a page that lead to no file or no heading of the project."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, anchor = target.partition("#")
        file = (PROJECT / name).parent / path if path else PROJECT / name
        if not file.exists() or (
            anchor and anchor not in anchors(file.read_text(encoding="utf-8"))
        ):
            wrong.append(target)
    return wrong


def test_links_lead_somewhere() -> None:
    for name in PAGES:
        assert "](" in read(name)
        assert broken_links(name, read(name)) == [], name
    for target in ("absent.md", "LICENSE.md", "SECURITY.md#absent"):
        assert broken_links("CONTRIBUTING.md", f"[a page]({target})") == [target]


# Commands.


@cache
def make_targets() -> frozenset[str]:
    """Return the targets of the Makefile and of the file that it includes."""
    rules = re.compile(r"^([\w./$()-]+(?: [\w./$()-]+)*):(?!=)", re.MULTILINE)
    found = {each for name in ("Makefile", ".ci/fetch.mk") for each in rules.findall(read(name))}
    return frozenset(" ".join(found).split()) | {".venv/installed-dev"}


def missing_commands(text: str) -> list[str]:
    """Return the make targets, files, modules and subcommands of a text that do not exist."""
    targets = re.findall(r"\bmake(?: --no-print-directory)? ([a-z.][\w./-]*)", text)
    wrong = [f"make {each}" for each in targets if each.rstrip(".") not in make_targets()]
    for module in re.findall(r"python3? -m ([\w.]+)", text):
        path = PROJECT.joinpath(*module.split("."))
        known = path.is_dir() or path.with_suffix(".py").exists()
        wrong += [] if known or module in OUTSIDE else [f"-m {module}"]
    wrong += [each for each in re.findall(r"\.ci/[\w.]+\w", text) if not (PROJECT / each).exists()]
    commands = read("docs/reference/commands.md")
    for words in re.findall(r"`dptrees ([a-z]+)\b", text):
        wrong += [] if f"\n## `{words}" in commands else [f"dptrees {words}"]
    return wrong


# Modules that are no part of the project.
OUTSIDE = {"pip", "venv"}


def commands_in_prose(text: str) -> str:
    """Return the code of a page, where its commands are."""
    return "\n".join(re.findall(r"`[^`\n]+`|^ *```.*?^ *```", text, re.DOTALL | re.MULTILINE))


def test_commands_of_pages_exist() -> None:
    for name in (*PAGES, ".github/PULL_REQUEST_TEMPLATE.md"):
        assert missing_commands(commands_in_prose(read(name))) == [], name
    for text in ("make absent", "python -m tests.absent", ".ci/absent", "`dptrees absent`"):
        assert len(missing_commands(text)) == 1, text


def scripts(name: str) -> Iterator[str]:
    """Yield the commands of the jobs of a workflow or pipeline."""
    content = load(name)
    if name == PIPELINE:
        jobs = [each for each in content.values() if isinstance(each, dict)]
        yield from (line for job in jobs for line in job.get("script", ()))
    else:
        for job in content["jobs"].values():
            yield from (step["run"] for step in job["steps"] if "run" in step)


def test_commands_of_jobs_exist() -> None:
    for name in (*WORKFLOWS, PIPELINE):
        lines = list(scripts(name))
        assert lines and missing_commands("\n".join(lines)) == [], name


def test_changes_run_what_a_contributor_runs() -> None:
    """A job that tests a change calls .ci/run or make, so that a person can repeat it."""
    for name in (WORKFLOWS[0], PIPELINE):
        lines = "\n".join(scripts(name))
        assert re.search(r"^\.ci/run\b", lines, re.MULTILINE) and "make test PYTHON=" in lines
        assert "pytest" not in lines


def test_hooks_run_programs_of_the_project() -> None:
    (local,) = load(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    declared = read("setup.py")
    for hook in local["hooks"]:
        assert hook["language"] == "system"
        program, *arguments = hook["entry"].split()
        if program == "make":
            assert missing_commands(hook["entry"]) == []
        else:
            name = program.removeprefix(".venv/bin/")
            assert name == "python" or f'"{name}"' in declared
            files = [each for each in arguments if "/" in each]
            assert all((PROJECT / each).exists() for each in files)


# Form.


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_keep_to_their_schemas(schema: str, tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    (planted := tmp_path / "planted.yml").write_text("jobs: 1\nstages: 1\nbody: 1\n")
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    check += ["--data-transform", "gitlab-ci"] if schema == "gitlab-ci" else []
    # The schema can refuse.
    for files, code in (([PROJECT / name for name in SCHEMAS[schema]], 0), ([planted], 1)):
        done = subprocess.run([*check, *files], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr


def test_fields_of_a_form_have_different_ids() -> None:
    for name in FORMS:
        ids = [each["id"] for each in load(name)["body"] if "id" in each]
        assert ids and len(ids) == len(set(ids)), name


def test_forms_warn_about_private_data() -> None:
    text = " ".join(read(FORMS[1]).split())
    assert "SECURITY.md" in text and "Never post real data, a release key" in text
    assert not load(".github/ISSUE_TEMPLATE/config.yml")["blank_issues_enabled"]
    templates = (".github/PULL_REQUEST_TEMPLATE.md", ".gitlab/merge_request_templates/Default.md")
    assert read(templates[0]) == read(templates[1])


def unsafe_parts(workflow: dict[Any, Any]) -> list[str]:
    """Return the parts of a workflow that have too many rights or too few limits."""
    wrong = [] if workflow.get("permissions") == {"contents": "read"} else ["permissions"]
    wrong += [] if "concurrency" in workflow else ["concurrency"]
    for name, job in workflow["jobs"].items():
        wrong += [] if "timeout-minutes" in job else [f"{name}: timeout-minutes"]
        rights = job.get("permissions", {})
        protected = job.get("environment") and "vars.PUBLISH" in job.get("if", "")
        wrong += [f"{name}: permissions"] if rights and not protected else []
        for step in job["steps"]:
            action = step.get("uses", "")
            wrong += [action] if action and not re.search(r"@[0-9a-f]{40}$", action) else []
            # An expression that another person can choose would be part of the script.
            if re.search(r"\$\{\{[^}]*(head_ref|title|body|message)", step.get("run", "")):
                wrong.append(f"{name}: {step['run']}")
    return wrong


def test_workflows_have_few_rights() -> None:
    for name in WORKFLOWS:
        assert unsafe_parts(load(name)) == []
        uses = re.findall(r"uses: (.*)", read(name))
        assert uses
        assert all(re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", each) for each in uses)
    step = {"uses": "owner/action@v1"}
    script = {"run": "echo ${{ github.event.pull_request.title }}"}
    job = {"permissions": {"contents": "write"}, "steps": [step, script]}
    assert len(unsafe_parts({"permissions": {}, "jobs": {"one": job}})) == 6


def test_both_platforms_test_the_same() -> None:
    github, gitlab = load(WORKFLOWS[0])["jobs"], load(PIPELINE)
    assert github["ci"]["container"]["image"] == gitlab[".debian"]["image"]
    (matrix,) = gitlab["quick"]["parallel"]["matrix"]
    assert github["quick"]["strategy"]["matrix"]["python"] == matrix["PYTHON"]
    oldest = re.search(r'python_requires=">=([\d.]+)"', read("setup.py"))
    assert oldest and matrix["PYTHON"][0] == oldest[1]
    publishing = load(WORKFLOWS[1])
    assert publishing[True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true.


def test_development_container_installs_what_a_developer_needs() -> None:
    settings = json.loads(read(".devcontainer/devcontainer.json"))
    assert missing_commands(settings["postCreateCommand"]) == []
    assert (PROJECT / ".devcontainer" / settings["build"]["dockerfile"]).exists()
    installed = set(read(".devcontainer/Dockerfile").split())
    # Packages of Debian that .ci/run installs for the tests.
    wanted = re.search(r"^ *\.ci/packages (.*)$", read(".ci/run"), re.MULTILINE)
    assert wanted and {each.split("=")[0] for each in wanted[1].split()} <= installed


def test_citation_has_the_version_and_the_papers() -> None:
    citation = load("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == dptrees.__version__
    assert citation["authors"] == [{"name": "dptrees contributors"}]
    assert {each["title"] for each in citation["references"]} == PAPERS


# Examples.


def test_example_of_style_runs() -> None:
    """The code that CONTRIBUTING.md recommends has a doctest, and refuses a wrong weight."""
    (source,) = re.findall(r"^After: .*?^```python\n(.*?)^```", read(PAGES[0]), re.S | re.M)
    names: dict[str, Any] = {"dataclass": dataclass, "Fraction": Fraction, "Refusal": Refusal}
    names |= {"Sequence": Sequence}
    exec(compile(source, PAGES[0], "exec"), names)
    examples = doctest.DocTestFinder().find(names["budget_fraction"], globs=names, module=False)
    assert sum(len(each.examples) for each in examples) == 2
    runner = doctest.DocTestRunner()
    assert not any(runner.run(each).failed for each in examples)
    with pytest.raises(Refusal, match=r"weight: 0 must be above 0 \(tree ages\)"):
        names["WeightedTree"](name="ages", weight=Fraction(0))


def test_steps_for_a_mechanism_name_files() -> None:
    text = read(PAGES[0])
    steps = text[text.index("## A new mechanism") : text.index("## Style")]
    named = re.findall(r"`((?:dpcore|docs|pipelines|tests)/[\w/.-]+\.\w+)`", steps)
    made = [each for each in named if "ends" in each]
    assert len(made) == 2 and len(named) > 8
    assert [each for each in named if each not in made and not (PROJECT / each).exists()] == []


# Files.

TOP = {
    *(".ci", ".devcontainer", ".dockerignore", ".git-blame-ignore-revs", ".github", ".gitignore"),
    *(".gitlab", ".gitlab-ci.yml", ".pre-commit-config.yaml", "CHANGELOG.md", "CITATION.cff"),
    *("CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "Makefile", "README.md"),
    *("SECURITY.md", "benchmarks", "deploy", "docs", "dpcore", "dptrees", "examples", "mkdocs.yml"),
    *("pipelines", "pyproject.toml", "setup.py", "tests", "transforms"),
}


def test_nothing_unknown_lies_at_the_top() -> None:
    """Check that no note of someone at work was committed."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("no git, or no clone")
    assert {path.partition("/")[0] for path in listed.stdout.splitlines()} == TOP
