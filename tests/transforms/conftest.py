"""Small plans, rows, a fixed key and the job, as the tests of the transforms need them."""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.noise.laws import DiscreteLaplace, ZeroNoise
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import ReleaseReader, release_counts
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import TreePlan, TreeSetting
from dptrees.transforms.beam.release import ReadBatches, ReleaseTrees
from dptrees.transforms.folder.layout import parquet_bytes, part_file, planned_parts, sha256
from dptrees.transforms.folder.names import concluded_file
from dptrees.transforms.keys import KeyReference
from tests.transforms.eager import Change, EagerRelease, release_table, unchanged

LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
SECRET = bytes(range(7, 39))
# In place of the folders' own, so that releases can be compared.
NONCE = bytes(range(16))

MakePlan = Callable[..., ReleasePlan]
Run = Callable[..., None]
RunSteps = Callable[..., None]


@pytest.fixture
def key() -> ReleaseKey:
    """A fixed key, so that a release can be made twice."""
    return ReleaseKey(SECRET)


@pytest.fixture
def key_file(tmp_path: Path, key: ReleaseKey) -> Path:
    """The key in a file that only its owner can read."""
    path = tmp_path / "release.key"
    path.write_text(key.to_text() + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def nonce() -> bytes:
    """Nonce of the folders that `run` makes releases in."""
    return NONCE


@pytest.fixture
def reference(key_file: Path) -> KeyReference:
    """Where the key lies."""
    return KeyReference(reference=f"file:{key_file}").checked()


def _tree_plan(
    cells: int, *, fanouts: tuple[int, ...] | None, public: bool, keyed: bool, unit: PrivacyUnit
) -> TreePlan:
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    if fanouts is None:
        return plan_tree(
            TreeSetting(leaves=cells, budget=budget, unit=unit, public_total=public, keyed=keyed)
        )
    levels = len(fanouts) + 1
    root = Fraction(0) if public else Fraction(1, levels)
    return TreePlan(
        tree=UniformTree(leaves=cells, fanouts=fanouts),
        unit=unit,
        budget=budget,
        level_amounts=(root, *[Fraction(1, levels)] * (levels - 1)),
        public_total=public,
        keyed=keyed,
    )


@pytest.fixture
def make_plan() -> MakePlan:
    """Makes a plan: some of the trees ``value``, ``number`` and ``carrier``."""

    def made(
        *names: str,
        cells: int = 30,
        fanouts: tuple[int, ...] | None = None,
        outside: str = "clamp",
        missing: str = "drop",
        unknown: str = "drop",
        unit: PrivacyUnit = ADD_REMOVE_ROW,
        public: bool = False,
        chunk_leaves: int = CHUNK_LEAVES,
        release: str = "test",
    ) -> ReleasePlan:
        policies: dict[str, Any] = {"outside": outside, "missing": missing}
        domains = {
            "value": NumberDomain(column="value", lower=0, upper=10, cells=cells, **policies),
            "number": StepDomain(kind="integer", column="number", lower=-5, upper=15, **policies),
            "carrier": NumberDomain(column="value", lower=0, upper=10, cells=cells, **policies),
        }
        keys = KeyList(column="carrier", keys=("UA", "AA", "none of them"), unknown=unknown)
        questions = []
        for name in names or ("value",):
            domain, keyed = domains[name], name == "carrier"
            plan = _tree_plan(
                domain.cells,
                fanouts=fanouts if name != "number" else None,
                public=public and not keyed,
                keyed=keyed,
                unit=unit,
            )
            questions.append(
                OrderedQuestion(
                    name=name,
                    domain=domain,
                    mechanism=UniformMechanism(plan=plan),
                    chunk_leaves=chunk_leaves,
                    keys=keys if keyed else None,
                    quantiles=() if name == "number" else (0.1, 0.5, 0.9),
                )
            )
        budget = Budget(measure=Measure.EPSILON, amount=Fraction(len(questions)))
        return ReleasePlan(name=release, unit=unit, budget=budget, questions=tuple(questions))

    return made


@pytest.fixture(scope="session")
def rows() -> pa.Table:
    """3,000 rows with nulls, NaN, infinities, values out of bounds and unknown keys."""
    generator = np.random.default_rng(1)
    size = 3000
    value = generator.normal(4, 3, size)
    value[:5] = [np.nan, np.inf, -np.inf, 1e300, 10.0]
    number = generator.integers(-20, 30, size)
    carrier = np.array(["UA", "AA", "B6"])[generator.integers(0, 3, size)]
    missing = generator.random(size) < 0.05
    return pa.table(
        {
            "unused": pa.array(np.arange(size)),
            "value": pa.array(value, mask=missing),
            "number": pa.array(number, mask=missing[::-1].copy()),
            "carrier": pa.array(carrier, mask=np.roll(missing, 7)),
        }
    )


@pytest.fixture
def data(tmp_path: Path, rows: pa.Table) -> str:
    """The rows as two Parquet files of several row groups; the glob of both."""
    folder = tmp_path / "data"
    folder.mkdir()
    pq.write_table(rows.slice(0, 1700), folder / "a.parquet", row_group_size=500)
    pq.write_table(rows.slice(1700), folder / "b.parquet", row_group_size=700)
    return str(folder / "*.parquet")


@pytest.fixture
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several splits a file and several batches a split."""
    monkeypatch.setattr("dptrees.transforms.readers.parquet_rows._SPLIT_ROWS", 1000)
    monkeypatch.setattr("dptrees.transforms.readers.parquet_rows._BATCH_ROWS", 300)


@pytest.fixture
def run(reference: KeyReference) -> Run:
    """Runs the job as the command builds it, on Beam's local runner if no other is named."""

    def ran(
        plan: ReleasePlan,
        patterns: str | tuple[str, ...],
        output: Path,
        *,
        format: str = "parquet",
        pipeline_options: Sequence[str] = (),
        nonce: bytes | None = NONCE,
        repair: bool = False,
        if_exists: Literal["error", "use"] = "error",
    ) -> None:
        options = PipelineOptions(
            [f"--runner={LOCAL_RUNNER}", *pipeline_options], save_main_session=False
        )
        chosen = (patterns,) if isinstance(patterns, str) else patterns
        with beam.Pipeline(options=options) as pipeline:
            read = pipeline | "Read" >> ReadBatches(patterns=chosen, format=format, plan=plan)
            read | "Release" >> ReleaseTrees(
                plan,
                key=reference,
                output=str(output),
                nonce=nonce,
                repair=repair,
                if_exists=if_exists,
            )

    return ran


@pytest.fixture
def run_steps(reference: KeyReference) -> RunSteps:
    """Runs the job's own steps on a table, in three bundles, without an engine: where a test is not
    about Beam, or needs a release to begin with."""

    def ran(plan: ReleasePlan, table: pa.Table, output: Path, nonce: bytes = NONCE) -> None:
        release_table(plan, table, reference, str(output), nonce)

    return ran


@pytest.fixture
def release_steps(reference: KeyReference, tmp_path: Path) -> Callable[..., Path]:
    """Releases bundles by the job's own steps, with a fault or without, to a folder of its own."""
    numbers = itertools.count()

    def released(
        plan: ReleasePlan,
        bundles: Iterable[Sequence[pa.RecordBatch]],
        change: Change = unchanged,
        **given: Any,
    ) -> Path:
        folder = tmp_path / f"steps-{next(numbers)}"
        EagerRelease(plan, reference, str(folder), NONCE, change, **given).run(bundles)
        return folder

    return released


def _exact_counts(plan: ReleasePlan, table: pa.Table) -> dict[str, Any]:
    columns = {name: table[name] for name in table.column_names}
    return {
        question.name: np.bincount(
            question.leaf_ids(columns), minlength=question.forest.chunking.cells
        )
        for question in plan.questions
    }


@pytest.fixture
def exact_counts() -> Callable[[ReleasePlan, pa.Table], dict[str, Any]]:
    """The exact counts of all trees, by name, from a table in memory."""
    return _exact_counts


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws stay, and so their variances and the estimation; the drawn noise is zero."""
    monkeypatch.setattr(
        DiscreteLaplace, "sample", lambda self, stream, size: ZeroNoise().sample(stream, size)
    )


@pytest.fixture
def release_files() -> Callable[[Path], dict[str, bytes]]:
    """All files below a folder, by their path within it, but for the report."""

    def found(folder: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "report.html"
        }

    return found


@pytest.fixture
def release_tables(
    release_files: Callable[[Path], dict[str, bytes]],
) -> Callable[[Path], dict[str, bytes]]:
    """The tables of a release, by their paths; beside them are entries, and files of universes."""

    def found(folder: Path) -> dict[str, bytes]:
        files = release_files(folder)
        universes = {name for name in files if name.startswith("universe-")}
        tables = {name: files[name] for name in files.keys() - universes if "parquet" in name}
        entries = {"manifest.json", "nonce.json", "record.json"}
        assert files.keys() == tables.keys() | universes | entries
        assert set(json.loads(files["manifest.json"])["files"]) >= universes
        return tables

    return found


@pytest.fixture
def expected_files(key: ReleaseKey) -> Callable[[ReleasePlan, pa.Table], dict[str, bytes]]:
    """The tables of the release of a table in memory, by the paths that they have in a folder."""

    def expected(plan: ReleasePlan, table: pa.Table) -> dict[str, bytes]:
        return table_files(release_counts(plan, _exact_counts(plan, table), key, nonce=NONCE))

    return expected


def table_files(release: ReleaseReader) -> dict[str, bytes]:
    """The tables of a release in memory, by the paths that they have in a folder."""
    found = {}
    for part in planned_parts(release.plan):
        data = parquet_bytes(release.part(part.kind, part.tree, part.key, part.index))
        found[part_file(part, sha256(data))] = data
    concluded = {concluded_file(name): each for name, each in release.concluded.items()}
    return found | {name: parquet_bytes(table) for name, table in concluded.items()}
