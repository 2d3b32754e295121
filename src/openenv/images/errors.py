"""What goes wrong while an image is built."""

from __future__ import annotations

from collections.abc import Sequence

from openenv._internal.redaction import redact
from openenv.errors import OpenEnvError

__all__ = ["LAST_LINES", "BuildError", "EngineError"]

LAST_LINES = 15


class BuildError(OpenEnvError, RuntimeError):
    """An image could not be built, examined or pushed.

    Attributes:
        hint: What to do about it; None where nobody knows.
        log: The last lines of the program that failed.
    """

    def __init__(self, message: str, *, hint: str | None = None, log: Sequence[str] = ()) -> None:
        self.hint = hint
        self.log = redact("\n".join(log[-LAST_LINES:]))
        text = redact(message)
        super().__init__(f"{text}; its last lines:\n{self.log}" if self.log else text)


class EngineError(BuildError):
    """An engine failed by itself, whatever it was to build: it says nothing of that."""
