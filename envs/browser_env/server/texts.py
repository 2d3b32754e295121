"""Texts that come from pages, made fit for a message."""

from __future__ import annotations

__all__ = ["short", "sound"]


def sound(text: str) -> str:
    """A text as UTF-8 can carry it: those of JavaScript may hold halves of characters."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def short(text: str, most: int = 500) -> str:
    """The same, with an ellipsis in place of what is beyond `most` characters."""
    text = sound(text)
    return text if len(text) <= most else text[:most] + "…"
