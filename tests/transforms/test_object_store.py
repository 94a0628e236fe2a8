"""A release on an object store: made straight at its names, whole or not at all, and read there.

The store in memory has an object store's ways (no folders, no rename, an object appears when its
upload is closed, even after a failure) and fails where a test says so. The S3 server speaks the
real protocol to Beam's own client, also in another process that is killed.
"""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.pipelines.cli.command import main
from dptrees.pipelines.query.release_folder import FolderError, ReleaseFolder
from dptrees.transforms.errors import InputError, sentence_in
from dptrees.transforms.folder import files
from dptrees.transforms.folder.files import OutputError
from dptrees.transforms.folder.listing import match_files
from dptrees.transforms.folder.names import INPUT_LIST_NAMES
from dptrees.transforms.readers import parquet_rows
from dptrees.transforms.readers.read import open_file
from tests.transforms.conftest import SECRET

PROJECT = Path(__file__).resolve().parents[2]
BUCKET, OUTPUT = "mem://bucket", "mem://bucket/out"
NONCE = ["--nonce", bytes(range(16)).hex()]

Failure = Callable[[str, str], None]


class StoreError(Exception):
    """Error like those of object store clients: neither an OSError nor one of Beam's."""


class Upload(io.BytesIO):
    """An upload; closing it makes the object of what was written so far."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def write(self, data: Any) -> int:
        try:
            MemoryStore.act("write", self._path)
        except StoreError:
            super().write(data[: len(data) // 2])
            raise
        return super().write(data)

    def close(self) -> None:
        if not self.closed:
            MemoryStore.act("close", self._path)
            MemoryStore.objects[self._path] = self.getvalue()
        super().close()


class MemoryStore(FileSystem):
    """Objects of this process by their paths; every operation can be made to fail."""

    objects: ClassVar[dict[str, bytes]] = {}
    failure: ClassVar[list[Failure]] = []

    @staticmethod
    def act(operation: str, path: str) -> None:
        for failure in MemoryStore.failure:
            failure(operation, path)

    @classmethod
    def scheme(cls) -> str:
        return "mem"

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def mkdirs(self, path: str) -> None:
        raise AssertionError("an object store has no folders")

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        self.act("list", dir_or_prefix)
        for path, data in sorted(self.objects.items()):
            if path.startswith(dir_or_prefix):
                yield FileMetadata(path, len(data))

    def create(self, path: str, mime_type: str = "", compression_type: str = "auto") -> Any:
        self.act("create", path)
        return Upload(path)

    def open(self, path: str, mime_type: str = "", compression_type: str = "auto") -> Any:
        self.act("open", path)
        if path not in self.objects:
            raise StoreError("404: no such object")
        return io.BytesIO(self.objects[path])

    def copy(self, source_file_names: Any, destination_file_names: Any) -> None:
        raise AssertionError("a copy is not needed, and may fail halfway")

    rename = copy

    def exists(self, path: str) -> bool:
        self.act("exists", path)
        return path in self.objects

    def size(self, path: str) -> int:
        return len(self.objects[path])

    def last_updated(self, path: str) -> float:
        return 0.0

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, len(self.objects[path]))

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            self.act("delete", path)
            del self.objects[path]


def fails_at(operation: str, ending: str, error: Exception | None = None) -> Failure:
    """The failure of an operation on paths of an ending."""

    def failure(acted: str, path: str) -> None:
        if acted == operation and path.endswith(ending):
            raise error or StoreError("503: slow down")

    return failure


def new_store(patch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The objects of an empty store."""
    objects: dict[str, bytes] = {}
    patch.setattr(MemoryStore, "objects", objects)
    patch.setattr(MemoryStore, "failure", [])
    patch.setattr(FileSystems, "_pipeline_options", None)
    return objects


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The objects of a store of this test alone."""
    return new_store(monkeypatch)


@pytest.fixture
def plan(make_plan):
    """A tree in several chunks with a spine and quantiles."""
    return make_plan("value", fanouts=(4, 4, 2), chunk_leaves=8)


def below(store: dict[str, bytes], folder: str) -> dict[str, bytes]:
    """The objects below a folder, the report aside, by their names in it."""
    found = {
        path.removeprefix(f"{folder}/"): data
        for path, data in store.items()
        if path.startswith(f"{folder}/")
    }
    found.pop("report.html", None)
    return found


def settings(rows: str, output: str, key: Path) -> dict[str, Any]:
    domain = {"column": "value", "lower": 0, "upper": 10, "cells": 20}
    by = {"column": "carrier", "keys": ["UA", "AA"]}
    return {
        "release": "stored",
        "input": {"format": "parquet", "path": rows},
        "output": output,
        "key_file": str(key),
        "privacy": {"epsilon": 1, "neighbors": "add_remove"},
        "trees": [
            {"name": "value", "domain": domain},
            {"name": "places", "domain": domain, "group_by": by}
            | {"objective": "quantiles", "quantiles": [0.5]},
        ],
    }


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=500)
    return sink.getvalue()


def put_rows(store: dict[str, bytes], folder: Path, key: Path, rows: pa.Table) -> str:
    """The configuration of a release whose rows and output both lie in the store."""
    store[f"{BUCKET}/rows/a.parquet"] = parquet(rows.slice(0, 1700))
    store[f"{BUCKET}/rows/b.parquet"] = parquet(rows.slice(1700))
    return write_settings(folder, f"{BUCKET}/rows/*.parquet", OUTPUT, key)


def write_settings(folder: Path, rows: str, output: str, key: Path) -> str:
    """Write the configuration of a release to a file of a folder; return its path."""
    path = folder / f"{Path(output).name}.yaml"
    path.write_text(yaml.safe_dump(settings(rows, output, key)))
    return str(path)


def run_killed(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a process of its own, which is killed with no chance to clean up."""
    paths = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=PROJECT,
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
    )


