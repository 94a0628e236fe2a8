"""Cancelling a job where it runs, once its launcher is stopped.

Beam's job server of Flink forgets a job once it must cancel it, and a Flink cluster goes on with
it. So the cluster itself is notified, through its REST interface, where `--flink_master` names it.
"""

from __future__ import annotations

import json
import time
import urllib.request
from contextlib import suppress
from typing import Any

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.runners.runner import PipelineResult, PipelineState

from dptrees.pipelines.faults.log import event, remark
from dptrees.pipelines.running.dataflow import is_dataflow

_CANCEL_SECONDS = 20
_ANSWER_SECONDS = 5
_OVER = ("CANCELED", "FAILED", "FINISHED")


def cancel_job(result: PipelineResult, options: PipelineOptions) -> None:
    """Cancels a job, waits a little until its engine says so, and reports what may still run.

    Args:
        result: of Beam, of the job that runs.
        options: with which it was started.
    """
    name = _name(result)
    state = str(PipelineState.UNKNOWN)
    with suppress(Exception):
        result.cancel()
        state = _state(result)
    try:
        state = _cancel_at_flink(options, name) or state
    except (OSError, ValueError, KeyError):
        state = str(PipelineState.UNKNOWN)
    event("cancelled", job=name, state=state)
    if is_dataflow(options) and state == PipelineState.CANCELLED:
        return
    if state in _OVER or options.view_as(PortableOptions).environment_type == "LOOPBACK":
        return  # workers that are threads of this process end with it
    if state != PipelineState.CANCELLED:
        remark(f"the job {name} may still run ({state}): check it in the engine")
    elif options.view_as(FlinkRunnerOptions).flink_master:
        remark(
            f"the job server cancelled the job {name}; if it passed the job to a cluster, check "
            "the job there (a Flink cluster named by --flink_master=HOST:8081 must cancel it too)"
        )


def _name(result: PipelineResult) -> str:
    """What the engine calls a job: of Dataflow its id, of a job server the name before the id."""
    if hasattr(result, "job_id"):
        with suppress(Exception):
            return str(result.job_id())
    return str(getattr(result, "_job_id", "")).split("_")[0]


def _state(result: PipelineResult) -> str:
    """Return the state of a cancelled job; its channel may be closed already."""
    limit = time.monotonic() + _CANCEL_SECONDS
    with suppress(Exception):
        while not PipelineState.is_terminal(result.state) and time.monotonic() < limit:
            time.sleep(0.2)
        return str(result.state)
    return str(PipelineState.CANCELLED)


def _cancel_at_flink(options: PipelineOptions, name: str) -> str | None:
    """Request a Flink cluster to cancel a job; return its state, None without a cluster."""
    master = str(options.view_as(FlinkRunnerOptions).flink_master or "")
    if not master or master.startswith("["):  # [auto], [local]: inside the job server
        return None
    address = master if "://" in master else f"http://{master}"
    limit, state = time.monotonic() + _CANCEL_SECONDS, "UNKNOWN"
    while state not in _OVER and time.monotonic() < limit:
        results = [
            job for job in _get_json(f"{address}/jobs/overview")["jobs"] if job["name"] == name
        ]
        if results:
            state = str(results[0]["state"])
            if state not in (*_OVER, "CANCELLING"):
                _get_json(f"{address}/jobs/{results[0]['jid']}?mode=cancel", method="PATCH")
        time.sleep(0.3)
    return state


def _get_json(address: str, method: str = "GET") -> Any:
    request = urllib.request.Request(address, method=method)
    with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
        return json.loads(answer.read() or b"{}")
