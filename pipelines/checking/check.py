"""What was seen of the rows of a configuration, before it is reported."""

from __future__ import annotations

from dataclasses import dataclass, field

from dptrees.pipelines.checking.tally import Tally
from dptrees.pipelines.configuration import Configuration
from dptrees.transforms.readers.csv_rows import Malformed


@dataclass(kw_only=True)
class ColumnLayout:
    """Files with the same columns.

    Attributes:
        columns: their names and types, as words.
        files: how many.
        first: the path of one.
        hidden: whether other names are left out, since they may be a row.
    """

    columns: dict[str, str]
    files: int = 0
    first: str = ""
    hidden: bool = False


@dataclass(kw_only=True)
class InputCheck:
    """What was seen of the rows of a configuration.

    Attributes:
        configuration: of the release.
        tally: of the rows.
        layouts: of the files.
        whole: whether all rows were read.
        malformed: how many rows were malformed; None where that is not known.
        malformed_csv: the same of CSV files, by what is wrong with them.
    """

    configuration: Configuration
    tally: Tally
    layouts: list[ColumnLayout] = field(default_factory=list)
    whole: bool = True
    malformed: int | None = 0
    malformed_csv: Malformed = field(default_factory=Malformed)

    @property
    def names(self) -> list[str]:
        """Names of the columns that files have."""
        return list(dict.fromkeys(name for each in self.layouts for name in each.columns))
