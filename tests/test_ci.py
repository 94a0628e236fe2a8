"""What .ci/run may skip, and what the cache of downloads may hand out."""

from __future__ import annotations

import doctest
import importlib.util
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
from types import ModuleType

import pytest

PROJECT = Path(__file__).resolve().parents[1]
CI = PROJECT / ".ci"


def program(name: str) -> ModuleType:
    """Import a program of .ci, which is no package."""
    made = importlib.util.spec_from_file_location(f"ci_{name}", CI / f"{name}.py")
    assert made is not None and made.loader is not None
    module = sys.modules[f"ci_{name}"] = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module


cache, steps = program("cache"), program("steps")


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


@pytest.mark.parametrize(
    "name",
    [
        "product/deep/code.py",
        "product/new.txt",
        "tests/a/test_a.py",
        "tests/b/first.py",  # imported by the test
        "tests/b/second.py",  # imported by what it imports
        "tests/conftest.py",
        "tests/a/conftest.py",
        "setup.py",
    ],
)
def test_a_changed_input_makes_a_step_due(project: Path, name: str) -> None:
    with (project / name).open("a") as file:
        file.write("# changed\n")
    assert steps_due(project) == ["one"]


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
    """Return the paths of tests that a recipe of .ci/fetch.mk names, or of the script it calls."""
    text = (CI / "fetch.mk").read_text(encoding="utf-8")
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


@pytest.mark.parametrize("name", steps.STEPS)
def test_a_step_depends_on_its_tests_and_on_no_pattern_without_a_file(name: str) -> None:
    inputs = set(steps.input_files(name))
    for test in paths_tested(steps.STEPS[name].target):
        below = (
            {test}
            if test.endswith(".py")
            else {path.relative_to(PROJECT).as_posix() for path in (PROJECT / test).rglob("*.py")}
        )
        assert below and below <= inputs
    for pattern in (*steps.EVERY_STEP, *steps.STEPS[name].inputs):
        assert steps.listed_files((pattern,), PROJECT), pattern


def test_the_record_is_of_known_steps() -> None:
    recorded = steps.recorded()
    assert set(recorded) <= set(steps.STEPS)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in recorded.values())


# In place of make and of an environment: notes what was called, and leaves what the demo leaves.
MAKE = """#!/bin/sh
for each in "$@"; do echo "$each" >>called; [ "$each" != "$FAILING" ] || exit 2; done
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
    programs = {"bin/make": MAKE, ".ci/packages": "#!/bin/sh\n"}
    programs |= {f".venv/bin/{name}": "#!/bin/sh\n" for name in ("python", "dptrees")}
    for name, text in programs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / ".gitignore").write_text("called\nout\n")
    return folder


def run(clone: Path, *arguments: str, failing: str = "", code: int = 0) -> tuple[str, set[str]]:
    """Run .ci/run; return what it printed and the targets of make."""
    called = clone / "called"
    called.unlink(missing_ok=True)
    changed = {"PATH": f"{clone}/bin:{os.environ['PATH']}", "FAILING": failing}
    command = [clone / ".ci" / "run", *arguments]
    done = subprocess.run(
        command, env=os.environ | changed, capture_output=True, text=True, check=False
    )
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


def test_tests_that_passed_on_the_bare_system_are_left_out(clone: Path) -> None:
    printed, targets = run(clone)
    assert "Left out: " in printed
    assert {"test-all", "demo"} < targets and not any("WITHOUT" in each for each in targets)

    bare = clone / ".ci" / "bare"
    bare.write_text('#!/bin/sh\nmkdir -p build/bare; echo tests/test_a.py::test_b >"$1"\n')
    _, targets = run(clone)
    assert {"test-all", "WITHOUT=build/bare/passed"} < targets and "demo" not in targets

    bare.write_text("#!/bin/sh\nexit 3\n")
    _, targets = run(clone, code=3)
    assert "test-all" not in targets


def test_a_second_demo_that_changes_the_release_fails(clone: Path) -> None:
    (clone / "bin" / "make").write_text(
        "#!/bin/sh\nmkdir -p out/flights-2013\n"
        "date +%N | tee out/flights-2013/report.html >out/flights-2013/manifest.json\n"
    )
    environment = os.environ | {"PATH": f"{clone}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        [clone / ".ci" / "demo"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "The second demo changed out/" in done.stderr


# In place of the programs that make a system and enter it.
SYSTEM = {
    "apt-get": """#!/bin/sh
. /etc/os-release
for component in main extra; do echo "$VERSION_CODENAME http://mirror/ $component"; done
echo "$VERSION_CODENAME-security http://other/ main"
""",
    "debootstrap": """#!/bin/sh
