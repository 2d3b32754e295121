"""The TOML reader of the running Python."""

from __future__ import annotations

import importlib
import sys
from typing import Any


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ValueError: The text is not TOML.
        RecursionError: The text is nested too deeply.
    """
    # `tomllib` is in the standard library since Python 3.11; before, `tomli` is a dependency.
    tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    document: dict[str, Any] = tomllib.loads(text)
    return document
