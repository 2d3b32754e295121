"""Server options, keys and names, shared by all providers."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from typing_extensions import Self

from openenv._internal.redaction import register_secret
from openenv.providers.base import FreshKey

MAX_SLUG_CHARACTERS = 36  # so that a whole name is valid in DNS


@dataclass(frozen=True)
class ServerOptions:
    """Base class of the options of a provider's servers."""

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Return the options with some values replaced.

        Raises:
            TypeError: An option does not exist.
            ValueError: A value is invalid.
        """
        names = [one.name for one in fields(self)]
        unknown = sorted(changes.keys() - set(names))
        if unknown:
            raise TypeError(f"no such option: {', '.join(unknown)}; there are {', '.join(names)}")
        return replace(self, **changes) if changes else self

    def _check_choice(self, name: str, allowed: Collection[object]) -> None:
        check_choice(name, getattr(self, name), allowed)

    def _check_positive(self, *names: str) -> None:
        check_positive(**{name: getattr(self, name) for name in names})

    def _check_positive_or_none(self, *names: str) -> None:
        check_positive_or_none(**{name: getattr(self, name) for name in names})

    def _check_secrets(self, names: Collection[str]) -> None:
        for name in names:
            if not name.isidentifier():
                raise ValueError(
                    f"a secret's name is {name!r}; it must be valid as a variable's name"
                )


def check_choice(name: str, value: object, allowed: Collection[object]) -> None:
    """Raise ValueError unless a value is among the allowed ones."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(map(repr, allowed))}")


def check_positive(**values: float | None) -> None:
    """Raise ValueError unless each value is above 0. None (no limit) is refused too."""
    for name, value in values.items():
        if value is None or not value > 0:
            raise ValueError(f"{name} is {value!r}; it must be above 0")


def check_positive_or_none(**values: float | None) -> None:
    """Raise ValueError unless each value is above 0 or None (the option's default)."""
    check_positive(**{name: value for name, value in values.items() if value is not None})


def key_of(wanted: str | FreshKey | None) -> str | None:
    """Return the key of a new server, and register the key for redaction."""
    key = secrets.token_urlsafe(32) if isinstance(wanted, FreshKey) else wanted
    register_secret(key or "")
    return key


def key_file(key: str) -> str:
    """Return the content of a server's OPENENV_API_KEY_FILE."""
    return json.dumps({"key": key, "role": "orchestrator", "name": "provider"})


def readable_key_file(key: str) -> str:
    """Return a human-readable key file: the bare key, which servers accept too.

    If the bare key could be parsed as TOML or JSON, return the content of `key_file` instead.
    """
    return key if re.fullmatch(r"[^\[{#=][^=]*={0,2}", key) else key_file(key)


def slug(what: str) -> str:
    """Return the DNS-safe part of the name of an image, a package or a file."""
    last = what.rstrip("/").rpartition("/")[2].partition("@")[0].partition(":")[0]
    words = (c if c.isascii() and c.isalnum() else "-" for c in last.removesuffix(".py").lower())
    return "".join(words)[:MAX_SLUG_CHARACTERS].strip("-") or "server"


def name_for(what: str) -> str:
    """Return a unique name for a server of an image, a package or a file."""
    return f"openenv-{slug(what)}-{secrets.token_hex(4)}"
