"""What a key may be, and the keys of servers that this program has started: its clients find them
by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from openenv.settings import api_key

__all__ = ["checked_key", "forget_key", "key_for", "key_headers", "note_key"]

_of_servers: dict[str, str | None] = {}


def checked_key(key: str) -> str:
    """The key, once it is seen that a header can carry it.

    Raises:
        ValueError: None can; the text does not quote it.
    """
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("a key is printable ASCII without spaces, since a header carries it")
    return key


def note_key(base_url: str, key: str | None) -> None:
    """Note the key of a server; None is one that wants none, and is to be sent none."""
    _of_servers[_place(base_url)] = key


def forget_key(base_url: str) -> None:
    """Forget a server that has been stopped: another may take its port."""
    _of_servers.pop(_place(base_url), None)


def key_for(url: str) -> str | None:
    """The key to send to a server: its own where this program has started it, otherwise that of
    OPENENV_API_KEY.
    """
    place = _place(url)
    return _of_servers[place] if place in _of_servers else api_key()


def key_headers(key: str | None, headers: Mapping[str, str]) -> dict[str, str]:
    """The header that carries a key beside `headers`, of which a gateway may need one.

    Raises:
        ValueError: No header can carry it.
    """
    given = {name.lower() for name in headers}
    if key is None or {"authorization", "x-api-key"} <= given:
        return {}
    checked_key(key)
    return {"X-API-Key": key} if "authorization" in given else {"Authorization": f"Bearer {key}"}


def _place(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2].lower()
