"""Mutation tests of dpcore: small faults are planted one by one, and the tests should catch them.

`make mutants` plants faults in the lines that a change touched; `make mutants SAMPLE=60` plants the
first 60 of the fixed sample in mutants.jsonl, which measures the whole suite. The operators that
change a line come from cosmic-ray. Its own sessions are not used: they change the files of the
user, and run one command for all files, where each file needs the tests of its own folder.

Everything runs on a copy of the project. A mutant is caught if a test fails with it and passes
again without it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

PROJECT = Path(__file__).resolve().parents[1]
SAMPLE = Path(__file__).with_suffix(".jsonl")
TOUCHED = 20
# A mutant that loops forever, or fills the memory, is caught by these limits of a process.
CPU_SECONDS = 1800
BYTES = 4 << 30
# Hypothesis draws the same examples each time if this is CI; with bytecode a run is quicker.
ENVIRONMENT = {"CI": "true", "PYTHONDONTWRITEBYTECODE": ""}

# The tests of each stage; a mutant that survives one goes on to the next.
QUICK, SLOW = "not slow and not engines", "slow and not engines"
STAGES = {
    "quick tests of its folder": (QUICK, False),
    "slow tests of its folder": (SLOW, False),
    "quick tests": (QUICK, True),
    "slow tests": (SLOW, True),
}
DEPTH = {"": 1, "1": 2, "suite": len(STAGES)}

SWAPS = {
    "Binary": "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul FloorDiv_Div Mod_Mul Pow_Mul "
    "BitAnd_BitOr LShift_RShift RShift_LShift",
    "Comparison": "Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt Eq_NotEq NotEq_Eq "
    "Is_IsNot IsNot_Is",
    "Unary": "Delete_USub Delete_Not Delete_Invert",
}
OPERATORS = (
    *(f"Replace{kind}Operator_{swap}" for kind, swaps in SWAPS.items() for swap in swaps.split()),
    *("ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue"),
    *("AddNot", "NumberReplacer"),
)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One changed line of a module."""

    path: str
    line: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}\n    - {self.old.strip()}\n    + {self.new.strip()}"

    def place(self, lines: list[str]) -> int | None:
        """Return the index of the line, or None if the module no longer has it.

        >>> Mutant(path="a.py", line=3, old="x += 1", new="x -= 1").place(["x += 1", "y", "", ""])
        0
        """
        equal = [index for index, text in enumerate(lines) if text == self.old]
        return min(equal, key=lambda index: abs(index + 1 - self.line), default=None)


@dataclass(frozen=True, kw_only=True)
class Site:
    """A place of a module that an operator can change."""

    path: str
    start: tuple[int, int]  # line from 1, column from 0
    end: tuple[int, int]
    operator: str
    occurrence: int


def rank(*parts: object) -> bytes:
    """Return a random number that depends on the arguments alone."""
    return hashlib.sha256(repr(parts).encode()).digest()


