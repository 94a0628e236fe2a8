"""The command `schema`."""

from __future__ import annotations

import argparse

from dptrees.pipelines.commands.command_parser import Commands, add_command


def add_schema(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from dptrees.pipelines.schema.document import run_schema

        return run_schema()

    add_command(commands, "schema", "Print the JSON Schema of a configuration, for editors.", run)
