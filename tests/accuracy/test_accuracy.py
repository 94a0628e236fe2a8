"""benchmarks/accuracy: methods of papers against what is known of them, and the page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy import __main__ as command
from benchmarks.accuracy import papers
from benchmarks.accuracy.cases import (
    TASKS,
    Absent,
    Answers,
    Case,
    DataSet,
    Method,
    Privacy,
    Records,
    draw_ranges,
    measure_errors,
)
from benchmarks.accuracy.ours import OURS, by_default, plan_tree
from benchmarks.accuracy.packages import PYTHON, package_methods
from benchmarks.accuracy.papers import greedy_tree, range_gram
from benchmarks.accuracy.tables import BLOCKS, WORSE, blocks, combine_columns

EPSILON, RHO = Privacy.of("epsilon=1"), Privacy.of("rho=0.5")
SPIKES = DataSet(name="spikes", group="4096", shape=np.repeat([0.9, 0.0, 0.1, 0.0], 16) / 16)
FLAT = DataSet(name="flat", group="4096", shape=np.full(64, 1 / 64))


class NoNoise:
    """A generator of numbers that are all zero."""

    def laplace(self, *arguments: object) -> object:
        return np.zeros(arguments[2] if len(arguments) > 2 else ())

    normal = laplace

    def gumbel(self, *, size: int) -> object:
        return np.zeros(size)


@pytest.mark.parametrize("estimate", [papers.identity, papers.hierarchical, papers.wavelet])
@pytest.mark.parametrize("privacy", [EPSILON, RHO], ids=str)
@pytest.mark.parametrize("cells", [64, 85])
def test_without_noise_a_linear_method_says_the_counts(estimate, privacy, cells) -> None:
    counts = np.arange(cells) % 7.0
    assert np.allclose(estimate(NoNoise(), counts, privacy), counts)


def test_without_noise_greedy_says_the_counts() -> None:
    counts = np.arange(50) % 7.0
    assert np.allclose(papers.greedy(NoNoise(), counts, 1.0), counts)


@pytest.mark.parametrize("cells", [1, 2, 50, 64])
def test_a_path_of_a_greedy_tree_spends_the_budget_once(cells: int) -> None:
    tree = greedy_tree(range_gram(np.arange(cells), cells))
    paths = sum(np.repeat(each, tree.weights[-1].size // each.size) for each in tree.weights)
    assert np.allclose(paths, 1.0)


def test_the_gram_of_buckets_is_that_of_the_spread_workload() -> None:
    ranges = [(low, high) for low in range(6) for high in range(low + 1, 7)]
    workload = np.array([[low <= cell < high for cell in range(6)] for low, high in ranges], float)
    starts, spread = np.array([0, 2, 3]), np.zeros((6, 3))
    for bucket, (low, high) in enumerate([(0, 2), (2, 3), (3, 6)]):
        spread[low:high, bucket] = 1 / (high - low)
    assert np.allclose(range_gram(starts, 6), spread.T @ workload.T @ workload @ spread)


def test_dawa_without_noise_finds_the_even_buckets_and_their_counts() -> None:
    counts = np.repeat([5.0, 0.0, 9.0, 1.0], 16)
    assert papers.dawa_buckets(NoNoise(), counts, 0.25, 0.75).tolist() == [0, 16, 32, 48]
    assert np.allclose(papers.dawa(NoNoise(), counts, 1.0), counts)


def test_ahp_without_noise_joins_equal_counts() -> None:
    counts = np.tile([0.0, 0.0, 50.0, 9.0], 16)
    assert np.allclose(papers.ahp(NoNoise(), counts, 1.0), counts)


def _range_error(estimate, data: DataSet, rows: int, releases: int = 60) -> float:
    case = Case(data=data, rows=rows, privacy=EPSILON)
    rng = np.random.default_rng(3)
    found = [
        measure_errors(
            case, Answers(prefixes=estimate(rng, case.counts.astype(float), 1.0).cumsum())
        )
        for _ in range(releases)
    ]
    return float(np.sqrt(np.mean([each["ranges"] for each in found])))


def test_noise_is_of_the_budget_on_every_path() -> None:
    """HB's leaves have the variance of least squares on levels of epsilon / 3 each."""
    rng, zeros = np.random.default_rng(1), np.zeros(4096)
    draws = np.array([papers.hierarchical(rng, zeros, EPSILON) for _ in range(20)])
    # Of trees of one fan-out b: a leaf keeps about b / (b + 1) of 2 (3 / epsilon)^2.
    assert draws.var() == pytest.approx(18 * 16 / 17, rel=0.03)
    assert papers.identity(rng, zeros, RHO).std() == pytest.approx(1.0, rel=0.05)
    total = [papers.uniform(rng, zeros, EPSILON).sum() for _ in range(4000)]
    assert np.std(total) == pytest.approx(np.sqrt(2), rel=0.1)


def test_dawa_gains_where_cells_are_alike_and_rows_are_few() -> None:
    """Qualitatively as in DPBench (Hay et al. 2016, Section 7): it loses that gain with rows."""
    wide = DataSet(name="wide", group="4096", shape=np.repeat([0.9, 0.1], 256) / 256)
    few, many = (
        _range_error(papers.dawa, wide, rows, 20) / _range_error(papers.greedy, wide, rows)
        for rows in (200, 200_000)
    )
    assert few < 0.6 and few < many - 0.2


