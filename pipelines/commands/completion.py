"""The command `completion`."""

from __future__ import annotations

import argparse

from dptrees.pipelines.commands.command_parser import Commands, add_command
from dptrees.pipelines.terminal_text import print_line

SHELLS = ("bash", "zsh", "fish")
# What a shell is to complete, by the names that the help gives to arguments.
_FILES = ("CONFIG", "FILE", "FILE.pub", "DATA")
_FOLDERS = ("RELEASE",)


def add_completion(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        for line in completion_text(chosen.whole, chosen.shell).splitlines():
            print_line(line)
        return 0

    parser = add_command(commands, "completion", "Print a completion script for a shell.", run)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def completion_text(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script of a shell that completes commands, options, files and folders.

    Args:
        parser: of the whole command line.
        shell: one of `SHELLS`.
    """
    import shtab

    _name_files(parser, shtab.FILE, shtab.DIRECTORY)
    return str(shtab.complete(parser, shell=shell))


def _name_files(parser: argparse.ArgumentParser, file: object, folder: object) -> None:
    """Says which arguments are files and which are folders, in a parser and all below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _name_files(below, file, folder)
        elif action.metavar in _FILES:
            action.complete = file  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = folder  # type: ignore[attr-defined]
