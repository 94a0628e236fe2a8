"""A whole release of a generated country: time and memory of a hundredth, a tenth and all of it.

    python -m benchmarks.scale [FOLDER] [--fractions 0.01 0.1 1]
    python -m benchmarks.scale --profile CONFIG.yaml

The data (`benchmarks/make_country.py`) is made in the folder and kept there for the next time;
without a folder it is made anew and removed. Each release runs twice, in processes of their own:

- the command `dptrees release` as it is: its seconds from start to end, the seconds of processor
  time of all its threads, and its peak memory;
- the same command with a watch in each step (a DoFn), which gives the rest: the seconds and the
  peak memory of the histogram (from the first file until all partial counts are made) and of all
  that follows (sums, noise, estimation, writing, report); of each step the seconds within it, not
  the seconds of the steps that it feeds, and the bytes of its input and output. Memory that the
  histogram leaves behind counts after it too. Record batches never leave a worker; "in flight" are
  bytes.

The files were just written or read, so they come from the system's cache. `--profile` watches the
release of any configuration, whose output must not be there yet.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import make_country
from benchmarks.harness import PROJECT, Run, make_key, run_command

CONFIG = """
release: country
input: {{format: parquet, path: {folder}/rows/part-*.parquet}}
output: {folder}/out
key_file: {folder}/release.key
privacy: {{epsilon: 1.0, neighbors: add_remove, unit: row}}
trees:
  - name: blocks
    domain:
      kind: hierarchy
      column: block
      digits: {digits}
      levels: [{levels}]
      table: {folder}/blocks.parquet
"""
MB = 2**20

# The steps with which a phase begins; the last one begins when its step has ended.
PLAN, HISTOGRAM, AFTER, REPORT = "plan", "histogram", "after", "report"
BEGINS, ENDS = {"_Shards": HISTOGRAM, "_Record": AFTER}, {"_Commit": REPORT}
# What is done per row; and steps that run with the histogram, though they belong after it.
ROW_STEPS, LATER_STEPS = ("_ReadSplit", "CountBundle"), ("_MergePlace",)
# Their bytes are shuffled once per release, the bytes of CountBundle once per bundle of rows.
SHUFFLED_STEPS = ("_Draw", "_Gather")


# Seconds of the processor: what else runs on the machine does not count.
clock = time.process_time


# --- what one watched release reports ---


@dataclass(kw_only=True)
class Step:
    """What a DoFn did.

    Attributes:
        seconds: within its own code.
        given, largest_given: bytes of all elements that it was given, and of the largest one; an
            element of a group is its key with all values.
        made, largest_made, elements: of those that it made, and how many they are.
    """

    seconds: float = 0.0
    given: int = 0
    largest_given: int = 0
    made: int = 0
    largest_made: int = 0
    elements: int = 0


@dataclass(kw_only=True)
class Phase:
    """The seconds of a part of the run, and the largest memory while it lasted, in MB."""

    seconds: float = 0.0
    peak: float = 0.0


@dataclass(kw_only=True)
class Profile:
    """A watched release: phases and steps by name, in the order in which they began."""

    phases: dict[str, Phase] = field(default_factory=dict)
    steps: dict[str, Step] = field(default_factory=dict)

    @property
    def after(self) -> Phase:
        """Everything after the histogram."""
        phases = [self.phases[name] for name in (AFTER, REPORT)]
        later = sum(self.steps[name].seconds for name in LATER_STEPS)
        return Phase(
            seconds=sum(phase.seconds for phase in phases) + later,
            peak=max(phase.peak for phase in phases),
        )

    @property
    def largest(self) -> int:
        """The bytes of the largest element in flight."""
        return max(max(step.largest_given, step.largest_made) for step in self.steps.values())

    def seconds(self, names: Iterable[str]) -> float:
        """Return the seconds of some steps together."""
        return sum(self.steps[name].seconds for name in names)

    def to_json(self) -> str:
        """Return the profile as JSON, as it passes from process to process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """The inverse of `to_json`."""
        parts = json.loads(text)
        return cls(
            phases={name: Phase(**each) for name, each in parts["phases"].items()},
            steps={name: Step(**each) for name, each in parts["steps"].items()},
        )


def element_bytes(element: Any) -> int:
    """The bytes of an element in flight: of bytes, strings, arrays and integers, alone, tagged or
    in groups; 0 of record batches, which stay on their worker, and of anything else."""
    if isinstance(element, (bytes, str)):
        return len(element)
    if isinstance(element, int):
        return 8
    if hasattr(element, "schema"):
        return 0
    if hasattr(element, "nbytes"):
        return int(element.nbytes)
    if hasattr(element, "value"):  # Beam's wrapping of tagged and windowed elements
        return element_bytes(element.value)
    return sum(map(element_bytes, element)) if isinstance(element, Iterable) else 0


