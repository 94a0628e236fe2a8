"""The command `verify`."""

from __future__ import annotations

import argparse
import logging

from dptrees.pipelines.commands.command_parser import Commands, add_command, add_set


def add_verify(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        if chosen.data:
            logging.getLogger().setLevel(logging.CRITICAL)  # as of release
        from dptrees.pipelines.proof.verifying import run_verify

        return run_verify(chosen)

    parser = add_command(
        commands,
        "verify",
        "Check that a release is complete and unchanged; optionally compare it with its key "
        "and its rows.",
        run,
    )
    parser.add_argument("release", metavar="RELEASE", help="the folder of the release")
    parser.add_argument(
        "--signer", metavar="FILE.pub", help="the public key that must have signed the manifest"
    )
    parser.add_argument(
        "--key",
        metavar="FILE",
        help="the key of the release: its file, or a reference such as env:NAME; see also --data",
    )
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="CONFIG",
        help="the configuration of the release, or files of its rows: make the release again in "
        "memory and compare every bit, which shows whether the release was made from these "
        "rows",
    )
    add_set(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