def test_errors_are_those_of_their_definitions() -> None:
    case = Case(data=FLAT, rows=640, privacy=EPSILON)
    truth = case.counts.cumsum().astype(float)
    start, stop = draw_ranges(64)
    assert set(measure_errors(case, Answers(prefixes=truth)).values()) == {0.0}
    # One more row in the first cell is in every prefix, and in the ranges that begin there.
    found = measure_errors(case, Answers(prefixes=truth + 1))
    assert found["prefixes"] == 1.0
    assert found["ranges"] == pytest.approx(np.mean(start == 0))
    assert np.all(start < stop) and stop.max() == 64


def test_an_unknown_mechanism_is_absent_and_not_a_fault() -> None:
    domain = {"column": "x", "type": "number", "lower": 0, "upper": 8, "cells": 8}
    with pytest.raises(Absent):
        plan_tree({"domain": domain, "mechanism": "none of ours"}, {"epsilon": 1})


def test_a_run_goes_on_where_it_ended_and_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "found_sets", lambda *folders: [FLAT, SPIKES])
    kept, page = tmp_path / "kept.jsonl", tmp_path / "accuracy.md"
    page.write_text(
        "".join(f"of {each}\n<!-- {each}: begin -->\n<!-- {each}: end -->\n" for each in BLOCKS),
        encoding="utf-8",
    )
    common = ["--kept", str(kept), "--rows", "200", "--budgets", "epsilon=1", "--write", str(page)]
    methods = ["--methods", "planned", "HB", "OpenDP*", "--peers", str(tmp_path / "none")]
    assert command.main([*common, *methods, "--asked", "0", "--releases", "2"]) == 0
    assert command.main([*common, *methods, "--asked", "0", "--releases", "5"]) == 0
    lines = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    assert [line["releases"] for line in lines] == [2, 2, 2, 2, 3, 3, 3, 3]
    written = page.read_text(encoding="utf-8").split("of ranges\n")[1].split("of quantiles\n")[0]
    assert written.startswith("<!-- ranges: begin -->\n| default; best other | 200 rows |")
    assert "| ranges, epsilon 1 |" in written and " HB |" in written and "OpenDP" not in written
    assert written.endswith("<!-- ranges: end -->\n")


def test_what_is_worse_is_marked_and_counted(tmp_path: Path) -> None:
    records = Records(tmp_path / "kept.jsonl")
    errors = {"planned, ranges": 4.0, "HB": 1.0}
    places = [(method, data) for method in errors for data in ("flat", "wide")]
    # A method that was not measured on every set has no column, nor has a worse one.
    for method, data in [*places, ("Privelet", "flat"), ("DAWA", "flat"), ("DAWA", "wide")]:
        error = errors.get(method, 2.0 if method == "DAWA" else 0.1)
        for rows, by in ((100, error), (1000, 1 / error)):
            records.add(
                {
                    "key": f"{method} {data} {rows}",
                    "method": method,
                    "data": data,
                    "rows": rows,
                    "privacy": "epsilon=1",
                    "releases": 2,
                    "errors": {"": {"ranges": [by, by]}},
                }
            )
    found = next(iter(combine_columns(records.errors()).values()))
    assert {name: round(each.mean, 2) for name, each in found.items()} == {
        "planned, ranges": 2.0,
        "HB": 1.0,
        "DAWA": 1.41,
    }
    written = blocks(records)["ranges"]
    assert f"| ranges, epsilon 1 | {WORSE} 2.00; 1.00 HB | .50; .71 DAWA |" in written
    assert "| prefixes, epsilon 1 | - | - |" in written  # not measured
    assert f"{WORSE}: worse, at 1 of 2 points." in written


def test_every_method_has_a_name_of_its_own_and_is_ours_by_it() -> None:
    assert len({each.name for each in OURS}) == len(OURS)
    assert all(isinstance(each, Method) for each in OURS)
    assert {by_default(task) for task in TASKS} <= {each.name for each in OURS}


@pytest.mark.skipif(not PYTHON.exists(), reason="make peers installs the packages")
def test_packages_answer_and_are_not_queried_for_what_they_lack() -> None:
    """Their errors are near what their noise must give: a fault of ours would be far off."""
    answered = {}
    for method in package_methods(PYTHON):
        number = method.quantile_counts[-1]
        case = Case(data=FLAT, rows=2000, privacy=EPSILON, quantile_count=number)
        releases = method.run(case, range(10))
        errors = [measure_errors(case, each) for release in releases for each in release.values()]
        answered[method.name] = {task: np.mean([e[task] for e in errors]) for task in errors[0]}
    for name in ("OpenDP, histogram", "PipelineDP, counts"):
        # Of prefixes of 1 to 64 cells with the variance 2 each.
        assert 20 < answered[name]["prefixes"] < 200
    assert 0 < answered["OpenDP, tree"]["prefixes"] < 300
    for name in ("OpenDP, quantiles", "PipelineDP, quantiles", "PyDP, percentiles"):
        assert answered[name]["9 quantiles, rank"] < 200
        assert "prefixes" not in answered[name]
    (pydp,) = [each for each in package_methods(PYTHON) if each.name == "PyDP, percentiles"]
    with pytest.raises(Absent):
        pydp.run(Case(data=FLAT, rows=20, privacy=RHO, quantile_count=1), range(1))