def sites(path: str, source: str) -> Iterator[Site]:
    """Yield all sites of a module, in the order of cosmic-ray."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    nodes = list(ast_nodes(get_ast(source)))
    for name in OPERATORS:
        operator = get_operator(f"core/{name}")()
        places = (place for node in nodes for place in operator.mutation_positions(node))
        for occurrence, (start, end) in enumerate(places):
            yield Site(path=path, start=start, end=end, operator=name, occurrence=occurrence)


def mutate(site: Site, source: str) -> Mutant | None:
    """Return the mutant, or None if it is no Python, or changes what is no code.

    The operators of cosmic-ray may move white space; here the rest of the module stays as it is.
    """
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    lines = source.splitlines(keepends=True)
    offsets = [sum(map(len, lines[: line - 1])) + column for line, column in (site.start, site.end)]
    before, after = source[: offsets[0]], source[offsets[1] :]
    code = mutate_code(source, get_operator(f"core/{site.operator}")(), site.occurrence)
    # A comma follows the star that begins keyword-only parameters, and no operator.
    if code is None or not code.endswith(after) or after.startswith(","):
        return None
    changed = code[len(before.rstrip()) : len(code) - len(after)].strip()
    mutated = (before + changed + (after if changed else after.lstrip(" "))).splitlines()
    line = site.start[0] - 1
    old = source.splitlines()
    if len(mutated) != len(old) or mutated[line] == old[line] or "TYPE_CHECKING" in old[line]:
        return None
    try:
        compile("\n".join(mutated), site.path, "exec")
    except SyntaxError:
        return None
    return Mutant(path=site.path, line=line + 1, old=old[line], new=mutated[line])


def choose(
    sources: Mapping[str, str], lines: Mapping[str, set[int]] | None, size: int, seed: str
) -> list[Mutant]:
    """Choose mutants at random: first the places, all alike, then one change of each.

    Args:
        sources: the text of each module.
        lines: the lines that may change; None for all.
        size: the number of mutants, or all if there are fewer.
        seed: the choice depends on it.
    """
    places: dict[tuple[str, tuple[int, int]], list[Site]] = {}
    for path, source in sources.items():
        for site in sites(path, source):
            if lines is None or site.start[0] in lines[path]:
                places.setdefault((path, site.start), []).append(site)
    chosen: list[Mutant] = []
    for place in sorted(places, key=lambda place: rank(seed, place)):
        changes = sorted(places[place], key=lambda each: rank(seed, each.operator, each.occurrence))
        mutants = (mutate(site, sources[place[0]]) for site in changes)
        chosen += [each for each in mutants if each is not None][:1]
        if len(chosen) >= size:
            break
    return chosen


def modules(paths: Iterable[str] | None = None) -> dict[str, str]:
    """Return the text of the modules of dpcore."""
    if paths is None:
        paths = (path.relative_to(PROJECT).as_posix() for path in PROJECT.glob("dpcore/**/*.py"))
    return {path: (PROJECT / path).read_text(encoding="utf-8") for path in sorted(paths)}


def git(*command: str) -> str:
    """Return what git prints."""
    done = subprocess.run(
        ("git", *command), cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def touched_lines(difference: str) -> dict[str, set[int]]:
    """Return the new lines of a difference that git printed with -U0.

    >>> touched_lines("+++ b/dpcore/a.py\\n@@ -3 +4,2 @@ def f():\\n@@ -9,2 +10,0 @@\\n")
    {'dpcore/a.py': {4, 5}}
    """
    lines: dict[str, set[int]] = {}
    path = ""
    for row in difference.splitlines():
        if row.startswith("+++ b/"):
            path = row.removeprefix("+++ b/")
        elif found := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", row):
            first, count = int(found[1]), int(found[2] or 1)
            lines.setdefault(path, set()).update(range(first, first + count))
    return lines


def touched(since: str) -> list[Mutant]:
    """Choose mutants of the lines that differ from a commit."""
    lines = touched_lines(git("diff", "-U0", "--no-ext-diff", since, "--", "dpcore/*.py"))
    for path in git("ls-files", "-o", "--exclude-standard", "--", "dpcore/*.py").splitlines():
        lines[path] = set(range(1, len((PROJECT / path).read_text().splitlines()) + 1))
    return choose(modules(lines), lines, TOUCHED, git("rev-parse", since).strip())


def read_sample(size: int) -> list[Mutant]:
    """Read the first mutants of the fixed sample."""
    rows = SAMPLE.read_text(encoding="utf-8").splitlines()
    return [Mutant(**json.loads(row)) for row in rows[:size]]


def write_sample(size: int, seed: str) -> None:
    """Choose a new fixed sample; figures from before it cannot be compared with later ones."""
    rows = (json.dumps(asdict(each)) for each in choose(modules(), None, size, seed))
    SAMPLE.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def copy_project(folder: Path) -> None:
    """Copy the files that git knows or could add, as they are now."""
    for path in git("ls-files", "-z", "-co", "--exclude-standard").split("\0"):
        if path and (PROJECT / path).is_file():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / path, folder / path)
        elif path and (PROJECT / path).is_symlink():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to((PROJECT / path).readlink())


def limit() -> None:
    """Limit this process."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))


