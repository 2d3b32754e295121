"""Reading JSON that somebody else has written: a peer, a model, a file."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["read_json"]


def read_json(text: str | bytes | bytearray) -> Any:
    """Read JSON as `json.loads` does, which takes NaN and half a pair of surrogates.

    Raises:
        ValueError: It is none, or is nested too deeply; for the latter `json` raises what nobody
            thinks of.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
