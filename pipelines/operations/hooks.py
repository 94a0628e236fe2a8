"""Commands of an operator that run once a run of `dptrees release` has ended: its hooks.

A hook receives public facts alone, in environment variables: names, folders, the exit code and the
sentence on standard error. No secret that the configuration or an option names is in its
environment. Whatever a hook does, the release and the exit code of its run stay as they are
(docs/decisions/0038).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO

from typing_extensions import Self

from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.faults.exit_code import ExitCode
from dptrees.pipelines.faults.log import LOG, event, remark
from dptrees.pipelines.faults.outcome import Outcome
from dptrees.pipelines.faults.stopping import listening
from dptrees.pipelines.operations.watch import CommandRun, run_outcome
from dptrees.pipelines.terminal_text import escaped
from dptrees.pipelines.user_error import UserError
from dptrees.transforms.readers.arrival import duration_text

# The words of the variable DPTREES_FAILURE, by exit code.
FAILURES: Mapping[ExitCode, str] = {
    ExitCode.FAULT: "fault",
    ExitCode.MISTAKE: "fix",
    ExitCode.AGAIN: "retry",
    ExitCode.STOPPED: "stopped",
    ExitCode.TERMINATED: "stopped",
}
# Of a release key and of a signing key, wherever they are.
_SECRET_WORDS = ("dptrees-key-", "PRIVATE KEY")
# Lines of a hook that are shown as events.
_MOST_LINES = 1000
_KILL_SECONDS = 2.0
# A variable that a configuration names, also one that is refused; and the most bytes of its file.
_VARIABLE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")
_LARGEST_FILE = 2**24


@dataclass(frozen=True, kw_only=True)
class Hook:
    """A command of an operator.

    Args:
        option: that names it, for messages.
        text: the command with its arguments, split as a shell splits words; no shell runs it.

    Raises:
        UserError: it is no command, or cannot be found here.
    """

    option: str
    text: str

    def __post_init__(self) -> None:
        if shutil.which(self.words[0]) is None:
            raise UserError(
                f"{self.option}: {self.words[0]} is no command that can be run here; give its "
                "path, or put its folder into PATH"
            )

    @property
    def words(self) -> list[str]:
        """The command and its arguments."""
        try:
            words = shlex.split(self.text)
        except ValueError:
            words = []
        if not words:
            raise UserError(f"{self.option}: {self.text!r} must be a command with its arguments")
        return words

    def run(self, environment: Mapping[str, str], seconds: float) -> None:
        """Run the command to its end. A failure is one remark.

        Args:
            environment: all variables of the command.
            seconds: after which it is stopped.
        """
        name = self.words[0]
        stays = "the release and the exit code of this run stay as they are"
        try:
            process = subprocess.Popen(
                self.words,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                # Standard output belongs to the report of the run.
                stdout=subprocess.PIPE if LOG.is_json else 2,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            remark(f"{self.option}: {name} cannot be run: {os.strerror(error.errno or 0)}; {stays}")
            return
        shown = threading.Thread(target=_show, args=(self.option, process.stdout), daemon=True)
        shown.start()
        code, stopping = None, listening()
        before = None if stopping is None else stopping.code
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            limit = duration_text(max(1, round(seconds)))
            remark(f"{self.option}: {name} took longer than {limit} and was stopped; {stays}")
        except KeyboardInterrupt:
            if stopping is not None:
                stopping.code = before  # the run itself has ended before
            remark(f"{self.option}: {name} was stopped by a signal; {stays}")
        finally:
            _end(process)
            # What it started may hold its output open.
            shown.join(_KILL_SECONDS)
        if code:
            remark(f"{self.option}: {name} ended with exit code {code}; {stays}")


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """The hooks of a run, which is the block of a ``with``.

    Args:
        success: runs if the run ends well and the release exists; None: nothing runs.
        failure: runs if the run fails or is stopped; None: nothing runs.
        seconds: after which a hook is stopped.
        config: the path of the configuration.
        run: that is watched.
        secrets: references of more secrets than the configuration names.
    """

    success: Hook | None = None
    failure: Hook | None = None
    seconds: float = 300.0
    config: str
    run: CommandRun
    secrets: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        # The reader of a pipe has gone: the command ends well.
        outcome = run_outcome(None if isinstance(error, BrokenPipeError) else error)
        hook = self.success if outcome.code == ExitCode.DONE else self.failure
        if hook is None or (hook is self.success and self.run.made is None):
            return
        hook.run(self._environment(outcome), self.seconds)

    def _environment(self, outcome: Outcome) -> dict[str, str]:
        """The environment of a hook: that of this process without secrets, and the facts."""
        stage = self.run.stage
        more = (*self.secrets, *_written_places(self.config))
        names = secret_variables(None if stage is None else stage.configuration, more)
        result = {
            name: value
            for name, value in os.environ.items()
            if name not in names and not any(word in value for word in _SECRET_WORDS)
        }
        facts = {
            "CONFIG": self.config,
            "EXIT_CODE": str(int(outcome.code)),
            "RUN_ID": LOG.run,
            "RELEASE": "" if stage is None else stage.planned.name,
            "FOLDER": "" if stage is None else stage.output,
            "FOLDERS": "\n".join(self.run.folders),
            "MADE": str(self.run.made or 0),
            "FAILURE": FAILURES.get(outcome.code, ""),
            "MESSAGE": escaped(outcome.sentence),
        }
        return result | {f"DPTREES_{name}": value for name, value in facts.items()}


def secret_variables(configuration: Configuration | None, more: Iterable[str]) -> set[str]:
    """The environment variables that hold secrets.

    Args:
        configuration: of the release; None: it could not be read.
        more: other references of secrets.
    """
    references = list(more)
    if configuration is not None:
        references.append(configuration.key.reference)
        references += filter(None, [configuration.signing_key])
        if configuration.table is not None:
            references += filter(None, [configuration.table.secret])
    return {each.partition(":")[2] for each in references if each.startswith("env:")}


def _written_places(path: str) -> list[str]:
    """The variables that the text of a configuration names; it may be refused before it is read."""
    try:
        with open(path, "rb") as file:
            text = file.read(_LARGEST_FILE).decode(errors="replace")
    except (OSError, ValueError):
        return []
    return _VARIABLE.findall(text)


def _show(option: str, output: IO[bytes] | None) -> None:
    """Report the lines of a hook as events, if they are not shown by themselves."""
    for number, line in enumerate(output or ()):
        if number < _MOST_LINES:
            event("hook", option=option, message=line.decode(errors="replace").rstrip("\r\n"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all processes that it started; one that has ended stays ended."""
    if process.poll() is not None:
        return
    end = time.monotonic() + _KILL_SECONDS
    is_there = _signal_group(process.pid, signal.SIGTERM)
    # Also after the command itself has ended: a process that it started may ignore the signal.
    while is_there and time.monotonic() < end:
        time.sleep(0.02)
        process.poll()
        is_there = _signal_group(process.pid, 0)
    if is_there:
        _signal_group(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_SECONDS)


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a group of processes, 0 to send none; return whether one is there."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
