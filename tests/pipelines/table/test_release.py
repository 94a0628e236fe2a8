"""A wide table from the command to its answers: summary, queries, rows, page, proof, Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import dptrees
from dptrees.dpcore.tables.released import ReleasedTable
from dptrees.pipelines.query.release_folder import ReleaseFolder
from tests.pipelines.conftest import NONCE, Workspace
from tests.pipelines.hypercube.conftest import AGE, KIND, ROWS, rows, write_inputs
from tests.pipelines.table.conftest import table

DATA = rows()
BUDGET = {"epsilon": 1, "neighbors": "add_remove"}


def released(wide: Workspace) -> ReleasedTable:
    tree = ReleaseFolder(str(wide.output)).release.tree("wide")
    assert isinstance(tree, ReleasedTable)
    return tree


def test_queries_of_one_and_of_two_columns(wide: Workspace) -> None:
    ages, kinds = DATA["age"].to_numpy(), DATA["kind"].to_numpy(zero_copy_only=False)
    found = wide.run("query", wide.output, "box", "--side", "age", "20", "40", "--json")
    (answer,) = json.loads(found.out)["answers"]
    assert answer["estimate"] == ((ages >= 20) & (ages < 40)).sum()
    sides = ["--side", "kind", "alpha", "alpha", "--side", "age", "", "30"]
    found = wide.run("query", wide.output, "box", *sides, "--json")
    (answer,) = json.loads(found.out)["answers"]
    truth = ((kinds == "alpha") & (ages < 30)).sum()
    assert answer["ci_low"] <= truth <= answer["ci_high"]
    found = wide.run("query", wide.output, "quantile", "0.5", "--column", "age", "--json")
    (answer,) = json.loads(found.out)["answers"]
    assert abs(answer["value"] - np.median(ages)) <= 1
    found = wide.run("query", wide.output, "cdf", "0", "--column", "x")
    assert found.code == 0 and "x below 0" in found.out
    found = wide.run("query", wide.output, "node", "--path", "kind alpha")
    assert found.code == 0 and f"{(kinds == 'alpha').sum():,}" in found.out


def test_rows_are_sampled_into_a_file(wide: Workspace, tmp_path: Path) -> None:
    output = tmp_path / "rows.parquet"
    outcome = wide.run("sample", wide.output, "--output", output, "--seed", 1)
    assert outcome.code == 0 and f"{ROWS:,} synthetic rows in {output}\n" in outcome.out
    found = pq.read_table(output)
    assert found.schema == DATA.select(["day", "at", "kind", "age", "x"]).schema
    share = np.mean(found["kind"].to_numpy(zero_copy_only=False) == "alpha")
    assert abs(share - 0.6) < 6 * np.sqrt(0.24 / ROWS)


def test_pairs_that_were_not_measured_are_said(workspace: Workspace) -> None:
    """`a` and `b` are equal, and no other pair associates at all."""
    a, c, d = ((np.arange(8 * 512) // step % 8).astype(str) for step in (1, 8, 64))
    data = pa.table({"a": a, "b": a, "c": c, "d": d})
    cells = list(map(str, range(8)))
    tree = table("wide", [{"column": name, "categories": cells} for name in "abcd"])
    path = write_inputs(workspace, data, tree)
    path = workspace.configure(lambda s: s.update(trees=[tree], privacy=BUDGET))
    workspace.succeed("release", path, *NONCE)
    outcome = workspace.run("sample", workspace.output, "--output", workspace.rows / "x.csv")
    assert outcome.out.splitlines()[1:] == ["1 of 6 pairs of columns measured: a x b"]
    implied = "synthetic rows associate the other 5 pairs of columns only as far as the measured"
    warned = [implied, *(f"no pair with {each} was measured, so in" for each in "cd")]
    for text in warned:
        assert f"warning: {text}" in outcome.err
        assert f"Mind: {text}" in (workspace.output / "report.html").read_text()
    with pytest.warns(UserWarning) as found:
        dptrees.open(str(workspace.output)).sample(10)
    assert [text in str(each.message) for each, text in zip(found, warned, strict=True)] == [
        True
    ] * 3


def test_types_come_back_as_they_went_in(workspace: Workspace) -> None:
    """From Parquet, and from CSV as pandas writes it: True, and integers as floats."""
    random, size = np.random.default_rng(2), 1_000
    data = pa.table(
        {
            "truth": random.random(size) < 0.8,
            "whole": random.integers(0, 50, size),
            "code": random.integers(1, 4, size),
            "word": np.array(["x", "y"])[random.integers(0, 2, size)],
        }
    )
    columns = [
        {"column": "truth", "categories": [False, True]},
        {"column": "whole", "lower": 0, "upper": 50},
        {"column": "code", "categories": [1, 2, 3]},
        {"column": "word", "categories": ["x", "y"]},
    ]
    path = write_inputs(workspace, data, table("wide", columns))
    advice = "advice: whole has whole numbers; synthetic rows have them with type: integer"
    assert advice in workspace.succeed("check", path).out
    columns[1] |= {"type": "integer"}
    path = write_inputs(workspace, data, table("wide", columns))
    assert "advice" not in workspace.succeed("check", path).out
    rows = [f"{t},{float(w)},{float(c)},{s}" for t, w, c, s in map(dict.values, data.to_pylist())]
    file = workspace.rows.parent / "pandas.csv"
    file.write_text("\n".join(["truth,whole,code,word", *rows]) + "\n")
    for number, given in enumerate([{}, {"format": "csv", "path": str(file)}]):
        output = workspace.output.parent / f"types-{number}"
        tree = table("wide", columns)

        def change(
            section: dict[str, Any], given: Any = given, output: Path = output, tree: Any = tree
        ) -> None:
            section.update(trees=[tree], output=str(output), privacy=BUDGET)
            section["input"] |= given

        workspace.succeed("release", workspace.configure(change), *NONCE)
        for end in ("parquet", "csv"):
            drawn = output.parent / f"drawn-{number}.{end}"
            assert workspace.run("sample", output, "--output", drawn).code == 0
        found = pq.read_table(output.parent / f"drawn-{number}.parquet")
        assert found.schema == data.schema
        assert abs(np.mean(found["truth"]) - 0.8) < 0.1
        again = pa_csv.read_csv(output.parent / f"drawn-{number}.csv")
        assert again.schema == data.schema


def test_missing_values_go_in_and_come_out(workspace: Workspace) -> None:
    """Parquet and CSV of the same rows are the same release; rows are as the input had them."""
    random, size = np.random.default_rng(3), 3_000
    lost = random.random(size) < 0.3
    data = pa.table(
        {
            "age": pa.array(random.integers(0, 100, size), mask=random.random(size) < 0.1),
            "kind": pa.array(np.array(["alpha", "beta"])[random.integers(0, 2, size)], mask=lost),
        }
    )
    tree = table("wide", [AGE, KIND])
    tree["domain"]["missing"] = "category"
    path = write_inputs(workspace, data, tree)
    outcome = workspace.succeed("check", path)
    assert f"{size:,} counted\n" in outcome.out
    assert f"{lost.sum()} counted as missing: kind is missing" in outcome.out
    file = workspace.rows.parent / "rows.csv"
    pa_csv.write_csv(data, file)
    read = {"format": "csv", "path": str(file)}
    released = []
    for number, given in enumerate([{}, read]):
        output = workspace.output.parent / f"missing-{number}"

        def change(section: dict[str, Any], given: Any = given, output: Path = output) -> None:
            section["input"] |= given
            section["output"] = str(output)

        made = workspace.configure(lambda s: (s.update(trees=[tree], privacy=BUDGET), change(s)))
        workspace.succeed("release", made, *NONCE)
        released.append(ReleaseFolder(str(output)).manifest["parts"])
    assert released[0] == released[1]
    rows = workspace.rows.parent / "drawn.csv"
    assert workspace.run("sample", output, "--output", rows).code == 0
    drawn = pa_csv.read_csv(rows, convert_options=pa_csv.ConvertOptions(strings_can_be_null=True))
    assert drawn.schema == data.schema
    assert abs(drawn["kind"].null_count / len(drawn) - lost.mean()) < 0.05
    found = workspace.run("query", output, "quantile", "0.5", "--column", "age")
    assert "rows without a value of age are apart: they are counted as age missing" in found.out
    found = workspace.run("query", output, "quantile", "0.5", "--column", "age", "--json")
    assert "age missing" in json.loads(found.out)["answers"][0]["remark"]
    found = workspace.run("query", output, "box", "--side", "kind", "missing", "missing", "--json")
    answer = json.loads(found.out)["answers"][0]
    assert answer["ci_low"] <= lost.sum() <= answer["ci_high"]
    page = (output / "report.html").read_text()
    assert "Rows without a value, which the charts leave out: age " in page
    assert "counted as missing, a category of its own" in page
    assert "of rows with a value" in str(dptrees.open(str(output))["wide"].column("age").cdf(50))


def test_check_says_which_rows_are_counted_elsewhere(workspace: Workspace) -> None:
    tree = table("wide", [KIND, AGE | {"upper": 50}])
    outcome = workspace.succeed("check", write_inputs(workspace, DATA, tree))
    assert "at or above upper" in outcome.out
