"""The parser of a command line, and what several commands take."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn, TypeAlias

from pipelines.terminal_text import escaped


class CommandParser(argparse.ArgumentParser):
    """Argparse, whose refusals repeat an argument as it was given."""

    def error(self, message: str) -> NoReturn:
        super().error(escaped(message))


Commands: TypeAlias = "argparse._SubParsersAction[CommandParser]"
Run = Callable[[argparse.Namespace, list[str]], int]


def add_command(commands: Commands, name: str, text: str, run: Run) -> argparse.ArgumentParser:
    """A command that is run by a function of the chosen options and of those that are left."""
    # Abbreviated options of ours would shadow Beam's.
    parser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    parser.set_defaults(run=run)
    return parser


def add_config(parser: argparse.ArgumentParser) -> None:
    """Takes the configuration and its parameters."""
    parser.add_argument("config", metavar="CONFIG", help="the release's YAML file")
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
