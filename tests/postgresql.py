"""A PostgreSQL server of one's own, from Debian's packages, that lives as long as it is needed.

It listens on one port of this machine alone, lets anyone connect, and keeps its data in a
temporary folder. It refuses to run as root, so root starts it as another user.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port

SERVERS = Path("/usr/lib/postgresql")
MISSING = "no PostgreSQL server is installed: apt-get install postgresql"
_USERS = ("postgres", "nobody")
_START_SECONDS = 180


def programs() -> Path | None:
    """The folder of the newest server's programs; None where there is none."""
    found = [path for path in SERVERS.glob("*/bin") if (path / "initdb").exists()]
    newest = max(found, key=lambda path: float(path.parent.name), default=None)
    initdb = shutil.which("initdb")
    return Path(initdb).parent if newest is None and initdb else newest


def started() -> Iterator[Server]:
    """A server for a fixture: where one is missing, its tests skip, or fail where
    DPTREES_REQUIRE_POSTGRESQL is set."""
    missing = None if programs() else MISSING
    if importlib.util.find_spec("psycopg") is None:
        missing = "dptrees[postgresql] is not installed"
    if missing is not None and os.environ.get("DPTREES_REQUIRE_POSTGRESQL"):
        pytest.fail(missing)
    if missing is not None:
        pytest.skip(missing)
    with server(durable=False) as found:
        yield found


class Server:
    """A server that runs.

    Args:
        port: of this machine.
    """

    def __init__(self, port: int) -> None:
        self.port, self._made = port, 0

    def url(self, database: str, *, user: str = "tester") -> str:
        """The URL of a database."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Makes a database; returns its URL."""
        self._made += 1
        name = f"budgets_{os.getpid()}_{self._made}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str, *, database: str = "") -> None:
        """Runs a statement outside of any transaction, in the database of a URL."""
        import psycopg

        with psycopg.connect(database or self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def server(*, durable: bool = True) -> Iterator[Server]:
    """A new server, stopped and cleared away in the end.

    Args:
        durable: write to the disk what is committed; tests need not wait for it.
    """
    folder = Path(tempfile.mkdtemp(prefix="dptrees-postgresql-"))
    binaries = programs()
    assert binaries is not None, MISSING
    user = _user()
    if user is not None:
        shutil.chown(folder, user)
    port = free_port()
    try:
        _run(
            binaries / "initdb",
            "-A",
            "trust",
            "-U",
            "tester",
            "-N",
            "-D",
            folder / "data",
            user=user,
        )
        process = subprocess.Popen(
            [
                *(binaries / "postgres", "-D", folder / "data", "-k", folder, "-p", str(port)),
                *("-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"),
                *("-c", f"fsync={'on' if durable else 'off'}"),
            ],
            user=user,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield _ready(Server(port), process)
        finally:
            process.send_signal(signal.SIGQUIT)  # at once: nothing of it is kept
            process.wait(_START_SECONDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> str | None:
    """Who may start a server: the user who runs this, but for root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _USERS if name in known)


def _run(*command: object, user: str | None) -> None:
    subprocess.run(
        [str(part) for part in command], user=user, cwd="/", check=True, capture_output=True
    )


def _ready(made: Server, process: subprocess.Popen[bytes]) -> Server:
    """The server once it answers."""
    import psycopg

    limit = time.monotonic() + _START_SECONDS
    while True:
        try:
            made.execute("SELECT 1")
            return made
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > limit:
                raise
            time.sleep(0.05)
