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
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dptrees.dpcore import __version__
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.questions.messages import Part
from dptrees.dpcore.questions.released import QUANTILES
from dptrees.dpcore.release.guarantee import (
    CHECKSUM,
    LATER_NUMBERS,
    guarantee_numbers,
    manifest_checksum,
)
from dptrees.dpcore.release.plan import FORMAT_VERSION, READ_FORMATS, ReleasePlan, plan_from_spec
from dptrees.dpcore.release.released import ReleaseReader
from dptrees.dpcore.rows.key_tables import KeyTable
from dptrees.transforms.folder import files
from dptrees.transforms.folder.layout import (
    MANIFEST,
    PART_KINDS,
    concluded_file,
    keys_name,
    universe_name,
    universe_of_parquet,
)

QUANTILES_FILE = concluded_file(QUANTILES)


class FolderError(Exception):
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

    Args:
        path: the folder, on a local disk or, with a scheme (``s3://``), on any Beam filesystem,
            which is then reached as the environment says.

    Raises:
        FolderError: there is no release in it, or one of another format.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.manifest = read_manifest(path)
        self._universes: dict[str, Universe] = {}
        try:
            spec = self.manifest["spec"]
            assert isinstance(spec, dict)
            self.plan: ReleasePlan = plan_from_spec(spec, self._universe, self._keys)
            for question, tree in zip(self.plan.questions, self.manifest["trees"], strict=True):  # type: ignore[call-overload]
                question.recall(tree)
            self._check(self.manifest, spec)
            self._parts = {
                (str(part["file"]).split("/")[0], part["tree"], part["key"], part["chunk"]): (
                    str(part["file"]),
                    str(part["sha256"]),
                )
                for part in self.manifest["parts"]  # type: ignore[attr-defined]
            }
        except (
            *(KeyError, IndexError, TypeError, ValueError, AttributeError),
            *(ArithmeticError, AssertionError, RecursionError),
        ) as error:
            raise FolderError(
                f"{path}: its manifest cannot be read by this program: {error}"
            ) from None

    def _check(self, manifest: Mapping[str, object], spec: Mapping[str, object]) -> None:
        """Sees that the manifest is as it was written, and its guarantee that of its specification.

        Raises:
            ValueError: it was edited or damaged.
        """
        expected, stated = guarantee_numbers(self.plan), manifest["guarantee"]
        assert isinstance(stated, dict)
        earlier = {name for name in LATER_NUMBERS if name not in stated}
        expected = {name: each for name, each in expected.items() if name not in earlier}
        if {name: stated.get(name) for name in expected} != expected:
            raise ValueError("its guarantee is not that of its specification")
        # Format 2 had no checksum.
        if spec["format"] != 2 and manifest[CHECKSUM] != manifest_checksum(manifest):
            raise ValueError("it was edited or damaged: its checksum does not match")

    def _universe(self, digest: str) -> Universe:
        """The universe of a hierarchy, which the release holds once for all its trees."""
        if digest in self._universes:
            return self._universes[digest]
        name = universe_name(digest)
        universe = universe_of_parquet(self._file(name, str(self.manifest["files"][name])))  # type: ignore[index]
        if universe.is_parted:
            # The bytes are those that the manifest names: all leaves are not read for it again.
            universe.remember_digest(digest)
        if universe.digest != digest:
            raise ValueError(f"{name} is not the universe that the specification names")
        self._universes[digest] = universe
        return universe

    def _keys(self, digest: str) -> KeyTable:
        """A table of keys, which the release holds once for all its trees."""
        name = keys_name(digest)
        result = KeyTable(self._table(name, str(self.manifest["files"][name])))  # type: ignore[index]
        if result.digest != digest:
            raise ValueError(f"{name} is not the table of keys that the specification names")
        return result

    @property
    def files(self) -> list[str]:
        """The paths, within the folder, of all files that the manifest names."""
        beside = self.manifest.get("files", {})
        assert isinstance(beside, dict)
        return [*(name for name, _ in self._parts.values()), *beside]

    @property
    def release(self) -> ReleaseReader:
        """The release, reading its parts when they are requested."""
        quantiles = self.quantiles()
        return ReleaseReader(
            self.plan, self.part, {} if quantiles is None else {QUANTILES: quantiles}
        )

    @lru_cache(maxsize=8)  # noqa: B019 - a folder lives as long as the command
    def part(self, kind: str, tree: str, key: int, index: int) -> pa.Table:
        """The rows of one part, checked against the manifest's checksum."""
        name, checksum = self._parts[kind, tree, key, index]
        return self._table(name, checksum)

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
            part = Part(kind=kind, tree=tree, key=place[2], index=place[3])
            if levels is not None and not self.plan.question(tree).holds_upper(part, levels):
                continue
            with _parquet(self._parts[place][0]):
                file = self._file(*self._parts[place])
                yield from file.iter_batches() if levels is None else _upper_rows(file, levels)

    def quantiles(self) -> pa.Table | None:
        """The table of quantiles, None where none were requested."""
        files = self.manifest.get("files")
        if not isinstance(files, dict) or QUANTILES_FILE not in files:
            return None
        return self._table(QUANTILES_FILE, str(files[QUANTILES_FILE]))

    def _table(self, name: str, checksum: str) -> pa.Table:
        with _parquet(os.path.join(self.path, name)):
            return self._file(name, checksum).read()

    def _file(self, name: str, checksum: str) -> pq.ParquetFile:
        """A file of the release whose bytes are those that the manifest names."""
        path = os.path.join(self.path, *name.split("/"))
        source: str | pa.Buffer = path
        if _is_remote(path):
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
    if not _is_remote(path):
        return os.path.exists(name)
    return bool(files.exists(name))


def _upper_rows(file: pq.ParquetFile, levels: int) -> Iterator[pa.RecordBatch]:
    """The rows of so many levels from the root: a part holds one level after the other."""
    for batch in file.iter_batches():
        inside = batch.filter(pc.less(batch.column("level"), levels))
        if len(inside):
            yield inside
        if len(inside) < len(batch):
            return


def _is_remote(path: str) -> bool:
    return "://" in path


def file_names(folder: str) -> list[str]:
    """The paths, within a release's folder, of all files in it and in the folders in it.

    Raises:
        FolderError: they cannot be listed.
    """
    if _is_remote(folder):
        return _remote_names(folder)
    results: list[str] = []
    for below, folders, names in os.walk(folder):
        # A link to a folder is no part of a release, but must not hide.
        links = [name for name in folders if os.path.islink(os.path.join(below, name))]
        results += [os.path.relpath(os.path.join(below, name), folder) for name in [*names, *links]]
    return sorted(name.replace(os.sep, "/") for name in results)


def _remote_names(folder: str) -> list[str]:
    try:
        names = [path.rsplit("/", 1)[-1] for path in files.names_below(folder)]
        for kind in PART_KINDS:
            below = files.names_below(files.join(folder, kind))
            names += [f"{kind}/{path.rsplit('/', 1)[-1]}" for path in below]
        return sorted(names)
    except files.OutputError as error:
        raise FolderError(error.sentence.removeprefix("output: "), again=error.again) from None


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
    return pq.ParquetFile(_arrow_buffer(_read_remote(path)) if _is_remote(path) else path)


def file_checksum(path: str) -> str:
    """SHA-256 of a file on a local disk or any Beam filesystem, in hexadecimal.

    Raises:
        FolderError: it cannot be read.
    """
    if _is_remote(path):
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
    if _is_remote(path):
        return _read_remote(path, sought=True)
    with open(path, "rb") as file:
        return file.read()


def read_manifest(path: str) -> Mapping[str, object]:
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
    _check_format(path, manifest)
    return manifest


def _check_format(path: str, manifest: Mapping[str, object]) -> None:
    """Refuses a format that this program cannot read (docs/decisions/0023).

    Raises:
        FolderError: it is an earlier one that is not read any more, or a later one.
    """
    spec = manifest.get("spec")
    found = spec.get("format") if isinstance(spec, dict) else None
    if not isinstance(found, int) or found in READ_FORMATS:
        return
    or_later = ", or a later one" if found > FORMAT_VERSION else ""
    raise FolderError(
        f"{path}: is of format {found}, which dptrees {manifest.get('dptrees')} made; this is "
        f"dptrees {__version__}, which reads formats {' and '.join(map(str, READ_FORMATS))}: read "
        f"it with the version that made it{or_later}"
    )
