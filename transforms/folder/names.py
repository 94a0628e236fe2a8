"""The names of the files in a release's folder, but of its parts (`transforms.folder.layout`).

    manifest.json       what the release is; it exists once this does
    manifest.sig        its signature, by the launcher, where it is signed
    record.json         the record of its draw
    nonce.json          the nonce of the folder
    plan.json           the plan of the folder
    nodes/*, cdf/*      its parts
    sketch/*            parts of trees that are sketches
    quantiles.parquet   a table of whole trees
    universe-*.parquet  the leaves of a hierarchy
    keys-*.parquet      the keys of a group-by that come from a table
    state/*             parts too: the sealed state for later runs of a series

The runs of a series are side by side in its folder: period-0001 and so on.
"""

import re

MANIFEST, RECORD, NONCE = "manifest.json", "record.json", "nonce.json"
PLAN = "plan.json"
SIGNATURE = "manifest.sig"


def concluded_file(name: str) -> str:
    """The path of a table of whole trees within a release.

    >>> concluded_file("quantiles")
    'quantiles.parquet'
    """
    return f"{name}.parquet"


def period_folder(period: int) -> str:
    """The folder of a run, within that of its series.

    >>> period_folder(3)
    'period-0003'
    """
    return f"period-{period:04d}"


def run_folder(series: str, period: int) -> str:
    """The folder of a run of a series.

    Args:
        series: the folder of the series, on any filesystem.
        period: of the run.

    >>> run_folder("out/daily", 3)
    'out/daily/period-0003'
    """
    return f"{series.rstrip('/')}/{period_folder(period)}"


# Within the folder of a run of a series, beside what its manifest names.
TO_DATE = "to-date"
SHARED_NAMES = re.compile(r"(universe|keys)-[0-9a-f]{16}\.parquet")


def universe_name(digest: str) -> str:
    """The file of a universe, within the release."""
    return f"universe-{digest[:16]}.parquet"


def keys_name(digest: str) -> str:
    """The file of a table of keys, within the release."""
    return f"keys-{digest[:16]}.parquet"


# The list of the input's files, `transforms.folder.listing`: it exists while a job runs.
INPUT_LIST_NAMES = re.compile(r"\.input-[0-9a-f]{32}-\d{6}\.list")


def input_list_name(token: str, shard: int) -> str:
    """The file of a shard of a list of input files, while a job runs.

    >>> bool(INPUT_LIST_NAMES.fullmatch(input_list_name(32 * "0", 7)))
    True
    """
    return f".input-{token}-{shard:06d}.list"
