"""Options that providers share: checks of values, images, keys and names."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from openenv._internal.redaction import register_secret, register_secrets_of
from openenv.errors import ProviderError
from openenv.providers.base import FreshKey

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "check_choice",
    "check_positive",
    "check_secret_names",
    "image_of",
    "key_file",
    "key_of",
    "name_for",
    "register_all",
    "slug",
    "with_changes",
]

MAX_SLUG_CHARACTERS = 36  # so that a whole name is valid in DNS

Options = TypeVar("Options", bound="DataclassInstance")


def with_changes(options: Options, changes: Mapping[str, Any]) -> Options:
    """Return options with some values replaced.

    Raises:
        TypeError: An option does not exist.
        ValueError: A value is invalid.
    """
    names = [one.name for one in fields(options)]
    unknown = sorted(changes.keys() - set(names))
    if unknown:
        raise TypeError(f"no such option: {', '.join(unknown)}; there are {', '.join(names)}")
    return replace(options, **changes) if changes else options


def check_choice(name: str, value: object, allowed: Collection[object]) -> None:
    """Raise ValueError unless an option's value is one of the allowed values."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(map(repr, allowed))}")


def check_positive(**values: float | None) -> None:
    """Raise ValueError unless each option is None or above 0."""
    for name, value in values.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} is {value!r}; it must be above 0")


def check_secret_names(names: Collection[str]) -> None:
    """Raise ValueError unless each secret has a name that a variable can have."""
    for name in names:
        if not name.isidentifier():
            raise ValueError(f"a secret's name is {name!r}; it must be one of a variable")


def image_of(image: str | None, own: str | None) -> str:
    """Return the image of a launch, or else the provider's own.

    Raises:
        ProviderError: Neither names an image.
    """
    chosen = image or own
    if chosen is None:
        raise ProviderError("there is no image to run: launch(image), or pass one to the provider")
    return chosen


def key_of(wanted: str | FreshKey | None) -> str | None:
    """Return the key of a new server, and hide the key in errors and logs."""
    key = secrets.token_urlsafe(32) if isinstance(wanted, FreshKey) else wanted
    register_secret(key or "")
    return key


def key_file(key: str) -> str:
    """Return the content of a server's OPENENV_API_KEY_FILE."""
    return json.dumps({"key": key, "role": "orchestrator", "name": "provider"})


def register_all(env_vars: Mapping[str, str], secrets: Mapping[str, str]) -> None:
    """Hide a server's secrets, and the secrets among the variables, in errors and logs."""
    register_secrets_of(env_vars)
    for value in secrets.values():
        register_secret(value)


def slug(what: str) -> str:
    """Return the part of an image's, package's or file's name that is valid in a DNS name."""
    last = what.rstrip("/").rpartition("/")[2].partition("@")[0].partition(":")[0]
    words = (c if c.isascii() and c.isalnum() else "-" for c in last.removesuffix(".py").lower())
    return "".join(words)[:MAX_SLUG_CHARACTERS].strip("-") or "server"


def name_for(what: str) -> str:
    """Return a unique name for a server of an image, a package or a file."""
    return f"openenv-{slug(what)}-{secrets.token_hex(4)}"
