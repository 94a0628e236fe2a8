"""The runs of a series that are due: every period up to a day that is not released yet, in order.

What a schedule calls: a day on which it did not run is made up for by its next run, since a period
is refused before its turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone

from dptrees.pipelines.configuration import load_configuration
from dptrees.pipelines.release_folder import holds_release
from dptrees.pipelines.sections.yaml_document import read_document
from dptrees.pipelines.user_error import UserError
from dptrees.transforms.folder.layout import period_folder, run_folder

YESTERDAY = "yesterday"
_PARAMETER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_-]*)\}")


def parse_day(text: str) -> date:
    """The last day that is wanted.

    Args:
        text: a date, or ``yesterday``, in the time of UTC.

    Raises:
        ValueError: it is neither.

    >>> parse_day("2013-01-05")
    datetime.date(2013, 1, 5)
    """
    if text == YESTERDAY:
        return datetime.now(timezone.utc).date() - timedelta(days=1)
    return date.fromisoformat(text)


@dataclass(frozen=True, kw_only=True)
class Due:
    """What is due of a series whose periods are days.

    Args:
        path: of the configuration.
        given: its other parameters, by name.
        through: the last day that is wanted.
    """

    path: str
    given: Mapping[str, str]
    through: date

    def __iter__(self) -> Iterator[dict[str, str]]:
        """The parameters of each run. First comes the last existing one, which may have been
        killed before its end; a day beyond the series is left to be refused as ever.

        Raises:
            UserError: the configuration is no series by days, or begins later.
            ConfigurationError: it is wrong.
        """
        name = self._parameter()
        if name in self.given:
            raise UserError(f"--through: goes through every {name}, so --set {name} cannot be")
        start, folder, periods = self._series(name)
        if self.through < start:
            raise UserError(f"--through: {self.through} is before {start}, where the series begins")
        last = min((self.through - start).days + 1, periods + 1)
        # From the last one back: what is older may have been cleared away.
        finished_runs = (n for n in range(last, 0, -1) if holds_release(run_folder(folder, n)))
        first = next(finished_runs, 1)
        for period in range(first, last + 1):
            yield {**self.given, name: str(start + timedelta(days=period - 1))}

    def _parameter(self) -> str:
        """The parameter that is the date of a run.

        Raises:
            UserError: there is none.
        """
        document = read_document(self.path)
        section = document.get("series") if isinstance(document, dict) else None
        period = section.get("period") if isinstance(section, dict) else None
        match = _PARAMETER.fullmatch(period) if isinstance(period, str) else None
        if match is None or "start" not in (section or {}):
            raise UserError(
                f"--through: {self.path} needs a series with a start, whose period is a parameter, "
                "such as period: ${date}"
            )
        return match[1]

    def _series(self, name: str) -> tuple[date, str, int]:
        """Its first day, its folder and how many periods it has."""
        document = read_document(self.path)
        assert isinstance(document, dict)
        start = str(document["series"]["start"])
        configuration = load_configuration(self.path, {**self.given, name: start})
        assert configuration.series is not None
        folder = configuration.output.removesuffix(f"/{period_folder(1)}")
        return date.fromisoformat(start), folder, configuration.series.periods
