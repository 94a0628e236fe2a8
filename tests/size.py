"""Size and structure of the three packages, now and before a change.

    python -m tests.size                 compared with the last landing
    python -m tests.size --since COMMIT  compared with another commit

A code line is a line with code: not a docstring, a comment or a blank. A circle is a set of
packages that import each other, directly or through others. The last landing is the commit where
the present branch left origin's main branch. On that branch itself it is the commit before the last
one, or the last one while there are changes that are not committed.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

PROJECT = Path(__file__).resolve().parents[1]
PACKAGES = ("dpcore", "transforms", "pipelines")
WITHOUT_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)

Sources = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of the packages.

    Attributes:
        files: how many each package has.
        code: code lines of each package.
        imports: code lines of import statements.
        inside: imports of the packages inside functions.
        circles: the number of packages in each circle, the largest first.
    """

    files: dict[str, int]
    code: dict[str, int]
    imports: int
    inside: int
    circles: list[int]


def lines_of(node: ast.stmt) -> range:
    """Return the numbers of a statement's lines."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the numbers of a module's code lines.

    >>> text = "'''Docstring.'''\\n\\nx = 1  # why\\n# why\\ny = (\\n\\n    2)\\n"
    >>> sorted(code_lines(text, ast.parse(text)))
    [3, 5, 7]
    """
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in WITHOUT_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        has_docstring = isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS))
        if has_docstring and ast.get_docstring(node, clean=False) is not None:
            code.difference_update(lines_of(node.body[0]))
    return code


@cache
def parsed(text: str) -> tuple[ast.Module, set[int]]:
    """Return the tree of a module and its code lines. Most modules are the same before a change."""
    tree = ast.parse(text)
    return tree, code_lines(text, tree)


def imported_units(node: ast.AST, sources: Sources) -> Iterator[str]:
    """Yield the packages of this project that a statement imports, such as `dpcore.trees`."""
    if isinstance(node, ast.Import):
        names = [each.name for each in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [node.module]
        if node.module.count(".") == 1:  # from dptrees.dpcore import trees
            names = [f"{node.module}.{each.name}" for each in node.names]
    else:
        return
    for name in names:
        top, *parts = name.split(".")
        if top == "dptrees" and parts and parts[0] in PACKAGES:
            path = "/".join(parts[:2])
            known = f"{path}.py" in sources or f"{path}/__init__.py" in sources
            yield ".".join(parts[:2]) if known else f"{parts[0]}.__init__"


def circles(edges: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the sets of units that import each other, the largest first.

    >>> [sorted(each) for each in circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}})]
    [['b', 'c']]
    """
    reached: dict[str, set[str]] = {}
    for unit in edges:
        found, waiting = set[str](), [unit]
        while waiting:
            new = edges.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        reached[unit] = found
    sets = {
        frozenset(other for other in each if unit in reached.get(other, ()))
        for unit, each in reached.items()
    }
    return sorted((set(each) for each in sets if len(each) > 1), key=len, reverse=True)


def unit(path: str) -> str:
    """Return the package of a file, or the file itself if it is in none of them.

    >>> unit("dpcore/trees/shapes.py"), unit("dpcore/arrays.py")
    ('dpcore.trees', 'dpcore.arrays')
    """
    return ".".join(PurePosixPath(path).with_suffix("").parts[:2])


def edges(sources: Sources) -> dict[str, set[str]]:
    """Return what each package imports, imports inside functions and for annotations included."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, text in sources.items():
        for node in ast.walk(parsed(text)[0]):
            found[unit(path)] |= set(imported_units(node, sources))
    return {name: uses - {name} for name, uses in found.items()}


def inside_functions(sources: Sources) -> dict[str, int]:
    """Return how many imports of the project's modules a file has inside functions."""
    found: dict[str, int] = {}
    for path, text in sources.items():
        tree, _ = parsed(text)
        functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
        hidden = {id(x): x for each in functions for x in ast.walk(each) if isinstance(x, IMPORTS)}
        count = sum(bool(set(imported_units(node, sources))) for node in hidden.values())
        if count:
            found[path] = count
    return found


def measure(sources: Sources) -> Size:
    """Measure modules.

    Args:
        sources: their texts, by path.
    """
    files, code = dict.fromkeys(PACKAGES, 0), dict.fromkeys(PACKAGES, 0)
    import_lines = 0
    for path, text in sources.items():
        package, *_ = PurePosixPath(path).parts
        tree, lines = parsed(text)
        files[package] += 1
        code[package] += len(lines)
        statements = [node for node in ast.walk(tree) if isinstance(node, IMPORTS)]
        import_lines += len({line for each in statements for line in lines_of(each)} & lines)
    inside = sum(inside_functions(sources).values())
    lengths = [len(each) for each in circles(edges(sources))]
    return Size(files=files, code=code, imports=import_lines, inside=inside, circles=lengths)


def present_sources(project: Path) -> Sources:
    """Return the modules as they are on disk."""
    paths = [path for each in PACKAGES for path in sorted((project / each).rglob("*.py"))]
    return {path.relative_to(project).as_posix(): path.read_text("utf-8") for path in paths}


def git(project: Path, *arguments: str) -> bytes | None:
    """Return what git prints; None if it fails."""
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def last_landing(project: Path) -> str:
    """Return the commit before the change, as git understands it."""
    head = git(project, "rev-parse", "HEAD")
    base = git(project, "merge-base", "HEAD", "origin/HEAD")
    if base is not None and base != head:
        return base.decode().strip()
    return "HEAD~1" if git(project, "diff", "--quiet", "HEAD", "--", *PACKAGES) == b"" else "HEAD"


def commit_sources(project: Path, commit: str) -> Sources | None:
    """Return the modules of a commit; None if this clone does not have it."""
    packed = git(project, "archive", "--format=tar", commit, *PACKAGES)
    if packed is None:
        return None
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        contents = ((each.name, files.extractfile(each)) for each in files if each.isfile())
        return {name: file.read().decode() for name, file in contents if name.endswith(".py")}


def report(now: Size, before: Size | None) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{'code lines':12}{'now':>10}{'before':>10}{'change':>10}{'files':>8}"
    for title, packages in (*((each, (each,)) for each in PACKAGES), ("all", PACKAGES)):
        code, files = (sum(size[each] for each in packages) for size in (now.code, now.files))
        old = None if before is None else sum(before.code[each] for each in packages)
        compared = f"{'-':>10}{'-':>10}" if old is None else f"{old:10,}{code - old:+10,}"
        yield f"{title:12}{code:10,}{compared}{files:8,}"
    earlier = dict(structure(before)) if before is not None else {}
    for title, value in structure(now):
        yield f"{title}: {value}" + (f" (before: {earlier[title]})" if earlier else "")


def structure(size: Size) -> Iterator[tuple[str, str]]:
    """Yield what the table does not have."""
    yield "code lines that import", f"{size.imports / max(1, sum(size.code.values())):.1%}"
    yield "packages in circles", ", ".join(map(str, size.circles)) or "none"
    yield "imports inside functions", f"{size.inside:,}"


def main(arguments: list[str], project: Path = PROJECT) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--since", metavar="COMMIT", help="default: the last landing")
    chosen = parser.parse_args(arguments).since
    commit = chosen or last_landing(project)
    sources = commit_sources(project, commit)
    before = None if sources is None else measure(sources)
    print(*report(measure(present_sources(project)), before), sep="\n")
    if before is None:
        print(f"Not compared: this clone does not have the commit {commit}.")
        return 2 if chosen else 0
    title = git(project, "log", "-1", "--format=%h %s", commit) or b""
    print(f"before: {title.decode().strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
