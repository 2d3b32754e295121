"""What a key may be, and the keys of servers that this program has started: its clients find them
by themselves.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from openenv.settings import api_key

__all__ = ["checked_key", "forget_key", "key_for", "note_key"]

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


def _place(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2].lower()
