"""The Content-Security-Policy of a page: its own scripts run, nothing else does, nothing is loaded.

Labels are text wherever the page puts them. The policy is the second wall: a label that became an
element or an attribute all the same would not run, since a script runs only where its text has one
of the hashes, and a handler in an attribute never does.

Source: W3C, "Content Security Policy Level 3" and "Trusted Types".
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

__all__ = ["content_security_policy"]

_NOTHING_ELSE = ("default-src 'none'", "base-uri 'none'", "form-action 'none'")
# Bokeh puts style elements into its charts and writes them anew with every size and tooltip, so
# their hashes are not known; Chromium refused some thousands of them on a page of three charts.
# They are allowed where there are charts; style attributes are not. Icons of its tools are data.
_CHARTS = ("style-src 'unsafe-inline'", "style-src-attr 'none'", "img-src data:")
# Without charts no script makes elements of text. Bokeh does so for tooltips, of escaped text.
_TEXT_ONLY = ("require-trusted-types-for 'script'", "trusted-types 'none'")


def content_security_policy(scripts: Sequence[str], style: str, *, charts: bool) -> str:
    """The policy of a page with inline scripts and one inline style.

    Args:
        scripts: the whole text of each script element, with line feeds only: a browser reads
            carriage returns as line feeds before it computes a hash.
        style: the whole text of the style element.
        charts: whether Bokeh draws charts on the page.

    Returns:
        the directives, which need no escaping in an attribute with double quotes.

    Raises:
        ValueError: a text holds a carriage return.

    >>> policy = content_security_policy(["alert(1)"], "p { margin: 0 }", charts=False)
    >>> policy.split("; ")[3]
    "script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"
    """
    if any("\r" in text for text in (*scripts, style)):
        raise ValueError("scripts, style: a carriage return; lines must end in line feeds")
    own = f"script-src {' '.join(map(_hashed, scripts))}"
    rest = _CHARTS if charts else (f"style-src {_hashed(style)}", *_TEXT_ONLY)
    return "; ".join((*_NOTHING_ELSE, own, *rest))


def _hashed(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
