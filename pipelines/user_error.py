"""A mistake of the person at the command line."""

from __future__ import annotations


class UserError(Exception):
    """A mistake that its user can fix; the message is one clear sentence."""
