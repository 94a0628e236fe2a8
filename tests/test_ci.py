"""What .ci/run may skip, and what the cache of downloads may hand out."""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ci_programs import CI, PROJECT, ci_program

Captured = pytest.CaptureFixture[str]
cache, steps = ci_program("cache"), ci_program("steps")


def finished(*command: object, cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever its exit code."""
    return subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )


def write_program(path: Path, text: str) -> None:
    """Write a program of the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


def test_examples_of_docstrings() -> None:
    done = doctest.testmod(cache)
    assert done.attempted and not done.failed


def steps_due(project: Path) -> list[str]:
    """The steps that .ci/run would run."""
    lines = [line.split("\t") for line in steps.listed_steps(project)]
    assert all(state in ("changed", "waiting", "unchanged") for _, state, *_ in lines)
    return [name for name, state, *_ in lines if state == "changed"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one step, which passed with its inputs."""
    step = steps.Step(title="", target="run", inputs=("product/**", "tests/a/test_a.py"))
    monkeypatch.setattr(steps, "STEPS", {"one": step})
    files = {
        "product/deep/code.py": "import tests.away\n",
        "tests/a/test_a.py": "import tests.b.first\n",
        "tests/b/first.py": "from tests.b import second\n",
        "tests/b/second.py": "",
        "tests/conftest.py": "",
        "tests/away.py": "",
        "setup.py": "",
        "notes.md": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".ci").mkdir()
    steps.record("one", steps.input_digest("one", tmp_path), tmp_path)
    assert steps_due(tmp_path) == []
    return tmp_path


def test_a_changed_input_makes_a_step_due(project: Path) -> None:
    for name in (
        *("product/deep/code.py", "product/new.txt", "tests/a/test_a.py"),
        "tests/b/first.py",  # imported by the test
        "tests/b/second.py",  # imported by what it imports
        *("tests/conftest.py", "tests/a/conftest.py", "setup.py"),
    ):
        file = project / name
        before = file.read_text() if file.exists() else None
        file.write_text(f"{before or ''}# changed\n")
        assert steps_due(project) == ["one"], name
        file.unlink() if before is None else file.write_text(before)
        assert steps_due(project) == [], name


def test_other_changes_of_inputs_make_a_step_due(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = steps.input_digest("one", project)
    code = project / "product" / "deep" / "code.py"
    code.chmod(0o755)
    assert steps.input_digest("one", project) != passed
    code.chmod(0o644)
    assert steps.input_digest("one", project) == passed
    code.rename(code.with_name("renamed.py"))
    assert steps_due(project) == ["one"]
    code.with_name("renamed.py").rename(code)
    changed = steps.Step(title="", target="another", inputs=steps.STEPS["one"].inputs)
    monkeypatch.setattr(steps, "STEPS", {"one": changed})
    assert steps_due(project) == ["one"]


def test_what_is_no_input_leaves_a_step(project: Path) -> None:
    for name in ("notes.md", "tests/away.py", "tests/b/test_other.py"):
        (project / name).write_text("# changed\n")
    assert steps_due(project) == []


def test_inputs_that_change_during_the_step_are_not_recorded(project: Path) -> None:
    digest = steps.input_digest("one", project)
    (project / "setup.py").write_text("# changed\n")
    with pytest.raises(SystemExit, match="changed while it ran"):
        steps.record("one", digest, project)
    assert steps_due(project) == ["one"]


def paths_tested(target: str) -> set[str]:
    """Return the paths of tests that a recipe of make names, or of the script it calls."""
    files = (CI / "fetch.mk", PROJECT / "Makefile")
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    assert recipe is not None, target
    scripts = [(PROJECT / each).read_text("utf-8") for each in re.findall(r"\.ci/\w+", recipe[1])]
    named = re.findall(r"(?<!\S)tests/[\w/.]+", "\n".join([recipe[1], *scripts]))
    if "$(MARKED)" in recipe[1]:
        files = (path for path in (PROJECT / "tests").rglob("test_*.py") if path != Path(__file__))
        named += [str(path.relative_to(PROJECT)) for path in files if marked(path)]
    assert named, target
    return set(named)


def marked(path: Path) -> bool:
    """Whether a file has tests of engines."""
    return "mark.engines" in path.read_text(encoding="utf-8")


def test_a_step_depends_on_its_tests_and_on_no_pattern_without_a_file() -> None:
    for name, step in steps.STEPS.items():
        inputs = set(steps.input_files(name))
        for test in paths_tested(step.target):
            modules = (path.relative_to(PROJECT) for path in (PROJECT / test).rglob("*.py"))
            below = {test} if test.endswith(".py") else {path.as_posix() for path in modules}
            assert below and below <= inputs, name
        for pattern in (*steps.EVERY_STEP, *step.inputs):
            assert steps.listed_files((pattern,), PROJECT), pattern


def test_the_record_is_of_known_steps() -> None:
    recorded = steps.recorded()
    assert set(recorded) <= set(steps.STEPS)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in recorded.values())


# In place of make and of an environment: notes what was called, and leaves what the demo leaves.
MAKE = """for each in "$@"; do echo "$each" >>called; [ "$each" != "$FAILING" ] || exit 2; done
echo "$2" $(env | grep ^DPTREES_REQUIRE_ | sort) >>required
mkdir -p out/flights-2013
echo made | tee out/flights-2013/manifest.json >out/flights-2013/report.html
"""
TARGETS = {step.target for step in steps.STEPS.values()}
SOON = {step.target for step in steps.STEPS.values() if not step.takes_hours}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A project of .ci alone, where every program passes at once."""
    folder = tmp_path / "clone"
    shutil.copytree(CI, folder / ".ci", ignore=shutil.ignore_patterns("passed.json", "__pycache__"))
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    write_program(folder / "bin" / "make", MAKE)
    for name in (".ci/packages", ".venv/bin/python", ".venv/bin/dptrees"):
        write_program(folder / name, "")
    (folder / ".gitignore").write_text("called\nout\n")
    return folder


def run(clone: Path, *arguments: str, failing: str = "", code: int = 0) -> tuple[str, set[str]]:
    """Run .ci/run; return what it printed and the targets of make."""
    called = clone / "called"
    called.unlink(missing_ok=True)
    changed = (f"PATH={clone}/bin:{os.environ['PATH']}", f"FAILING={failing}")
    done = finished("env", *changed, clone / ".ci" / "run", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, set(called.read_text().split()) if called.exists() else set()


def test_steps_run_until_they_are_recorded_and_again_when_an_input_changes(clone: Path) -> None:
    printed, targets = run(clone)
    assert {"lint", "test-all", "demo", "test-engines-golden"} | SOON < targets
    assert "it takes hours: .ci/run --record black-box" in printed and "black-box" not in targets
    assert not (clone / ".ci" / "passed.json").exists()

    printed, targets = run(clone, "--record")
    assert targets >= SOON and not targets & {"lint", "test-all", "demo", "black-box"}
    assert run(clone, "--record", "black-box")[1] & TARGETS == {"black-box"}
    assert set(json.loads((clone / ".ci" / "passed.json").read_text())) == set(steps.STEPS)

    printed, targets = run(clone)
    assert "test-engines-golden" in targets and not targets & TARGETS
    assert printed.count("\nskipped: inputs unchanged since they passed\n") == len(TARGETS)
    table = printed.partition("== seconds by the clock and of CPU\n")[2]
    assert re.search(r"(?m)^ +\d+ +\d+  tests$", table) and table.endswith("\n== all passed\n")

    (clone / "deploy" / "airflow").mkdir(parents=True)
    (clone / "deploy" / "airflow" / "dptrees_daily.py").touch()
    assert run(clone)[1] & TARGETS == {"test-airflow"}
    assert run(clone, "--all")[1] >= TARGETS


def test_a_step_is_recorded_under_the_requirements_of_a_change(clone: Path) -> None:
    """A test that skips while it is recorded must not fail later, where nothing may skip."""
    required = {}
    for mode in ((), ("--record",)):
        run(clone, *mode)
        lines = (clone / "required").read_text().splitlines()
        required[mode] = {line for line in lines if line.startswith("test-oldest-beam ")}
        (clone / "required").unlink()
    assert required[()] == required[("--record",)] and "DPTREES_REQUIRE_TABLES" in str(required)


def test_tests_that_passed_on_the_bare_system_are_left_out(clone: Path) -> None:
    printed, targets = run(clone)
    assert "Left out: " in printed
    assert {"test-all", "demo"} < targets and not any("WITHOUT" in each for each in targets)

    bare = clone / ".ci" / "bare"
    write_program(bare, 'mkdir -p build/bare; echo tests/test_a.py::test_b >"$1"\n')
    _, targets = run(clone)
    assert {"test-all", "WITHOUT=build/bare/passed"} < targets and "demo" not in targets

    write_program(bare, "exit 3\n")
    _, targets = run(clone, code=3)
    assert "test-all" not in targets


def test_a_second_demo_that_changes_the_release_fails(clone: Path) -> None:
    text = "mkdir -p out/flights-2013\ndate +%N | tee out/flights-2013/report.html"
    write_program(clone / "bin" / "make", f"{text} >out/flights-2013/manifest.json\n")
    done = finished("env", f"PATH={clone}/bin:{os.environ['PATH']}", clone / ".ci" / "demo")
    assert done.returncode == 1 and "The second demo changed out/" in done.stderr


# In place of the programs that make a system and enter it.
SYSTEM = {
    "apt-get": """. /etc/os-release
for component in main extra; do echo "$VERSION_CODENAME http://mirror/ $component"; done
echo "$VERSION_CODENAME-security http://other/ main"
""",
    "debootstrap": """echo "$@" >>called
mkdir -p "$5/proc" "$5/dev" "$5/etc" "$5/home/user"
""",
    "chroot": """case "$*" in
--userspec=*)
  echo "$@" >>called
  cp /proc/self/mountinfo mounts
  [ ! -e slow ] || { touch started; exec setpriv --reuid=65534 --clear-groups sleep 100; }
  [ ! -e failing ] || exit 4
  echo tests/test_a.py::test_b >"$2/home/user/passed" ;;
*" tar "*) cat >/dev/null ;;
esac
""",
}


@pytest.fixture
def bare(clone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed project, whose bare system has no programs."""
    allowed = ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if shutil.which("apt-get") is None or subprocess.run(allowed, capture_output=True).returncode:
        pytest.skip("mounts need root on Debian")
    for name, text in SYSTEM.items():
        write_program(clone / "bin" / name, text)
    with (clone / ".gitignore").open("a") as file:
        file.write("build\nmounts\nslow\nstarted\nfailing\n__pycache__\n")
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    for command in (("add", "--all"), (*identity, "commit", "--quiet", "--message=all")):
        subprocess.run(["git", *command], cwd=clone, check=True)
    monkeypatch.setenv("PATH", f"{clone}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("DPTREES_CACHE", str(clone.parent / "cache"))
    return clone


def run_bare(bare: Path, *before: str) -> subprocess.CompletedProcess[str]:
    """Run .ci/bare, behind another command if there is one."""
    return finished(*before, bare / ".ci" / "bare", "build/bare/passed", cwd=bare)


def mounted_below(folder: Path, mounts: str = "/proc/self/mountinfo") -> set[str]:
    """Return the places below a folder where a filesystem is mounted."""
    places = (line.split()[4] for line in Path(mounts).read_text().splitlines())
    return {each.removeprefix(f"{folder}/") for each in places if each.startswith(f"{folder}/")}


def test_a_bare_system_that_cannot_be_made_is_left_out(bare: Path) -> None:
    passed = bare / "build" / "bare" / "passed"
    for change, reason in (
        ("echo 1000 # in place of id", "a bare Debian needs root"),
        ("true # in place of apt-get", "apt has no source of the packages of "),
        ("false # in place of unshare", "mounts are not allowed here"),
    ):
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()
        program = bare / "bin" / change.split()[-1]
        before = program.read_text() if program.exists() else None
        write_program(program, f"{change}\n")
        subprocess.run(["git", "update-index", "--assume-unchanged", "bin/apt-get"], cwd=bare)
        with (bare / ".git" / "info" / "exclude").open("a") as file:
            file.write("bin\n")
        done = run_bare(bare)
        assert done.returncode == 0 and done.stdout.startswith(f"Left out: {reason}"), done
        assert not passed.exists()
        program.unlink() if before is None else program.write_text(before)
    (bare / "notes").touch()
    assert "Left out: the clone differs from its last commit" in run_bare(bare).stdout


def test_a_bare_system_has_mounts_of_its_own_and_the_settings_of_pip(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "7 8")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    done = run_bare(bare)
    assert done.returncode == 0, done.stderr
    assert (bare / "build/bare/passed").read_text() == "tests/test_a.py::test_b\n"
    made, entered = (bare / "called").read_text().splitlines()
    assert "--components=main,extra " in made and made.endswith(" http://mirror/")
    assert " PIP_DEFAULT_TIMEOUT=7 8 " in entered and "hidden" not in entered
    root = bare / "build" / "bare" / "root"
    assert mounted_below(root, str(bare / "mounts")) >= {"proc", "dev", "dev/null", "downloads"}
    assert not mounted_below(root) and not root.exists()

    (bare / "failing").touch()
    assert run_bare(bare).returncode == 4
    assert not root.exists() and not (bare / "build/bare/passed").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_bare_system_ends_with_its_script(bare: Path, number: int) -> None:
    """Its processes, of another user, and its mounts are gone; the next run cleans up."""
    (bare / "slow").touch()
    begun = subprocess.Popen([bare / ".ci" / "bare", "passed"], cwd=bare)
    wait_for(lambda: (bare / "started").exists())
    root = bare / "build" / "bare" / "root"
    assert not mounted_below(root)
    assert "Another .ci/bare runs" in run_bare(bare).stderr
    begun.send_signal(number)
    assert begun.wait() == (-number if number == signal.SIGKILL else 128 + number)
    (bare / "slow").unlink()
    wait_for(lambda: not running_in(bare))
    assert root.exists() == (number == signal.SIGKILL)
    assert run_bare(bare).returncode == 0
    assert not root.exists()


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, but not for ever."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def running_in(folder: Path) -> list[str]:
    """Return the processes whose working folder is a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found += [process.name] if (process / "cwd").readlink() == folder else []
    return found


def test_nothing_is_removed_through_a_mount(bare: Path, tmp_path: Path) -> None:
    kept = tmp_path / "a machine's own" / "device"
    kept.parent.mkdir()
    kept.touch()
    place = bare / "build" / "bare" / "root" / "dev"
    place.mkdir(parents=True)
    mount = ["sh", "-ec", 'mount --bind "$1" "$2"; shift 2; exec "$@"', "sh"]
    done = run_bare(bare, "unshare", "--mount", *mount, str(kept.parent), str(place))
    assert done.returncode == 1
    assert f"{place.parent} is not removed: a filesystem is mounted there." in done.stderr
    assert kept.exists()


def test_a_step_that_fails_is_not_recorded_and_one_that_is_none_is_refused(clone: Path) -> None:
    printed, _ = run(clone, "--record", failing="test-images", code=2)
    assert "all passed" not in printed
    assert set(json.loads((clone / ".ci" / "passed.json").read_text())) == {"engines", "airflow"}
    _, targets = run(clone, "--record", "airflw", code=2)
    assert not targets & TARGETS


def recipe(tmp_path: Path, command: str = "", text: str = "") -> object:
    """A recipe that notes each time it runs."""
    tmp_path.mkdir(exist_ok=True)
    noted = f'echo once >>"{tmp_path}/ran"; echo content >"$INTO/made"; {command}'
    return cache.Recipe(name="thing", command=("sh", "-c", noted), texts=(text,))


def times_run(tmp_path: Path) -> int:
    """How often the recipe ran."""
    return len((tmp_path / "ran").read_text().splitlines())


def test_a_second_clone_uses_what_the_first_made(tmp_path: Path) -> None:
    for clone in ("first", "second"):
        cache.provide(recipe(tmp_path), tmp_path / clone / "place", tmp_path / "cache")
        cache.provide(recipe(tmp_path), tmp_path / clone / "file", tmp_path / "cache", "made")
        assert (tmp_path / clone / "place" / "made").read_text() == "content\n"
        assert (tmp_path / clone / "file").read_text() == "content\n"
    assert times_run(tmp_path) == 1
    cache.provide(recipe(tmp_path, text="new"), tmp_path / "first/place", tmp_path / "cache")
    assert times_run(tmp_path) == 2
    # Removing a link left the entry of the other clone.
    assert (tmp_path / "second" / "place" / "made").exists()


KILLED = """
import pathlib, sys
from tests.ci_programs import ci_program
cache = ci_program("cache")
recipe = cache.Recipe(name="thing", command=("sh", "-c", sys.argv[2]), texts=("",))
folder = pathlib.Path(sys.argv[1])
cache.provide(recipe, folder / "place", folder / "cache")
"""


def test_a_download_killed_halfway_is_made_again(tmp_path: Path) -> None:
    command = f'if [ ! -e "{tmp_path}/again" ]; then touch "$INTO/half"; kill -9 $PPID; fi; '
    command += 'touch "$INTO/whole"'
    run = [sys.executable, "-c", KILLED, tmp_path, command]
    assert finished(*run).returncode == -9
    assert not (tmp_path / "place").exists() and list((tmp_path / "cache").rglob("half"))
    (tmp_path / "again").touch()
    assert finished(*run).stdout == "The cached thing is made again: it is incomplete.\n"
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["whole"]


def test_a_damaged_entry_is_made_again(tmp_path: Path, capsys: Captured) -> None:
    for damage in ("change", "remove", "add", "list"):
        own = tmp_path / damage
        place = own / "place"
        cache.provide(recipe(own), place, own / "cache")
        if damage == "change":
            (place / "made").write_text("damaged\n")
        elif damage == "remove":
            (place / "made").unlink()
        elif damage == "add":
            (place / "added").touch()
        else:
            (listing,) = own.glob("cache/thing/*/files.json")
            listing.write_text(listing.read_text()[:-3])
        cache.provide(recipe(own), place, own / "cache")
        assert times_run(own) == 2, damage
        assert "The cached thing is made again: " in capsys.readouterr().out
        assert {path.name: path.read_text() for path in place.iterdir()} == {"made": "content\n"}


def test_without_a_cache_the_clone_has_its_own(tmp_path: Path, capsys: Captured) -> None:
    refused = tmp_path / "file" / "cache"
    (tmp_path / "file").touch()
    for only in ("", "made"):
        place = tmp_path / f"build{only}" / "place"
        cache.provide(recipe(tmp_path), place, refused, only)
        assert (place if only else place / "made").read_text() == "content\n"
        assert not place.is_symlink()
        assert capsys.readouterr().out == (
            f"The cache {refused} cannot be written (Not a directory): thing goes into build/ of "
            "this clone alone.\n"
        )


def test_a_recipe_that_fails_leaves_nothing_to_use(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        cache.provide(recipe(tmp_path, "false"), tmp_path / "place", tmp_path / "cache")
    assert not (tmp_path / "place").exists()
    assert not list((tmp_path / "cache").rglob("files.json"))


def test_nothing_outside_of_build_is_replaced() -> None:
    for place in ("docs", "build", "build/../docs"):
        done = finished(sys.executable, CI / "cache.py", "thing", place, "--", "true")
        assert done.returncode == 2 and "a place below build/" in done.stderr
    assert (PROJECT / "docs").is_dir()


@pytest.mark.parametrize(
    ("target", "variable", "words"),
    [("test", "PASSED", "no tests"), ("test-all", "WITHOUT", "1 tests passed elsewhere")],
)
def test_make_accepts_a_file_that_exists(
    target: str, variable: str, words: str, tmp_path: Path
) -> None:
    """An existing file behind an option of conftest.py must not look like a folder of tests."""
    listed = tmp_path / "passed"
    listed.write_text("tests/test_a.py::test_a\n")
    options = ("--no-print-directory", "-n", f"{variable}={listed}", "INSTALLED=")
    made = finished("make", target, *options).stdout.replace("\\\n", "")
    (command,) = [each for each in made.splitlines() if "pytest" in each]
    arguments = shlex.split(command)
    assert arguments[1:3] == ["-m", "pytest"]
    done = finished(sys.executable, *arguments[1:], "--collect-only", "--ignore-glob=*")
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stderr
    assert words in done.stdout
