"""A release of real rows, CSV to answers, against the truth that only a test may know."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
import yaml

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.pipelines.cli.command import main
from dptrees.pipelines.query.release_folder import ReleaseFolder
from tests.pipelines.conftest import NONCE

# Of a key and a nonce that are fixed: nothing here is left to chance. The limits of 7 standard
# errors hold for Laplace noise with a false alarm below 1e-6 over all the comparisons, for anyone
# who changes the key.
LIMIT, AGES = 7.0 * np.sqrt(2), 85


@pytest.fixture(scope="module")
def adult(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, Path]:
    """The rows, and the folder of a release of them."""
    folder, source = tmp_path_factory.mktemp("adult"), shared_data / "adult.csv"
    (folder / "release.key").write_text(ReleaseKey(bytes(range(7, 39))).to_text())
    (folder / "release.key").chmod(0o600)
    age = {"column": "age", "type": "integer", "lower": 0, "upper": AGES}
    by = {"column": "sex", "keys": ["0", "1"]}
    configuration = {
        "release": "adult",
        "input": {"format": "csv", "path": str(source), "malformed": "fail"},
        "output": str(folder / "out"),
        "key_file": str(folder / "release.key"),
        "privacy": {"epsilon": 1, "neighbors": "substitute"},
        "trees": [
            {"name": "age", "domain": age | {"missing": "first"}, "quantiles": [0.25, 0.5, 0.75]},
            {"name": "age-by-sex", "domain": age, "group_by": by},
        ],
    }
    (folder / "adult.yaml").write_text(yaml.safe_dump(configuration))
    assert main(["release", str(folder / "adult.yaml"), *NONCE]) == 0
    return pa.csv.read_csv(source), folder / "out"


def test_counts_are_within_their_errors(adult: tuple[pa.Table, Path]) -> None:
    rows, output = adult
    ages = np.bincount(rows["age"].to_numpy(), minlength=AGES)
    cdf = ReleaseFolder(str(output)).rows("cdf", "age")
    errors = np.abs(cdf["estimate"].to_numpy() - np.cumsum(ages))
    # The default divides the ages only where the rows pay for it: an age inside an undivided
    # range states no standard error.
    std_errors = cdf["std_error"].to_numpy()
    stated = ~np.isnan(std_errors)
    assert stated.sum() >= 20
    assert (errors <= LIMIT * std_errors + 1e-6)[stated].all()
    assert cdf["count"].to_numpy()[-1] == len(rows)  # public under substitute
    assert np.abs(cdf["fraction"].to_numpy() - np.cumsum(ages) / len(rows)).max() < 0.01


def test_quantiles_are_those_of_the_rows(adult: tuple[pa.Table, Path]) -> None:
    rows, output = adult
    for row in ReleaseFolder(str(output)).release.tree("age").quantiles():
        truth = np.quantile(rows["age"].to_numpy(), row["q"], method="inverted_cdf")
        assert row["ci_low"] <= truth <= row["ci_high"]
        assert abs(row["value"] - truth) <= 1


def test_keys_have_their_own_rows(adult: tuple[pa.Table, Path]) -> None:
    rows, output = adult
    tree = ReleaseFolder(str(output)).release.tree("age-by-sex")
    for sex in (0, 1):
        ages = rows["age"].to_numpy()[rows["sex"].to_numpy() == sex]
        answer = tree.range(20, 40, str(sex))
        truth = int(((ages >= 20) & (ages < 40)).sum())
        assert abs(answer.estimate - truth) <= LIMIT * answer.std_error
