"""Reading of JSON from peers, models and files."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: str | bytes | bytearray) -> Any:
    """Parse JSON as `json.loads` does, which accepts NaN and lone surrogates.

    Raises:
        ValueError: The text is not JSON, or is nested too deeply (`json.loads` raises
            `RecursionError` for that).
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
