"""Reports of a run to its operators: log lines or JSON events, the outcome, Prometheus metrics.

A failure that may pass by itself differs from one that somebody must fix. No sentence holds a
text of a library, which may show values, and no event anything of the rows (docs/operations.md
lists them). Source: "Exposition formats, text-based format" of Prometheus, version 0.0.4; all
metrics are gauges.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone

from dptrees.dpcore.specification import MatrixError
from dptrees.pipelines.process import ExitCode, UserError
from dptrees.pipelines.terminal_text import print_line
from dptrees.transforms.errors import ReleaseError, is_no_memory, may_pass, system_reason

NO_MEMORY = "memory ran out; use a machine with more memory, or more workers with less work each"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a command ends.

    Attributes:
        code: its exit code.
        sentence: written on standard error.
    """

    code: ExitCode
    sentence: str


def failure_outcome(error: BaseException, stopped: ExitCode | None = None) -> Outcome | None:
    """Return how a failure is reported; None for a fault of the program.

    Args:
        error: as it left a command.
        stopped: the exit code of a signal that came before it; None: none came.

    >>> failure_outcome(MemoryError()).code.name, failure_outcome(ZeroDivisionError())
    ('AGAIN', None)
    """
    if stopped is not None or isinstance(error, KeyboardInterrupt):
        return Outcome(code=stopped or ExitCode.STOPPED, sentence="stopped")
    if isinstance(error, ReleaseError):
        return _outcome(error.sentence, error.again)
    if isinstance(error, UserError):
        return _outcome(str(error), error.again)
    if isinstance(error, MatrixError):
        return _outcome(str(error), again=False)
    if is_no_memory(error):
        return _outcome(NO_MEMORY, again=True)
    if may_pass(error):
        return _outcome(f"the system refused for now: {system_reason(error)}", again=True)
    return None


def _outcome(sentence: str, again: bool) -> Outcome:
    return Outcome(code=ExitCode.AGAIN if again else ExitCode.MISTAKE, sentence=sentence)


FORMATS = ("text", "json")
# Where a scheduler may name a run, beside the option.
RUN_ID = "DPTREES_RUN_ID"
_RUN_ID = re.compile(r"[!-~]{1,200}")


class _Log:
    """The log of this process.

    Attributes:
        is_json: whether it is for a program.
        run: the id of the run, which every event bears; "" of a command that is none.
        before: the handlers of libraries' logs, as they were without.
    """

    is_json = False
    run = ""
    before: list[logging.Handler] | None = None


LOG = _Log()


def run_id(text: str | None = None) -> str:
    """The id of a run: as a scheduler names it, or else one that no other run has.

    Args:
        text: as it is given; None: the environment's, or a new one.

    Raises:
        ValueError: it is no word of at most 200 characters of ASCII.

    >>> run_id("scheduled__2026-11-21T00:00:00+00:00")
    'scheduled__2026-11-21T00:00:00+00:00'
    """
    text = text or os.environ.get(RUN_ID)
    if not text:  # of place and time: drawn at random is noise alone
        place = f"{socket.gethostname()} {os.getpid()} {time.time_ns()}"
        return str(uuid.uuid5(uuid.NAMESPACE_OID, place))
    if not _RUN_ID.fullmatch(text):
        raise ValueError(f"{text!r} must be one word of at most 200 characters of ASCII")
    return text


def use_format(name: str, run: str = "") -> None:
    """Logs in a format from now on.

    Args:
        name: one of `FORMATS`. As JSON, what libraries log is an event, too.
        run: the id of the run.
    """
    LOG.is_json, LOG.run = name == "json", run
    root = logging.getLogger()
    if LOG.before is not None:
        root.handlers[:], LOG.before = LOG.before, None
    if LOG.is_json:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_JsonFormatter())
        handler.setLevel(logging.WARNING)
        # An engine's loggers have levels of their own, and are shown where all logs are.
        handler.addFilter(lambda record: record.levelno >= root.level)
        LOG.before, root.handlers[:] = list(root.handlers), [handler]


def event(name: str, *, level: str = "info", **fields: object) -> None:
    """Report an event to a program; a person does not see it.

    Args:
        name: of the event.
        level: ``info``, ``warning`` or ``error``.
        fields: plain JSON values that belong to it.
    """
    if LOG.is_json:
        print_line(_line(name, level, fields), file=sys.stderr)


def remark(text: str) -> None:
    """Report a remark to a person, or to a program."""
    if LOG.is_json:
        event("remark", level="warning", message=text)
    else:
        print_line(text, file=sys.stderr)


def report_outcome(outcome: Outcome) -> None:
    """Report why a command ends."""
    if LOG.is_json:
        level = "warning" if outcome.code in (ExitCode.STOPPED, ExitCode.TERMINATED) else "error"
        event("ended", level=level, code=int(outcome.code), message=outcome.sentence)
    else:
        print_line(f"dptrees: {outcome.sentence}", file=sys.stderr)


def _line(name: str, level: str, fields: Mapping[str, object]) -> str:
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    entries: dict[str, object] = {"time": now, "level": level, "event": name}
    entries |= {"run": LOG.run} if LOG.run else {}
    # JSON allows DELETE as it is, but a terminal does not show it.
    return json.dumps(entries | dict(fields)).replace("\x7f", "\\u007f")


class _JsonFormatter(logging.Formatter):
    """What a library logs, as an event in one line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"logger": record.name, "message": record.getMessage()}
        return _line("log", record.levelname.lower(), fields)


# Of every metric's name.
PREFIX = "dptrees_"
Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A gauge with its samples.

    Args:
        name: without the prefix.
        text: what it is, in one line.
        samples: labels, and a value under them; of a metric without samples nothing is written.
    """

    name: str
    text: str
    samples: list[Sample] = field(default_factory=list)


def exposition(metrics: Iterable[Metric]) -> str:
    """The metrics as text.

    >>> one = Metric(name="release_trees", text="Trees.", samples=[({"release": 'a"b'}, 2)])
    >>> print(exposition([one]), end="")
    # HELP dptrees_release_trees Trees.
    # TYPE dptrees_release_trees gauge
    dptrees_release_trees{release="a\\"b"} 2
    """
    lines = []
    for metric in metrics:
        name = f"{PREFIX}{metric.name}"
        if metric.samples:
            lines += [f"# HELP {name} {metric.text}", f"# TYPE {name} gauge"]
        for labels, value in metric.samples:
            named = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{named}}} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def check_place(path: str) -> None:
    """Sees that a file for an operator can be written, before anything is done that takes long.

    Raises:
        UserError: it cannot.
    """
    folder = os.path.dirname(path) or "."
    if "://" in path:
        raise UserError(f"{path}: it is to lie on a disk of this machine")
    if not os.path.isdir(folder) or os.path.isdir(path):
        raise UserError(f"{path}: cannot be written: there is no such folder, or it is one")
    if not os.access(folder, os.W_OK):
        raise UserError(f"{path}: cannot be written: Permission denied")


def write_metrics(path: str, metrics: Iterable[Metric]) -> None:
    """Writes a file of metrics in one step: a collector reads the old one or the new one.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    beside = f"{path}.{os.getpid()}"  # no name that a collector looks for
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(exposition(metrics))
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
