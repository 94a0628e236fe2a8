"""What `make release-check` checks, on planted faults; the command runs it on the real files."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.ci_programs import PROJECT, ci_program

distribution = ci_program("distribution")


def archive(names: list[str], *, seconds: int, user: str, mode: int) -> bytes:
    """A source distribution as somebody's machine makes it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as files:
        for name in names:
            member = tarfile.TarInfo(name)
            member.mtime, member.uname, member.mode, member.size = seconds, user, mode, len(name)
            files.addfile(member, io.BytesIO(name.encode()))
    return packed.getvalue()


def test_a_source_distribution_does_not_depend_on_its_build() -> None:
    one = archive(["a/b.py", "a/c.py"], seconds=1, user="me", mode=0o600)
    other = archive(["a/c.py", "a/b.py"], seconds=2, user="you", mode=0o664)
    assert one != other
    assert distribution.repacked(one, 7) == distribution.repacked(other, 7)
    changed = archive(["a/b.py", "a/d.py"], seconds=1, user="me", mode=0o600)
    assert distribution.repacked(one, 7) != distribution.repacked(changed, 7)


def make_wheel(folder: Path, **texts: str) -> Path:
    """A wheel of these files."""
    path = folder / "dptrees-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as files:
        for name, text in texts.items():
            files.writestr(name, text)
    return path


def test_a_wheel_with_a_second_name_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, **{f"{each}/__init__.py": "" for each in ("dptrees", "pipelines")})
    with pytest.raises(distribution.CheckError, match="installs dptrees, pipelines, not dptrees"):
        distribution.check_names(wheel, tmp_path / "absent.tar.gz")


def test_a_version_without_a_section_and_a_program_that_fails_are_reported() -> None:
    with pytest.raises(distribution.CheckError, match=r"no section '## 9\.9\.9 "):
        distribution.check_changelog("9.9.9")
    with pytest.raises(distribution.CheckError, match="exit code 1\nno"):
        distribution.run("sh", "-c", "echo no; exit 1")


def test_extras_of_users_alone_are_listed(tmp_path: Path) -> None:
    text = "Provides-Extra: gcp\nProvides-Extra: dev\nProvides-Extra: aws\n"
    wheel = make_wheel(tmp_path, **{"dptrees-1.dist-info/METADATA": text})
    assert distribution.extras(wheel) == ["aws", "gcp"]


@pytest.mark.skipif(not (PROJECT / ".git").exists(), reason="no checkout of git")
def test_settings_of_a_user_of_git_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends of lines and rights are those of the commit."""
    settings = {"core.autocrlf": "true", "tar.umask": "0077"}
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(settings)))
    for number, (name, value) in enumerate(settings.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", name)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    distribution.export_commit(tmp_path)
    setup = tmp_path / "setup.py"
    assert b"\r" not in setup.read_bytes()
    assert setup.stat().st_mode & 0o777 == 0o644
