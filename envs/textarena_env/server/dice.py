"""Random numbers for games that draw from the global generators.

TextArena's games use the global generator of Python's module `random`, and two of them NumPy's. A
`Dice` has an episode's own state of these generators. It is installed while the game computes, and
the previous state is restored afterwards. One game computes at a time.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import random
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["Dice"]

_lock = threading.RLock()

# Some games would import NumPy in the middle of a game, with a generator state of its own.
_numpy: Any = importlib.import_module("numpy") if importlib.util.find_spec("numpy") else None


class Dice:
    """An episode's own state of the global generators.

    Args:
        seed: Determines every number; at least 0.
    """

    def __init__(self, seed: int) -> None:
        self._python = random.Random(seed).getstate()  # nosec B311  # a game's dice
        self._arrays = _numpy and _numpy.random.RandomState(seed % 2**32).get_state()

    @contextlib.contextmanager
    def activate(self) -> Iterator[None]:
        """Install this state in the global generators for a block, and restore theirs after it."""
        with _lock:
            before = _get_states()
            _set_states(self._python, self._arrays)
            try:
                yield
            finally:
                self._python, self._arrays = _get_states()
                _set_states(*before)


def _get_states() -> tuple[Any, Any]:
    return random.getstate(), _numpy and _numpy.random.get_state()


def _set_states(python: Any, arrays: Any) -> None:
    random.setstate(python)
    if _numpy is not None:
        _numpy.random.set_state(arrays)
