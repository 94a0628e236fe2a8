"""The command ``dptrees``: what a person or a scheduler runs.

Exit codes: 0 done; 2 the user's mistake, told in one sentence on standard error; 1 anything else.
Beam is imported by ``release`` alone, so that the other commands answer at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from dpcore import __version__
from pipelines.commands.command_parser import CommandParser
from pipelines.commands.completion import add_completion
from pipelines.commands.init import add_init
from pipelines.commands.keygen import add_keygen
from pipelines.commands.ledger import add_ledger
from pipelines.commands.plan import add_plan
from pipelines.commands.query import add_query
from pipelines.commands.release import add_release
from pipelines.commands.report import add_report
from pipelines.commands.sample import add_sample
from pipelines.commands.schema import add_schema
from pipelines.commands.verify import add_verify
from pipelines.terminal_text import print_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = command_parser()
    chosen, rest = parser.parse_known_args(arguments)
    if rest and chosen.command != "release":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        code = int(chosen.run(chosen, rest))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of a pipe has gone, as with `| head`
        # Else Python complains at exit that it cannot flush what nobody reads.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print_line("dptrees: stopped", file=sys.stderr)
        return 130
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        print_line(f"dptrees: {sentence}", file=sys.stderr)
        return 2


def _sentence(error: Exception) -> str | None:
    """What a user's mistake is told as; None for a fault of the program."""
    from pipelines.release_folder import FolderError
    from pipelines.sections.error import ConfigurationError
    from pipelines.user_error import UserError
    from transforms.errors import ReleaseError

    if isinstance(error, ReleaseError):
        return error.sentence
    if isinstance(error, (UserError, ConfigurationError, FolderError)):
        return str(error)
    return None


def command_parser() -> CommandParser:
    """The whole command line."""
    parser = CommandParser(
        prog="dptrees", description="Differentially private counts over trees, on Apache Beam."
    )
    parser.add_argument("--version", action="version", version=f"dptrees {__version__}")
    parser.set_defaults(whole=parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_init(commands)
    add_plan(commands)
    add_keygen(commands)
    add_release(commands)
    add_query(commands)
    add_sample(commands)
    add_report(commands)
    add_verify(commands)
    add_ledger(commands)
    add_schema(commands)
    add_completion(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
