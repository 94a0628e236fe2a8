"""Signatures of manifests, which prove who made a release.

The signature is Ed25519 over the exact bytes of manifest.json, 64 bytes in manifest.sig beside
it. The manifest names every table by its SHA-256, so all tables are signed; the page and a
series' totals to date follow from them. Signing is deterministic: a retry writes the same bytes.
Only the launcher needs the signing key, which has nothing to do with the release key. Any other
tool can check it:

    openssl pkeyutl -verify -pubin -inkey signing.pem.pub -rawin -in manifest.json -sigfile
    manifest.sig

Source: RFC 8032 (Ed25519), RFC 8410 (its keys in PEM).
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from dptrees.pipelines.process import UserError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.names import MANIFEST, SIGNATURE
from dptrees.transforms.keys import find_scheme, read_private_file

PUBLIC_SUFFIX = ".pub"
_LARGEST_FILE = 2**16


def new_signing_key() -> tuple[str, str]:
    """A new pair of keys from the operating system's randomness, in PEM: private and public."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private.decode("ascii"), public.decode("ascii")


def load_signing_key(reference: str) -> Ed25519PrivateKey:
    """Load the private key that signs manifests.

    Args:
        reference: the place of the key, one of `transforms.keys`.

    Raises:
        UserError, SecretError: it is missing, open to others or none of Ed25519.
    """
    kind, _, place = reference.partition(":")
    if kind == "file":
        text = read_private_file(place, "signing_key", "signing key", "keygen --signing")
    else:
        text = find_scheme(reference).load(reference, "signing_key")
    try:
        key = load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(
            f"signing_key: {reference} is not an Ed25519 private key in PEM without a "
            "password; make one with: dptrees keygen --signing FILE"
        )
    return key


def sign_release(folder: str, reference: str, *, made: bool) -> None:
    """Write the signature of the manifest of a finished release: the same bytes for the same bytes.

    Args:
        folder: of the release, on any Beam filesystem.
        reference: the place of the signing key; not loaded if an existing release has a signature.
        made: whether this run made the release, so that a signature there is older than it.

    Raises:
        UserError, SecretError: there is no such key.
        OutputError: the signature cannot be written.
    """
    path = files.join(folder, SIGNATURE)
    if made or not files.exists(path):
        manifest = files.read_bytes(files.join(folder, MANIFEST))
        files.write_whole(path, load_signing_key(reference).sign(manifest))


def load_signer(path: str) -> Ed25519PublicKey:
    """The public key of a file.

    Raises:
        UserError: it cannot be read, or is none of Ed25519.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST_FILE)
    except OSError as error:
        raise UserError(f"--signer: {path} cannot be read: {error.strerror}") from None
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise UserError(
            f"--signer: {path} is not an Ed25519 public key in PEM; dptrees keygen --signing FILE "
            f"writes it to FILE{PUBLIC_SUFFIX}"
        )
    return key


def is_signed(manifest: bytes, signature: bytes, signer: Ed25519PublicKey) -> bool:
    """Whether a signature is that of a signer and a manifest."""
    try:
        signer.verify(signature, manifest)
    except InvalidSignature:
        return False
    return True
