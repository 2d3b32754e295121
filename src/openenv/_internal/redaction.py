"""Removal of secrets from messages, logs and output.

A secret is the value of an environment variable whose name looks like one (see
`openenv.settings.secrets`), or what was registered as one. Where it stands in a text, ``***``
stands afterwards. So do credentials of HTTP, and secrets in a URL: in its query, and before its
host. What was cut in two, or encoded in any other way than Python's or a URL's, is not found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from openenv.settings import MIN_SECRET_CHARACTERS, secrets, secrets_of

HIDDEN = "***"

_registered: set[str] = set()

_CREDENTIALS = re.compile(r"\b(Bearer|Basic) +[\w.~+/=-]{8,}", re.IGNORECASE)
_QUERY = re.compile(
    r"([?&][^=&\s]*(?:key|token|secret|passw|credential)[^=&\s]*=)[^&\s\"']+", re.IGNORECASE
)
_USER_INFO = re.compile(r"(\w://[^\s:/@]*:|\bhttps?://(?=[^\s:/@]{8}))[^\s:/@][^\s/@]*@")


def register_secret(value: str) -> None:
    """Hide `value` from now on, unless shorter than 8 characters, which would hide too much."""
    if len(value) >= MIN_SECRET_CHARACTERS:
        _registered.add(value)


def register_secrets_of(variables: Mapping[str, str]) -> None:
    """Hide the secrets among the environment variables of another process from now on."""
    _registered.update(secrets_of(variables))


def holds_secret(text: str) -> bool:
    """Return whether a text contains a known secret; text that looks like credentials is none."""
    return any(written in text for written in _written())


def _written() -> tuple[str, ...]:
    """Return the secrets, longest first, in each encoding that is searched for."""
    global _last
    known = secrets(), len(_registered)  # of which none is ever taken out
    if _last is None or _last[0] is not known[0] or _last[1] != known[1]:
        longest_first = sorted({*known[0], *_registered}, key=len, reverse=True)
        ways = ((one, repr(one)[1:-1], quote(one, safe="")) for one in longest_first)
        _last = *known, tuple(dict.fromkeys(way for written in ways for way in written))
    return _last[2]


_last: tuple[frozenset[str], int, tuple[str, ...]] | None = None


def redact(text: str) -> str:
    """Return the text without secrets."""
    return _hidden_in(text, _written())


def _hidden_in(text: str, secrets_as_written: tuple[str, ...]) -> str:
    for written in secrets_as_written:
        if written in text:
            text = text.replace(written, HIDDEN)
    text = _CREDENTIALS.sub(rf"\1 {HIDDEN}", text)
    if "://" in text:
        text = _USER_INFO.sub(rf"\1{HIDDEN}@", text)
    return _QUERY.sub(rf"\1{HIDDEN}", text) if "=" in text else text


def redacted(value: Any) -> Any:
    """Return a JSON value without secrets in texts."""
    written = _written()

    def hidden_in(value: Any) -> Any:
        if isinstance(value, str):
            return _hidden_in(value, written)
        if isinstance(value, dict):
            return {hidden_in(key): hidden_in(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [hidden_in(item) for item in value]
        return value

    return hidden_in(value)
