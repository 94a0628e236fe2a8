"""The command, with a release that waits for a minute before it is made.

python -m tests.pipelines.faults.slow_release release CONFIG ...
"""

from __future__ import annotations

import logging
import sys
import threading

from dptrees.pipelines.cli.command import main


def slow_main() -> int:
    """Run the command, whose releases wait as a launcher waits for an engine."""
    logging.disable(logging.WARNING)  # Beam warns while it is imported
    from dptrees.pipelines.run import releasing

    logging.disable(logging.NOTSET)
    make = releasing.made
    releasing.made = lambda stage: (threading.Event().wait(60), make(stage))[1]
    return main()


if __name__ == "__main__":
    sys.exit(slow_main())
