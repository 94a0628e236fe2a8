"""What a job says when it must stop: one sentence that holds no data.

An engine carries an exception's text through its own wrapping, so the sentence is enclosed in marks
by which the launcher finds it again. What may pass by itself (a disk that is full, a network that
is down) is marked so: the user need not fix anything, only try again.
"""

import re

_MARKED = re.compile(r"<dptrees( again)?: (.*?) :dptrees>", re.DOTALL)
_OF_SYSTEM = re.compile(r"([\w.+-]+): cannot open shared object")


class ReleaseError(Exception):
    """The release cannot be made; the message is for the person who started the job.

    Args:
        sentence: the message.
        again: it may pass by itself.
    """

    def __init__(self, sentence: str, *, again: bool = False) -> None:
        # Beam makes an error again from its own text, with the name of the step behind it.
        marked = _MARKED.search(sentence)
        self.sentence = marked.group(2) if marked else sentence
        self.again = marked.group(1) is not None if marked else again
        super().__init__(f"<dptrees{' again' if self.again else ''}: {self.sentence} :dptrees>")

    # Engines pickle exceptions; the default would mark the sentence twice.
    def __reduce__(self) -> tuple[type["ReleaseError"], tuple[str]]:
        return type(self), (str(self),)


class InputError(ReleaseError):
    """The data cannot be read as configured: the user must fix it."""


class UniverseError(ReleaseError):
    """A public table cannot be read where it was written, or is not what was written."""


class ConservationError(ReleaseError):
    """The engine lost or repeated data on the way: the job must not publish. It may pass."""

    def __init__(self, sentence: str, *, again: bool = True) -> None:
        super().__init__(sentence, again=again)


def sentence_in(text: str) -> str | None:
    """The sentence of a `ReleaseError` somewhere in an engine's message, None without one.

    >>> sentence_in(f"RuntimeError: {InputError('no such column')} [while running 'Read']")
    'no such column'
    """
    match = _MARKED.search(text)
    return match.group(2) if match else None


def error_in(text: str) -> ReleaseError | None:
    """The `ReleaseError` whose sentence is in an engine's message; None without one.

    >>> error_in(f"Error: {InputError('the disk is full', again=True)} in step 3").again
    True
    """
    match = _MARKED.search(text)
    return InputError(match.group(0)) if match else None


def missing_library(name: str, error: ImportError) -> str:
    """Return what must be installed before a module can be imported.

    Args:
        name: of the module or the extra that has it.
        error: the fault of the import.

    >>> missing_library("dptrees[delta]", ModuleNotFoundError("No module named 'deltalake'"))
    'dptrees[delta]'
    >>> missing_library("dptrees[delta]", ImportError("libodd.so.2: cannot open shared object"))
    "the system's library libodd.so.2 (dptrees[delta] loads it)"
    """
    if isinstance(error, ModuleNotFoundError):
        return name
    found = _OF_SYSTEM.search(str(error))
    return f"the system's library {found[1]} ({name} loads it)" if found else f"a working {name}"
