"""Which licence each package of the images has, as a page, from the list of all extras.

python3 deploy/container/licences.py build/container/sbom.cdx.json >deploy/container/licences.md

Ends with 1 and a sentence where a package has a licence that nobody has looked at.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

# Licences that require their text and the names of the authors, which each package has with it.
PERMISSIVE = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python"),
        *("ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Python-2.0", "Zlib"),
    }
)
# Licences that require more of people who change the package; the images have it unchanged, except
# that slim.py removes files.
COPYLEFT = {
    "LGPL-3.0-only": "loaded as a module of its own, which may be exchanged",
    "MPL-2.0": "file by file; none is changed",
}
# Packages whose metadata name no licence in a form that programs read: from their licence files.
READ = {
    "google-cloud-aiplatform": "Apache-2.0",
    "google-cloud-bigquery": "Apache-2.0",
    "protobuf": "BSD-3-Clause",
}
# Classifiers of packages that do not say it by an identifier.
CLASSIFIERS = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
HEAD = """\
# Licences of the packages in the images

The packages of the lock for Python {python} with every extra, and the licences that they declare.
An image has those of the extras that it was built with; the text of each licence is in the image,
in the package's `dist-info`. `make licences` writes this page, and fails at a licence that is not
in `deploy/container/licences.py`.

"""
TAIL = """
Not packages of Python:

- The wheels of NumPy and SciPy hold OpenBLAS (BSD-3-Clause) with the run-time libraries of GCC:
  libgfortran (GPL-3.0 with the GCC Runtime Library Exception) and libquadmath (LGPL-2.1). That of
  psycopg holds libpq and what it needs (OpenSSL, Kerberos, OpenLDAP, SASL), that of pillow the
  libraries of formats of pictures: all permissive, and the wheels hold their licences.
- `/opt/apache/beam/boot` of the worker is Apache Beam's (Apache-2.0), linked with Go modules.
- The base image lists the licences of its packages in `/usr/share/doc/*/copyright`.
"""


def licence_of(component: dict[str, Any]) -> str:
    """The licence of a component, as an SPDX expression where its metadata allow.

    >>> licence_of({"name": "certifi", "licenses": [{"license": {"id": "MPL-2.0"}}]})
    'MPL-2.0'
    >>> licence_of({"name": "numpy", "licenses": [{"expression": "BSD-3-Clause AND MIT"}]})
    'BSD-3-Clause AND MIT'
    >>> licence_of({"name": "unheard-of"})
    ''
    """
    found: list[str] = []
    for each in component.get("licenses", []):
        named = each.get("license", {})
        name = each.get("expression") or named.get("id") or named.get("name", "")
        found.append(CLASSIFIERS.get(name, name))
    exact = {each.partition("-")[0] for each in found if "-" in each}
    # A classifier that says no more than the identifier beside it.
    found = [each for each in found if each not in exact]
    return " AND ".join(dict.fromkeys(found)) or READ.get(component["name"], "")


def parts_of(licence: str) -> set[str]:
    """The identifiers in an expression.

    >>> sorted(parts_of("MPL-2.0 AND (Apache-2.0 OR MIT)"))
    ['Apache-2.0', 'MIT', 'MPL-2.0']
    """
    return set(re.findall(r"[\w.-]+", licence)) - {"AND", "OR"}


def page(bill: dict[str, Any], python: str) -> str:
    """The page of a bill of materials.

    Args:
        bill: CycloneDX, as JSON is loaded.
        python: the version whose lock it lists.

    Returns:
        Markdown, a row a package.

    Raises:
        ValueError: a package has a licence that is neither permissive nor known here.
    """
    rows = ["| package | version | licence |", "|---|---|---|"]
    copyleft: dict[str, list[str]] = {}
    for component in sorted(bill["components"], key=lambda each: str(each["name"]).lower()):
        name, licence = component["name"], licence_of(component)
        if name == "dptrees":
            continue
        unknown = parts_of(licence) - PERMISSIVE - set(COPYLEFT)
        if unknown or not licence:
            raise ValueError(f"{name} has the licence {licence or '(none told)'}: look at it.")
        for each in parts_of(licence) & set(COPYLEFT):
            copyleft.setdefault(each, []).append(name)
        rows.append(f"| {name} | {component['version']} | {licence} |")
    told = [
        f"- {each}: {', '.join(names)} ({COPYLEFT[each]})"
        for each, names in sorted(copyleft.items())
    ]
    lead = "Copyleft, all of it weak, and none that dptrees (Apache-2.0) may not be shipped with:\n"
    return HEAD.format(python=python) + "\n".join([lead, *told, "", *rows]) + "\n" + TAIL


def main() -> int:
    """Print the page of the list that is named."""
    bill = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        sys.stdout.write(page(bill, sys.argv[2] if len(sys.argv) > 2 else "3.11"))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
