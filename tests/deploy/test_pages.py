"""What pages of docs/ show of files of deploy/ and examples/ is what stands there."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def test_beam_yaml_shows_its_example() -> None:
    page = (PROJECT / "docs" / "beam-yaml.md").read_text()
    shown = re.search(r"<!-- file: (\S+) -->\n```yaml\n(.*?)```", page, re.DOTALL)
    assert shown is not None
    assert (PROJECT / shown[1]).read_text().endswith(shown[2])


def test_schedules_shows_the_variables_and_their_defaults() -> None:
    page = (PROJECT / "docs" / "deploy" / "schedules.md").read_text()
    schedule = (PROJECT / "deploy" / "airflow" / "dptrees_daily.py").read_text()
    defaults = dict(re.findall(r"var\.value\.get\('(\w+)', '(.*?)'\)", schedule))
    shown = dict(re.findall(r"^\| `(dptrees_\w+)` \| .* \| `?([^`|]*?)`? \|$", page, re.MULTILINE))
    assert shown.keys() == defaults.keys() and len(defaults) == 5
    for name, default in defaults.items():
        assert shown[name] == default or (default == "" and shown[name].startswith("none"))
