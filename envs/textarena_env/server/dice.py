"""Random numbers for games that draw them from the generators of the whole process.

TextArena's games call Python's module `random` (two of them NumPy's), which everybody in a process
shares. A `Dice` is an episode's own state of these generators: it is put in their place while the
game computes, and what was there before is put back. One game computes at a time.
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

# Some games need it, which would import it in the middle of a game, with numbers of its own.
_numpy: Any = importlib.import_module("numpy") if importlib.util.find_spec("numpy") else None


class Dice:
    """The state of the shared generators, as one episode would have them.

    Args:
        seed: Determines every number; from 0.
    """

    def __init__(self, seed: int) -> None:
        self._python = random.Random(seed).getstate()  # nosec B311  # a game's dice
        self._arrays = _numpy and _numpy.random.RandomState(seed % 2**32).get_state()

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Have the shared generators go on where this episode's stand, until the block ends."""
        with _lock:
            before = _current()
            _put(self._python, self._arrays)
            try:
                yield
            finally:
                self._python, self._arrays = _current()
                _put(*before)


def _current() -> tuple[Any, Any]:
    return random.getstate(), _numpy and _numpy.random.get_state()


def _put(python: Any, arrays: Any) -> None:
    random.setstate(python)
    if _numpy is not None:
        _numpy.random.set_state(arrays)
