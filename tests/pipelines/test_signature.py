"""Signed manifests: by the launcher, the same bytes again, and checked by other tools too."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dptrees.pipelines.proof.signature import is_signed, load_signer
from tests.pipelines.conftest import Change, Workspace, assert_refused, put


@pytest.fixture
def signing(workspace: Workspace) -> Path:
    path = workspace.folder / "signing.pem"
    workspace.succeed("keygen", "--signing", path)
    return path


def signed_by(path: object) -> Change:
    return put("signing_key", str(path))


def test_keys_are_a_private_and_a_public_file(signing: Path, workspace: Workspace) -> None:
    public = signing.with_name("signing.pem.pub")
    assert stat.S_IMODE(signing.stat().st_mode) == 0o600
    assert "PRIVATE" not in public.read_text()
    before = signing.read_bytes()
    assert workspace.run("keygen", "--signing", signing).code == 2
    signing.rename(signing.with_name("other"))
    again = workspace.run("keygen", "--signing", signing)
    assert again.code == 2 and f"{public} exists already" in again.err
    assert not signing.exists() and signing.with_name("other").read_bytes() == before


def test_the_manifest_is_signed_and_a_retry_gives_the_same_bytes(
    workspace: Workspace, signing: Path
) -> None:
    workspace.make(signed_by(signing))
    sig, manifest = workspace.output / "manifest.sig", workspace.output / "manifest.json"
    signature, text = sig.read_bytes(), manifest.read_bytes()
    signer = load_signer(f"{signing}.pub")
    assert is_signed(text, signature, signer)
    assert not is_signed(text.replace(b'"epsilon": "1"', b'"epsilon": "2"'), signature, signer)
    sig.unlink()  # killed between the manifest and its signature
    workspace.make(signed_by(signing))
    assert sig.read_bytes() == signature
    signing.unlink()  # a release that is finished and signed needs no key
    workspace.make(signed_by(signing))
    assert manifest.read_bytes() == text


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_checks_the_signature(workspace: Workspace, signing: Path) -> None:
    workspace.make(signed_by(f"file:{signing}"))
    verify = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", f"{signing}.pub", "-rawin"]
    verify += ["-in", "manifest.json", "-sigfile", "manifest.sig"]
    done = subprocess.run(verify, cwd=workspace.output, capture_output=True, text=True)
    assert done.returncode == 0 and "Successfully" in done.stdout
    text = (workspace.output / "manifest.json").read_bytes()
    (workspace.output / "manifest.json").write_bytes(text + b" ")
    assert subprocess.run(verify, cwd=workspace.output, capture_output=True).returncode != 0


def test_the_signing_key_is_not_in_the_job(
    workspace: Workspace, signing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPTREES_TEST_SIGNING", signing.read_text())
    signing.unlink()
    workspace.make(signed_by("env:DPTREES_TEST_SIGNING"))
    assert (workspace.output / "manifest.sig").exists()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "signing_key: {path} does not exist; make it with: dptrees "),
        (lambda path: path.chmod(0o644), "signing_key: {path} can be read by others"),
        (lambda path: path.write_text("Miriam-4711"), "signing_key: file:{path} is not an Ed25519"),
        (lambda path: path.write_text("Mirïam"), "signing_key: {path} is not a signing key"),
    ],
)
def test_a_key_that_cannot_sign_is_reported_before_a_row_is_read(
    workspace: Workspace, signing: Path, spoil: Any, words: str
) -> None:
    spoil(signing)
    outcome = workspace.release(signed_by(signing))
    assert_refused(workspace, outcome, words.format(path=signing))
    assert "4711" not in outcome.err
    assert not workspace.output.exists()


def test_a_key_of_another_kind(workspace: Workspace) -> None:
    path = workspace.folder / "rsa.pem"
    made = subprocess.run(["openssl", "genrsa", "-out", path, "2048"], capture_output=True)
    if made.returncode:
        pytest.skip("openssl is not installed")
    path.chmod(0o600)
    assert "is not an Ed25519 private key" in workspace.release(signed_by(path)).err


def test_what_is_no_place_of_a_key(workspace: Workspace) -> None:
    for value in ("", 3, "env:1x", "-----BEGIN PRIVATE KEY-----\nMiriam-4711", ["a"]):
        outcome = workspace.release(put("signing_key", value))
        assert outcome.code == 2 and "signing_key: must be the p" in outcome.err
        assert "4711" not in outcome.err and not workspace.output.exists()


def test_an_edited_page_is_not_said_to_be_the_signer_s(workspace: Workspace, signing: Path) -> None:
    """The manifest does not name it: it is made again from the tables, and compared."""
    workspace.make(signed_by(signing))
    command = ("verify", workspace.output, "--signer", f"{signing}.pub")
    whole = workspace.run(*command)
    assert whole.code == 0 and "ok       page: report.html is the page of these tables" in whole.out
    page = workspace.output / "report.html"
    page.write_text(page.read_text().replace("</h1>", ", edited</h1>"))
    edited = workspace.run(*command)
    assert "FAILED   page: report.html is not the page" in edited.out
    assert "ok       signature" in edited.out and edited.code == 2
    workspace.succeed("report", workspace.output)
    assert workspace.run(*command).out == whole.out
