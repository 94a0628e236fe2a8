"""Pages that follow from the code.

    python -m tests.docs.drawn --write

draws them anew (`make drawn`); a test sees that they are as committed.
"""

from __future__ import annotations

import argparse

from tests.docs import commands, configuration

PAGES = (commands, configuration)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw the pages that follow from the code.")
    parser.add_argument("--write", action="store_true", help="into docs/")
    chosen = parser.parse_args()
    for page in PAGES:
        if chosen.write:
            page.PAGE.write_text(page.drawing(), encoding="utf-8")
        else:
            print(page.drawing())
