"""Divide the lock of all extras into the lock of the product and an addition for each extra.

    python3 deploy/container/divide_lock.py build/tools/bin/uv 3.11 LOCK aws gcp

LOCK is the output of `uv pip compile` for setup.py with every extra, so that one version of each
package goes with all of them. `make locks` calls this program. It writes python3.11.txt, the
packages that every image has, and python3.11-aws.txt, the other packages that dptrees[aws] needs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
LOCKS = Path(__file__).resolve().parent / "locks"


def package_name(requirement: str) -> str:
    """Return the normal name of a requirement's package.

    >>> package_name("backports.tarfile==1.2.0 ; python_full_version < '3.12'")
    'backports-tarfile'
    """
    return re.sub(r"[-_.]+", "-", re.split(r"[ =;\\[]", requirement, maxsplit=1)[0]).lower()


def lock_entries(text: str) -> list[tuple[str, str]]:
    r"""Return each package of a lock with its lines: version, hashes and comments.

    >>> lock_entries("# made by\nSix==1.17.0 \\\n    --hash=sha256:aa\n    # via x\nzipp==4.1.2\n")
    [('six', 'Six==1.17.0 \\\n    --hash=sha256:aa\n    # via x\n'), ('zipp', 'zipp==4.1.2\n')]
    """
    found: list[tuple[str, str]] = []
    for line in text.splitlines(keepends=True):
        if line[0] not in " #\n":
            found.append((package_name(line), line))
        elif line.startswith(" ") and found:
            name, lines = found[-1]
            found[-1] = (name, lines + line)
    return found


def required_names(uv: str, python: str, lock: Path, *extras: str) -> set[str]:
    """Return the packages that dptrees with some extras needs, in the versions of a lock."""
    command = [uv, "pip", "compile", "--quiet", "--universal", "--no-annotate", "--no-header"]
    command += ["--python-version", python, "--constraint", str(lock), "setup.py"]
    command += [f"--extra={each}" for each in extras]
    done = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True)
    return {package_name(line) for line in done.stdout.splitlines() if line}


def main(uv: str, python: str, lock: str, *extras: str) -> None:
    """Write the lock of one Python and its additions."""
    entries = lock_entries(Path(lock).read_text(encoding="utf-8"))
    common = required_names(uv, python, Path(lock))
    parts = {"": common}
    parts |= {each: required_names(uv, python, Path(lock), each) - common for each in extras}
    unassigned = {name for name, _ in entries} - set().union(*parts.values())
    if unassigned:
        raise SystemExit(f"{lock}: no extra needs {', '.join(sorted(unassigned))}")
    for extra, names in parts.items():
        title = f"The packages of dptrees[{extra}], in addition to python{python}.txt."
        path = LOCKS / f"python{python}{extra and '-'}{extra}.txt"
        text = "".join(lines for name, lines in entries if name in names)
        head = title if extra else "The packages of dptrees without extras."
        path.write_text(f"# {head} Written by `make locks`.\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
