"""What is asked of a provider, in words that all of them have: options, an image, a key, a name."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from openenv._internal.redaction import register_secret
from openenv.errors import ProviderError
from openenv.providers.base import FreshKey

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["image_of", "key_of", "name_for", "slug", "with_changes"]

NAME_LENGTH = 36  # of the words in a name: with the rest it is one that DNS can have

Options = TypeVar("Options", bound="DataclassInstance")


def with_changes(options: Options, changes: Mapping[str, Any]) -> Options:
    """The options with some of them changed.

    Raises:
        TypeError: There is no such option.
        ValueError: One means nothing.
    """
    names = [one.name for one in fields(options)]
    unknown = sorted(changes.keys() - set(names))
    if unknown:
        raise TypeError(f"no such option: {', '.join(unknown)}; there are {', '.join(names)}")
    return replace(options, **changes) if changes else options


def image_of(image: str | None, own: str | None) -> str:
    """The image to run: that of the launch, else the provider's own.

    Raises:
        ProviderError: There is neither.
    """
    chosen = image or own
    if chosen is None:
        raise ProviderError("there is no image to run: launch(image), or pass one to the provider")
    return chosen


def key_of(wanted: str | FreshKey | None) -> str | None:
    """The key of a server that is about to start, which no error or log will show."""
    key = secrets.token_urlsafe(32) if isinstance(wanted, FreshKey) else wanted
    register_secret(key or "")
    return key


def slug(what: str) -> str:
    """The words of an image, a package or a file that a name in DNS may have in it."""
    last = what.rstrip("/").rpartition("/")[2].partition("@")[0].partition(":")[0]
    words = (c if c.isascii() and c.isalnum() else "-" for c in last.removesuffix(".py").lower())
    return "".join(words)[:NAME_LENGTH].strip("-") or "server"


def name_for(what: str) -> str:
    """A name of one's own for what serves an image, a package or a file."""
    return f"openenv-{slug(what)}-{secrets.token_hex(4)}"
