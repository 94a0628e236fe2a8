"""Beam, imported when it is first needed: it takes a second, and warns of what it does not find."""

from __future__ import annotations

import logging
from types import ModuleType


def quiet_import() -> tuple[ModuleType, ModuleType]:
    """The modules that make releases."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        from pipelines.python import making
        from pipelines.running import output
    finally:
        logging.disable(disabled)
    return making, output
