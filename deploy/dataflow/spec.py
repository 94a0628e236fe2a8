"""Prints the specification of the Flex template: its image, with metadata.json.

    python deploy/dataflow/spec.py REGISTRY/dptrees-template:VERSION > dptrees.json

`gcloud dataflow flex-template build` writes the same, and asks for the rights of a builder.
"""

import json
import sys
from pathlib import Path


def spec(image: str) -> dict[str, object]:
    """What Dataflow reads to launch the template."""
    metadata = json.loads((Path(__file__).parent / "metadata.json").read_text(encoding="utf-8"))
    return {"image": image, "sdkInfo": {"language": "PYTHON"}, "metadata": metadata}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python deploy/dataflow/spec.py IMAGE")
    sys.stdout.write(json.dumps(spec(sys.argv[1]), indent=1) + "\n")
