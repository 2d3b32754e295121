"""Asking a server by HTTP: the one way in which this program does.

Redirects are not followed: what is sent, a key among it, is for the host that was named. The
proxies of the environment's variables are used, but not for addresses of this machine. An answer is
bounded, in bytes and in time.
"""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from openenv._peers import is_loopback
from openenv._tls import client_context

__all__ = ["FAILURES", "MAX_BYTES", "Answer", "ask", "over_http"]

MAX_BYTES = 16 * 2**20
CHUNK_BYTES = 2**16

FAILURES = (OSError, HTTPException, ValueError)
"""What `ask` raises where there is no answer."""


class Answer(NamedTuple):
    """What a server answered.

    Attributes:
        status: The status.
        body: The body, as far as it was read.
    """

    status: int
    body: bytes


def ask(
    url: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    *,
    timeout_s: float,
    ca_file: str | None = None,
    is_direct: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Answer:
    """Ask by GET, or by POST where there is a body.

    Args:
        url: Of http or https.
        headers: What is sent beside the body.
        body: The body.
        timeout_s: Seconds for all of it.
        ca_file: See `openenv._tls.client_context`.
        is_direct: Use no proxy, wherever the server is.
        max_bytes: Read no more of the body.

    Raises:
        ValueError: The URL is none of these schemes, or the certificates cannot be used.
        OSError: There was no answer in time.
        HTTPException: What came is no HTTP.
    """
    until = time.monotonic() + timeout_s
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r:.200} is no URL of http or https")
    handlers: list[urllib.request.BaseHandler] = [_Stays()]
    if is_direct or is_loopback(parts.hostname):
        handlers.append(urllib.request.ProxyHandler({}))
    if parts.scheme.lower() == "https":
        handlers.append(urllib.request.HTTPSHandler(context=client_context(ca_file)))
    request = urllib.request.Request(url, body, dict(headers or {}))
    answer: Any
    try:
        answer = urllib.request.build_opener(*handlers).open(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return Answer(answer.status, _read(answer, until, max_bytes))


def over_http(base_url: str) -> str:
    """The address of a server for HTTP, where it may be that of its WebSocket, or lack a scheme."""
    url = base_url.strip().rstrip("/").removesuffix("/ws")
    url = re.sub(r"^ws(s?)://", r"http\1://", url, flags=re.IGNORECASE)
    return url if "://" in url else f"http://{url}"


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _read(answer: Any, until: float, max_bytes: int) -> bytes:
    """The body, which may come in drops, but not for ever."""
    body = b""
    while len(body) < max_bytes and (piece := answer.read1(CHUNK_BYTES)):
        body += piece
        if time.monotonic() > until:
            raise TimeoutError("the answer did not end in time")
    return body[:max_bytes]
