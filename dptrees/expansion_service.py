"""An expansion service for pipelines in Java, Go and other languages.

    python -m dptrees.expansion_service --port 8097 --environment_type=...

It expands `DPTree` by its URN; the module that it imports has the rules.
"""

import sys

from dptrees.pipelines.beam_yaml import main

if __name__ == "__main__":
    sys.exit(main())
