"""What must be there before the files of an input are read."""

import re
from dataclasses import dataclass

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_DURATION = re.compile(r"([1-9]\d{0,8})([smhd])")


def duration_seconds(text: str) -> int:
    """The seconds of a duration.

    Args:
        text: a whole number with the unit s, m, h or d.

    Raises:
        ValueError: it is none, or 0.

    >>> duration_seconds("26h")
    93600
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} must be a duration such as 90m, 26h or 2d")
    return int(match[1]) * dict(_UNITS)[match[2]]


def duration_text(seconds: int) -> str:
    """A duration in its largest whole unit, as a configuration writes it.

    Args:
        seconds: at least 1.

    >>> duration_text(93_600), duration_text(172_800), duration_text(90)
    ('26h', '2d', '90s')
    """
    unit, size = next(each for each in _UNITS if seconds % each[1] == 0)
    return f"{seconds // size}{unit}"


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """What must be there before the files of an input are read.

    Args:
        require: name of a file that marks a complete folder, such as ``_SUCCESS``; "": none.
        min_files: the least number of files of rows.
        max_age: seconds since the last change of the newest file, at most; 0: no limit.
    """

    require: str = ""
    min_files: int = 0
    max_age: int = 0

    def __post_init__(self) -> None:
        if "/" in self.require:
            raise ValueError(f"require: {self.require!r} must be the name of a file, without a /")
        if self.min_files < 0:
            raise ValueError(f"min_files: {self.min_files} must be at least 0")
        if self.max_age < 0:
            raise ValueError(f"max_age: {self.max_age} must be at least 0 seconds")

    @property
    def is_awaited(self) -> bool:
        """Whether the files may be yet to come."""
        return bool(self.require or self.min_files or self.max_age)


AT_ONCE = Arrival()
