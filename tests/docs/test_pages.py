"""Pages that a reader can follow do what they say."""

from __future__ import annotations

import hashlib
import itertools
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from dptrees.dpcore.noise import randomness
from tests.docs.blocks import shape
from tests.docs.demo import require_flights
from tests.docs.pages import (
    DOCS,
    RUN,
    PageFailed,
    folder_of_a_reader,
    needs_flights,
    required_modules,
    rewritten,
    run_blocks,
)


@pytest.fixture
def the_same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and nonces that are the same in every run: two counts that are nearly equal, or an
    interval that ends between two values, would change their places by chance."""
    numbers = itertools.count()

    def drawn(size: int) -> bytes:
        return hashlib.shake_256(b"pages %d" % next(numbers)).digest(size)

    monkeypatch.setattr(randomness, "secrets", SimpleNamespace(token_bytes=drawn))


@pytest.mark.usefixtures("the_same_noise")
@pytest.mark.parametrize("name", RUN)
def test_page_runs(name: str) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    for module in required_modules(page):
        pytest.importorskip(module)
    if needs_flights(page):
        require_flights()
    with folder_of_a_reader(page):
        for shown in run_blocks(page):
            # Compared once more for its message.
            assert shown.is_right or shape(shown.printed) == shape(shown.block.text)


@pytest.mark.parametrize("name", ["start.md", "cookbook/categories.md"])
@pytest.mark.usefixtures("the_same_noise")
def test_a_page_shows_one_release(name: str) -> None:
    """A number that two commands print is one number on the page too."""
    page = (DOCS / name).read_text(encoding="utf-8")
    before: dict[str, set[str]] = {}
    with folder_of_a_reader(page):
        for each in run_blocks(page):
            texts = (each.printed, each.block.text)
            printed, shown = (re.findall(r"\d[\d,.]{3,}\d", text) for text in texts)
            if len(printed) != len(shown):
                continue
            here: dict[str, set[str]] = {}
            for number, own in zip(printed, shown, strict=True):
                here.setdefault(number, set()).add(own)
            torn = {number for number, own in here.items() if not own & before.get(number, own)}
            assert not torn, f"{torn} are other numbers above {each.block.text}"
            before |= here


PAGE = """\
```python title="hello.py"
print("two rows:", 2)
```
```sh
python hello.py
```
```text
{shown}
```
"""


def test_a_part_is_left_out_where_its_file_is_not_there() -> None:
    page = "<!-- if: {} -->\n```python\nprint(1)\n```\n```text\n1\n```\n<!-- end -->\n"
    assert len(list(run_blocks(page.format("pipelines/cli/command.py")))) == 1
    assert list(run_blocks(page.format("pipelines/absent.py"))) == []


def test_another_number_is_no_difference_and_another_word_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (same,) = run_blocks(PAGE.format(shown="two rows: 3"))
    (other,) = run_blocks(page := PAGE.format(shown="two lines: 2"))
    assert same.is_right and not other.is_right
    assert rewritten(page, [other]) == PAGE.format(shown="two rows: 2")


@pytest.mark.parametrize(
    "line", ["rm -r out", "dptrees plan absent.yaml", "dptrees --version # exit 2"]
)
def test_what_cannot_be_run_or_ends_otherwise_fails(line: str) -> None:
    with pytest.raises(PageFailed):
        list(run_blocks(f"```sh\n{line}\n```\n"))
