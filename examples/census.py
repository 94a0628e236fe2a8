"""The people of census blocks as rows of Parquet, and the blocks as a public universe.

Run as ``python examples/census.py BLOCKS.csv FOLDER``, where BLOCKS.csv has a line for each block:
its 15-digit code in the column GEOID and the number of people in it by race in the columns
pop_white, pop_black, pop_hisp, pop_aian, pop_asian, pop_nhpi, pop_other and pop_two, such as the
25,181 blocks of Rhode Island in 2010 (U.S. Census Bureau, redistricting data, as the ALARM project
publishes it). It writes FOLDER/people.parquet, a row a person with the columns block and race, and
FOLDER/blocks.parquet with the codes. The configuration examples/census.yaml reads both.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

RACES = ("white", "black", "hisp", "aian", "asian", "nhpi", "other", "two")


def people_of(blocks: pa.Table) -> pa.Table:
    """A row for each person: the block and the race.

    >>> blocks = pa.table({"GEOID": ["440010301001000"]} | {f"pop_{race}": [0] for race in RACES})
    >>> people_of(blocks.set_column(1, "pop_white", pa.array([2]))).to_pylist()[0]
    {'block': '440010301001000', 'race': 'white'}
    """
    parts = []
    codes = blocks["GEOID"].combine_chunks()
    for number, race in enumerate(RACES):
        people = blocks[f"pop_{race}"].to_numpy()
        places = np.repeat(np.arange(len(codes)), people)
        races = pa.DictionaryArray.from_arrays(
            pa.array(np.full(len(places), number, np.int32)), pa.array(RACES)
        )
        parts.append(pa.table({"block": codes.take(pa.array(places)), "race": races}))
    return pa.concat_tables(parts)


def write_census(source: Path, folder: Path) -> None:
    """Write the people and the blocks of a file of blocks."""
    texts = pyarrow.csv.ConvertOptions(column_types={"GEOID": pa.string()})
    blocks = pyarrow.csv.read_csv(source, convert_options=texts)
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(people_of(blocks), folder / "people.parquet")
    universe = blocks.select(["GEOID"]).rename_columns(["block"])
    pyarrow.parquet.write_table(universe, folder / "blocks.parquet")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("blocks", type=Path, metavar="BLOCKS.csv")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    chosen = parser.parse_args()
    write_census(chosen.blocks, chosen.folder)
