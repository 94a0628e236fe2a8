"""From globs to batches: every file, every row, and one sentence where something is wrong."""

import errno
import io
import logging
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that, equal_to

from dptrees.transforms.beam.release import ReadBatches
from dptrees.transforms.errors import InputError, sentence_in
from dptrees.transforms.folder.listing import match_files
from dptrees.transforms.readers.formats import FORMATS, find_reader
from dptrees.transforms.readers.read import FileSplit, _ReadSplit, open_file
from tests.transforms.conftest import LOCAL_RUNNER

SECRET = "Miriam-4711"


def test_each_file_once_and_in_order(tmp_path, monkeypatch) -> None:
    for name in ("b.csv", "a.csv", "c.txt"):
        (tmp_path / name).write_text(name * 2)
    patterns = (str(tmp_path / "*.csv"), str(tmp_path / "a*"), str(tmp_path / "c.txt"))
    found = [(Path(path).name, size) for path, size in match_files(patterns)]
    assert found == [("a.csv", 10), ("b.csv", 10), ("c.txt", 10)]
    wrong = str(tmp_path / "*.parquet")
    with pytest.raises(InputError) as caught:
        match_files((str(tmp_path / "*.csv"), wrong))
    assert caught.value.sentence == f"input.path: no file matches {wrong}"
    # A glob without a folder is looked for here.
    monkeypatch.chdir(tmp_path)
    assert match_files(("*.csv",)) == [("./a.csv", 10), ("./b.csv", 10)]
    assert match_files(("b.csv",)) == [("b.csv", 10)]
    assert open_file("data/a.parquet") == "data/a.parquet"
    assert open_file("file:///data/a.parquet") == "/data/a.parquet"


def test_a_file_is_read_once_whatever_it_is_called(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "june.csv").write_text("x")
    (tmp_path / "rows" / "latest.csv").symlink_to("june.csv")
    (tmp_path / "link").symlink_to("rows")
    for other in ("rows/*.csv", "./rows/june.csv", f"{tmp_path}/rows/*", "rows/../rows/", "link/"):
        assert len(match_files(("rows/", other))) == 1, other


def test_a_file_that_would_have_two_kinds_of_rows_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for year in ("2023", "2024"):
        (tmp_path / f"year={year}").mkdir()
    (tmp_path / "year=2023" / "a.csv").write_text("x")
    (tmp_path / "year=2024" / "b.csv").symlink_to("../year=2023/a.csv")
    with pytest.raises(InputError, match=r"year=2023/a.csv and .*year=2024/b.csv are one file"):
        match_files(("*/*.csv",))


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_batches_and_their_balance(format, rows, data, tmp_path, make_plan, small_splits) -> None:
    plan = make_plan("value", "carrier")
    if format == "csv":
        pa_csv.write_csv(rows, tmp_path / "rows.csv")
        data = str(tmp_path / "rows.csv")
    with beam.Pipeline(LOCAL_RUNNER) as pipeline:
        batches, balance = pipeline | ReadBatches(patterns=(data,), format=format, plan=plan)
        columns = batches | beam.Map(lambda batch: tuple(batch.schema.names)) | beam.Distinct()
        assert_that(columns, equal_to([("value", "carrier")]), "columns")
        total = batches | beam.Map(lambda batch: batch.num_rows) | beam.CombineGlobally(sum)
        assert_that(total, equal_to([rows.num_rows]), "rows")
        sums = balance | beam.CombinePerKey(sum)
        expected = [("files", 0), ("splits", 0), ("rows", rows.num_rows), ("rows in files", 0)]
        expected.append(("bytes of files", 0))
        assert_that(sums, equal_to(expected), "balance")


def spoilt(tmp_path: Path, kind: str) -> str:
    """Two good files and a third that is not."""
    good = pa.table({"value": [1.0, 2.0], "name": [SECRET, SECRET]})
    for name in "ab":
        pq.write_table(good, tmp_path / f"{name}.parquet")
    path = tmp_path / "c.parquet"
    tables = {
        "missing column": good.drop_columns(["value"]),
        "wrong type": pa.table({"value": [SECRET, "1"]}),
    }
    pq.write_table(tables.get(kind, good), path)
    if kind == "cut short":
        path.write_bytes(path.read_bytes()[:-20])
    if kind == "text":
        path.write_text(f"value\n{SECRET}\n")
    return str(path)


SENTENCES = {
    "missing column": "has no column 'value'",
    "wrong type": "column 'value'",
    "cut short": "is not a Parquet file, or is damaged or cut short",
    "text": "is not a Parquet file, or is damaged or cut short",
}


@pytest.fixture
def check_unreadable(make_plan, tmp_path, run, caplog) -> Callable[..., None]:
    """Runs a job on files, one of them unreadable: it ends in one sentence, without values."""

    def check(format: str, *words: str) -> None:
        caplog.set_level(logging.DEBUG)
        with pytest.raises(Exception) as caught:
            run(make_plan(), str(tmp_path / f"*.{format}"), tmp_path / "out", format=format)
        sentence = sentence_in(str(caught.value))
        assert sentence is not None and "\n" not in sentence
        assert all(each in sentence for each in words), sentence
        shown = str(caught.value) + caplog.text
        assert SECRET not in shown and "4711.0815" not in shown
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["nonce.json"]

    return check


@pytest.mark.parametrize("kind", SENTENCES)
def test_a_third_file_that_cannot_be_read(kind, tmp_path, check_unreadable) -> None:
    check_unreadable("parquet", spoilt(tmp_path, kind), SENTENCES[kind])


@pytest.mark.parametrize(
    "text", [b"value,\xff\n1," + SECRET.encode(), f'value,"\n{SECRET}\n', f"v\n{SECRET}\n"]
)
def test_a_second_csv_file_that_cannot_be_read(text, tmp_path, check_unreadable) -> None:
    (tmp_path / "a.csv").write_text("value\n1\n")
    bad = tmp_path / "b.csv"
    bad.write_bytes(text if isinstance(text, bytes) else text.encode())
    check_unreadable("csv", str(bad))


def test_files_that_vanish_after_they_were_matched(make_plan, tmp_path) -> None:
    step = _ReadSplit("parquet", make_plan())
    with pytest.raises(InputError, match="does not exist"):
        list(step.process(FileSplit(str(tmp_path / "gone.parquet"), 0, 1, 1)))


def test_a_batch_that_no_domain_can_read(tmp_path, monkeypatch, check_unreadable) -> None:
    # A domain that fails on a value must not show it.
    def fail(self, columns):
        raise ValueError(f"cannot read {columns['value'][0]}: {SECRET}")

    pq.write_table(pa.table({"value": [4711.0815]}), tmp_path / "a.parquet")
    leaf_ids = "dptrees.dpcore.questions.tree_question.TreeQuestion.leaf_ids"
    monkeypatch.setattr(leaf_ids, fail)
    check_unreadable(
        "parquet", "input: a column of tree value cannot be read as its domain requires"
    )


class _Away(io.BytesIO):
    """A file of a disk that does not answer."""

    def read(self, *_: object) -> bytes:
        raise OSError(errno.EIO, f"at the row of {SECRET}")

    readinto = readall = read1 = read  # type: ignore[assignment]


@pytest.mark.parametrize("format", FORMATS)
def test_a_disk_that_does_not_answer_may_pass(format, make_plan) -> None:
    with pytest.raises(InputError) as caught:
        find_reader(format).splits(_Away(b"x" * 100), "rows", make_plan("value"))
    assert caught.value.again
    assert caught.value.sentence == "input: rows cannot be read now: Input/output error"
