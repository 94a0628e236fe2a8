"""The ADBC drivers with rules of their own; any other driver is used by its name or library.

A new driver with rules is an entry in `DRIVERS`.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from urllib.parse import quote

from dptrees.transforms.errors import InputError
from dptrees.transforms.secrets.private_file import read_private_file
from dptrees.transforms.tables.spool import RowStream
from dptrees.transforms.tables.sql_columns import postgresql_query, sqlite_query

CONNECTION = "input.connection"

_FILES = "file:"
_HIGH_PRECISION = "adbc.snowflake.sql.client_option.use_high_precision"


@dataclass(frozen=True, kw_only=True)
class Driver:
    """How an ADBC driver is found, and how a connection reads without changing anything.

    Args:
        module: the Python package that contains the library.
        locate: the function of the package that returns the path of the library.
        extra: of dptrees, which installs the package; None: none does.
        entrypoint: the function of the library that starts the driver; None: the usual one.
        option: the option of the database that a text of one line is the value of.
        is_file: the database is a file of this machine.
        read: makes options that only read from the options of a user.
        is_transaction: all statements of a connection are one transaction.
        rows: executes a query by rules of the database; None: as every driver does.
    """

    module: str
    locate: str = "_driver_path"
    extra: str | None = None
    entrypoint: str | None = None
    option: str = "uri"
    is_file: bool = False
    read: Callable[[dict[str, str]], dict[str, str]] = field(default=lambda options: options)
    is_transaction: bool = False
    rows: Callable[..., AbstractContextManager[RowStream]] | None = None


def _sqlite_options(options: dict[str, str]) -> dict[str, str]:
    """A database that is opened to read only: SQLite would make a missing one."""
    path = options.get("uri", "")
    if path and not path.startswith(_FILES):
        options["uri"] = f"{_FILES}{quote(os.path.abspath(path))}?mode=ro"
    return options


def _duckdb_options(options: dict[str, str]) -> dict[str, str]:
    if os.path.exists(options.get("path", "")):
        options.setdefault("access_mode", "read_only")
    return options


def _snowflake_options(options: dict[str, str]) -> dict[str, str]:
    """NUMBER as exact decimals: as doubles, two units could become one."""
    return options | {_HIGH_PRECISION: "true"}


DRIVERS: Mapping[str, Driver] = {
    "postgresql": Driver(
        module="adbc_driver_postgresql", extra="sql", is_transaction=True, rows=postgresql_query
    ),
    "sqlite": Driver(
        module="adbc_driver_sqlite",
        extra="adbc",
        is_file=True,
        read=_sqlite_options,
        is_transaction=True,
        rows=sqlite_query,
    ),
    "duckdb": Driver(
        module="adbc_driver_duckdb",
        extra="duckdb",
        locate="driver_path",
        entrypoint="duckdb_adbc_init",
        option="path",
        is_file=True,
        read=_duckdb_options,
        is_transaction=True,
    ),
    "snowflake": Driver(module="adbc_driver_snowflake", extra="snowflake", read=_snowflake_options),
}


def known_driver(name: str) -> Driver:
    """The driver of a name or library, with its own rules or the usual ones.

    >>> known_driver("duckdb").option, known_driver("bigquery").module
    ('path', 'adbc_driver_bigquery')
    >>> known_driver("/usr/lib/libadbc_driver_postgresql.so.113").extra
    'sql'
    """
    name = re.sub(r".*/libadbc_driver_(\w+)\..*", r"\1", name)
    return DRIVERS.get(name) or Driver(module=f"adbc_driver_{name}")


def connection_text(reference: str) -> str:
    """The text at the place of a connection: a secret, which travels as the name of its place.

    Args:
        reference: ``env:NAME``, or ``file:PATH`` of a file that no one else can read.

    Raises:
        InputError: there is none; the message names the place alone.
        SecretError: the file is missing, another user's, readable by others or no text.

    >>> os.environ["VISITS_URL"] = "postgresql://reader@db/visits"
    >>> connection_text("env:VISITS_URL")
    'postgresql://reader@db/visits'
    """
    scheme, _, place = reference.partition(":")
    if scheme == "env":
        text = os.environ.get(place, "").strip()
    else:
        kind = "connection of a database"
        text = read_private_file(place, CONNECTION, kind, made_by=None).strip()
    if not text:
        raise InputError(f"{CONNECTION}: {reference} is not set, or empty, where rows are read")
    return text


def library(name: str) -> str:
    """The library of a driver: of its Python package, its path, or its name for the driver manager.

    Raises:
        ImportError: a driver with rules of its own is not installed.
    """
    driver = known_driver(name)
    if os.sep not in name and (driver.extra or find_spec(driver.module) is not None):
        return str(getattr(import_module(driver.module), driver.locate)())
    return name  # a path, or of a manifest, as the driver manager finds it


def database_options(name: str, reference: str, text: str) -> dict[str, str]:
    """The options of a database, from the text at the place of a connection.

    Args:
        name: of the driver.
        reference: the place, for messages.
        text: one line, or a JSON object of options.

    Raises:
        InputError: the text is neither, or its database file does not exist. No message shows it.

    >>> database_options("flightsql", "env:URL", '{"uri": "grpc://db:443", "username": "me"}')
    {'uri': 'grpc://db:443', 'username': 'me'}
    """
    driver = known_driver(name)
    options = {driver.option: text}
    if text.startswith("{"):
        options = _json_options(reference, text)
    elif "\n" in text:
        raise InputError(
            f"{CONNECTION}: {reference} holds several lines: give one line, or a JSON object of "
            "options"
        )
    if driver.is_file and _is_absent(options.get(driver.option, "")):
        raise InputError(f"{CONNECTION}: the database file that {reference} names does not exist")
    return driver.read(options)


def _is_absent(path: str) -> bool:
    """Whether a path is that of no file; `:memory:`, `file:...` and `md:...` are no paths."""
    return bool(path) and ":" not in path and not os.path.exists(path)


def _json_options(reference: str, text: str) -> dict[str, str]:
    wrong = InputError(f"{CONNECTION}: {reference} holds no JSON object whose values are strings")
    try:
        options = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(options, dict) or not all(isinstance(each, str) for each in options.values()):
        raise wrong
    return options