def check_killed(code: str, path: str, bucket: Any, *options: str) -> None:
    """Check that a release to the folder `killed` that is killed between its parts, and run again,
    is the release in the folder `whole`."""
    released = bucket.contents("whole")
    process = run_killed(code, "release", path, *NONCE, *options)
    assert process.returncode == -signal.SIGKILL, process.stderr
    left = bucket.contents("killed")
    (listed,) = (name for name in left if INPUT_LIST_NAMES.fullmatch(name))
    del left[listed]
    assert "manifest.json" not in left and left.items() <= released.items()
    # Of the two parts that are written at the same time.
    assert sum(name.startswith("nodes/") for name in left) <= 1
    assert main(["release", path, *options]) == 0
    again = bucket.contents("killed")
    assert again.keys() == released.keys()
    assert {name for name in again if again[name] != released[name]} == set()


@pytest.fixture
def configuration(tmp_path: Path, key_file: Path, rows: pa.Table, store) -> str:
    """Write the configuration of a release to the store, which is not made yet; return its path."""
    return put_rows(store, tmp_path, key_file, rows)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> dict[str, bytes]:
    """The objects of the release, made once."""
    folder = tmp_path_factory.mktemp("stored")
    key = folder / "release.key"
    key.write_text(ReleaseKey(SECRET).to_text() + "\n")
    key.chmod(0o600)
    with pytest.MonkeyPatch.context() as patch:
        store = new_store(patch)
        assert main(["release", put_rows(store, folder, key, rows), *NONCE]) == 0
    return store


@pytest.fixture
def released(configuration: str, store, stored: dict[str, bytes]) -> str:
    """The configuration of a release that is in the store."""
    store.update(stored)
    return configuration


@pytest.fixture
def local(tmp_path: Path, key_file: Path, data: str, release_files) -> dict[str, bytes]:
    """The same release in a local folder."""
    path = write_settings(tmp_path, data, str(tmp_path / "local"), key_file)
    assert main(["release", path, *NONCE]) == 0
    return release_files(tmp_path / "local")


def test_the_command_releases_to_the_store_what_it_releases_locally(
    configuration, local, store, capsys
) -> None:
    capsys.readouterr()
    assert main(["release", configuration, *NONCE]) == 0
    assert below(store, OUTPUT) == local
    assert b"<html" in store[f"{OUTPUT}/report.html"]
    assert f"report:  {OUTPUT}/report.html" in capsys.readouterr().out


