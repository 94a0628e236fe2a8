"""The command ``dptrees``, as ``python -m dptrees``."""

import sys

from dptrees.pipelines.cli.command import main

sys.exit(main())
