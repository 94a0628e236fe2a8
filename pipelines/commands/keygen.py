"""The command `keygen`."""

from __future__ import annotations

import argparse

from dptrees.pipelines.commands.command_parser import Commands, add_command


def add_keygen(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from dptrees.pipelines.keygen import run_keygen, run_rotation, run_signing_keygen

        if chosen.signing:
            return run_signing_keygen(chosen.file)
        return run_rotation(chosen.file) if chosen.rotate else run_keygen(chosen.file)

    parser = add_command(
        commands, "keygen", "Make a release key in a new file that only you can read.", run
    )
    parser.add_argument("file", metavar="FILE", help="a new file; with --rotate, a file of keys")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--rotate",
        action="store_true",
        help="add a new key to FILE as the current key, and keep the others as retired keys",
    )
    what.add_argument(
        "--signing",
        action="store_true",
        help="make a key for signing manifests instead; its public key is written to FILE.pub",
    )
