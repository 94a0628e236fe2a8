"""Parameters of a configuration: put into strings alone, checked, and recorded."""

from __future__ import annotations

from copy import deepcopy
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.sections.document import ConfigurationError, parse_document
from dptrees.pipelines.sections.parameters import Substitution, given_parameters
from tests.pipelines.conftest import PROJECT, Workspace, both, put

BASE: dict[str, Any] = {
    "release": "flights-${date}",
    "input": {"format": "parquet", "path": "rows/${date}/*.parquet"},
    "output": "out/${date}",
    "key_file": "release.key",
    "privacy": {"epsilon": 1, "neighbors": "add_remove"},
    "trees": [{"name": "day", "domain": {"column": "day", "lower": "${date}", "upper": "${end}"}}],
}
DECLARED = {
    "date": {"type": "date"},
    "end": {"type": "date", "default": date(2014, 1, 1)},
}
DAY = {"date": "2013-01-31"}


def configured(tmp_path: Path, given: dict[str, str], **changed: Any) -> Any:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(deepcopy(BASE) | changed))
    return load_configuration(str(path), given)


def refused(tmp_path: Path, given: dict[str, str], **changed: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        configured(tmp_path, given, **changed)
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix(f"{tmp_path}/c.yaml: ")


def test_in_ids_paths_and_bounds(tmp_path: Path) -> None:
    for changed in ({"parameters": DECLARED}, {}):
        given = DAY | ({} if changed else {"end": "2014-01-01"})
        found = configured(tmp_path, given, **changed)
        assert (found.release, found.output) == ("flights-2013-01-31", "out/2013-01-31")
        assert found.input_paths == ("rows/2013-01-31/*.parquet",)
        domain = found.plan().questions[0].domain
        assert (domain.lower, domain.upper) == (date(2013, 1, 31), date(2014, 1, 1))
        assert found.parameters == DAY | {"end": "2014-01-01"}
        assert not found.id_of_all


def test_a_whole_value_has_the_parameter_s_type(tmp_path: Path) -> None:
    section = {
        "n": {"type": "integer"},
        "e": {"type": "number", "default": 0.5},
        "t": {"type": "text", "default": "12"},
    }
    values = {"parameters": section, "trees": ["${n}", "${e}", "${t}", "a${n}"], "output": "${n}"}
    found = Substitution(source="f", given={"n": "7"}).applied(parse(values))
    assert repr(found["trees"]) == "[7, Decimal('0.5'), '12', 'a7']"
    assert found["output"] == "7"  # where only strings may be


def parse(values: object) -> Any:
    return parse_document(yaml.safe_dump(values), "f")


def test_texts_of_yaml_stay_texts() -> None:
    """What would be a key, a list, a comment or an alias in YAML is a part of a text."""
    texts = ("a: b", "[1, 2]", "{a: 1}", "# no", "*alias", "!!python/object", "x\ny: 1", "null")
    for text in texts:
        given = Substitution(source="f", given={"p": text})
        assert given.applied({"trees": ["${p}", "<${p}>"]}) == {"trees": [text, f"<{text}>"]}


def test_nothing_is_put_in_twice_nor_into_keys() -> None:
    given = Substitution(source="f", given={"p": "${q}"})
    assert given.applied({"a": "${p}", "${p}": 1}) == {"a": "${q}", "${p}": 1}


def test_escapes() -> None:
    given = Substitution(source="f", given={"p": "v"})
    for text, expected in (
        ("$${p}", "${p}"),
        ("$$${p}", "$${p}"),
        ("$p {p} $", "$p {p} $"),
        ("${p}$${${p}", "v${v"),
    ):
        assert given.applied({"a": text, "b": "${p}"}) == {"a": expected, "b": "v"}


def test_what_aliases_share_is_put_in_once() -> None:
    values = parse_document("a: &a [1, '${p}']\nb: *a", "f")
    found = Substitution(source="f", given={"p": "2"}).applied(values)
    assert found["a"] is found["b"] and found["a"] == [1, 2]


def one_of(name: str, rule: object) -> dict[str, Any]:
    """The section of parameters in which a rule is for the date."""
    return {"parameters": DECLARED | {"date": {name: rule}}}


NO_VALUE = "input.path: ${date} has no value; give one with --set date=VALUE"
NO_NAME = "output: after ${ must follow the name of a parameter and };"
BAD_VALUES: list[tuple[dict[str, str], str]] = [
    ({}, NO_VALUE),
    ({"dat": "x"}, "--set dat: no such parameter is declared; did you mean date?"),
    ({"date": "31.1.2013"}, "--set date: '31.1.2013' must be a date, such as 2013-01-31"),
    ({"date": "2013-02-30"}, "--set date: '2013-02-30' must be a date, such as 2013-01-31"),
]
BAD_PARAMETERS: list[tuple[dict[str, Any], str]] = [
    ({"date": {"type": "day"}}, "date.type: 'day' must be text, date, integer or number"),
    ({"end": {"type": "integer", "default": "x"}}, "end.default: 'x' must be a whole number"),
    ({"end": {"choices": []}}, "end.choices: must have at least one value"),
    ({"end": {"pattern": "("}}, "end.pattern: '(' is not a regular expression of RE2"),
    ({"end": {"typ": "date"}}, "end.typ: unknown key; did you mean type?"),
    ({"1": {}}, "1: a parameter's name must be letters"),
]
OTHERS: list[tuple[dict[str, str], dict[str, Any], str]] = [
    ({}, {}, NO_VALUE),
    (DAY | {"end": "2014-01-01", "x": "1"}, {}, "--set x: no value holds ${x}"),
    (
        DAY,
        {"parameters": {"date": {"type": "date"}}},
        "trees[0].domain.upper: ${end} is not declared under parameters; known are date",
    ),
    (DAY, {"parameters": [1]}, "parameters: a list must be a section of keys and values"),
    (DAY, {"output": "out/${date"}, NO_NAME),
    (DAY, {"output": "out/${}"}, NO_NAME),
    (
        {"date": "a/b", "end": "2014-01-01"},
        {},
        "release: 'flights-a/b' must be 1 to 100 letters, digits, '.', '_' or '-', and not dots "
        "alone (and 1 more) (date is 'a/b')",
    ),
    ({"date": "uk"}, one_of("choices", ["eu", "us"]), "--set date: 'uk' must be eu or us"),
    (
        {"date": "uk"},
        one_of("pattern", "[a-z]{3}"),
        "--set date: 'uk' must match the pattern [a-z]{3}",
    ),
]


def test_mistakes(tmp_path: Path) -> None:
    cases = [(given, {"parameters": DECLARED}, sentence) for given, sentence in BAD_VALUES]
    cases += [
        (DAY, {"parameters": DECLARED | section}, f"parameters.{sentence}")
        for section, sentence in BAD_PARAMETERS
    ]
    for given, changed, sentence in cases + OTHERS:
        assert refused(tmp_path, given, **changed).startswith(sentence)


def test_malformed_settings() -> None:
    for text in ("date", "=x", "1a=x", "a b=x", "date=", "date= "):
        with pytest.raises(ConfigurationError, match=r"^--set: "):
            given_parameters([text])
    with pytest.raises(ConfigurationError, match=r"^--set: a is given twice"):
        given_parameters(["a=1", "a=1"])


# A release with parameters


def by_place(settings: dict[str, Any]) -> None:
    settings["release"] = "small-${run}"
    settings["input"]["path"] = settings["input"]["path"].replace("*", "${run}")
    settings["parameters"] = {"run": {"pattern": "part-[0-9]"}}


def test_the_manifest_records_them(workspace: Workspace, released: Workspace) -> None:
    first = workspace.release(by_place, "--set", "run=part-0")
    assert (first.code, first.err) == (0, "")
    manifest = workspace.manifest()
    assert manifest["parameters"] == {"run": "part-0"}
    assert manifest["spec"]["name"] == "small-part-0"
    assert "parameters" not in released.manifest()
    assert "already there" in workspace.release(by_place, "--set", "run=part-0").out


def test_other_parameters_under_one_id_are_reported_and_refused(workspace: Workspace) -> None:
    one_id = both(by_place, put("release", "small"))
    remark = "the id small contains no parameter, so all releases, whatever the run, have one id"
    first = workspace.release(one_id, "--set", "run=part-0")
    assert first.code == 0 and remark in first.err
    assert remark in workspace.run("plan", workspace.configure(one_id), "--set", "run=part-0").out
    second = workspace.release(one_id, "--set", "run=part-1")
    assert second.code == 2 and second.err.splitlines()[-1] == (
        f"dptrees: output: {workspace.output} contains a release with other parameters (run = "
        "part-0); choose another output, for example with a parameter in its path"
    )


def test_the_command_reports_mistakes_in_one_sentence(workspace: Workspace) -> None:
    for options, sentence in (
        ((), "input.path: ${run} has no value; give one with --set run=VALUE"),
        (("--set", "run=x/y"), "--set run: 'x/y' must match the pattern part-[0-9]"),
    ):
        path = workspace.configure(by_place)
        for command in ("plan", "release"):
            outcome = workspace.run(command, path, *options)
            assert (outcome.code, outcome.out) == (2, "")
            assert outcome.err == f"dptrees: {path}: {sentence}\n"
    assert workspace.run("plan", path, "--set", "run").err == (
        "dptrees: --set: 'run' must be NAME=VALUE, such as date=2013-01-31\n"
    )


def test_the_page_s_configuration_and_sentences(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "parameters.md").read_text()
    path = tmp_path / "daily.yaml"
    path.write_text(page.split("```yaml\n")[1].split("```")[0])
    found = load_configuration(str(path), DAY | {"cells": "60"})
    assert found.plan().questions[0].domain.cells == 60
    assert found.parameters == DAY | {"cells": "60"}
    for given in ({}, {"dat": "2013-01-31"}, {"date": "31.1.2013"}):
        with pytest.raises(ConfigurationError) as caught:
            load_configuration(str(path), given)
        assert f"`{str(caught.value).removeprefix(f'{path}: ')}`" in page