# --- the watch ---


class Watch:
    """Times what happens in this process, phase by phase and step by step."""

    def __init__(self) -> None:
        self.profile = Profile()
        self._phase, self._since = PLAN, clock()

    def begin(self, phase: str) -> None:
        """End the present phase, and begin another one unless it is the present one."""
        now = clock()
        if phase == self._phase:
            return
        self.profile.phases[self._phase] = Phase(seconds=now - self._since, peak=peak_memory())
        self._phase, self._since = phase, now

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        """A DoFn's `process` or `finish_bundle`, watched."""

        @functools.wraps(function)  # Beam reads the signature
        def watched(dofn: object, *arguments: Any, **named: Any) -> Iterator[Any]:
            name = type(dofn).__name__
            self.begin(BEGINS.get(name, self._phase))
            step = self.profile.steps.setdefault(name, Step())
            if arguments:
                size = element_bytes(arguments[0])
                step.given, step.largest_given = step.given + size, max(step.largest_given, size)
            yield from _timed(step, lambda: function(dofn, *arguments, **named))
            self.begin(ENDS.get(name, self._phase))

        return watched


def _timed(step: Step, start: Callable[[], Iterable[Any] | None]) -> Iterator[Any]:
    """What a call yields; the clock runs while it works, not while others use what it gave."""
    began = clock()
    given = iter(start() or ())
    while True:
        try:
            element = next(given)
        except StopIteration:
            return
        finally:
            step.seconds += clock() - began
        size = element_bytes(element)
        step.largest_made = max(step.largest_made, size)
        step.elements, step.made = step.elements + 1, step.made + size
        yield element
        began = clock()


def peak_memory() -> float:
    """The largest resident memory of this process since the last call, in MB."""
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    Path("/proc/self/clear_refs").write_text("5")  # begins a new peak (man 5 proc)
    return peak


def watch_steps(watch: Watch) -> None:
    """Watch every DoFn of the package transforms."""
    import apache_beam as beam

    import dptrees.transforms

    for found in pkgutil.walk_packages(dptrees.transforms.__path__, "dptrees.transforms."):
        module = importlib.import_module(found.name)
        for kind in vars(module).values():
            if not (isinstance(kind, type) and issubclass(kind, beam.DoFn)):
                continue
            for method in ("process", "finish_bundle"):
                if kind.__module__ == module.__name__ and method in vars(kind):
                    setattr(kind, method, watch.wrapped(vars(kind)[method]))


def watched_release(config: str) -> Profile:
    """Make the release of a configuration in this process, and report how it went."""
    watch = Watch()
    watch_steps(watch)
    from dptrees.pipelines.cli.command import main as command

    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        # One thread: the clock is of the whole process.
        code = command(["release", config, "--direct_num_workers=1"])
    watch.begin("over")
    if code:
        raise SystemExit(code)
    if missing := {PLAN, HISTOGRAM, AFTER, REPORT} - set(watch.profile.phases):
        raise SystemExit(f"no step began with {', '.join(sorted(missing))}: have steps new names?")
    return watch.profile


# --- the runs ---


def run_profile(config: Path) -> Profile:
    """A watched release in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", "--profile", str(config), "--json"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the watched release of {config} failed:\n{done.stderr}")
    return Profile.from_json(done.stdout)


def make_data(folder: Path, fraction: float) -> None:
    """Make the rows, the universe and a key, unless they are there."""
    if not (folder / "blocks.parquet").exists():
        command = [sys.executable, "-m", "benchmarks.make_country", str(folder)]
        command += ["--fraction", str(fraction)]
        subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
    if not (folder / "release.key").exists():
        make_key(folder)


def write_config(folder: Path, fraction: float) -> Path:
    """The configuration of a release into an output that does not exist."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    levels = ", ".join(level.replace(" ", "_") for level in make_country.LEVELS)
    digits = list(make_country.level_digits(fraction))
    path = folder / "release.yaml"
    path.write_text(CONFIG.format(folder=folder, digits=digits, levels=levels))
    return path


def measured(folder: Path, fraction: float) -> tuple[Run, Profile]:
    """The two releases of a fraction of the country."""
    make_data(folder, fraction)
    try:
        run = run_command(["release", str(write_config(folder, fraction))])
        return run, run_profile(write_config(folder, fraction))
    finally:
        shutil.rmtree(folder / "out", ignore_errors=True)


# --- the tables ---

