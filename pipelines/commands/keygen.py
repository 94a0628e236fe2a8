"""The command `keygen`."""

from __future__ import annotations

import argparse

from pipelines.commands.command_parser import Commands, add_command


def add_keygen(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from pipelines.keygen import run_keygen, run_rotation, run_signing_keygen

        if chosen.signing:
            return run_signing_keygen(chosen.file)
        return run_rotation(chosen.file) if chosen.rotate else run_keygen(chosen.file)

    parser = add_command(commands, "keygen", "Make a release key in a new file, yours alone.", run)
    parser.add_argument("file", metavar="FILE")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--rotate",
        action="store_true",
        help="make a new key the current one of FILE, and keep the others as retired",
    )
    what.add_argument(
        "--signing",
        action="store_true",
        help="make a key that signs manifests instead, and its public key in FILE.pub",
    )
