"""Events of OpenLineage: their form, and that nothing in them counts."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import jsonschema
import pytest
from openlineage.client.generated import base
from openlineage.client.transport.file import FileTransport

from dptrees.pipelines.running import stage
from dptrees.pipelines.running.stage import Stage
from dptrees.pipelines.user_error import UserError
from dptrees.transforms.readers import parquet_rows

if TYPE_CHECKING:
    from tests.pipelines.conftest import Workspace

SCHEMA = Path(__file__).resolve().parents[3] / "docs" / "privacy-facet.schema.json"
# What an event of a run may hold, by the classes of the library itself.
FACETS = {
    "run": {"processing_engine", "errorMessage", "parent"},
    "job": {"jobType"},
    "inputs": {"schema"},
    "outputs": {"dptrees_privacy", "version"},
}


def release_events(workspace: Workspace, *options: str, code: int = 0) -> list[dict[str, Any]]:
    """The events of a release."""
    file = workspace.folder / "lineage.jsonl"
    file.unlink(missing_ok=True)
    outcome = workspace.release(None, "--lineage", str(file), *options)
    assert outcome.code == code, outcome.err
    events = [json.loads(line) for line in file.read_text().splitlines()]
    for event in events:
        check_form(event)
    return events


def check_form(event: dict[str, Any]) -> None:
    """The form of an event, and of its facets."""
    assert event["schemaURL"].endswith("#/$defs/RunEvent")
    for dataset in (*event["inputs"], *event["outputs"]):
        statistics = dataset.get("inputFacets", {}) | dataset.get("outputFacets", {})
        assert statistics == {}
    run, job = base.Run(runId=event["run"]["runId"]), base.Job(**{**event["job"], "facets": {}})
    base.RunEvent(eventTime=event["eventTime"], run=run, job=job)  # checks what it is given
    held = {"run": [event["run"]], "job": [event["job"]]}
    for name, each in (held | {"inputs": event["inputs"], "outputs": event["outputs"]}).items():
        for one in each:
            assert set(one["facets"]) <= FACETS[name]
            for facet in one["facets"].values():
                assert facet["_producer"] == event["producer"] and facet["_schemaURL"]
    privacy = event["outputs"][0]["facets"]["dptrees_privacy"]
    jsonschema.validate(privacy, json.loads(SCHEMA.read_text()))


def test_a_release_is_reported(workspace: Workspace) -> None:
    start, complete = release_events(workspace, "--run-id=daily__2026-11-21")
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert start["run"]["runId"] == str(uuid.uuid5(uuid.NAMESPACE_OID, "daily__2026-11-21"))
    assert complete["job"]["namespace"] == "dptrees" and complete["job"]["name"] == "small"
    (rows,), (output,) = complete["inputs"], complete["outputs"]
    assert (rows["namespace"], rows["name"]) == ("file", f"{workspace.rows}/*.parquet")
    fields = [each["name"] for each in rows["facets"]["schema"]["fields"]]
    assert fields == ["x", "place"]
    manifest = json.loads((workspace.output / "manifest.json").read_text())
    assert output["name"] == str(workspace.output)
    assert output["facets"]["version"]["datasetVersion"] == manifest["checksum"]
    assert "version" not in start["outputs"][0]["facets"]
    guarantee = output["facets"]["dptrees_privacy"]["guarantee"]
    line = "epsilon = 1 per row, neighbors add_remove"
    assert guarantee == {
        "neighbors": "add_remove",
        "unit": "row",
        "epsilon": "1",
        "guarantee": line,
    }


@pytest.mark.parametrize(
    ("given", "namespace", "name"),
    [
        ({"format": "delta", "table": "s3://me:secret@lake/visits"}, "s3://lake", "visits"),
        ({"format": "iceberg", "table": "shop.visits"}, "iceberg", "shop.visits"),
        ({"format": "iceberg", "table": "/lake/1.metadata.json"}, "file", "/lake/1.metadata.json"),
        ({"format": "bigquery", "table": "a.b.visits"}, "bigquery", "a.b.visits"),
        (
            {"format": "postgresql", "table": "web.visits", "connection": "env:VISITS_URL"},
            "postgresql",
            "web.visits",
        ),
    ],
    ids=str,
)
def test_a_table_is_reported(
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    namespace: str,
    name: str,
) -> None:
    """By the names of the configuration alone, whether it can be read or not."""
    monkeypatch.setattr(Stage, "is_released", lambda _: raise_stopped())

    def change(settings: dict[str, Any]) -> None:
        settings["input"] = given

    file = workspace.folder / "lineage.jsonl"
    assert workspace.release(change, "--lineage", str(file)).code == 2
    for line in file.read_text().splitlines():
        check_form(event := json.loads(line))
        (rows,) = event["inputs"]
        assert (rows["namespace"], rows["name"]) == (namespace, name)
        assert "secret" not in line and "VISITS_URL" not in line


def raise_stopped() -> bool:
    raise UserError("here it ends")


def test_other_rows_give_the_same_events(workspace: Workspace, tmp_path: Path) -> None:
    def plain(event: dict[str, Any]) -> str:
        event.pop("eventTime")
        event["outputs"][0]["facets"].pop("version", None)
        return json.dumps(event)

    before = [plain(event) for event in release_events(workspace, "--run-id=one")]
    workspace.output.rename(tmp_path / "before")
    workspace.write_rows(seed=7)
    Path(workspace.file(1)).unlink()
    assert [plain(event) for event in release_events(workspace, "--run-id=one")] == before


def test_a_run_that_fails_and_one_that_is_stopped(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising(error: BaseException) -> Any:
        def raise_(*arguments: Any, **named: Any) -> Any:
            raise error

        return raise_

    monkeypatch.setattr(parquet_rows, "batches", raising(MemoryError()))
    *_, failed = release_events(workspace, code=75)
    assert failed["eventType"] == "FAIL"
    assert "memory" in failed["run"]["facets"]["errorMessage"]["message"].lower()
    assert "stackTrace" not in failed["run"]["facets"]["errorMessage"]
    monkeypatch.setattr(parquet_rows, "batches", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    *_, stopped = release_events(workspace, code=143)
    assert stopped["eventType"] == "ABORT"


def test_a_job_that_is_only_described_has_no_end(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "check_workers", lambda *_: None)
    monkeypatch.setattr(stage, "run_job", lambda *_: None)  # a job server would write the jar
    jar = workspace.folder / "job.jar"
    file = workspace.folder / "lineage.jsonl"
    options = ("--runner=FlinkRunner", f"--output_executable_path={jar}")
    outcome = workspace.release(None, "--lineage", str(file), *options)
    assert outcome.code == 0 and "cannot be sent" not in outcome.err
    (start,) = map(json.loads, file.read_text().splitlines())
    assert start["eventType"] == "START"


def test_the_run_that_started_it(again: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    above = str(uuid.uuid5(uuid.NAMESPACE_OID, "above"))
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/daily.release/{above}")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "production")
    event = release_events(again)[-1]
    assert event["job"]["namespace"] == "production"
    parent = event["run"]["facets"]["parent"]
    job = parent["job"]
    assert (job["namespace"], job["name"]) == ("airflow", "daily.release")
    assert parent["run"]["runId"] == above


def test_where_the_environment_says(again: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    file = again.folder / "all.jsonl"
    monkeypatch.setenv(
        "OPENLINEAGE__TRANSPORT",
        json.dumps({"type": "file", "log_file_path": str(file), "append": True}),
    )
    # Not even what the client is configured to take from the environment.
    monkeypatch.setenv("OPENLINEAGE__FACETS__ENVIRONMENT_VARIABLES", '["THE_KEY"]')
    monkeypatch.setenv("THE_KEY", "secret-of-the-key")
    assert again.release().code == 0
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    assert "secret-of-the-key" not in file.read_text()


class Server(BaseHTTPRequestHandler):
    """Keeps what is sent to it."""

    events: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        self.events.append((self.path, json.loads(data)))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Says nothing."""


def test_a_server_is_reported(again: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
        outcome = again.release()
        server.shutdown()
        thread.join()
    assert outcome.code == 0 and "lineage" not in outcome.err
    paths, events = zip(*Server.events, strict=True)
    assert paths == ("/api/v1/lineage",) * 2
    for event in events:
        check_form(event)


def test_an_event_that_cannot_be_reported_stops_nothing(
    again: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*arguments: Any) -> Any:
        raise ConnectionError("with a password in its words")

    monkeypatch.setattr(FileTransport, "emit", away)
    outcome = again.release(None, "--lineage", str(again.folder / "lineage.jsonl"))
    assert outcome.code == 0
    assert outcome.err == 2 * "lineage: an event of this run cannot be sent\n"


def test_without_the_library(again: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dptrees.pipelines.operations.lineage", None)
    file = again.folder / "lineage.jsonl"
    outcome = again.release(None, "--lineage", str(file))
    assert outcome.code == 2
    assert outcome.err == f"dptrees: {file}: lineage needs dptrees[lineage] installed\n"
    monkeypatch.setenv("OPENLINEAGE_URL", "http://localhost:9")
    outcome = again.release()
    assert outcome.code == 0 and "dptrees[lineage] is missing" in outcome.err
