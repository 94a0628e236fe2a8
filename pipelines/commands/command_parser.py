"""The parser of a command line, and what several commands take."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable
from typing import NoReturn, TypeAlias

from dptrees.pipelines.commands.examples import examples_text
from dptrees.pipelines.terminal_text import escaped

_NO_CHOICE = re.compile(r"invalid choice: '(?P<word>[^']*)' \(choose from (?P<known>.*)\)")
_NO_OPTION = re.compile(r"unrecognized arguments: (--[\w-]+)")


class CommandParser(argparse.ArgumentParser):
    """Argparse, whose refusals repeat an argument as it was given."""

    def error(self, message: str) -> NoReturn:
        super().error(escaped(message + self._nearest(message)))

    def _nearest(self, message: str) -> str:
        """What may be meant by a word or an option that there is not."""
        if choice := _NO_CHOICE.search(message):
            known = re.findall(r"[\w-]+", choice["known"])
            near = difflib.get_close_matches(choice["word"], known, n=1)
            return f"; did you mean {near[0]}?" if near else ""
        unknown = _NO_OPTION.match(message)
        near = difflib.get_close_matches(unknown[1], self.options(), 1, 0.7) if unknown else []
        if not near:
            return ""
        # Another command's, or of another question.
        is_misplaced = unknown is not None and near[0] == unknown[1]
        return (
            "; it belongs to another command or query"
            if is_misplaced
            else f"; did you mean {near[0]}?"
        )

    def options(self) -> list[str]:
        """All options of the parser and of those below it."""
        result: list[str] = []
        for action in self._actions:
            result += action.option_strings
            below = action.choices if isinstance(action.choices, dict) else {}
            for parser in below.values():
                result += parser.options()
        return result


Commands: TypeAlias = "argparse._SubParsersAction[CommandParser]"
Run = Callable[[argparse.Namespace, list[str]], int]


def add_command(commands: Commands, name: str, text: str, run: Run) -> argparse.ArgumentParser:
    """A command that is run by a function of the chosen options and of those that are left."""
    # Abbreviated options of ours would shadow Beam's.
    parser = commands.add_parser(
        name,
        help=text,
        description=text,
        epilog=examples_text(name),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def add_config(parser: argparse.ArgumentParser) -> None:
    """Takes the configuration and its parameters."""
    parser.add_argument("config", metavar="CONFIG", help="the YAML file of the release")
    add_set(parser)


def add_set(parser: argparse.ArgumentParser) -> None:
    """Takes parameters of a configuration."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the configuration, for ${NAME} in it; may be given several times",
    )
