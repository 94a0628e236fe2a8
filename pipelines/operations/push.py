"""Metrics of a run, sent to a Pushgateway of Prometheus: the text that a file of metrics has.

Source: "Prometheus Pushgateway", README of version 1.5: ``PUT /metrics/job/JOB{/LABEL/VALUE}``
replaces all metrics of a group; a value with a slash is written in base64.
"""

from __future__ import annotations

import base64
import http.client
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from queue import Empty, SimpleQueue
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from dptrees.pipelines.user_error import UserError
from dptrees.transforms.secrets.schemes import find_scheme, is_reference

JOB = "dptrees"
OPTION, CREDENTIALS = "--push-metrics", "--push-credentials"
# In all, with every try and every pause.
LIMIT_SECONDS = 20.0
_TRY_SECONDS = 5.0
_PAUSES = (1.0, 2.0)
_GROUP = "/metrics/job/"
_PASSING = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT)


class PushError(Exception):
    """The metrics could not be sent; the message holds neither an address nor a credential."""


@dataclass(frozen=True, kw_only=True)
class Pushgateway:
    """A Pushgateway, or another server that takes its requests.

    Args:
        url: of the server; ``https`` if it names no scheme. With a path ``/metrics/job/...`` it
            names the group; otherwise the job is ``dptrees`` and the instance is the release.
        credentials: the place of ``USER:PASSWORD`` or of ``Bearer TOKEN``: ``env:NAME`` or
            ``file:PATH``; None: there are none.

    Raises:
        UserError: it is no such URL, or shows credentials, or would send them in clear.
        SecretError: there are no credentials in this place.
    """

    url: str
    credentials: str | None = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self._whole)
            is_place = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            parts, is_place = urlsplit(""), False
        # A password may hold any sign: an URL with "@" that is not understood is not shown.
        if "@" in parts.netloc or ("@" in self.url and not is_place):
            raise UserError(f"{OPTION}: the URL must not contain credentials; use {CREDENTIALS}")
        if parts.scheme not in ("https", "http") or not is_place or parts.query or parts.fragment:
            shown = self.url if "@" not in self.url else "it"
            raise UserError(
                f"{OPTION}: {shown} must be the URL of a Pushgateway, such as "
                "https://pushgateway.example.org or https://HOST/metrics/job/NAME"
            )
        if self.credentials is None:
            return
        if parts.scheme == "http" and not _is_this_machine(parts.hostname or ""):
            raise UserError(
                f"{CREDENTIALS}: would be sent in clear to {self.place}; use https, or leave them "
                "out"
            )
        # The value is not shown: it may be the password itself.
        if not self.credentials.startswith(("env:", "file:")) or not is_reference(self.credentials):
            raise UserError(
                f"{CREDENTIALS}: must be env:NAME or file:PATH, the place of the credentials and "
                "not the credentials"
            )
        self._authorization()

    @property
    def _whole(self) -> str:
        return self.url if "://" in self.url else f"https://{self.url}"

    @property
    def place(self) -> str:
        """The server, for messages."""
        parts = urlsplit(self._whole)
        return f"{parts.scheme}://{parts.netloc}"

    def group_url(self, release: str) -> str:
        """The URL of the group of a release.

        Args:
            release: its label in the metrics.

        >>> Pushgateway(url="gateway:9091/").group_url("flights-2013")
        'https://gateway:9091/metrics/job/dptrees/instance/flights-2013'
        """
        whole = self._whole.rstrip("/")
        if _GROUP in whole:
            return whole
        if not release or "/" in release:
            coded = base64.urlsafe_b64encode(release.encode()).decode() or "="
            return f"{whole}{_GROUP}{JOB}/instance@base64/{coded}"
        return f"{whole}{_GROUP}{JOB}/instance/{quote(release, safe='')}"

    def push(self, text: str, release: str) -> None:
        """Replace the metrics of a group, with several tries.

        Args:
            text: the metrics in Prometheus' text format.
            release: its label in the metrics.

        Raises:
            PushError: the server does not answer or refuses them.
            SecretError: the credentials are gone.
        """
        request = Request(self.group_url(release), data=text.encode(), method="PUT")
        request.add_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        request.add_header("User-Agent", "dptrees")
        if self.credentials is not None:
            # Unredirected, and in no message.
            request.add_unredirected_header("Authorization", self._authorization())
        end = time.monotonic() + LIMIT_SECONDS
        for pause in (*_PAUSES, None):
            left = end - time.monotonic()
            reason, may_pass = _sent_within(request, min(_TRY_SECONDS, left))
            if not reason:
                return
            if pause is None or not may_pass or time.monotonic() + pause >= end:
                raise PushError(reason)
            time.sleep(pause)

    def _authorization(self) -> str:
        """The value of the header."""
        assert self.credentials is not None
        option = CREDENTIALS
        text = find_scheme(self.credentials).load(self.credentials, option).strip()
        if text.startswith("Bearer ") and text.isascii() and text.isprintable():
            return text
        if ":" not in text or not text.isprintable():
            raise UserError(
                f"{option}: {self.credentials} must hold USER:PASSWORD, or Bearer TOKEN"
            )
        return f"Basic {base64.b64encode(text.encode()).decode()}"


def _sent_within(request: Request, seconds: float) -> tuple[str, bool]:
    """What `_sent` returns, or that the server does not answer in time.

    The limit of a socket is one of each byte, and a name has none while it is looked up.
    """
    answers = SimpleQueue[tuple[str, bool]]()
    thread = threading.Thread(target=lambda: answers.put(_sent(request, seconds)), daemon=True)
    thread.start()
    try:
        return answers.get(timeout=seconds)
    except Empty:
        return "the server does not answer", True


def _opener(request: Request) -> OpenerDirector:
    """A client without a proxy for this machine: the request may hold credentials in clear."""
    host = urlsplit(request.full_url).hostname or ""
    return build_opener(ProxyHandler({})) if _is_this_machine(host) else build_opener()


def _sent(request: Request, seconds: float) -> tuple[str, bool]:
    """Why a request failed, "" if it did not; and whether that may pass."""
    try:
        # No redirect of a PUT is followed, so credentials stay with one server.
        with _opener(request).open(request, timeout=seconds):
            return "", False
    except HTTPError as error:
        error.close()
        code = error.code
        return f"the server answers {code}", code in _PASSING or code >= 500
    except (TimeoutError, ConnectionError):
        return "the server does not answer", True
    except URLError as error:
        is_certificate = "CERTIFICATE" in str(error.reason)
        if is_certificate:
            return "the certificate of the server is not trusted", False
        return "the server cannot be reached", True
    except (OSError, http.client.HTTPException):
        return "the connection broke", True


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
