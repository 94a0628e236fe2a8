"""Name images by digest in the manifests, so that every pod runs the image that was scanned.

    python3 deploy/container/pin.py REGISTRY/dptrees-worker@sha256:DIGEST flink@sha256:DIGEST ...
    python3 deploy/container/pin.py --file FOLDER/kustomization.yaml ...

A tag can be moved to another image; a digest cannot. The program edits the list `images` of
deploy/kubernetes/images/kustomization.yaml, which kustomize applies to all manifests, and keeps its
comments. An entry is chosen by its `name`, or by the last part of it: the registry may differ.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

PLACE = Path(__file__).resolve().parents[1] / "kubernetes" / "images" / "kustomization.yaml"
REFERENCE = re.compile(r"([^@\s]+)@(sha256:[0-9a-f]{64})")


def pinned(text: str, image: str, digest: str) -> str:
    """Return a kustomization with one image named by digest.

    Args:
        text: of the kustomization.
        image: name with its registry, without a tag.
        digest: `sha256:` and 64 hexadecimal digits.

    Returns:
        The text, in which the image's entry has `newName` and `digest`, and no `newTag`.

    Raises:
        ValueError: the list has no such image.

    >>> text = "images:\\n  - name: flink\\n    newTag: 1.19.3\\n"
    >>> print(pinned(text, "r.example/flink", "sha256:0"))
    images:
      - name: flink
        newName: r.example/flink
        digest: sha256:0
    <BLANKLINE>
    """
    last = re.escape(image.rpartition("/")[2])
    entry = re.compile(rf"^( *)- name: (?:\S+/)?{last}\n(?:\1  .*\n?)*", re.MULTILINE)
    match = entry.search(text)
    if match is None:
        names = ", ".join(re.findall(r"- name: (\S+)", text))
        raise ValueError(f"{image}: is not an image of the manifests ({names})")
    indent, first = match[1], match[0].splitlines()[0]
    lines = [first, f"{indent}  newName: {image}", f"{indent}  digest: {digest}"]
    return text[: match.start()] + "\n".join(lines) + "\n" + text[match.end() :]


def main(arguments: list[str]) -> int:
    """Pin the images that are named; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--file", type=Path, default=PLACE)
    parser.add_argument("images", nargs="+", metavar="IMAGE@sha256:DIGEST")
    given = parser.parse_args(arguments)
    text = given.file.read_text(encoding="utf-8")
    for reference in given.images:
        match = REFERENCE.fullmatch(reference)
        if match is None or ":" in match[1].rpartition("/")[2]:
            print(
                f"{reference}: must be IMAGE@sha256: with 64 hexadecimal digits, and no tag",
                file=sys.stderr,
            )
            return 2
        try:
            text = pinned(text, *match.groups())
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    given.file.write_text(text, encoding="utf-8")
    print(f"{given.file}: {len(given.images)} images are named by digest")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