HEADING = (
    f"{'':>12} {'':>10} {'the command':^25} {'histogram':^15} {'after it':^15} {'in flight':>10}\n"
    f"{'rows':>12} {'leaves':>10} {'s':>8} {'CPU s':>8} {'MB':>7} {'s':>7} {'MB':>7} "
    f"{'s':>7} {'MB':>7} {'largest MB':>10}"
)


def table_line(rows: int, leaves: int, run: Run, profile: Profile) -> str:
    """One line below `HEADING`."""
    histogram, after = profile.phases[HISTOGRAM], profile.after
    return (
        f"{rows:>12,} {leaves:>10,} {run.seconds:>8.1f} {run.processor:>8.1f} {run.peak:>7.0f} "
        f"{histogram.seconds - profile.seconds(LATER_STEPS):>7.1f} {histogram.peak:>7.0f} "
        f"{after.seconds:>7.1f} {after.peak:>7.0f} {profile.largest / MB:>10.2f}"
    )


def cost_lines(rows: int, leaves: int, profile: Profile) -> Iterator[str]:
    """Costs per row and per leaf."""
    summed = profile.seconds(set(profile.steps) - set(ROW_STEPS))
    yield f"{profile.seconds(ROW_STEPS) / rows * 1e9:10.1f} ns per row, read and counted"
    yield f"{summed / leaves * 1e9:10.1f} ns per leaf in the steps after that, from sum to file"
    for name in (PLAN, REPORT):
        seconds = profile.phases[name].seconds
        yield f"{seconds / leaves * 1e9:10.1f} ns per leaf in the launcher, {name}"
    partial = profile.steps["CountBundle"].made
    shuffled = sum(profile.steps[name].made for name in SHUFFLED_STEPS)
    yield f"{partial / leaves:10.2f} bytes per leaf shuffled as partial histograms of one worker"
    yield f"{shuffled / leaves:10.2f} bytes per leaf shuffled after the noise"


def profile_lines(profile: Profile) -> Iterator[str]:
    """The phases and the steps of a watched release."""
    yield f"{'phase':<16} {'s':>8} {'peak MB':>8}"
    for name, phase in profile.phases.items():
        yield f"{name:<16} {phase.seconds:>8.2f} {phase.peak:>8.0f}"
    yield f"\n{'step':<16} {'s':>8} {'elements':>9} {'MB':>9} {'largest MB':>10} {'given':>10}"
    for name, step in profile.steps.items():
        yield (
            f"{name:<16} {step.seconds:>8.2f} {step.elements:>9,} {step.made / MB:>9.2f} "
            f"{step.largest_made / MB:>10.3f} {step.largest_given / MB:>10.3f}"
        )
    job = sum(profile.phases[name].seconds for name in (HISTOGRAM, AFTER))
    yield f"{'Beam, between':<16} {job - profile.seconds(profile.steps):>8.2f}"


def compare(folder: Path, fractions: Sequence[float]) -> None:
    """Print the table, and what the last of the fractions costs."""
    print(HEADING)
    for fraction in fractions:
        run, profile = measured(folder / f"country-{fraction:g}", fraction)
        sizes = make_country.row_count(fraction), make_country.level_sizes(fraction)[-1]
        print(table_line(*sizes, run, profile), flush=True)
    print(f"\nOf the last line, by the watch ({sizes[0]:,} rows):\n")
    print("\n".join([*cost_lines(*sizes, profile), "", *profile_lines(profile)]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or the profile of one release."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    part = make_country.parse_fraction
    parser.add_argument("--fractions", type=part, nargs="+", default=[0.01, 0.1, 1.0])
    parser.add_argument("--profile", metavar="CONFIG", help="watch the release of this instead")
    parser.add_argument("--json", action="store_true", help="of the profile, for programs")
    text = "of the profile: count by sorting, as where dense arrays would not fit memory"
    parser.add_argument("--sparse-counts", action="store_true", help=text)
    text = "of the profile: read the leaves in parts, however few they are"
    parser.add_argument("--parts", action="store_true", help=text)
    chosen = parser.parse_args(arguments)
    if chosen.profile:
        if chosen.sparse_counts:
            from dptrees.transforms.steps import counting

            counting.DENSE_CELLS = 0
        if chosen.parts:
            from dptrees.dpcore.hierarchy import universe

            universe.MOST_WHOLE_LEAVES = 0
        profile = watched_release(chosen.profile)
        print(profile.to_json() if chosen.json else "\n".join(profile_lines(profile)))
    elif chosen.folder:
        compare(chosen.folder.resolve(), chosen.fractions)
    else:
        with tempfile.TemporaryDirectory() as folder:
            compare(Path(folder), chosen.fractions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
