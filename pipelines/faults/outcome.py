"""How a failure is reported, and with which exit code.

A failure that may pass by itself (memory, disk, network, a lost worker) differs from one that
somebody must fix. No sentence made here holds a text of a library: those may show values.
"""

from __future__ import annotations

from dataclasses import dataclass

from dptrees.pipelines.faults.exit_code import ExitCode

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
    from dptrees.dpcore.specification import MatrixError
    from dptrees.pipelines.release_folder import FolderError
    from dptrees.pipelines.sections.error import ConfigurationError
    from dptrees.pipelines.user_error import UserError
    from dptrees.transforms.errors import ReleaseError, is_no_memory, may_pass, system_reason

    if isinstance(error, ReleaseError):
        return _outcome(error.sentence, error.again)
    if isinstance(error, FolderError):
        return _outcome(str(error), error.again)
    if isinstance(error, (UserError, ConfigurationError, MatrixError)):
        return _outcome(str(error), again=False)
    if is_no_memory(error):
        return _outcome(NO_MEMORY, again=True)
    if may_pass(error):
        return _outcome(f"the system refused for now: {system_reason(error)}", again=True)
    return None


def _outcome(sentence: str, again: bool) -> Outcome:
    return Outcome(code=ExitCode.AGAIN if again else ExitCode.MISTAKE, sentence=sentence)
