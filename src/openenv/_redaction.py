"""Keeping secrets out of what leaves a process: messages to peers, logs, words for an operator.

A secret is the value of an environment variable whose name looks like one (see
`openenv.settings.secrets`), or what was registered as one. Where it stands in a text, ``***``
stands afterwards. So do credentials of HTTP, and secrets in a URL: in its query, and before its
host. What was cut in two, or encoded in any other way than Python's or a URL's, is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from openenv.settings import MIN_SECRET_CHARACTERS, secrets, secrets_of

__all__ = [
    "HIDDEN",
    "holds_secret",
    "redact",
    "redacted",
    "register_secret",
    "register_secrets_of",
]

HIDDEN = "***"

_registered: set[str] = set()

_CREDENTIALS = re.compile(r"\b(Bearer|Basic) +[\w.~+/=-]{8,}", re.IGNORECASE)
_QUERY = re.compile(
    r"([?&][^=&\s]*(?:key|token|secret|passw|credential)[^=&\s]*=)[^&\s\"']+", re.IGNORECASE
)
_USER_INFO = re.compile(r"(\w://[^\s:/@]*:|\bhttps?://(?=[^\s:/@]{8}))[^\s:/@][^\s/@]*@")


def register_secret(value: str) -> None:
    """Have `value` hidden from now on; one of fewer than 8 characters would hide too much."""
    if len(value) >= MIN_SECRET_CHARACTERS:
        _registered.add(value)


def register_secrets_of(variables: Mapping[str, str]) -> None:
    """Have the secrets among the environment variables of another process hidden from now on."""
    _registered.update(secrets_of(variables))


def holds_secret(text: str) -> bool:
    """Whether a secret stands in a text; what only looks like credentials is none."""
    return any(written in text for written in _written())


def _written() -> Iterator[str]:
    """The secrets, longest first, in each way in which they are looked for."""
    for secret in sorted({*secrets(), *_registered}, key=len, reverse=True):
        yield from (secret, repr(secret)[1:-1], quote(secret, safe=""))


def redact(text: str) -> str:
    """The text without the secrets in it."""
    for written in _written():
        if written in text:
            text = text.replace(written, HIDDEN)
    text = _CREDENTIALS.sub(rf"\1 {HIDDEN}", text)
    text = _USER_INFO.sub(rf"\1{HIDDEN}@", text)
    return _QUERY.sub(rf"\1{HIDDEN}", text)


def redacted(value: Any) -> Any:
    """A value of JSON without the secrets in its texts."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redacted(key): redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value
