"""What can go wrong with an agent harness that runs inside an environment.

    HarnessError                     (Refused) its text is written for whoever drives the episode
     +-- HarnessNotRunningError      no episode is running; reset begins one
     +-- HarnessBusyError            a turn is running; one turn at a time
     +-- HarnessStartupError         it is not installed, ended at once, or did not get ready
     +-- HarnessTurnTimeoutError     (TimeoutError) a turn took longer than it may
     +-- HarnessCrashedError         it ended, or fell silent, in the middle of a turn; .exit_code
     +-- HarnessOutputError          what it wrote is none of its protocol
     |    +-- HarnessOutputTooLarge  it wrote more than it may
     +-- HarnessTurnError            it says itself that the turn has failed

The first three are raised. Any other ends the episode: the observation is done and truncated, its
reward is None, and its metadata have the text as `error` and the class's `error_type`.
"""

from __future__ import annotations

from typing import ClassVar

from openenv._internal.timeouts import TimeoutBase
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
    """Something about an agent harness.

    Class attributes:
        error_type: What the metadata of an observation call it.
    """

    error_type: ClassVar[str] = "harness_failed"


class HarnessNotRunningError(HarnessError):
    """Nothing can be sent: the harness was not started, or has ended."""

    error_type = "harness_crashed"


class HarnessBusyError(HarnessError):
    """A turn is running, and a harness holds one conversation."""

    error_type = "turn_running"


class HarnessStartupError(HarnessError):
    """The harness could not be started, or did not get ready in time."""

    error_type = "startup_failed"


class HarnessTurnTimeoutError(HarnessError, TimeoutBase):
    """A turn took longer than `HarnessConfig.session_timeout_s`, or than the caller gave it."""

    error_type = "turn_timeout"


class HarnessCrashedError(HarnessError):
    """The harness ended in the middle of a turn, or ended its turn without saying so.

    Attributes:
        exit_code: How its process ended; that of a signal is negative, None is unknown.
    """

    error_type = "harness_crashed"

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class HarnessOutputError(HarnessError):
    """What the harness wrote is none of its protocol."""

    error_type = "protocol_error"


class HarnessOutputTooLarge(HarnessOutputError):
    """The harness wrote more in one turn than `HarnessConfig.max_output_bytes`."""

    error_type = "output_too_large"


class HarnessTurnError(HarnessError):
    """The harness says itself that it could not do the turn: its model is out of reach, say."""

    error_type = "turn_failed"
