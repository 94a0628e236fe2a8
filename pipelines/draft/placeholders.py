"""What a first configuration leaves to be filled in, and is refused with until then."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dptrees.pipelines.sections.error import ConfigurationError, key_path

_PLACEHOLDER = re.compile(r"<fill in ([^<>]+)>")


def placeholder(what: str) -> str:
    """The mark for a value that only a person can choose.

    >>> placeholder("the least value")
    '<fill in the least value>'
    """
    return f"<fill in {what}>"


def check_filled(values: object, source: str) -> None:
    """Refuses a configuration in which something is left to be filled in.

    Args:
        values: of the file.
        source: the path of the file.

    Raises:
        ConfigurationError: naming the first key, and how many more there are.

    >>> check_filled({"trees": [{"lower": placeholder("the least value")}]}, "ages.yaml")
    Traceback (most recent call last):
    dptrees.pipelines.sections.error.ConfigurationError: ages.yaml: trees[0].lower: must be filled \
in: the least value
    """
    left = list(_left(values, ()))
    if left:
        place, what = left[0]
        more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
        raise ConfigurationError(f"{source}: {key_path(place)}: must be filled in: {what}{more}")


def _left(
    values: object, place: tuple[int | str, ...]
) -> Iterator[tuple[tuple[int | str, ...], str]]:
    if isinstance(values, dict):
        for key, value in values.items():
            yield from _left(value, (*place, key))
    elif isinstance(values, list):
        for index, value in enumerate(values):
            yield from _left(value, (*place, index))
    elif isinstance(values, str) and (match := _PLACEHOLDER.fullmatch(values)):
        yield place, match[1]