@pytest.mark.parametrize(("whole_bytes", "times"), [(2**22, 2), (0, 4)])
def test_a_small_file_is_opened_once(
    configuration, local, store, monkeypatch, whole_bytes: int, times: int
) -> None:
    """Once for its first bytes; one that is divided into two splits for that, and for each."""
    opened: list[str] = []
    MemoryStore.failure.append(
        lambda operation, path: opened.append(path) if operation == "open" else None
    )
    monkeypatch.setattr(parquet_rows, "WHOLE_BYTES", whole_bytes)
    monkeypatch.setattr(parquet_rows, "_SPLIT_ROWS", 600)
    assert main(["release", configuration, *NONCE]) == 0
    assert below(store, OUTPUT) == local
    assert opened.count(f"{BUCKET}/rows/b.parquet") == times


def test_again_is_a_no_op_and_other_data_no_repair(released, store, capsys, rows) -> None:
    before = dict(store)
    assert main(["release", released, *NONCE]) == 0
    assert store == before
    assert "already there" in capsys.readouterr().out

    store[f"{BUCKET}/rows/a.parquet"] = parquet(rows.slice(1, 1700))
    assert main(["release", released]) == 0
    assert main(["release", released, "--repair"]) == 2
    assert "another output" in capsys.readouterr().err
    assert below(store, OUTPUT) == below(before, OUTPUT)


def test_another_specification_is_refused_before_rows_are_read(released, store, capsys) -> None:
    before = dict(store)
    text = Path(released).read_text()
    Path(released).write_text(text.replace("epsilon: 1", "epsilon: 2"))
    assert main(["release", released, *NONCE]) == 2
    assert "another configuration: privacy.epsilon was 1, now 2" in capsys.readouterr().err
    assert store == before


def test_query_and_report_read_the_store(released, store, capsys) -> None:
    page = store.pop(f"{OUTPUT}/report.html")
    capsys.readouterr()
    assert main(["report", OUTPUT]) == 0
    assert capsys.readouterr().out == f"{OUTPUT}/report.html\n"
    assert store[f"{OUTPUT}/report.html"] == page
    query = ["query", OUTPUT, "quantile", "0.5", "--tree", "places", "--key", "UA", "--json"]
    assert main(query) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    table = pq.read_table(pa.BufferReader(store[f"{OUTPUT}/quantiles.parquet"])).to_pylist()
    assert answer["value"] == next(row["value"] for row in table if row["key"] == "UA")


def test_a_damaged_or_missing_part_is_refused(released, store) -> None:
    folder = ReleaseFolder(OUTPUT)
    path = f"{OUTPUT}/{next(name for name in folder.files if name.startswith('cdf/value'))}"
    good = store[path]
    store[path] = good[:100] + bytes([good[100] ^ 1]) + good[101:]
    with pytest.raises(FolderError, match="it does not match its checksum in the manifest"):
        folder.rows("cdf", "value")
    del store[path]
    with pytest.raises(FolderError, match="cannot be read: 404: no such object"):
        folder.rows("cdf", "value")
    store[path] = good
    assert folder.rows("cdf", "value").num_rows == 20
    del store[f"{OUTPUT}/manifest.json"]
    with pytest.raises(FolderError, match=r"^mem://bucket/out: is not a release \(there is no m"):
        ReleaseFolder(OUTPUT)


def test_strays_of_earlier_runs_are_swept(released, store) -> None:
    before = below(store, OUTPUT)
    del store[f"{OUTPUT}/manifest.json"]
    store[f"{OUTPUT}/nodes/value-000000-000000-feedfeedfeedfeed.parquet"] = b"stray"
    store[f"{OUTPUT}/notes.txt"] = b"mine"
    assert main(["release", released, *NONCE]) == 0
    assert below(store, OUTPUT) == before | {"notes.txt": b"mine"}


WRITES = [
    *(("create", "record.json"), ("write", "record.json")),
    *(("create", ".parquet"), ("write", ".parquet")),
    *(("create", "quantiles.parquet"), ("close", "quantiles.parquet")),
    *(("write", "manifest.json"), ("close", "manifest.json")),
]


