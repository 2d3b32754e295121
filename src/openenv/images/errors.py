"""Errors of building images."""

from __future__ import annotations

from collections.abc import Sequence

from openenv._internal.redaction import redact
from openenv.errors import OpenEnvError

LAST_LINES = 15


class BuildError(OpenEnvError, RuntimeError):
    """An image could not be built, inspected or pushed.

    Attributes:
        hint: Advice for the user; None if there is none.
        log: The last lines of the failed program's output.
    """

    def __init__(self, message: str, *, hint: str | None = None, log: Sequence[str] = ()) -> None:
        self.hint = hint
        self.log = redact("\n".join(log[-LAST_LINES:]))
        text = redact(message)
        super().__init__(f"{text}; its last lines:\n{self.log}" if self.log else text)


class EngineError(BuildError):
    """A failure of the engine itself, which says nothing about the image."""
