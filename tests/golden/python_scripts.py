"""Scripts of the Python API, of Beam pipelines and of Spark."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import dptrees
import dptrees.spark
from tests.golden.rows import config, table
from tests.golden.script import (
    BOX,
    CODES,
    COLOURS,
    DAYS,
    PAY,
    PERSON,
    PLACES,
    TWO,
    WIDE,
    N,
    X,
    script,
)
from tests.golden.shell import Shell, table_text
from tests.optional import table_library
from tests.pipelines.spark.stand_in import engine_in

RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
SPARSE = "domain: {kind: sparse, column: path, depth: 2}"


def sections(*trees: str, **changed: str) -> dict[str, Any]:
    """Return a configuration of rows in memory."""
    values: dict[str, Any] = yaml.safe_load(config("memory", *trees, **changed))
    return {key: each for key, each in values.items() if key not in ("input", "output", "key_file")}


def answers(run: Shell, name: str, tree: Any, **calls: tuple[Any, ...]) -> None:
    """Keep answers of a tree as a table of all digits."""
    for method, (*arguments, more) in calls.items():
        method = method.rstrip("_")
        given = ", ".join([*map(repr, arguments), *(f"{k}={v!r}" for k, v in more.items())])
        found = run.python(
            f"{name}.{method}({given})",
            lambda m=method, a=arguments, k=more: getattr(tree, m)(*a, **k),
        )
        if found is not None and hasattr(found, "to_arrow"):
            run.keep(f"{name}.{method}({given}) as a table", table_text(found.to_arrow()))


@script("python")
def requests(run: Shell) -> None:
    """Queries of a frame, without a configuration."""
    rows = table().to_pandas()[["n", "m", "x", "pay", "colour", "town", "person", "code"]]
    request = (
        dptrees.of(rows, epsilon=16, delta=1e-4)
        .by("colour", ["red", "blue"])
        .count()
        .quantiles("n", [0.1, 0.5], (0, 99))
        .metrics("pay", ["mean", "std", "p90"], (0, 5000))
        .by("town", {"t0": "Oslo", "t1": "Bergen"})
        .median("x", (0, 100), name="median_x")
        .by()
        .cdf("m", (0, 63))
        .mean("x", (0.0, 100.0), name="mean_x")
        .total("pay", (0, 5000), name="total_pay")
        .distinct("code")
        .most_frequent("town", name="towns")
        .count("colour", values={"red": "rot", "blue": "blau"}, name="colours")
    )
    run.python("request", lambda: str(request))
    run.python("repr(request)", lambda: request)
    run.python("request.config", lambda: request.config)
    plan = run.python("request.plan()", request.plan)
    run.keep("plan.text", plan.text)
    run.keep("plan.to_dicts()", plan.to_dicts())
    run.keep("plan.entries", plan.entries)
    run.python("plan.budget_for(5)", lambda: plan.budget_for(5))
    run.python("plan.budget_for(n=5)", lambda: plan.budget_for({"n": 5}))
    run.python("plan.budget_for(z=5)", lambda: plan.budget_for({"z": 5}))
    run.keep("html of plan", plan._repr_html_())
    run.python("request.check()", request.check)
    release = run.python("request.release()", lambda: request.release(key="release.key"))
    run.keep("html of release", release._repr_html_())
    for name in release:
        run.python(f"release[{name}]", lambda name=name: release[name])
    key: dict[str, Any] = {"key": "red"}
    answers(run, "n", release["n"], quantiles=({},), quantiles_=(0.3, key), cdf=([10, 20], key))
    answers(run, "pay", release["pay"], mean=({},), std=({},), total=(key,), describe=({},))
    answers(run, "m", release["m"], cdf=({},), range=(10, 20, {}), share=(20, {}), top=(3, {}))
    answers(run, "mean_x", release["mean_x"], mean=({},), total=({},), describe=({},), std=({},))
    answers(run, "code", release["code"], nodes=({},), top=({},))
    answers(run, "towns", release["towns"], top=(2, {}), nodes=({},), children=("", {}))
    answers(run, "towns", release["towns"], above=(50, {}), above_=({"Oslo": 9}, {}))
    answers(run, "colours", release["colours"], nodes=({},), node=("rot", {}), share=("rot", {}))
    run.python("release[nothing]", lambda: release["nothing"])
    run.python("release.save", lambda: release.save("out/saved"))
    run.python("release.save again", lambda: release.save("out/saved"))
    run.files("out/saved")
    opened = run.python("open", lambda: dptrees.open("out/saved"))
    run.keep("verify", opened.verify())
    run.keep("report", len(opened.report()) > 1000)
    run.python("open nothing", lambda: dptrees.open("nowhere"))
    for name, wrong in {
        "no bounds": lambda: dptrees.of(rows, epsilon=1).cdf("n", (9, 3)).plan(),
        "no column": lambda: dptrees.of(rows, epsilon=1).cdf("q", (0, 3)).release(),
        "no budget": lambda: dptrees.of(rows, epsilon=0).cdf("n", (0, 3)).plan(),
        "no query": lambda: dptrees.of(rows, epsilon=1).plan(),
        "no delta": lambda: dptrees.of(rows, epsilon=1).most_frequent("town").plan(),
        "no rows": lambda: dptrees.of(3, epsilon=1).cdf("n", (0, 3)).release(),
        "texts": lambda: dptrees.of(rows, epsilon=1).cdf("town", (0, 3)).release(),
        "unit": lambda: dptrees.of(rows, epsilon=1, unit="person").cdf("n", (0, 3)).plan(),
        "twice": lambda: dptrees.of(rows, epsilon=1).cdf("n", (0, 3)).cdf("n", (0, 3)).plan(),
        "q": lambda: dptrees.of(rows, epsilon=1).quantiles("n", [2], (0, 3)).plan(),
        "metric": lambda: dptrees.of(rows, epsilon=1).metrics("n", ["mode"], (0, 3)).plan(),
    }.items():
        run.python(f"refused: {name}", wrong)


@script("python")
def configurations(run: Shell) -> None:
    """Releases by dictionaries, of every kind of tree and of rows."""
    rows = table()
    trees = (
        f"name: n, {N}, {COLOURS}, quantiles: [0.5]",
        f"name: places, {PLACES}",
        f"name: codes, {CODES}",
        f"name: days, {DAYS}",
        f"name: sparse, {SPARSE}",
        f"name: box, {BOX}, rows: 900",
        f"name: two, {TWO}, rows: 900, optimize_for: estimates, depth: 10",
        f"name: wide, {WIDE}",
        f"name: median, {N}, mechanism: exponential, quantiles: [0.5]",
        f"name: pay, {PAY}, optimize_for: estimates",
    )
    values = sections(*trees, privacy="{epsilon: 32, delta: 0.0001, neighbors: add_remove}")
    run.python("plan", lambda: dptrees.plan(values))
    release = run.python(
        "release", lambda: dptrees.release(rows, values, key="release.key", output="out/dictionary")
    )
    run.files("out/dictionary")
    run.python(
        "again", lambda: dptrees.release(rows, values, key="release.key", output="out/dictionary")
    )
    answers(
        run,
        "n",
        release["n"],
        cdf=({},),
        median=({},),
        nodes=({"level": 1},),
        sum=(["3", "4"], {"key": "red"}),
    )
    answers(
        run,
        "places",
        release["places"],
        nodes=({"level": "town"},),
        node=("t1", {}),
        children=("t1", {}),
        sum=(["t1", "t2"], {}),
        top=(2, {"level": "town"}),
    )
    answers(
        run,
        "days",
        release["days"],
        range=(date(2024, 2, 1), date(2024, 4, 1), {}),
        nodes=({"level": "month"},),
        top=(1, {}),
    )
    answers(run, "sparse", release["sparse"], nodes=({},), node=("a1", {}), children=("", {}))
    answers(
        run,
        "box",
        release["box"],
        box=({"x": (10, 60)}, {}),
        nodes=({"level": 2},),
        top=(2, {"level": 1}),
    )
    answers(
        run,
        "two",
        release["two"].column("x"),
        cdf=([50], {}),
        quantiles=(0.5, {}),
        range=(10, 20, {}),
        cdf_=({},),
    )
    answers(run, "wide", release["wide"].column("n"), cdf=([50], {}), quantiles=({},))
    answers(
        run,
        "wide",
        release["wide"],
        box=({"n": (1, 50), "colour": ("red", "red")}, {}),
        nodes=({"level": 1},),
        top=(3, {}),
    )
    answers(run, "median", release["median"], quantiles=({},), median=({},), quantiles_=(0.1, {}))
    answers(
        run,
        "pay",
        release["pay"].at_confidence(0.8),
        cdf=([9], {"simultaneous": True}),
        mean=({},),
        variance=({},),
        mean_=(0, 400, {}),
        range=(10.5, 99, {}),
    )
    answers(
        run,
        "wrong",
        release["n"],
        range=(9, 1, {}),
        cdf=(["a"], {}),
        node=("x", {}),
        quantiles=(7, {}),
        box=({"n": (1, 2)}, {}),
    )
    run.keep("sample", table_text(release.sample(5, tree="box", seed=3)))
    run.python("sample of which", lambda: release.sample(5))
    run.python("confidence", lambda: release["n"].at_confidence(2))
    pq.write_table(rows.slice(5), "fewer.parquet")
    run.python("verify", lambda: release.verify(key="release.key", data="rows.parquet"))
    run.python("verify others", lambda: release.verify(key="release.key", data="fewer.parquet"))
    for name, axes in {
        "cdf": lambda: release["n"].cdf().plot(),
        "level": lambda: release["n"].nodes(level=1).plot(share=True),
        "months": lambda: release["days"].nodes(level="month").plot(),
        "nodes": lambda: release["places"].nodes(level="town").plot(),
        "quantiles": lambda: release["n"].quantiles().plot(),
        "band": lambda: release["pay"].cdf(simultaneous=True).plot(),
        "box": lambda: release["box"].box({"x": (1, 2)}).plot(),
    }.items():
        drawn = run.python(f"plot of {name}", lambda axes=axes: type(axes()).__name__)
        run.keep(f"plot of {name}", drawn)
    typed = {
        "privacy": {"neighbors": "add_remove", "epsilon": 4.0, "unit": "person", "max_rows": 3},
        "trees": [
            {
                "name": "n",
                "domain": {"column": "n", "values": [0, 99]},
                "group_by": {"column": "colour", "keys": ["red", "blue"]},
                "quantiles": [0.5],
            }
        ],
    }
    run.python("plan of typed", lambda: dptrees.plan(typed))
    run.python(
        "release of typed", lambda: dptrees.release(rows, typed, key="release.key")["n"].quantiles()
    )
    for name, given in {
        "dictionary": rows.select(["n", "colour", "person"]).to_pydict(),
        "list": rows.select(["n", "colour", "person"]).to_pylist(),
        "batches": rows.to_batches(max_chunksize=100)[3],
        "reader": rows.to_reader(),
        "path": "rows.parquet",
        "absent": "absent.parquet",
        "number": 5,
    }.items():
        run.python(
            f"rows of a {name}",
            lambda given=given: dptrees.release(given, typed, key="release.key")["n"].quantiles(),
        )
    for name in ("polars", "duckdb"):
        read = table_library(name, "DPTREES_REQUIRE_TABLES").from_arrow(
            rows.select(["n", "colour", "person"])
        )
        run.python(
            f"rows of {name}",
            lambda read=read: dptrees.release(read, typed, key="release.key")["n"].quantiles(),
        )
    run.python("check", lambda: dptrees.check(rows, values))
    run.python("check.entries", lambda: dptrees.check(rows, values, most=50).entries)
    for name, changed in {
        "misspelled": {"privacy": {"epsilom": 1}},
        "no trees": {"privacy": {"epsilon": 1, "neighbors": "add_remove"}},
        "ledger": values | {"ledger": "sqlite:///a.db"},
        "series": values | {"series": {"periods": 2, "period": 1}},
        "private": values
        | {
            "privacy": {
                "epsilon": 1,
                "neighbors": "add_remove",
                "unit": "person",
                "max_rows": "auto",
            },
            "trees": [{"name": "n", "domain": {"column": "n", "values": [0, 99]}}],
        },
    }.items():
        run.python(
            f"release: {name}",
            lambda changed=changed: dptrees.release(rows, changed, key="release.key"),
        )


@script("python")
def sessions(run: Shell) -> None:
    """Releases under one total, and what a process has spent without one."""
    rows = table()
    one = sections(f"name: n, {N}", privacy="{epsilon: 1, neighbors: add_remove}")
    session = dptrees.Session(epsilon=2.5, delta=1e-5, dataset="people")
    for number in range(3):
        run.python(f"release {number}", lambda: session.release(rows, one, key="release.key"))
    run.python("session", lambda: session)
    run.python("room", lambda: session.check_room(one))
    run.python("left", lambda: (session.spent, session.left))
    for name, privacy in {
        "rho": "{rho: 0.1, neighbors: add_remove}",
        "unit": "{epsilon: 0.1, neighbors: add_remove, unit: person, max_rows: 2}",
        "relation": "{epsilon: 0.1, neighbors: substitute}",
        "delta": "{epsilon: 0.1, delta: 0.001, neighbors: add_remove}",
    }.items():
        other = sections(f"name: n, {N}", privacy=privacy)
        run.python(f"another {name}", lambda other=other: session.release(rows, other))
    run.python("Session()", lambda: dptrees.Session(epsilon=-1))
    rho = dptrees.Session(rho=1)
    gauss = sections(f"name: n, {N}", privacy="{rho: 0.5, neighbors: add_remove}")
    run.python("under rho", lambda: rho.release(rows, gauss, key="release.key"))
    run.python("session under rho", lambda: rho)
    for _ in range(2):
        run.python("without a session", lambda: dptrees.release(rows, one, key="release.key"))
    run.python("keygen", lambda: dptrees.keygen("own.key"))
    run.python("keygen again", lambda: dptrees.keygen("own.key"))
    run.python("unknown name", lambda: getattr(dptrees, "relase", None))


class Person(NamedTuple):
    """A row with a type for each field."""

    n: int | None
    x: float | None
    colour: str
    at: datetime
    person: str | None


@script("beam")
def transforms(run: Shell) -> None:
    """The transform over rows of every class, and the step of Beam YAML."""
    trees = (f"name: n, {N}, {COLOURS}, quantiles: [0.5]", f"name: x, {X}")
    Path("beam.yaml").write_text(
        config("beam", *trees, privacy=PERSON, input="", output="", key_file="")
    )
    plan = dptrees.load("beam.yaml")
    rows = table(300)
    columns = ["n", "x", "colour", "at", "person"]
    dictionaries = rows.select(columns).to_pylist()
    people = [Person(**each) for each in dictionaries]
    key = dptrees.key("release.key")

    def release(name: str, elements: list[Any], kind: Any, **more: Any) -> None:
        def build() -> str:
            with beam.Pipeline(argv=[f"--runner={RUNNER}"]) as pipeline:
                made = pipeline | beam.Create(elements, reshuffle=False)
                if kind is not None:
                    made |= beam.Map(lambda each: each).with_output_types(kind)
                made | dptrees.ReleaseTrees(plan, key=key, output=f"out/{name}", **more)
            return "made"

        run.python(f"release of {name}", build)
        run.files(f"out/{name}")

    release("batches", rows.to_batches(max_chunksize=70), pa.RecordBatch)
    release("people", people, Person)
    schema = pa.schema([rows.schema.field(each) for each in columns])
    release("dictionaries", dictionaries, dict, schema=schema)
    release("undeclared", dictionaries, dict)
    release("wrong", [each | {"n": "x"} for each in dictionaries], dict, schema=schema)
    release("few", rows.select(["x"]).to_batches(), pa.RecordBatch)
    release("batches", rows.to_batches(), pa.RecordBatch)
    release("batches", rows.to_batches(), pa.RecordBatch, if_exists="use")

    section = yaml.safe_load(config("step", *trees, privacy=PERSON, input="")) | {
        "output": "out/step"
    }

    def step() -> str:
        with beam.Pipeline(argv=[f"--runner={RUNNER}"]) as pipeline:
            made = pipeline | beam.Create([beam.Row(n=1, x=2.5, colour="red", person="p")] * 40)
            made = made | dptrees.DPTree(**section)
            made | beam.Map(lambda row: Path("told").write_text(f"{row.release} {row.status}"))
        return Path("told").read_text()

    run.python("step", step)
    run.files("out/step")
    run.python("finished", step)
    for name, changed in {
        "ledger": {"ledger": "sqlite:///a.db"},
        "input": {"input": {"format": "parquet", "path": "rows.parquet"}},
        "confidence": {"confidence": 2},
        "if_exists": {"if_exists": "maybe"},
    }.items():
        run.python(
            f"step with {name}",
            lambda changed=changed: str(type(dptrees.DPTree(**section | changed)).__name__),
        )


@script("beam")
def every_runner(run: Shell) -> None:
    """Every kind of tree through Beam's own runner, by the command."""
    trees = (
        f"name: n, {N}, {COLOURS}, quantiles: [0.5]",
        f"name: codes, {CODES}",
        f"name: sparse, {SPARSE}",
        f"name: two, {TWO}, rows: 900, depth: 10, counts: sparse",
        f"name: wide, {WIDE}",
    )
    Path("all.yaml").write_text(config("all", *trees, privacy=PERSON))
    run.release("all.yaml", f"--runner={RUNNER}")
    run.files("out/all")
    Path("rows.yaml").write_text(
        config("rows", *trees[:3], privacy="{epsilon: 4, delta: 0.0001, neighbors: substitute}")
    )
    run.release("rows.yaml", f"--runner={RUNNER}")
    run.files("out/rows")


