"""API keys and credentials: their form, and the keys of servers that this program started."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from openenv.settings import api_key

_of_servers: dict[str, str | None] = {}


def checked_key(key: str) -> str:
    """Return the key if a header can carry it.

    Raises:
        ValueError: A header cannot carry the key. The message does not quote the key.
    """
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("a key is printable ASCII without spaces, since a header carries it")
    return key


def note_key(base_url: str, key: str | None) -> None:
    """Remember the key of a server; None for a server without keys, which gets no key."""
    _of_servers[_place(base_url)] = key


def forget_key(base_url: str) -> None:
    """Forget the key of a stopped server; another server may take the port."""
    _of_servers.pop(_place(base_url), None)


def key_for(url: str) -> str | None:
    """Return the key for a server: as remembered by `note_key`, otherwise OPENENV_API_KEY."""
    place = _place(url)
    return _of_servers[place] if place in _of_servers else api_key()


def key_headers(key: str | None, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the header for a key; one that `headers`, such as a gateway's, do not use yet.

    Raises:
        ValueError: A header cannot carry the key.
    """
    given = {name.lower() for name in headers}
    if key is None or {"authorization", "x-api-key"} <= given:
        return {}
    checked_key(key)
    return {"X-API-Key": key} if "authorization" in given else {"Authorization": f"Bearer {key}"}


def split_credentials(url: str) -> tuple[str, str | None]:
    """Return an address without user and password, and the header that carries these, if any."""
    parts = urlsplit(url)
    user, mark, netloc = parts.netloc.rpartition("@")
    if not mark:
        return url, None
    name, _, password = user.partition(":")
    known = f"{unquote(name)}:{unquote(password)}".encode()
    header = f"Basic {base64.b64encode(known).decode()}" if user else None
    return parts._replace(netloc=netloc).geturl(), header


def _place(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2].lower()
