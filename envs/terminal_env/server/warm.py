"""A pool of sandboxes kept ready, each with a shell at its prompt."""

from __future__ import annotations

import contextlib
import os
import threading
from functools import partial

from openenv.sandbox import Pool, Sandbox

from .settings import Settings
from .shell import NoShell, Shell

__all__ = ["WarmTerminal", "find_pool"]


class WarmTerminal(contextlib.AbstractContextManager["WarmTerminal"]):
    """A sandbox with a shell.

    Raises:
        SandboxUnavailable: This machine has no sandbox with the guarantee.
        SandboxEnded: The sandbox did not start.
        NoShell: The shell did not start.
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
        """Start another shell after the end of the first.

        Processes that the first shell has left running stay, unless no shell can be started beside
        them.
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
        """Whether the sandbox and its shell can be used."""
        return not self.sandbox.is_over and self.shell.code is None

    def __exit__(self, *exc_info: object) -> None:
        self.sandbox.close()


_pools: dict[tuple[int, str], Pool[WarmTerminal]] = {}
_pools_lock = threading.Lock()


def find_pool(settings: Settings) -> Pool[WarmTerminal]:
    """Return this process's pool of sandboxes with these settings."""
    key = (os.getpid(), repr(settings))
    with _pools_lock:
        if key not in _pools:
            make = partial(WarmTerminal, settings)
            _pools[key] = Pool(make, settings.warm_sandboxes, is_good=lambda one: one.is_good)
        return _pools[key]
