"""Errors of agent harnesses that run inside an environment.

Each error's text is meant for the client of the episode. `HarnessNotRunningError`,
`HarnessBusyError` and `HarnessStartupError` are raised. Any other error ends the episode: the
observation is done and truncated, its reward is None, and its metadata has the text as `error` and
the class's `error_type`.
"""

from __future__ import annotations

from typing import ClassVar

from openenv._internal.timing import TimeoutBase
from openenv.errors import Refused

__all__ = [
    "HarnessBusyError",
    "HarnessCrashedError",
    "HarnessError",
    "HarnessNotRunningError",
    "HarnessOutputError",
    "HarnessOutputTooLarge",
    "HarnessStartupError",
    "HarnessTurnError",
    "HarnessTurnTimeoutError",
]


class HarnessError(Refused):
    """The base class of errors of agent harnesses.

    Class attributes:
        error_type: The value of `error_type` in an observation's metadata.
    """

    error_type: ClassVar[str] = "harness_failed"


class HarnessNotRunningError(HarnessError):
    """A message to a harness that was not started or has ended."""

    error_type = "harness_crashed"


class HarnessBusyError(HarnessError):
    """A message during a turn; a harness has a single conversation."""

    error_type = "turn_running"


class HarnessStartupError(HarnessError):
    """A harness that could not be started, or was not ready in time."""

    error_type = "startup_failed"


class HarnessTurnTimeoutError(HarnessError, TimeoutBase):
    """A turn that exceeded `HarnessConfig.session_timeout_s`, or the caller's limit."""

    error_type = "turn_timeout"


class HarnessCrashedError(HarnessError):
    """A harness that ended during a turn, or without completing the turn.

    Attributes:
        exit_code: The exit code, negative for a signal; None if unknown.
    """

    error_type = "harness_crashed"

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class HarnessOutputError(HarnessError):
    """Output of a harness that violates the protocol."""

    error_type = "protocol_error"


class HarnessOutputTooLarge(HarnessOutputError):
    """More output in a turn than `HarnessConfig.max_output_bytes`."""

    error_type = "output_too_large"


class HarnessTurnError(HarnessError):
    """A turn that the harness reported as failed, for example because the model is unreachable."""

    error_type = "turn_failed"
