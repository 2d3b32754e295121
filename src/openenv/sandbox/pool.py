"""Sandboxes that stand ready, so that a fresh one costs no time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from typing_extensions import Self

__all__ = ["Pool"]

T = TypeVar("T", bound="contextlib.AbstractContextManager[object]")


class Pool(Generic[T]):
    """Things that are made ahead of time, each used once: sandboxes, above all.

        with Pool(Sandbox, size=4) as pool, pool.take() as sandbox:
            sandbox.run("true")

    Nothing comes back: what has run in a sandbox stays there. A new one is made, on a thread of the
    pool, for each that is taken. A pool that is empty makes one at once. Any thread may take.

    Args:
        make: Makes one.
        size: How many stand ready. They are made from the first `take` (or `fill`) on.
        is_good: Says of one that stood ready whether it still is; others are closed.
    """

    def __init__(
        self, make: Callable[[], T], size: int = 1, is_good: Callable[[T], bool] | None = None
    ) -> None:
        if size < 0:
            raise ValueError(f"size is {size}; it must be 0 or more")
        self.size = size
        self._make = make
        self._is_good = is_good or (lambda one: True)
        self._ready: deque[T] = deque()
        self._lock = threading.Lock()
        self._filler: threading.Thread | None = None
        self._is_closed = False
        self._pid = os.getpid()

    def take(self) -> T:
        """Give a fresh one, which is the caller's to close.

        Raises:
            RuntimeError: The pool is closed.
            Exception: What making one raises.
        """
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the pool is closed")
            self._forget_those_of_a_parent()
            found = self._ready.popleft() if self._ready else None
        while found is not None and not self._is_good(found):
            found.__exit__(None, None, None)
            with self._lock:
                found = self._ready.popleft() if self._ready else None
        self.fill()
        return self._make() if found is None else found

    def fill(self) -> None:
        """Have as many made as shall stand ready; returns at once."""
        with self._lock:
            self._forget_those_of_a_parent()
            if self._filler is None and not self._is_closed and len(self._ready) < self.size:
                self._filler = threading.Thread(
                    target=self._fill, name="openenv-sandbox-pool", daemon=True
                )
                self._filler.start()

    @property
    def ready(self) -> int:
        """How many stand ready."""
        return len(self._ready)

    def _forget_those_of_a_parent(self) -> None:
        if self._pid != os.getpid():
            self._ready, self._filler, self._pid = deque(), None, os.getpid()

    def _fill(self) -> None:
        """Make what is missing. One that cannot be made is told to whoever takes the next."""
        try:
            while self._is_short():
                one = self._make()
                with self._lock:
                    if not self._is_closed:
                        self._ready.append(one)
                        continue
                one.__exit__(None, None, None)
        except Exception:
            with self._lock:
                self._filler = None

    def _is_short(self) -> bool:
        """Whether the filler goes on. If not, it is none from then on: a `take` begins another."""
        with self._lock:
            short = not self._is_closed and len(self._ready) < self.size
            if not short:
                self._filler = None
            return short

    def close(self) -> None:
        """Close those that stand ready; those that were taken stay."""
        with self._lock:
            self._is_closed = True
            ready, self._ready = list(self._ready), deque()
            filler = self._filler
        for one in ready:
            one.__exit__(None, None, None)
        if filler is not None and filler is not threading.current_thread():
            filler.join(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
