"""The JSON Schema of a whole configuration."""

from __future__ import annotations

import json

from dptrees.pipelines.schema.sections import section_schema
from dptrees.pipelines.schema.values import DEFINITIONS
from dptrees.pipelines.sections.release import all_kinds, release_section
from dptrees.pipelines.terminal_text import print_line


def configuration_schema() -> str:
    """The schema as the text of a file, the same on every machine."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of a release of dptrees",
        "$defs": DEFINITIONS,
    }
    return json.dumps(head | section_schema(release_section(all_kinds())), indent=1) + "\n"


def run_schema() -> int:
    """Prints the schema."""
    for line in configuration_schema().splitlines():
        print_line(line)
    return 0
