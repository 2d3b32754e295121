"""Parsing of server addresses that people paste.

A server prints several addresses (of its web page, WebSocket and MCP endpoint), and a browser adds
a query and a fragment. All of them mean the server, so each is reduced to the server's base URL.
"""

from __future__ import annotations

import re

from openenv.settings import hub_endpoint

PAGES = frozenset({"docs", "health", "mcp", "web", "ws"})
"""The routes that `openenv serve` prints; an address may end with one of them."""

URL = re.compile(r"(https?|wss?)://(?=[^/?#\s])", re.IGNORECASE)
"""A pattern for the beginning of a server's address with a scheme."""

_HOST_AND_PORT = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+):\d+(/.*)?", re.IGNORECASE)


def is_address(text: str) -> bool:
    """Return whether a text is the address of a server: a URL, or ``host:port``."""
    text = text.strip()
    return URL.match(text) is not None or _HOST_AND_PORT.fullmatch(text) is not None


def is_hub_address(text: str) -> bool:
    """Return whether a text is an address of the Hub: huggingface.co, or HF_ENDPOINT's host."""
    return f"{without_scheme(text)}/".startswith(tuple(hub_hosts()))


def hub_hosts() -> list[str]:
    """Return the beginnings of Hub addresses, without the scheme."""
    return [
        "huggingface.co/",
        "www.huggingface.co/",
        "hf.co/",
        f"{without_scheme(hub_endpoint())}/",
    ]


def without_scheme(text: str) -> str:
    """Return an address of HTTP without the scheme and trailing slashes."""
    return re.sub(r"^https?://", "", text.strip()).rstrip("/")


def server_root(address: str) -> str:
    """Return a server's base URL, with the scheme if the address has one.

    Surrounding spaces, trailing slashes, a final route of `PAGES`, a query and a fragment are
    removed: ``ws://localhost:8000/ws``, ``ws://localhost:8000/`` and
    ``ws://localhost:8000/web/?theme=dark`` all become ``ws://localhost:8000``. Other paths stay.
    """
    scheme, mark, rest = address.strip().rpartition("://")
    path = re.split(r"[?#]", rest, maxsplit=1)[0].rstrip("/")
    before, slash, last = path.rpartition("/")
    if slash and last.lower() in PAGES:
        path = before.rstrip("/")
    return f"{scheme}{mark}{path}"


def over_http(address: str) -> str:
    """Return a server's base URL for HTTP, from an address with any scheme or none."""
    url = re.sub(r"^ws(s?)://", r"http\1://", server_root(address), flags=re.IGNORECASE)
    return url if "://" in url else f"http://{url}"