echo "$@" >>called
mkdir -p "$5/proc" "$5/dev" "$5/etc" "$5/home/user"
""",
    "chroot": """#!/bin/sh
case "$*" in
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
        (clone / "bin" / name).write_text(text)
        (clone / "bin" / name).chmod(0o755)
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
    command = [*before, str(bare / ".ci" / "bare"), "build/bare/passed"]
    return subprocess.run(command, cwd=bare, capture_output=True, text=True, check=False)


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
        program.write_text(f"#!/bin/sh\n{change}\n")
        program.chmod(0o755)
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


def test_a_step_that_fails_is_not_recorded(clone: Path) -> None:
    printed, _ = run(clone, "--record", failing="test-images", code=2)
    assert "all passed" not in printed
    assert set(json.loads((clone / ".ci" / "passed.json").read_text())) == {"engines", "airflow"}


def test_a_name_that_is_no_step_is_refused(clone: Path) -> None:
    _, targets = run(clone, "--record", "airflw", code=2)
    assert not targets & TARGETS


def recipe(tmp_path: Path, command: str = "", text: str = "") -> object:
    """A recipe that notes each time it runs."""
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
import importlib.util, pathlib, sys
made = importlib.util.spec_from_file_location("cache", sys.argv[1])
cache = sys.modules["cache"] = importlib.util.module_from_spec(made)
made.loader.exec_module(cache)
command = ("sh", "-c", sys.argv[3])
recipe = cache.Recipe(name="thing", command=command, texts=("",))
folder = pathlib.Path(sys.argv[2])
cache.provide(recipe, folder / "place", folder / "cache")
"""


def test_a_download_killed_halfway_is_made_again(tmp_path: Path) -> None:
    command = f'if [ ! -e "{tmp_path}/again" ]; then touch "$INTO/half"; kill -9 $PPID; fi; '
    command += 'touch "$INTO/whole"'
    run = [sys.executable, "-c", KILLED, str(CI / "cache.py"), str(tmp_path), command]
    assert subprocess.run(run, check=False).returncode == -9
    assert not (tmp_path / "place").exists() and list((tmp_path / "cache").rglob("half"))
    (tmp_path / "again").touch()
    again = subprocess.run(run, check=True, capture_output=True, text=True)
    assert again.stdout == "The cached thing is made again: it is incomplete.\n"
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["whole"]


@pytest.mark.parametrize("damage", ["change", "remove", "add", "list"])
def test_a_damaged_entry_is_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    place = tmp_path / "place"
    cache.provide(recipe(tmp_path), place, tmp_path / "cache")
    if damage == "change":
        (place / "made").write_text("damaged\n")
    elif damage == "remove":
        (place / "made").unlink()
    elif damage == "add":
        (place / "added").touch()
    else:
        (listing,) = tmp_path.glob("cache/thing/*/files.json")
        listing.write_text(listing.read_text()[:-3])
    cache.provide(recipe(tmp_path), place, tmp_path / "cache")
    assert times_run(tmp_path) == 2
    assert "The cached thing is made again: " in capsys.readouterr().out
    assert {path.name: path.read_text() for path in place.iterdir()} == {"made": "content\n"}


@pytest.mark.parametrize("only", ["", "made"])
def test_without_a_cache_the_clone_has_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], only: str
) -> None:
    place, refused = tmp_path / "build" / "place", tmp_path / "file" / "cache"
    (tmp_path / "file").touch()
    cache.provide(recipe(tmp_path), place, refused, only)
    assert (place if only else place / "made").read_text() == "content\n"
    assert not place.is_symlink()
    assert capsys.readouterr().out == (
        f"The cache {refused} cannot be written (Not a directory): thing goes into build/ of this "
        "clone alone.\n"
    )


def test_a_recipe_that_fails_leaves_nothing_to_use(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        cache.provide(recipe(tmp_path, "false"), tmp_path / "place", tmp_path / "cache")
    assert not (tmp_path / "place").exists()
    assert not list((tmp_path / "cache").rglob("files.json"))


def test_nothing_outside_of_build_is_replaced() -> None:
    for place in ("docs", "build", "build/../docs"):
        command = [sys.executable, str(CI / "cache.py"), "thing", place, "--", "true"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
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
    made = subprocess.run(
        ["make", "--no-print-directory", "-n", target, f"{variable}={listed}", "INSTALLED="],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    (command,) = [each for each in made.stdout.replace("\\\n", "").splitlines() if "pytest" in each]
    arguments = shlex.split(command)
    assert arguments[1:3] == ["-m", "pytest"]
    done = subprocess.run(
        [sys.executable, *arguments[1:], "--collect-only", "--ignore-glob=*"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stderr
    assert words in done.stdout
