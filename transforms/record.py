"""The record of a draw: written beside the output before anything noisy leaves the job.

It is a keyed digest of the release's id, the folder's nonce, the specification and the exact
counts: equal for every run that would draw the same noise, different for any other, and meaningless
without the key. A later run into the same folder with another record is refused, since it would be
a second release of changed data (or of another specification) under the budget of one.

The refusal tells that the exact counts changed, and its absence that they did not: to whoever may
run the job again on data of their choice, in a folder whose release was begun and not finished
(`transforms.standing` answers for finished ones, before a row is read), or as a repair.
"""

import json

from transforms import files
from transforms.errors import ReleaseError

RECORD = "record.json"


MANIFEST = "manifest.json"


class RecordError(ReleaseError):
    """The folder belongs to another draw."""


def check_record(folder: str, record: bytes) -> None:
    """Records a draw, or sees that the same one was recorded before.

    Raises:
        RecordError: another draw was recorded here.
        OutputError: the record cannot be written.
    """
    _check_manifest(folder, record)
    path = files.join(folder, RECORD)
    if not files.exists(path):
        files.write_once(path, _data(record))
    # Read again, whoever wrote it: an object store does not tell two writers at once apart.
    check_recorded(folder, record)


def check_recorded(folder: str, record: bytes) -> None:
    """Sees that this very draw is recorded still: somebody may have discarded it meanwhile.

    Raises:
        RecordError: another draw is, or none.
    """
    path = files.join(folder, RECORD)
    if not files.exists(path) or files.read_bytes(path) != _data(record):
        raise _another_draw(folder)


def _data(record: bytes) -> bytes:
    return json.dumps({"record": record.hex()}).encode()


def _check_manifest(folder: str, record: bytes) -> None:
    """Sees that a release that stands here, even without its record, is of the same draw."""
    path = files.join(folder, MANIFEST)
    if files.exists(path) and not is_manifest_of(path, record):
        raise _another_draw(folder)


def is_manifest_of(path: str, record: bytes) -> bool:
    """Whether a file is the manifest of the draw that a record stands for."""
    try:
        return bool(json.loads(files.read_bytes(path))["record"] == record.hex())
    except (ValueError, TypeError, KeyError):
        return False


def _another_draw(folder: str) -> RecordError:
    return RecordError(
        f"output: {folder} holds a release, or the beginning of one, made from other data, with "
        "another key or another configuration; a second release spends its budget again, so choose "
        "another output, or start an unfinished one anew with --discard"
    )
