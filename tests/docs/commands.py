"""All commands with their options, from the parsers that read a command line.

    python -m tests.docs.drawn --write

writes docs/reference/commands.md; a test sees that it is as committed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

from dptrees.pipelines.cli.command import command_parser
from dptrees.pipelines.cli.release_commands import CommandParser

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "reference" / "commands.md"

INTRODUCTION = """\
# Commands

Every command with what it takes, drawn from the parsers of the command line; `dptrees COMMAND
--help` says the same. RELEASE is the folder of a release, CONFIG the YAML file that describes one.
Exit code 0: done; 2: an error that you can fix, reported in one sentence.

<!-- drawn by python -m tests.docs.drawn --write; do not edit -->
"""


def drawing() -> str:
    """The page."""
    lines = [INTRODUCTION]
    for names, help_text, parser in _leaves(("dptrees",), "", command_parser()):
        lines += _section(names, help_text, parser)
    return "\n".join(lines).rstrip("\n") + "\n"


def _leaves(
    names: tuple[str, ...], help_text: str, parser: CommandParser
) -> Iterator[tuple[tuple[str, ...], str, argparse.ArgumentParser]]:
    """Yields commands that have no others below them, with their help."""
    actions = parser.filled()._actions
    below = next((each for each in actions if isinstance(each, argparse._SubParsersAction)), None)
    if below is None:
        yield names, help_text, parser
        return
    helps = {each.dest: each.help or "" for each in below._choices_actions}
    for name, inner in below.choices.items():
        yield from _leaves((*names, *_places(parser), name), helps.get(name, ""), inner)


def _places(parser: argparse.ArgumentParser) -> list[str]:
    """The words before the name of a command below this one."""
    return [
        str(each.metavar or each.dest)
        for each in parser._actions
        if not each.option_strings and not isinstance(each, argparse._SubParsersAction)
    ]


def _section(
    names: tuple[str, ...], help_text: str, parser: argparse.ArgumentParser
) -> Iterator[str]:
    places = [_words(each) for each in parser._actions if not each.option_strings]
    yield f"## `{' '.join(name for name in names[1:] if not name.isupper())}`\n"
    text = _shown_help(parser.description or help_text, {"prog": parser.prog})
    yield f"{text[:1].upper()}{text[1:].rstrip('.')}.\n"
    yield f"```\n{' '.join([*names, *places])} [OPTION ...]\n```\n"
    rows = [each for each in parser._actions if each.dest != "help"]
    if rows:
        yield "| argument | what it is |\n|---|---|"
    for each in rows:
        reported = _shown_help(each.help or "", {**vars(each), "prog": parser.prog})
        needed = "; required" if each.option_strings and each.required else ""
        yield f"| `{_words(each)}` | {reported}{needed} |"
    yield ""


def _shown_help(help_text: str, values: Mapping[str, object]) -> str:
    """The help of an argument as argparse shows it, without what Markdown would read otherwise."""
    reported = (help_text % values).strip()
    return "".join({"<": "&lt;", "*": "\\*", "|": "\\|", "`": "\\`"}.get(c, c) for c in reported)


def _words(action: argparse.Action) -> str:
    """An option or a place as it is written on a command line."""
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    metavar = action.metavar or ("/".join(map(str, action.choices)) if action.choices else None)
    if isinstance(metavar, tuple):
        value = " ".join(metavar)
    else:
        value = str(metavar or action.dest.upper())
        value = {"+": f"{value} ...", "*": f"[{value} ...]", "?": f"[{value}]"}.get(
            str(action.nargs), value
        )
    return f"{names} {value}".strip()
