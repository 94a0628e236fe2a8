"""Versions of a table: numbers, names and timestamps."""

from datetime import datetime, timezone

from transforms.errors import InputError


def version_number(version: str) -> int | None:
    """The number that a version is; None where it is none.

    >>> version_number("12"), version_number("2026-11-01T00:00Z")
    (12, None)
    """
    return int(version) if version.isascii() and version.isdigit() else None


def version_timestamp(version: str) -> datetime | None:
    """The moment that a version is; None where it is none.

    Raises:
        InputError: it has no zone, or is yet to come, when other rows may belong to it.

    >>> version_timestamp("2026-11-01T00:00:00Z")
    datetime.datetime(2026, 11, 1, 0, 0, tzinfo=datetime.timezone.utc)
    """
    try:
        moment = datetime.fromisoformat(version.replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        raise InputError(f"input.version: {version} has no zone; write 2026-11-01T00:00:00Z")
    if moment > datetime.now(timezone.utc):
        raise InputError(
            f"input.version: {version} is yet to come, so that its rows may still change"
        )
    return moment
