"""The steps of a release around the functions of dpcore, as a graph that any engine can run.

As little logic as possible is here. Only `transforms.beam`, and files elsewhere, import Beam.
"""

import logging
from threading import RLock

# Held by a thread that imports modules of Beam: they import each other in circles, and two threads
# that begin at two of them would get modules that are half imported.
IMPORT_LOCK = RLock()


def _is_for_users(record: logging.LogRecord) -> bool:
    """Return whether a line of the log is for users: Beam warns of a client that is not used."""
    return not str(record.msg).startswith("apitools not found")


# Beam logs it wherever its BigQuery client is imported, which many of its modules do.
logging.getLogger().addFilter(_is_for_users)
