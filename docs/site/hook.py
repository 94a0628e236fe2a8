"""What the site has beside docs/: pages of the project's other folders, and the list of decisions.

A link that leaves docs/ is right where the project is read in its folder. On the site it leads to
the page that is made of its target here; to a source that is no page, it is words.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

PROJECT = Path(__file__).resolve().parents[2]

# What links that leave docs/ lead to, from the project's folder, and its place on the site.
TAKEN = {
    "CHANGELOG.md": "changes.md",
    "deploy": "deploy/index.md",
    "README.md": "index.md",
    **{f"examples/{path.name}": f"examples/{path.name}" for path in PROJECT.glob("examples/*.*")},
}

# A part of a page that is there with a file of the project.
_IF = re.compile(r"^<!-- if: (\S+) -->\n(.*?)^<!-- end -->\n", re.MULTILINE | re.DOTALL)
# A link whose words are the name of its file, which is right in the folder.
_NAMED = re.compile(r"\[(?:docs/)?[\w./-]+\.md\]\(([\w./-]+\.md)(#[^)\s]*)?\)")
_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+?)/?(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Fills the list of decisions."""
    docs = Path(config["docs_dir"])
    decisions = [f"decisions/{path.name}" for path in sorted(docs.glob("decisions/[0-9]*.md"))]
    config["nav"] = _filled(config["nav"], decisions)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds what lies outside docs/."""
    for source, place in TAKEN.items():
        path = PROJECT / source
        if path.is_file() and files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Turns links that leave docs/ to their places, gives those that are named after a file its
    title, and leaves out what there is no file for."""
    folder = os.path.dirname(page.file.src_uri)
    if page.file.src_uri == TAKEN["CHANGELOG.md"]:
        # Its links start in the project's folder, where the page is read without the site.
        markdown = markdown.replace("](docs/", "](")

    def turned(link: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join("docs", folder, link[2]))
        if target in TAKEN:
            return f"[{link[1]}]({os.path.relpath(TAKEN[target], folder or '.')}{link[3] or ''})"
        is_source = not target.startswith("docs/") and (PROJECT / target).exists()
        return link[1] if is_source else link[0]

    def titled(link: re.Match[str]) -> str:
        target = Path(config["docs_dir"], folder, link[1])
        if not target.is_file():
            return link[0]
        title = target.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        return f"[{title}]({link[1]}{link[2] or ''})"

    there = _IF.sub(lambda part: part[2] if (PROJECT / part[1]).is_file() else "", markdown)
    return _LINK.sub(turned, _NAMED.sub(titled, there))


def _filled(nav: list[Any], decisions: list[str]) -> list[Any]:
    filled: list[Any] = []
    for entry in nav:
        if isinstance(entry, dict):
            (title, inner), *_ = entry.items()
            if isinstance(inner, list):
                filled.append({title: _filled(inner, decisions)})
            else:
                filled.append(entry)
        else:
            filled.append(entry)
            if entry == "decisions/index.md":
                filled += decisions
    return filled
