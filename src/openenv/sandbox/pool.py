"""A pool of sandboxes that were started in advance."""

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
    """Items that are created in advance, usually sandboxes. Each item is used once.

        with Pool(Sandbox, size=4) as pool, pool.take() as sandbox:
            sandbox.run("true")

    Items are never returned, since a sandbox keeps traces of the code that ran in it. For each item
    taken, a thread of the pool creates another; if the pool is empty, `take` creates an item
    itself. Thread-safe.

    Args:
        make: Creates an item, which is a context manager.
        size: Number of items to keep ready, from the first `take` or `fill` on.
        is_good: Returns whether an item that was kept ready can still be used. Others are closed.
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
        """Return a fresh item, which the caller must close.

        Raises:
            RuntimeError: The pool is closed.
            Exception: Creating an item failed.
        """
        while True:
            with self._lock:
                if self._is_closed:
                    raise RuntimeError("the pool is closed")
                self._forget_items_of_parent()
                found = self._ready.popleft() if self._ready else None
            if found is None or self._is_good(found):
                break
            found.__exit__(None, None, None)
        self.fill()
        return self._make() if found is None else found

    def fill(self) -> None:
        """Start creating the missing items, and return at once."""
        with self._lock:
            self._forget_items_of_parent()
            if self._filler is None and not self._is_closed and len(self._ready) < self.size:
                self._filler = threading.Thread(
                    target=self._fill, name="openenv-sandbox-pool", daemon=True
                )
                self._filler.start()

    @property
    def ready(self) -> int:
        """The number of items that are ready."""
        return len(self._ready)

    def _forget_items_of_parent(self) -> None:
        if self._pid != os.getpid():
            self._ready, self._filler, self._pid = deque(), None, os.getpid()

    def _fill(self) -> None:
        """Create the missing items. After a failure, the next `take` creates an item and raises."""
        while True:
            with self._lock:
                if self._is_closed or len(self._ready) >= self.size:
                    self._filler = None  # a later `take` starts another
                    return
            try:
                one = self._make()
            except Exception:
                with self._lock:
                    self._filler = None
                return
            with self._lock:
                if not self._is_closed:
                    self._ready.append(one)
                    continue
            one.__exit__(None, None, None)

    def close(self) -> None:
        """Close the ready items; taken items stay open."""
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
