"""What must be there before the files of an input are read."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """What must be there before the files of an input are read.

    Args:
        require: name of a file that marks a complete folder, such as ``_SUCCESS``; "": none.
        min_files: the least number of files of rows.
    """

    require: str = ""
    min_files: int = 0

    def __post_init__(self) -> None:
        if "/" in self.require:
            raise ValueError(f"require: {self.require!r} must be the name of a file, without a /")
        if self.min_files < 0:
            raise ValueError(f"min_files: {self.min_files} must be at least 0")

    @property
    def is_awaited(self) -> bool:
        """Whether the files may be yet to come."""
        return bool(self.require or self.min_files)


AT_ONCE = Arrival()
