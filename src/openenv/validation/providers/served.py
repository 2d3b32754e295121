"""The base class of subjects that a provider from `openenv.providers` has started."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from typing_extensions import Self

from openenv.errors import ProviderError, ProviderExited, ProviderTimeout
from openenv.providers.servers import Server
from openenv.validation.providers import ExecResult, LaunchSpec, SubjectError


class ServedSubject(ABC):
    """A served package."""

    def __init__(self, server: Server, spec: LaunchSpec) -> None:
        self._server = server
        self._spec = spec
        self.base_url = server.url

    @classmethod
    def begin(cls, launch: Callable[[], Server], spec: LaunchSpec) -> Self:
        """Launch a server and wait until it is ready.

        Raises:
            SubjectError: The server ended, or did not answer in time.
        """
        try:
            server = launch()
        except ProviderError as error:
            raise _subject_error(error, "start") from error
        with ExitStack() as stack:
            stack.callback(server.stop)  # also if Ctrl-C ends the wait
            try:
                server.wait_for_ready(spec.startup_timeout_s)
            except ProviderError as error:
                raise _subject_error(error, "readiness") from error
            stack.pop_all()
        return cls(server, spec)

    @abstractmethod
    def inspect(self) -> dict[str, Any]:
        """Return the identity, limits and network in force."""

    def logs(self, max_bytes: int = 65536) -> str:
        """Return the last part of the output."""
        return self._server.logs()[-max_bytes:]

    def exec(self, argv: list[str], timeout_s: float) -> ExecResult:
        """Run a command where the subject runs, with the subject's environment variables.

        Raises:
            ProviderError: The command could not be run, or took too long.
        """
        began = time.monotonic()
        done = self._server.execute(argv, timeout_s)
        return ExecResult(done.exit_code, done.stdout, done.stderr, time.monotonic() - began)

    def stop(self) -> None:
        """Stop the server and remove everything that was made for the run. Idempotent."""
        self._server.stop()


def _subject_error(error: ProviderError, phase: str) -> SubjectError:
    if isinstance(error, ProviderTimeout):
        phase = "readiness"
    elif isinstance(error, ProviderExited):
        phase = "start"
    return SubjectError(phase, str(error), logs=str(getattr(error, "logs", "")))
