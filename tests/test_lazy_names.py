"""Names of ``import dptrees``: imported on first use, in any thread, and known to type checkers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import dptrees

THREADS = """
import threading, dptrees
config = {"privacy": {"epsilon": 1, "neighbors": "add_remove"},
          "trees": [{"name": "age", "domain": {"column": "age", "type": "integer", "lower": 0,
                                               "upper": 90}}]}
calls = [lambda name=name: getattr(dptrees, name) for name in dptrees.__all__]
calls += [
    lambda: dptrees.plan(config),
    lambda: dptrees.of({"age": [1]}, epsilon=1).quantiles("age", [0.5], (0, 90)).plan(),
]
faults, together = [], threading.Barrier(len(calls))

def begin(call):
    together.wait()
    try:
        call()
    except Exception as error:
        faults.append(repr(error))

threads = [threading.Thread(target=begin, args=(call,)) for call in calls]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*faults, sep="\\n")
"""


def test_threads_that_begin_at_once() -> None:
    """Beam's modules import each other in circles, which two threads break."""
    command = [sys.executable, "-W", "ignore", "-c", THREADS]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, ""), run.stderr


def test_type_checkers_see_every_name_and_no_other() -> None:
    """A `__getattr__` that they see would hide a misspelled name."""
    tree = ast.parse(Path(str(dptrees.__file__)).read_text(encoding="utf-8"))
    seen, defined = set[str](), set[str]()
    for statement in tree.body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for each in statement.body:
                assert isinstance(each, ast.ImportFrom)
                seen |= {name.name for name in each.names}
        elif isinstance(statement, ast.FunctionDef):
            defined.add(statement.name)
    assert seen | {"__version__"} == set(dptrees.__all__)
    assert defined == {"__dir__"}
