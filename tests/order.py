"""The order of the packages by their imports: a package imports only from packages below it.

    python -m tests.order --write docs/architecture.md

writes the generated part of that page; a test checks that it is up to date.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.size import PACKAGES, Sources, circles, edges, parsed, present_sources, unit

PROJECT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- drawn: begin -->\n", "<!-- drawn: end -->\n"


def floors(below: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the floor of each package: one above the highest that it imports.

    Raises:
        ValueError: if packages import each other.

    >>> floors({"a": {"b"}, "b": set(), "c": {"a", "b"}})
    {'b': 0, 'a': 1, 'c': 2}
    """
    found: dict[str, int] = {}
    while left := [name for name in below if name not in found]:
        ready = [name for name in left if below[name] <= found.keys()]
        if not ready:
            raise ValueError(f"these packages import each other: {circles(below)}")
        for name in ready:
            found[name] = 1 + max((found[each] for each in below[name]), default=-1)
    return found


def purpose(text: str) -> str:
    """Return the first line of a module's docstring, without its full stop."""
    return (ast.get_docstring(parsed(text)[0]) or "").partition("\n")[0].rstrip(".")


def drawing(sources: Sources) -> str:
    """Return the part of docs/architecture.md that follows from the modules."""
    below = edges(sources)
    floor = floors(below)
    files = defaultdict(list)
    for path in sources:
        if not path.endswith("__init__.py"):
            files[unit(path)].append(path)
    lines = []
    for package in reversed(PACKAGES):
        lines += [f"### {package}", ""]
        units = [each for each in files if each.startswith(f"{package}.")]
        for name in sorted(units, key=lambda each: (-floor[each], each)):
            inner = sorted(each.partition(".")[2] for each in below[name] if each in units)
            uses = f"; imports {', '.join(f'`{each}`' for each in inner)}" if inner else ""
            start = f"{name.replace('.', '/')}/__init__.py"
            if start in sources:
                lines += [f"**{name}**: {purpose(sources[start])}{uses}.", ""]
                lines += [f"- `{path}`: {purpose(sources[path])}" for path in files[name]]
            else:
                (path,) = files[name]
                lines += [f"**{path}**: {purpose(sources[path])}{uses}."]
            lines.append("")
    return "\n".join(lines)


def redrawn(page: str, sources: Sources) -> str:
    """Return a page with a new drawing between its marks."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + drawing(sources) + END + rest.split(END)[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw the packages from their imports.")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="into a page, between its marks")
    chosen = parser.parse_args()
    present = present_sources(PROJECT)
    if chosen.write is None:
        print(drawing(present), end="")
    else:
        chosen.write.write_text(redrawn(chosen.write.read_text(), present))
