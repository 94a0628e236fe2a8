"""Beam, imported when it is first needed: it takes a second, and warns of what it does not find."""

from __future__ import annotations

import logging
from types import ModuleType


def quiet_import() -> ModuleType:
    """Return the module that makes releases."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        from pipelines.python import making
    finally:
        logging.disable(disabled)
    return making
