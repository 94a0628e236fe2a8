"""Remove from an environment of Python the files that no program in an image uses, and compile it.

    python3 slim.py /opt/dptrees/lib/python3.11/site-packages

Removed are tests and examples, sources of compiled modules, Arrow's library for servers, and the
symbols of shared libraries that only a debugger or a linker reads. Each package's RECORD is written
anew, so it still lists the files that exist. The compiled modules have no time in them: the same
packages give the same bytes in every build.
"""

from __future__ import annotations

import base64
import compileall
import csv
import hashlib
import shutil
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from py_compile import PycInvalidationMode

# Folders and files, as patterns of Path.match; `import` finds none of them in a release.
TESTS = ("tests", "apache_beam/examples", "*_pyarrow_cpp_tests*.so")
# Of Beam alone: a test of statistics in SciPy has such a name too.
BEAM_TESTS = ("*_test.py",)
SOURCES = ("*.a", "*.c", "*.cc", "*.h", "*.hpp", "*.pxd", "*.pxi", "*.pyx")
# Arrow Flight is a protocol of servers; no other library of Arrow needs it.
FLIGHT = ("pyarrow/libarrow_flight*", "pyarrow/libarrow_python_flight*", "pyarrow/_flight*")
ELF = b"\x7fELF\x02\x01"  # 64 bits, little-endian: x86-64 and AArch64


def unused_paths(folder: Path, patterns: Iterable[str]) -> list[Path]:
    """Return the files and folders that match a pattern, outermost first."""
    chosen = tuple(patterns)
    return [path for path in sorted(folder.rglob("*")) if any(map(path.match, chosen))]


def without_symbols(content: bytes) -> bytes:
    """Return an ELF file without what follows its last segment, and without its table of sections.

    The dynamic loader reads segments only. The sections after the last segment are for debuggers
    and linkers. Some tools append a segment at the end of the file; such a file stays as it is.

    >>> without_symbols(b"#!/bin/sh")
    b'#!/bin/sh'
    """
    if not content.startswith(ELF):
        return content
    (headers,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    end = headers + size * count
    for at in range(headers, end, size):
        start, length = struct.unpack_from("<Q16xQ", content, at + 8)
        end = max(end, start + length)
    if end >= len(content):
        return content
    header = bytearray(content[:64])
    struct.pack_into("<Q", header, 40, 0)
    struct.pack_into("<HH", header, 60, 0, 0)
    return bytes(header) + content[64:end]


def remove(paths: Iterable[Path]) -> None:
    """Remove files and whole folders."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def shared_libraries(folder: Path) -> list[Path]:
    """Return the shared libraries below a folder."""
    return [path for path in folder.rglob("*.so*") if path.is_file() and not path.is_symlink()]


def record_files(record: Path) -> None:
    """Write a package's list of files anew: those that exist, with the digests that they have."""
    folder, rows = record.parent.parent, []
    for name, digest, _ in csv.reader(record.read_text(encoding="utf-8").splitlines()):
        path = folder / name
        if path.exists():
            content = path.read_bytes()
            found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            rows.append((name, f"sha256={found.decode()}", len(content)) if digest else (name,))
    with record.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows((*row, "", "")[:3] for row in rows)


def main(folder: Path) -> None:
    """Slim the environment whose site-packages are in a folder."""
    remove(unused_paths(folder, ("__pycache__", *TESTS, *SOURCES, *FLIGHT)))
    remove(unused_paths(folder / "apache_beam", BEAM_TESTS))
    for path in shared_libraries(folder):
        content = path.read_bytes()
        if len(slim := without_symbols(content)) < len(content):
            path.write_bytes(slim)
    for record in sorted(folder.glob("*.dist-info/RECORD")):
        record_files(record)
    # In one process and in order: the bytes of a module depend on those compiled before it.
    mode = PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(folder, maxlevels=99, quiet=2, force=True, invalidation_mode=mode)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
