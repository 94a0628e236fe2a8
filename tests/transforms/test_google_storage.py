"""A release on Cloud Storage, by Beam's own client from a server that speaks its protocol
(fake-gcs-server), also of a process that is killed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from dptrees.pipelines.cli.command import main
from dptrees.transforms.folder import files
from dptrees.transforms.folder.files import OutputError
from tests import google_cloud
from tests.transforms.test_object_store import NONCE, check_killed, parquet, write_settings

pytestmark = google_cloud.needed(server=True)
OPTIONS = ("--project=test",)
# Kills itself as the second part is sent, half of it on its way.
KILLED = """
import os, signal
from google.cloud.storage.fileio import BlobWriter
from dptrees.pipelines.cli.command import main

close, parts = BlobWriter.close, []

def killed(self):
    parts.extend([self._blob.name] if "/nodes/" in self._blob.name else [])
    if len(parts) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    close(self)

BlobWriter.close = killed
main()
"""


@pytest.fixture(scope="module")
def storage() -> Iterator[google_cloud.Storage]:
    """A server."""
    with google_cloud.storage() as running:
        yield running


class Bucket:
    """A bucket of the server, as a client of its own sees it."""

    def __init__(self, bucket: Any) -> None:
        self.name, self._bucket = bucket.name, bucket

    def put(self, name: str, data: bytes) -> None:
        self._bucket.blob(name).upload_from_string(data)

    def names(self, prefix: str) -> list[str]:
        return [each.name for each in self._bucket.list_blobs(prefix=prefix)]

    def contents(self, folder: str) -> dict[str, bytes]:
        """The objects of a folder but for the page, by name."""
        found = {
            name.removeprefix(f"{folder}/"): self._bucket.blob(name).download_as_bytes()
            for name in self.names(f"{folder}/")
        }
        found.pop("report.html", None)
        return found


@pytest.fixture
def bucket(storage, monkeypatch: pytest.MonkeyPatch, request, rows: pa.Table) -> Bucket:
    """A bucket with the rows, which this process and its children may use."""
    storage.reach(monkeypatch)
    made = Bucket(storage.new_bucket(request.node.name))
    made.put("rows/a.parquet", parquet(rows.slice(0, 1700)))
    made.put("rows/b.parquet", parquet(rows.slice(1700)))
    return made


@pytest.fixture
def configuration(bucket: Bucket, tmp_path: Path, key_file: Path) -> Callable[[str], str]:
    """Writes a configuration of a release to a folder of the bucket."""

    def made(folder: str) -> str:
        root = f"gs://{bucket.name}"
        return write_settings(tmp_path, f"{root}/rows/*.parquet", f"{root}/{folder}", key_file)

    return made


def test_release_kill_query_and_repair(
    bucket, configuration, rows, data, tmp_path, key_file, release_files, capsys
) -> None:
    local = write_settings(tmp_path, data, str(tmp_path / "local"), key_file)
    assert main(["release", local, *NONCE]) == 0

    whole, root = configuration("whole"), f"gs://{bucket.name}/whole"
    assert main(["release", whole, *NONCE, *OPTIONS]) == 0
    released = bucket.contents("whole")
    assert released == release_files(tmp_path / "local")
    assert bucket.names("whole/report.html")

    # Again: no row is read, and nothing changes.
    assert main(["release", whole, *NONCE, *OPTIONS]) == 0
    assert "already there" in capsys.readouterr().out
    assert bucket.contents("whole") == released

    killed = configuration("killed")
    check_killed(google_cloud.HERE_ONLY + KILLED, killed, bucket, *OPTIONS)

    # What another run left is swept.
    bucket.put("whole/nodes/value-000000-000000-feedfeedfeedfeed.parquet", b"stray")
    assert main(["release", whole, *OPTIONS]) == 0
    assert bucket.contents("whole") == released

    # Read where it lies.
    capsys.readouterr()
    assert main(["query", root, "cdf", "5", "--tree", "value", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answers"]
    assert main(["report", root]) == 0
    assert main(["verify", root, "--key", str(key_file), "--data", whole]) == 0

    # Damaged, and repaired from the same rows; not from others.
    part = next(name for name in sorted(released) if name.startswith("cdf/"))
    bucket.put(f"whole/{part}", b"damaged")
    assert main(["verify", root]) == 2
    assert main(["release", whole, "--repair", *OPTIONS]) == 0
    assert bucket.contents("whole") == released
    bucket.put("rows/a.parquet", parquet(rows.slice(1, 1700)))
    assert main(["release", whole, "--repair", *OPTIONS]) == 2
    assert "choose another output" in capsys.readouterr().err
    assert bucket.contents("whole") == released


def test_objects(bucket) -> None:
    files.use_options(PipelineOptions(list(OPTIONS)))
    path = f"gs://{bucket.name}/a/b"
    assert files.write_once(path, b"first") and not files.write_once(path, b"second")
    assert files.read_bytes(path) == b"first"
    assert list(files.names_below(f"gs://{bucket.name}/a")) == [path]
    files.delete([path])
    assert not files.exists(path)
    with pytest.raises(OutputError, match=r"gs://no-such-bucket-here/a cannot be written"):
        files.write_whole("gs://no-such-bucket-here/a", b"data")
