"""Removal of secrets from messages, logs and output.

A secret is the value of an environment variable whose name looks like that of a secret (see
`openenv.settings.secrets`), or a registered value. It is replaced by ``***``, and so are HTTP
credentials, and secrets in the query and the user information of a URL. A secret that is split, or
encoded in another way than by Python's `repr` or in a URL, is not found.
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
    """Redact `value` from now on. Values of less than 8 characters are ignored: too much other text
    would be hidden.
    """
    if len(value) >= MIN_SECRET_CHARACTERS:
        _registered.add(value)


def register_secrets_of(variables: Mapping[str, str]) -> None:
    """Redact the secrets among another process's environment variables from now on."""
    _registered.update(secrets_of(variables))


def holds_secret(text: str) -> bool:
    """Return whether a text contains a known secret; mere patterns of credentials do not count."""
    return any(written in text for written in _written())


def _written() -> tuple[str, ...]:
    """Return the secrets, longest first, in each encoding that is searched for."""
    global _last
    known = secrets(), len(_registered)  # registered values are never removed
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
