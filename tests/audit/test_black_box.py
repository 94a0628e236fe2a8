"""A short form of the black box: every configuration is made, and half of the noise is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.audit import black_box


@pytest.mark.parametrize("name", list(black_box.KINDS))
def test_a_correct_release_keeps_its_claim(name: str) -> None:
    assert black_box.bound(name, None, 20) <= 1


@pytest.mark.parametrize("name", ["means", "categories"])
def test_half_of_the_noise_is_found(name: str) -> None:
    assert black_box.bound(name, black_box.half, 2500) > 1


def test_the_section_replaces_an_earlier_one(tmp_path: Path) -> None:
    page = tmp_path / "audit.md"
    page.write_text("# A\n\n## Limits of these audits\n\nNone.\n")
    entry = {"claim": "epsilon 1", "releases": 10, "correct": 0.9, "half": 1.5}
    for _ in range(2):
        black_box.write(page, black_box.page({"means": entry}))
    text = page.read_text()
    assert text.count("## 3. A black box") == 1 and text.endswith("None.\n")
    assert "| means | epsilon 1 | 10 | 0.9000 | 1.500 | found |" in text
    assert "Not run: ordered, epsilon" in text