def test_a_failing_write_is_reported_and_the_run_completed_later(
    plan, data, rows, run, store, expected_files
) -> None:
    """One after the other in one folder, so that each run comes further than the one before."""
    expected, record = expected_files(plan, rows), None
    for operation, ending in WRITES:
        MemoryStore.failure[:] = [fails_at(operation, ending)]
        with pytest.raises(Exception) as caught:
            run(plan, data, OUTPUT)
        sentence = sentence_in(str(caught.value))
        assert sentence is not None and sentence.startswith(f"output: {OUTPUT}/")
        assert sentence.endswith(f"{ending} cannot be written: 503: slow down")
        left = below(store, OUTPUT)
        del left["nonce.json"]
        assert (ending == "record.json") == ("record.json" not in left)
        record = left.pop("record.json", None)
        assert left.items() <= expected.items()  # no half of an object, and no manifest

    MemoryStore.failure.clear()
    run(plan, data, OUTPUT)
    made = below(store, OUTPUT)
    assert expected.items() <= made.items()
    assert made.keys() - expected.keys() == {"manifest.json", "nonce.json", "record.json"}
    assert record == made["record.json"]


def test_a_store_that_does_not_answer(store) -> None:
    store[f"{BUCKET}/a"] = b"data"
    for operation, act in (("exists", files.exists), ("open", files.read_bytes)):
        MemoryStore.failure[:] = [fails_at(operation, "a")]
        with pytest.raises(OutputError, match=r"bucket/a cannot be .*: 503: slow down"):
            act(f"{BUCKET}/a")
        assert store == {f"{BUCKET}/a": b"data"}
    MemoryStore.failure[:] = [fails_at("list", "", BeamIOError("x", {"y": StoreError("403")}))]
    with pytest.raises(InputError, match=r"bucket/\* cannot be listed: 403"):
        match_files((f"{BUCKET}/*",))
    MemoryStore.failure[:] = [fails_at("open", "a")]
    with pytest.raises(InputError, match="bucket/a cannot be read: 503"):
        open_file(f"{BUCKET}/a")


def test_of_two_jobs_at_once_the_one_whose_record_is_lost_publishes_nothing(
    make_plan, data, run, store
) -> None:
    """Both saw no record and wrote their own, as no store that Beam knows can forbid."""

    output = f"{BUCKET}/two"  # no job of another test has ever heard of it

    def other_job(operation: str, path: str) -> None:
        if operation == "create" and path.endswith(".parquet"):
            store[f"{output}/record.json"] = b'{"record": "00"}'

    MemoryStore.failure.append(other_job)
    with pytest.raises(Exception, match="made from other data, with another key"):
        run(make_plan(release="of its own"), data, output)
    assert f"{output}/manifest.json" not in store


def test_a_page_is_written_as_one(store, monkeypatch) -> None:
    types: dict[str, str] = {}
    create = MemoryStore.create

    def seen(self: MemoryStore, path: str, mime_type: str, compression_type: str) -> Any:
        types[path] = mime_type
        return create(self, path, mime_type, compression_type)

    monkeypatch.setattr(MemoryStore, "create", seen)
    for name in ("report.html", "manifest.json"):
        files.write_whole(f"{BUCKET}/{name}", b"data")
    assert list(types.values()) == ["text/html", "application/octet-stream"]


def test_beam_s_own_writer_is_not_used() -> None:
    """`fileio.WriteToFiles` of Beam 2.77 logs a failing rename and goes on."""
    sources = [
        path for name in ("transforms", "pipelines") for path in (PROJECT / name).rglob("*.py")
    ]
    assert len(sources) > 20
    assert [path for path in sources if "fileio" in path.read_text()] == []


# ---- a real S3 server in this process, the command in another --------------------------------

