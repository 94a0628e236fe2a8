"""The list of an input's files, on its way from the launcher to the workers.

The launcher writes it beside the release before the job starts, since a list of a million names
would not fit into a job graph. It is cut into shards, which workers read one at a time, and sealed
with the release key: what a killed run leaves shows about how many names there are, and nothing
else. The launcher deletes it when the job has ended; the next run into the folder, otherwise.
"""

import json
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from dptrees.transforms import files
from dptrees.transforms.errors import InputError, ReleaseError
from dptrees.transforms.key_reference import KeyReference
from dptrees.transforms.layout import input_list_name
from dptrees.transforms.readers.input_file import InputFile, total_size

# A shard of so many names takes some 3 MB of memory.
_SHARD_FILES = 10_000
_PURPOSE = "input files"


@dataclass(frozen=True, kw_only=True)
class SealedList:
    """A reference to a list of files, small enough to travel in a job graph.

    Args:
        folder: that the list lies in.
        token: random, of this listing alone, in hexadecimal.
        shards: number of files that hold the list.
        number: of files in the list.
        size: of those files together, in bytes.
        key: where the key lies that seals the list.
    """

    folder: str
    token: str
    shards: int
    number: int
    size: int
    key: KeyReference

    def path(self, shard: int) -> str:
        """The place of a shard."""
        return files.join(self.folder, input_list_name(self.token, shard))

    def is_gone(self) -> bool:
        """Whether somebody deleted the list."""
        return not files.exists(self.path(0))

    def shard(self, number: int) -> list[InputFile]:
        """The files of a shard.

        Raises:
            InputError: the shard was deleted, or is not what the launcher wrote.
        """
        path = self.path(number)
        if not files.exists(path):
            raise InputError(
                f"output: {path}, the list of the input's files, is no longer there: another run "
                "into the folder has ended; run again",
                again=True,
            )
        try:
            sealed = files.read_bytes(path)
            data = self.key.load().opened(sealed, _PURPOSE, self.token, number)
        except ValueError:
            raise InputError(f"output: {path} is not the file that the launcher wrote") from None
        return [InputFile(*entry) for entry in json.loads(zlib.decompress(data))]


@contextmanager
def written_list(
    listed: Sequence[InputFile], folder: str, key: KeyReference, *, keep: bool
) -> Iterator[SealedList]:
    """Write a list that exists while a job runs.

    Args:
        listed: the files.
        folder: of the release, which all workers reach.
        key: where the release key lies.
        keep: the job runs later, when this process has ended: the list stays.

    Yields:
        the reference that travels.

    Raises:
        OutputError: the folder cannot be written.
    """
    reference = SealedList(
        folder=folder,
        token=uuid.uuid4().hex,
        shards=-(-len(listed) // _SHARD_FILES),
        number=len(listed),
        size=total_size(listed),
        key=key,
    )
    try:
        _write(reference, listed)
        yield reference
    finally:
        if not keep:
            with suppress(ReleaseError):  # the next run sweeps it; the job's end is what matters
                files.delete([reference.path(shard) for shard in range(reference.shards)])


def _write(reference: SealedList, listed: Sequence[InputFile]) -> None:
    key = reference.key.load()
    for number in range(reference.shards):
        shard = listed[number * _SHARD_FILES : (number + 1) * _SHARD_FILES]
        data = zlib.compress(json.dumps(shard, separators=(",", ":")).encode(), 1)
        sealed = key.seal(data, _PURPOSE, reference.token, number)
        files.write_whole(reference.path(number), sealed)
