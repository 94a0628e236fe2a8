"""One sentence comes through whatever an engine wraps around it."""

import pickle

import pytest

from dptrees.transforms.errors import ConservationError, InputError, ReleaseError, sentence_in
from dptrees.transforms.folder.files import OutputError
from dptrees.transforms.keys import KeyReferenceError
from dptrees.transforms.steps.record import CommitError, RecordError

KINDS = [
    ReleaseError,
    InputError,
    ConservationError,
    OutputError,
    KeyReferenceError,
    RecordError,
    CommitError,
]
SENTENCE = "input: a.parquet has no column 'x'"


@pytest.mark.parametrize("kind", KINDS)
def test_through_pickle(kind: type[ReleaseError]) -> None:
    error = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(kind(SENTENCE)))))
    assert type(error) is kind
    assert error.sentence == SENTENCE == sentence_in(str(error))


@pytest.mark.parametrize("kind", KINDS)
def test_made_again_from_its_text_with_a_step_s_name(kind: type[ReleaseError]) -> None:
    # What Beam's local runner does with an exception of a DoFn.
    again = kind(f"{kind(SENTENCE)} [while running 'Release/Record/Record']")
    again = kind(f"{again} [while running 'Release']")
    assert again.sentence == SENTENCE == sentence_in(str(again))


def test_inside_a_traceback_of_several_lines() -> None:
    text = f"RuntimeError: Traceback\n  File x\nInputError: {InputError(SENTENCE)}\n"
    assert sentence_in(text + text) == SENTENCE


def test_no_sentence() -> None:
    assert sentence_in("RuntimeError: <dptrees: broken off") is None
    assert sentence_in("") is None