S3_KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
REGION = "us-east-1"
# Kills itself with the second part uploaded but not yet there. Beam makes a client for every
# operation, and each new session reads the description of S3 anew: one session serves all.
KILLED = """
import os, signal
import boto3.session
from dptrees.pipelines.cli.command import main

session = boto3.session.Session()
boto3.session.Session = lambda: session
parts = []

def killed(params, **_):
    parts.extend([params["url_path"]] if "/nodes/" in params["url_path"] else [])
    if len(parts) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

session.events.register("before-call.s3.CompleteMultipartUpload", killed)
main()
"""


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    """The address of an S3 server."""
    pytest.importorskip("boto3", reason="no boto3 to reach S3 with")
    server = pytest.importorskip("moto.server", reason="no moto to serve S3")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


class Bucket:
    """A bucket of the server, as a client of its own sees it."""

    def __init__(self, endpoint: str, name: str) -> None:
        import boto3

        self.endpoint, self.name = endpoint, name
        self._client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        self._client.create_bucket(Bucket=name)

    def put(self, name: str, data: bytes) -> None:
        self._client.put_object(Bucket=self.name, Key=name, Body=data)

    def names(self, prefix: str) -> list[str]:
        listed = self._client.list_objects_v2(Bucket=self.name, Prefix=prefix)
        return [each["Key"] for each in listed.get("Contents", [])]

    def contents(self, folder: str) -> dict[str, bytes]:
        found = {}
        for name in self.names(f"{folder}/"):
            body = self._client.get_object(Bucket=self.name, Key=name)["Body"].read()
            found[name.removeprefix(f"{folder}/")] = body
        found.pop("report.html", None)
        return found

    @property
    def options(self) -> tuple[str, ...]:
        """Beam's options that lead to the server."""
        return (f"--s3_endpoint_url={self.endpoint}", f"--s3_region_name={REGION}")


@pytest.fixture
def bucket(s3_endpoint: str, request: pytest.FixtureRequest, rows: pa.Table) -> Bucket:
    """A bucket with the rows."""
    made = Bucket(s3_endpoint, f"bucket-{abs(hash(request.node.name)):x}")
    made.put("rows/a.parquet", parquet(rows.slice(0, 1700)))
    made.put("rows/b.parquet", parquet(rows.slice(1700)))
    return made


@pytest.fixture
def s3_configuration(bucket: Bucket, tmp_path: Path, key_file: Path) -> Callable[[str], str]:
    """Writes a configuration of a release to a folder of the bucket."""

    def made(folder: str) -> str:
        root = f"s3://{bucket.name}"
        return write_settings(tmp_path, f"{root}/rows/*.parquet", f"{root}/{folder}", key_file)

    return made


@pytest.fixture
def reached(bucket: Bucket, store, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may use the bucket, once it has the server's address."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, text in S3_KEYS.items():
        monkeypatch.setenv(name, text)
    import boto3.session

    session = boto3.session.Session()
    monkeypatch.setattr(boto3.session, "Session", lambda: session)


def test_s3(bucket, s3_configuration, reached, rows, capsys, monkeypatch) -> None:
    whole = s3_configuration("whole")
    assert main(["release", whole, *NONCE, *bucket.options]) == 0
    released = bucket.contents("whole")
    assert {"manifest.json", "record.json", "quantiles.parquet"} < released.keys()
    assert bucket.names("whole/report.html")

    check_killed(KILLED, s3_configuration("killed"), bucket, *bucket.options)

    # The server as the environment names it, as for `query`, which takes no Beam options.
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    capsys.readouterr()
    root = f"s3://{bucket.name}/whole"
    assert main(["query", root, "cdf", "5", "--tree", "value", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answers"]

    bucket.put("rows/a.parquet", parquet(rows.slice(1, 1700)))
    assert main(["release", whole]) == 0
    assert main(["release", whole, "--repair"]) == 2
    assert "choose another output" in capsys.readouterr().err
    assert bucket.contents("whole") == released


def test_s3_options_reach_the_launcher(bucket, reached) -> None:
    files.use_options(PipelineOptions(list(bucket.options)))
    path = f"s3://{bucket.name}/a"
    assert files.write_once(path, b"first") and not files.write_once(path, b"second")
    assert files.read_bytes(path) == b"first"
    with pytest.raises(OutputError, match=r"cannot be written: .*bucket"):
        files.write_whole("s3://no-such-bucket-here/a", b"data")
    (found,) = files.names_below(f"s3://{bucket.name}")
    assert found == path
