"""Import of Beam on first use: it takes a second, and warns of packages that it does not find."""

from __future__ import annotations

import gc
import logging
import sys
from types import ModuleType

_MAKING = "dptrees.pipelines.python.making"


def quiet_import() -> ModuleType:
    """Import the module that makes releases, without the warnings of Beam, and return it."""
    if (there := sys.modules.get(_MAKING)) is not None:
        return there
    disabled, collects = logging.root.manager.disable, gc.isenabled()
    logging.disable(logging.WARNING)
    # An import leaves no cycles to collect, and looking for them takes a tenth of its time.
    gc.disable()
    try:
        from dptrees.pipelines.python import making
    finally:
        logging.disable(disabled)
        if collects:
            _count_as_old()
            gc.enable()
    return making


def _count_as_old() -> None:
    """Move all objects to the oldest generation of the garbage collector.

    Otherwise the next small collection would scan all objects that an import made.
    """
    if gc.get_freeze_count() == 0:  # else the caller has frozen objects, which stay frozen
        gc.freeze()
        gc.unfreeze()
