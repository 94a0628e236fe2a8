"""A release in a folder, opened for reading: the manifest first, then the parts of each query.

A folder without a manifest is no release. Parts are those that the manifest names, and a part
whose bytes do not have the checksum that the manifest gives is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.dpcore import __version__
from dptrees.dpcore.questions.released import QUANTILES
from dptrees.dpcore.release.kinds import find_kind
from dptrees.dpcore.release.manifest import FORMAT_VERSION, READ_FORMATS, states_its_guarantee
from dptrees.pipelines.process import Later, UserError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.names import MANIFEST, concluded_file

if TYPE_CHECKING:
    from dptrees.dpcore.ordered.lookup import QuantileLookup
    from dptrees.dpcore.release.plan import ReleasePlan
    from dptrees.dpcore.release.released import ReleaseReader

# Of what is not looked up without a plan: most commands make one, a query of a quantile none.
_holds_upper = Later("query.release_plan:holds_upper")
_read_plan = Later("query.release_plan:read_plan")
_reader = Later("query.release_plan:reader")
# What a manifest or a table of another form leads to.
OTHER_FORM = (
    *(KeyError, IndexError, TypeError, ValueError, AttributeError),
    *(ArithmeticError, AssertionError, RecursionError, pa.ArrowException),
)
QUANTILES_FILE = concluded_file(QUANTILES)


class FolderError(UserError):
    """The folder holds no release that can be read; the message is one clear sentence.

    Args:
        sentence: the message.
        again: it may pass by itself.
    """

    def __init__(self, sentence: str, *, again: bool = False) -> None:
        super().__init__(sentence)
        self.again = again


class ReleaseFolder:
    """A release in a folder.

    Its plan is made when it is needed: at once, if only the plan can show that the manifest is as
    it was written.

    Attributes:
        manifest: of the release.
        trees: the names of the trees.

    Args:
        path: the folder, on a local disk or, with a scheme (``s3://``), on any Beam filesystem,
            which is then reached as the environment says.

    Raises:
        FolderError: there is no release in it, or one of another format.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.manifest = read_manifest(path)
        try:
            self.trees = [str(tree["name"]) for tree in self.manifest["spec"]["trees"]]
            needs_plan = not states_its_guarantee(self.manifest)
        except OTHER_FORM:
            needs_plan = True
        if needs_plan:
            self.trees = [question.name for question in self.plan.questions]
            assert self._parts is not None

    @cached_property
    def plan(self) -> ReleasePlan:
        """The plan of the release.

        Raises:
            FolderError: it cannot be made of the manifest, or the guarantee is another one.
        """
        with readable(self.path):
            plan: ReleasePlan = _read_plan(self)
        return plan

    @cached_property
    def _parts(self) -> dict[tuple[str, str, int, int], tuple[str, str]]:
        """The file of each part and its checksum, by kind, tree, key and chunk."""
        with readable(self.path):
            return {
                (str(part["file"]).split("/")[0], part["tree"], part["key"], part["chunk"]): (
                    str(part["file"]),
                    str(part["sha256"]),
                )
                for part in self.manifest["parts"]
            }

    def lookup(self, tree: str) -> QuantileLookup | None:
        """Return the released quantiles of a tree, for which no plan is made.

        Args:
            tree: its name.

        Returns:
            None: there are none, or its kind needs the plan to answer with them.
        """
        table = self.quantiles()
        try:
            spec = self.manifest["spec"]["trees"][self.trees.index(tree)]
            found = None if table is None else find_kind(spec).lookup
            return None if found is None else found(spec, table)
        except OTHER_FORM:  # the plan says what is wrong
            return None

    @property
    def files(self) -> list[str]:
        """The paths, within the folder, of all files that the manifest names."""
        beside = self.manifest.get("files", {})
        assert isinstance(beside, dict)
        return [*(name for name, _ in self._parts.values()), *beside]

    @property
    def release(self) -> ReleaseReader:
        """The release, reading its parts when they are requested."""
        reader: ReleaseReader = _reader(self)
        return reader

    @lru_cache(maxsize=8)  # noqa: B019 - a folder lives as long as the command
    def part(self, kind: str, tree: str, key: int, index: int) -> pa.Table:
        """The rows of one part, checked against the manifest's checksum."""
        name, checksum = self._parts[kind, tree, key, index]
        return self.table(name, checksum)

    def rows(self, kind: str, tree: str) -> pa.Table:
        """All rows of a tree."""
        return pa.Table.from_batches(self.batches(kind, tree))

    def batches(
        self, kind: str, tree: str, *, keys: int | None = None, levels: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a tree, some at a time.

        Args:
            kind: of table.
            tree: its name.
            keys: only this many keys, and keys that share a part with them; None: all.
            levels: only the nodes of this many levels from the root; None: all. Parts without
                them are not opened, and the rest of a part is not unpacked.
        """
        for place in sorted(place for place in self._parts if place[:2] == (kind, tree)):
            if keys is not None and place[2] >= keys:
                continue
            if levels is not None and not _holds_upper(self.plan, place, levels):
                continue
            with _parquet(self._parts[place][0]):
                file = self.file(*self._parts[place])
                yield from file.iter_batches() if levels is None else _upper_rows(file, levels)

    @lru_cache(maxsize=1)  # noqa: B019 - a folder lives as long as the command
    def quantiles(self) -> pa.Table | None:
        """The table of quantiles, None where none were requested."""
        files = self.manifest.get("files")
        if not isinstance(files, dict) or QUANTILES_FILE not in files:
            return None
        return self.table(QUANTILES_FILE, str(files[QUANTILES_FILE]))

    def table(self, name: str, checksum: str) -> pa.Table:
        """The rows of a file whose bytes are those that the manifest names.

        Args:
            name: of the file, within the folder.
            checksum: of the manifest.

        Raises:
            FolderError: it is missing, or was damaged.
        """
        with _parquet(os.path.join(self.path, name)):
            return self.file(name, checksum).read()

    def file(self, name: str, checksum: str) -> pq.ParquetFile:
        """A file of the release whose bytes are those that the manifest names, as `table`."""
        path = os.path.join(self.path, *name.split("/"))
        source: str | pa.Buffer = path
        if is_remote(path):
            data = _read_remote(path)
            source, found = _arrow_buffer(data), hashlib.sha256(data).hexdigest()
        else:
            found = file_checksum(path)
        if found != checksum:
            raise FolderError(f"{path}: it does not match its checksum in the manifest")
        # By its path, or in Arrow's memory: of a Python file, or Python's bytes, one of Arrow's
        # threads could drop the last hold while the program ends, and abort it.
        return pq.ParquetFile(source)


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Reports a manifest of another form.

    Args:
        path: of its folder.

    Raises:
        FolderError: the block met a value that it could not use.
    """
    try:
        yield
    except OTHER_FORM as error:
        raise FolderError(f"{path}: its manifest cannot be read by this program: {error}") from None


@contextmanager
def _parquet(path: str) -> Iterator[None]:
    """Reports what Arrow cannot read as the release's fault.

    Raises:
        FolderError: naming the file.
    """
    try:
        yield
    except (pa.ArrowException, OSError):
        raise FolderError(f"{path}: is not a Parquet file; the release is damaged") from None


def holds_release(path: str) -> bool:
    """Whether a folder contains a finished release: whether there is a manifest in it."""
    name = os.path.join(path, MANIFEST)
    if not is_remote(path):
        return os.path.exists(name)
    return bool(files.exists(name))


def _upper_rows(file: pq.ParquetFile, levels: int) -> Iterator[pa.RecordBatch]:
    """The rows of so many levels from the root: a part holds one level after the other."""
    for batch in file.iter_batches():
        inside = batch.filter(pa.array(batch.column("level").to_numpy() < levels))
        if len(inside):
            yield inside
        if len(inside) < len(batch):
            return


def is_remote(path: str) -> bool:
    """Whether a path is on another filesystem than the local disk."""
    return "://" in path


def _read_remote(path: str, *, sought: bool = False) -> bytes:
    """The bytes of a file on one of Beam's filesystems.

    Raises:
        FolderError: it cannot be read.
        FileNotFoundError: it is sought, and not there.
    """
    try:
        if sought and not files.exists(path):
            raise FileNotFoundError(path)
        return bytes(files.read_bytes(path))
    except files.OutputError as error:
        raise FolderError(error.sentence.removeprefix("output: "), again=error.again) from None


def _arrow_buffer(data: bytes) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    sink.write(data)
    return sink.getvalue()


def parquet_file(path: str) -> pq.ParquetFile:
    """A Parquet file on a local disk or any Beam filesystem.

    Raises:
        FolderError, OSError, pyarrow.ArrowException: it cannot be read.
    """
    return pq.ParquetFile(_arrow_buffer(_read_remote(path)) if is_remote(path) else path)


def file_checksum(path: str) -> str:
    """SHA-256 of a file on a local disk or any Beam filesystem, in hexadecimal.

    Raises:
        FolderError: it cannot be read.
    """
    if is_remote(path):
        return hashlib.sha256(_read_remote(path)).hexdigest()
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    except OSError as error:
        raise FolderError(f"{path}: cannot be read: {error.strerror}") from None
    return digest.hexdigest()


def read_file(path: str) -> bytes:
    """The bytes of a small file.

    Raises:
        FileNotFoundError, OSError, FolderError: it is not there, or cannot be read.
    """
    if is_remote(path):
        return _read_remote(path, sought=True)
    with open(path, "rb") as file:
        return file.read()


def read_manifest(path: str) -> Mapping[str, Any]:
    """The manifest of a release's folder, as it is.

    Raises:
        FolderError: there is none, or it cannot be read.
    """
    name = os.path.join(path, MANIFEST)
    try:
        manifest = json.loads(read_file(name))
    except FileNotFoundError:
        raise FolderError(
            f"{path}: is not a release (there is no {MANIFEST}); an unfinished run continues with "
            "the same dptrees release command"
        ) from None
    except NotADirectoryError:
        raise FolderError(f"{path}: is not a folder") from None
    except OSError as error:
        raise FolderError(f"{name}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise FolderError(f"{name}: is not JSON; the release is damaged") from None
    if not isinstance(manifest, dict):
        raise FolderError(f"{name}: is not a manifest; the release is damaged")
    spec = manifest.get("spec")
    found = spec.get("format") if isinstance(spec, dict) else None
    if isinstance(found, int) and found not in READ_FORMATS:
        raise _other_format(path, manifest, found)
    return manifest


def _other_format(path: str, manifest: Mapping[str, object], found: int) -> FolderError:
    """The refusal of a format that this program cannot read (docs/decisions/0023): an earlier one
    that is not read any more, or a later one."""
    or_later = ", or a later one" if found > FORMAT_VERSION else ""
    return FolderError(
        f"{path}: is of format {found}, which dptrees {manifest.get('dptrees')} made; this is "
        f"dptrees {__version__}, which reads formats {' and '.join(map(str, READ_FORMATS))}: read "
        f"it with the version that made it{or_later}"
    )
