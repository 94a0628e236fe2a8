"""The architecture of dpcore by its imports: packages, their floors, imports between them.

    python -m tests.rooms --write docs/architecture.md

writes the generated part of that page; a test checks that it is up to date.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath

PROJECT = Path(__file__).resolve().parents[1]
UPPER = ("transforms", "pipelines")

# From below: a package imports from lower floors only. The modules of dpcore itself are below all.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("arithmetic",),
    ("noise", "rows"),
    ("trees", "errors", "privacy", "sketches"),
    ("uniform", "irregular", "thresholds", "questions", "partitions"),
    ("papers", "repair", "sparse", "bounding", "selection"),
    ("levels", "distinct"),
    ("ordered", "hierarchy", "adaptive", "factorised"),
    ("hypercube", "exponential", "mean"),
    ("marginals", "chooser", "unit_bounds", "value_bounds", "series"),
    ("table",),
    ("release",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# Lines of a package, so that a person can know it whole.
LARGEST_ROOM = 5000

BEGIN, END = "<!-- drawn: begin -->\n", "<!-- drawn: end -->\n"


@dataclass(frozen=True, kw_only=True, order=True)
class Crossing:
    """An import from a package of dpcore by a file outside it.

    Attributes:
        room, module, name: the imported package, module and name.
        by: the importing file, from the project's folder.
    """

    room: str
    module: str
    name: str
    by: str


def find_imports(source: str) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of every ``from module import name`` of a source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def find_crossings(path: str, source: str) -> list[Crossing]:
    """The imports from packages of dpcore that a file makes from outside them."""
    place = PurePosixPath(path).parts
    own = place[1] if place[0] == "dpcore" and len(place) > 2 else ""
    found = []
    for module, name in find_imports(source):
        parts = module.removeprefix("dptrees.").split(".")
        if parts[0] == "dpcore" and len(parts) > 1 and parts[1] in FLOOR and parts[1] != own:
            inner = ".".join(parts[2:]) or name
            found.append(
                Crossing(room=parts[1], module=inner, name=name if len(parts) > 2 else "", by=path)
            )
    return found


def all_crossings() -> list[Crossing]:
    """Return all crossings in the three packages."""
    paths = (path for package in ("dpcore", *UPPER) for path in (PROJECT / package).rglob("*.py"))
    return sorted(
        each
        for path in paths
        for each in find_crossings(
            path.relative_to(PROJECT).as_posix(), path.read_text(encoding="utf-8")
        )
    )


def find_package(path: str) -> str:
    """The package of a file, within dpcore where it is a file of dpcore."""
    parts = PurePosixPath(path).parts
    return parts[1] if parts[0] == "dpcore" and len(parts) > 2 else parts[0]


def climbs(crossing: Crossing) -> bool:
    """Whether an import points to its own floor or a higher one."""
    importer = find_package(crossing.by)
    return importer in FLOOR and FLOOR[crossing.room] >= FLOOR[importer]


def public_names(room: str) -> dict[str, tuple[str, ...]]:
    """The public API of a package: names by module, from its ``__init__``."""
    return dict(import_module(f"dptrees.dpcore.{room}").FACE)


def list_modules(room: str) -> list[str]:
    """The modules of a package, without its ``__init__``."""
    files = (PROJECT / "dpcore" / room).glob("*.py")
    return sorted(path.stem for path in files if path.stem != "__init__")


def line_count(room: str) -> int:
    """Return the lines of a package."""
    files = (PROJECT / "dpcore" / room).glob("*.py")
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def drawing() -> str:
    """The part of docs/architecture.md that follows from the imports."""
    uses: dict[str, set[str]] = defaultdict(set)
    names: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for each in all_crossings():
        uses[find_package(each.by)].add(each.room)
        names[each.room].add((each.module, each.name))
    lines = [
        "| floor | package | purpose | files | names used outside | imports from |",
        "|---|---|---|---:|---:|---|",
    ]
    for number in reversed(range(len(FLOORS))):
        for room in FLOORS[number]:
            title = (
                (import_module(f"dptrees.dpcore.{room}").__doc__ or "").splitlines()[0].rstrip(".")
            )
            below = ", ".join(sorted(uses[room])) or "arrays alone"
            size, face = len(list_modules(room)), len(names[room])
            lines.append(f"| {number} | `{room}` | {title} | {size} | {face} | {below} |")
    lines += ["", "The modules of each package:", ""]
    for number in reversed(range(len(FLOORS))):
        for room in FLOORS[number]:
            modules = ", ".join(f"`{name}`" for name in list_modules(room))
            lines.append(f"- `{room}`: {modules}")
    return "\n".join(lines) + "\n"


def redrawn(page: str) -> str:
    """Return a page with a new drawing between its marks."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + drawing() + END + rest.split(END)[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw the packages of dpcore from their imports.")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="into a page, between its marks")
    chosen = parser.parse_args()
    if chosen.write is None:
        print(drawing(), end="")
    else:
        chosen.write.write_text(redrawn(chosen.write.read_text()))
