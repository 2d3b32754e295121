"""How much of something a test does: enough to show the point, or all of it.

`make test` shows each point with few repetitions; `make test-all` sets ``OPENENV_TESTS=all`` and
repeats it as often as the promise says.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import settings

__all__ = ["ALL", "amount", "examples", "mostly_extended"]

ALL = os.environ.get("OPENENV_TESTS") == "all"


def amount(everything: int, enough: int) -> int:
    """Return a number of repetitions: `everything` in `make test-all`, else `enough`."""
    return everything if ALL else enough


def examples(count: int) -> settings:
    """Have hypothesis try `count` examples in `make test-all`, and a fifth of them otherwise."""
    return settings(max_examples=amount(count, max(count // 5, 20)))


def mostly_extended(values: Sequence[Any], kept: Collection[Any] | int = 1) -> list[Any]:
    """Parametrize a test so that `make test` tries some of the values, and `make test-all` each.

    Args:
        values: The values of the parameter.
        kept: Those that `make test` tries, or how many of the first.
    """
    chosen = list(values[:kept]) if isinstance(kept, int) else list(kept)
    rest = pytest.mark.extended("other values show the same")
    return [one if one in chosen else pytest.param(one, marks=rest) for one in values]


def rest(*values: Any) -> Any:
    """Return a parameter's values that `make test` leaves out, since others show the same."""
    return pytest.param(*values, marks=pytest.mark.extended("other values show the same"))
