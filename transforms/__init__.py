"""The Apache Beam wiring: PTransforms, DoFns and CombineFns around the functions of dpcore.

As little logic as possible is here. This file imports nothing of Beam, so that a worker loads it
only through the module it needs.
"""

import logging


def _is_for_users(record: logging.LogRecord) -> bool:
    """Return whether a line of the log is for users: Beam warns of a client that is not used."""
    return not str(record.msg).startswith("apitools not found")


# Beam logs it wherever its BigQuery client is imported, which many of its modules do.
logging.getLogger().addFilter(_is_for_users)
