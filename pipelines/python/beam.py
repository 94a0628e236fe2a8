"""Import of Beam on first use: it takes a second, and warns of packages that it does not find.

Beam's modules import each other in circles. Two threads that begin at two of them get modules that
are half imported, so one thread imports at a time.
"""

from __future__ import annotations

import gc
import logging
from importlib import import_module
from threading import RLock
from types import ModuleType

from dptrees.pipelines.quiet_logs import quiet_logs

# Held by the thread that imports Beam, or what is behind it.
IMPORT_LOCK = RLock()
_imported: list[ModuleType] = []


def quiet_import() -> ModuleType:
    """Import the module that makes releases, without the warnings of Beam, and return it."""
    with IMPORT_LOCK:
        if not _imported:
            _imported.append(_import_making())
        return _imported[0]


def _import_making() -> ModuleType:
    collects = gc.isenabled()
    # An import leaves no cycles to collect, and looking for them takes a tenth of its time.
    gc.disable()
    try:
        with quiet_logs(logging.WARNING):
            return import_module("dptrees.pipelines.python.making")
    finally:
        if collects:
            _count_as_old()
            gc.enable()


def _count_as_old() -> None:
    """Move all objects to the oldest generation of the garbage collector.

    Otherwise the next small collection would scan all objects that an import made.
    """
    if gc.get_freeze_count() == 0:  # else the caller has frozen objects, which stay frozen
        gc.freeze()
        gc.unfreeze()