def folder_tests(module: str, project: Path) -> list[str]:
    """Return the tests of a module: its doctests, and all of its folder."""
    if module.count("/") == 1 and (own := project / "tests" / module.removesuffix(".py")).is_dir():
        names = sorted(path.relative_to(project).as_posix() for path in own.glob("test_*.py"))
        return [f"dptrees/{module}", *names]
    folder = project / "tests" / PurePosixPath(module).parent
    # The modules beside the folders of dpcore: only the tests beside the folders of tests/dpcore.
    found = folder.glob("test_*.py") if module.count("/") == 1 else folder.rglob("test_*.py")
    return [f"dptrees/{module}", *sorted(path.relative_to(project).as_posix() for path in found)]


class Copy:
    """A copy of the project in which mutants are planted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy_project(folder)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run tests; return the exit code of pytest and what it printed."""
        command = (sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-rfE")
        done = subprocess.run(
            (*command, "-p", "no:cacheprovider", *arguments),
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(self.folder)} | ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=limit,
        )
        return done.returncode, done.stdout

    def write(self, path: str, source: str) -> None:
        """Write a module, and remove its bytecode, which is known by size and second only."""
        file = self.folder / path
        file.write_text(source, encoding="utf-8")
        for cached in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            cached.unlink()

    def fate(self, mutant: Mutant, depth: int) -> str:
        """Return which tests catch a mutant: the name of a stage, "survived" or "gone"."""
        source = (self.folder / mutant.path).read_text(encoding="utf-8")
        lines = source.splitlines()
        place = mutant.place(lines)
        if place is None:
            return "gone"
        lines[place] = mutant.new
        for stage, (marks, suite) in list(STAGES.items())[:depth]:
            tests = [] if suite else folder_tests(mutant.path, self.folder)
            self.write(mutant.path, "\n".join(lines) + "\n")
            code, printed = self.run("-m", marks, *tests)
            self.write(mutant.path, source)
            if code not in (0, 5):  # 5: there are no such tests
                self.confirm(printed, marks, tests)
                return f"caught by the {stage}"
        return "survived"

    def confirm(self, printed: str, marks: str, tests: list[str]) -> None:
        """Exit unless the test that failed passes without a mutant."""
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", printed, re.MULTILINE)
        if failed and self.run("-m", marks, *failed[:1])[0] in (0, 5):
            return
        code, output = self.run("-m", marks, *tests)
        if code not in (0, 5):
            sys.exit(f"{output}\nThese tests fail without a mutant too. Fix them first.")


def report(mutants: list[Mutant], depth: int) -> None:
    """Plant each mutant, and print its outcome, and how many have each outcome."""
    if not mutants:
        print("No line of dpcore changed that an operator of cosmic-ray could change.")
        return
    fates = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder))
        for mutant in mutants:
            fates.append(copy.fate(mutant, depth))
            print(f"{len(fates)}. {fates[-1]}: {mutant}", flush=True)
    for fate in dict.fromkeys(sorted(fates)):
        print(f"{fates.count(fate)} of {len(mutants)} {fate}")


def main() -> None:
    """Run as `make mutants` does."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--since", default="HEAD", help="the commit that a change began with")
    parser.add_argument("--sample", type=int, help="the first mutants of the fixed sample")
    parser.add_argument("--all", default="", choices=DEPTH, help="1: slow tests of the folder too")
    parser.add_argument("--write-sample", nargs=2, metavar=("SIZE", "SEED"))
    options = parser.parse_args()
    if options.write_sample:
        return write_sample(int(options.write_sample[0]), options.write_sample[1])
    mutants = touched(options.since) if options.sample is None else read_sample(options.sample)
    return report(mutants, DEPTH[options.all])


if __name__ == "__main__":
    main()