@script("beam")
def spark(run: Shell) -> None:
    """A release of a DataFrame, by a stand-in for Spark's session."""
    with pytest.MonkeyPatch.context() as patch:
        engine = engine_in(patch)
        rows = table().select(["n", "colour", "pay", "town", "street", "code", "person", "day"])
        for name, privacy in {
            "persons": PERSON,
            "rows": "{epsilon: 4, delta: 0.0001, neighbors: add_remove}",
        }.items():
            values = sections(
                f"name: n, {N}, {COLOURS}",
                f"name: places, {PLACES}",
                "name: sparse, domain: {kind: sparse, columns: [town, street]}",
                f"name: two, {TWO.replace('[x, pay]', '[n, pay]')}, rows: 900, depth: 10",
                privacy=privacy,
            )
            run.python(
                f"release of {name}",
                lambda values=values, name=name: dptrees.spark.release(
                    engine.frame(rows), values, key="release.key", output=f"out/{name}"
                ),
            )
            run.files(f"out/{name}")
        private = sections(
            f"name: n, {N}, group_by: {{column: town, keys: private}}", privacy=PERSON
        )
        run.python(
            "private keys",
            lambda: dptrees.spark.release(
                engine.frame(rows), private, key="release.key", output="out/private"
            ),
        )
        run.files("out/private")
        few = engine.frame(rows.select(["pay"]))
        run.python("no column", lambda: dptrees.spark.release(few, private, key="release.key"))
        run.python("no frame", lambda: dptrees.spark.release(3, private, key="release.key"))
