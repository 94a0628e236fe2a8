"""Files, answers and sentences of dptrees are the committed ones: the referee of a refactoring.

    make golden                       compare all areas, in four minutes on two cores
    make golden UPDATE=1              renew them; read the diff of tests/golden/expected
    pytest tests/golden/test_texts.py -k series
    GOLDEN_TEXTS=FOLDER make golden   also write each text as a whole, to compare two commits

Each area is a file of `expected`: by case and by command, a text of up to LINES lines, or the
number of lines and a hash of a longer one. A release is a hash for each file: of names, types,
values and row groups of a table, so that no version of pyarrow matters, and of the words of other
files. `shell.normal` removes what may differ between two runs: times, folders, sizes, digests of
files and the version. All rows follow from formulas, and keys and nonces are fixed.

| area | covers |
|---|---|
| releases | plans, files and answers of the configurations of `configurations.py` |
| answers | every query of every kind of tree, as text, JSON and CSV; pages, samples, `verify` |
| plans | `plan` with its options, drafts, schema, keys |
| ledger | accounts, refusals and the history of a ledger |
| units | bounded units, private keys, chosen bounds of units and values |
| series | three periods of every kind: trees, sums, boxes, units, lateness, schedules |
| proofs | signatures, replays, repairs, edited releases, runs that fail |
| old | queries and pages of releases in earlier formats |
| python | requests, configurations, answers, plots, sessions |
| beam | the transform, Beam YAML, Beam's runner, Spark by a stand-in |
| inputs | Parquet, Arrow, JSON, CSV of many dialects, folders, Delta, Iceberg, SQLite; `check` |
| failures | bad configurations, each with its sentence |

A new case is a heading with its commands in a file of `scripts`, or a function with the decorator
`script`. Only `main` of the command and names of `import dptrees` are imported, so that modules and
classes may move.
"""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.golden.failure_scripts
import tests.golden.input_scripts
import tests.golden.proof_scripts
import tests.golden.python_scripts  # noqa: F401
from tests.golden.configurations import NAMES, write_data
from tests.golden.hashes import asked
from tests.golden.rows import write_place
from tests.golden.script import SCRIPTS
from tests.golden.shell import Shell, hashed

EXPECTED = Path(__file__).with_name("expected")
LINES, CHARACTERS, SHOWN = 40, 4000, 120
RENEW = os.environ.get("GOLDEN_UPDATE") == "1"
CASES = [(area, case) for area, scripts in SCRIPTS.items() for case in scripts]
CASES += [("releases", name) for name in NAMES]

Texts = dict[str, list[str]]


@pytest.fixture(scope="session")
def large_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows of the releases."""
    folder = tmp_path_factory.mktemp("golden")
    write_data(folder)
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory, in which every random byte is fixed."""
    drawn = iter(range(10**9))

    def token_bytes(size: int) -> bytes:
        return hashlib.sha512(f"{next(drawn)}".encode()).digest()[:size]

    monkeypatch.setattr(secrets, "token_bytes", token_bytes)
    for name, value in {"COLUMNS": "100", "MPLBACKEND": "Agg", "TZ": "UTC"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def stored(text: str) -> list[str]:
    """Return the lines of a short text, the hash of a long one."""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    if len(lines) > LINES or sum(map(len, lines)) > CHARACTERS:
        return [f"{len(lines)} lines, sha256 {hashed(chr(10).join(lines).encode())}"]
    return lines


def read(area: str) -> dict[str, Texts]:
    """Read the committed output of an area."""
    path = EXPECTED / f"{area}.json"
    found: dict[str, Texts] = json.loads((path.exists() and path.read_text()) or "{}")
    return found


def write(area: str, case: str, texts: Texts) -> None:
    """Renew the output of a case; two processes may do so at once."""
    with (EXPECTED / f"{area}.json").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = {name for found, name in CASES if found == area}
        every = {name: each for name, each in read(area).items() if name in known}
        every[case] = texts
        text = json.dumps(dict(sorted(every.items())), indent=1, ensure_ascii=False)
        file.truncate(0)
        file.write(text + "\n")


def compare(area: str, case: str, texts: dict[str, str]) -> str:
    """Return a readable difference from the committed output, or renew it."""
    if folder := os.environ.get("GOLDEN_TEXTS"):
        path = Path(folder, area, f"{case}.txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"$ {name}\n{text}\n\n" for name, text in texts.items()))
    found = {name: stored(text) for name, text in texts.items()}
    if RENEW:
        write(area, case, found)
        return ""
    committed = read(area).get(case, {})
    return "\n".join([*differences(committed, found)][:SHOWN])


def differences(old: Texts, new: Texts) -> Iterator[str]:
    """Yield the lines that differ, each below the command that printed it."""
    for name in [*new, *(name for name in old if name not in new)]:
        if (before := old.get(name)) != (now := new.get(name)):
            yield f"$ {name}"
            if before is None or now is None:
                yield "  is new" if before is None else "  is gone"
            yield from [
                *difflib.unified_diff(before or [], now or [], "", "", "", n=1, lineterm="")
            ][2:]
    if list(old) != list(new) and old.keys() == new.keys():
        yield "the same texts in another order"


@pytest.mark.parametrize(("area", "case"), CASES, ids=map("-".join, CASES))
def test_texts(area: str, case: str, place: Path, request: pytest.FixtureRequest) -> None:
    shell = Shell()
    if area == "releases":
        for file in request.getfixturevalue("large_rows").iterdir():
            (place / file.name).hardlink_to(file)
        asked(shell, case)
    else:
        write_place(place)
        SCRIPTS[area][case](shell)
    if difference := compare(area, case, shell.texts):
        pytest.fail(
            f"{area}, {case}: not as committed (make golden UPDATE=1)\n{difference}", pytrace=False
        )


@pytest.mark.skipif(RENEW, reason="the cases are written one after the other")
def test_every_text_has_a_case() -> None:
    committed = {(path.stem, case) for path in EXPECTED.glob("*.json") for case in read(path.stem)}
    assert committed == set(CASES)


def test_a_changed_line_is_shown() -> None:
    old, new = {"a": ["1", "2"], "b": ["3"]}, {"a": ["1", "4"], "c": ["3"]}
    assert [*differences(old, new)] == [
        *("$ a", "@@ -1,2 +1,2 @@", " 1", "-2", "+4"),
        *("$ c", "  is new", "@@ -0,0 +1 @@", "+3", "$ b", "  is gone", "@@ -1 +0,0 @@", "-3"),
    ]
    assert not [*differences(old, old)]
