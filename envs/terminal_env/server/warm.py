"""Sandboxes that stand ready, each with a shell at its prompt."""

from __future__ import annotations

import contextlib
import os
import threading
from functools import partial

from openenv.sandbox import Pool, Sandbox

from .settings import Settings
from .shell import NoShell, Shell

__all__ = ["Warm", "pool"]


class Warm(contextlib.AbstractContextManager["Warm"]):
    """A sandbox, and a shell in it.

    Raises:
        SandboxUnavailable: This machine has none with that guarantee.
        SandboxEnded: It did not start.
        NoShell: The shell in it did not.
    """

    def __init__(self, settings: Settings) -> None:
        self.sandbox = Sandbox(settings.policy, require=settings.require, kind=settings.sandbox)
        self._settings = settings
        try:
            self.shell = self._new_shell(settings.rows, settings.columns)
        except BaseException:
            self.sandbox.close()
            raise

    def restart_shell(self, rows: int, columns: int) -> None:
        """Start another shell; the one before has ended. What it has left running stays, unless no
        shell can be started beside it.
        """
        try:
            self.shell = self._new_shell(rows, columns)
        except NoShell:
            self.sandbox.kill_all()
            self.shell = self._new_shell(rows, columns)

    def _new_shell(self, rows: int, columns: int) -> Shell:
        return Shell(self.sandbox, rows, columns, output_bytes=self._settings.output_bytes)

    @property
    def is_good(self) -> bool:
        """It can be used."""
        return not self.sandbox.is_over and self.shell.code is None

    def __exit__(self, *exc_info: object) -> None:
        self.sandbox.close()


_pools: dict[tuple[int, str], Pool[Warm]] = {}
_pools_lock = threading.Lock()


def pool(settings: Settings) -> Pool[Warm]:
    """The pool of this process for sandboxes with these settings."""
    key = (os.getpid(), repr(settings))
    with _pools_lock:
        if key not in _pools:
            make = partial(Warm, settings)
            _pools[key] = Pool(make, settings.warm_sandboxes, is_good=lambda one: one.is_good)
        return _pools[key]
