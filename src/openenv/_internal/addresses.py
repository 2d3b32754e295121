"""Parsing of server addresses that people paste.

A server prints several addresses (of its page, its WebSocket, its MCP endpoint), and a browser
adds a query and a fragment. All of them mean the server, so each is reduced to its base URL.
"""

from __future__ import annotations

import re

from openenv.settings import hub_endpoint

PAGES = frozenset({"docs", "health", "mcp", "web", "ws"})
"""The routes that `openenv serve` prints, one of which may end an address."""

URL = re.compile(r"(https?|wss?)://(?=[^/?#\s])", re.IGNORECASE)
"""How an address of a server begins that has a scheme."""

_HOST_AND_PORT = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+):\d+(/.*)?", re.IGNORECASE)


def is_address(text: str) -> bool:
    """Return whether a text is the address of a server: a URL, or ``host:port``."""
    text = text.strip()
    return URL.match(text) is not None or _HOST_AND_PORT.fullmatch(text) is not None


def is_hub_address(text: str) -> bool:
    """Return whether a text is an address of the Hub: huggingface.co, or HF_ENDPOINT's host."""
    return f"{without_scheme(text)}/".startswith(tuple(hub_hosts()))


def hub_hosts() -> list[str]:
    """Return how addresses of the Hub begin, without a scheme."""
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
    """Return a server's base URL; the scheme stays, or stays absent.

    Spaces around it, slashes at its end, one of `PAGES`, a query and a fragment are left out:
    ``ws://localhost:8000/ws``, ``ws://localhost:8000/`` and ``ws://localhost:8000/web/?theme=dark``
    are all ``ws://localhost:8000``. A path before that stays.
    """
    scheme, mark, rest = address.strip().rpartition("://")
    path = re.split(r"[?#]", rest, maxsplit=1)[0].rstrip("/")
    before, slash, last = path.rpartition("/")
    if slash and last.lower() in PAGES:
        path = before.rstrip("/")
    return f"{scheme}{mark}{path}"


def over_http(address: str) -> str:
    """Return a server's base URL for HTTP, of an address of any scheme, or of none."""
    url = re.sub(r"^ws(s?)://", r"http\1://", server_root(address), flags=re.IGNORECASE)
    return url if "://" in url else f"http://{url}"
