"""Conversion of texts from pages for messages."""

from __future__ import annotations

__all__ = ["short", "sound"]


def sound(text: str) -> str:
    """Return a text that UTF-8 can encode; texts of JavaScript may contain lone surrogates."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def short(text: str, most: int = 500) -> str:
    """Make a text encodable, and replace the part beyond `most` characters with an ellipsis."""
    text = sound(text)
    return text if len(text) <= most else text[:most] + "…"
