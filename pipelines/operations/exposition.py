"""Metrics as text in Prometheus' format, and the file that a collector reads.

Source: "Exposition formats, text-based format" of Prometheus, version 0.0.4. All metrics here are
gauges: each file describes one run, or a ledger at one moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from dptrees.pipelines.user_error import UserError

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
