"""The command ``dptrees``, as ``python -m dptrees``."""

import sys

from dptrees.pipelines.command import main

sys.exit(main())
