"""The Content-Security-Policy of a page: its own scripts run, nothing else does, nothing is loaded.

Labels are text wherever the page puts them. The policy is the second wall: a label that became an
element or an attribute all the same would not run, since a script runs only where its text has one
of the hashes, and a handler in an attribute never does.

Source: W3C, "Content Security Policy Level 3" and "Trusted Types".
"""

from __future__ import annotations

import base64
import hashlib

__all__ = ["content_security_policy"]

_NOTHING_ELSE = ("default-src 'none'", "base-uri 'none'", "form-action 'none'")
# No script of the page makes elements of text.
_TEXT_ONLY = ("require-trusted-types-for 'script'", "trusted-types 'none'")


def content_security_policy(script: str, style: str) -> str:
    """The policy of a page with one inline script and one inline style.

    Args:
        script: the whole text of the script element, with line feeds only: a browser reads
            carriage returns as line feeds before it computes a hash.
        style: likewise of the style element.

    Returns:
        the directives, which need no escaping in an attribute with double quotes.

    Raises:
        ValueError: a text holds a carriage return.

    >>> policy = content_security_policy("alert(1)", "p { margin: 0 }")
    >>> policy.split("; ")[3]
    "script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"
    """
    if "\r" in script or "\r" in style:
        raise ValueError("script, style: a carriage return; lines must end in line feeds")
    own = f"script-src {_hashed(script)}", f"style-src {_hashed(style)}"
    return "; ".join((*_NOTHING_ELSE, *own, *_TEXT_ONLY))


def _hashed(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
