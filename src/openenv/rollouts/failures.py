"""Failures of rollouts, and the rule by which attempts are retried."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from openenv._internal.redaction import redact
from openenv._internal.timing import backoff_s
from openenv.errors import (
    CapacityError,
    FactoryFailed,
    OpenEnvError,
    ProviderError,
    RateLimited,
    ResponseTimeout,
    SessionBusy,
    SessionFailed,
    SessionLost,
    refusal,
    words,
)
from openenv.rollouts.records import Failure, Rollout

if TYPE_CHECKING:
    from openenv.rollouts.runs import RolloutRun

Place = Literal["open", "reset", "policy", "step", "score", "close"]

# Failures that another attempt may not have.
PASSING = (
    CapacityError,
    ConnectionError,
    FactoryFailed,
    ProviderError,
    RateLimited,
    ResponseTimeout,
    SessionBusy,
    SessionFailed,
    SessionLost,
    TimeoutError,
    asyncio.TimeoutError,
)
PASSING_STATUSES = frozenset({408, 409, 425, 429})
PRESSING = (CapacityError, RateLimited, TimeoutError, asyncio.TimeoutError)
# The same for libraries by which policies call models: the SDKs of OpenAI and Anthropic, httpx,
# aiohttp, requests. Errors are matched by name, so that these libraries need not be imported.
PRESSING_NAMES = frozenset({"APITimeoutError", "TimeoutException", "Timeout"})
PASSING_NAMES = PRESSING_NAMES | {
    "APIConnectionError",
    "TransportError",
    "ClientConnectionError",
    "ConnectionError",
}
PRESSING_STATUSES = frozenset({429, 503, 529})
LONGEST_CHAIN = 10
MAX_MESSAGE = 2000
FIRST_DELAY_S, FIRST_PRESSED_DELAY_S, LONGEST_DELAY_S = 0.1, 0.5, 30.0


class TaskNotTaken(OpenEnvError, ValueError):
    """The environment ignores arguments that make up the task."""


class AttemptFailed(Exception):
    """An attempt at a rollout has failed.

    Attributes:
        rollout: The record up to the failure.
    """

    def __init__(self, cause: BaseException, at: Place, rollout: Rollout) -> None:
        self.cause = cause
        self.at: Place = at
        self.rollout = rollout
        super().__init__(str(cause))

    def record(self, *, is_retried: bool) -> Failure:
        """Return the failure as it is stored in the record of a rollout."""
        return Failure(
            type=type(self.cause).__name__,
            message=redact(words(self.cause))[:MAX_MESSAGE],
            at=self.at,
            step=len(self.rollout.steps) if self.at in ("policy", "step") else None,
            is_retried=is_retried,
            is_by_policy=self.is_by_policy,
        )

    @property
    def is_by_policy(self) -> bool:
        """True if the policy is responsible: the policy raised (not because a model's API was lost,
        late, full or down), or the environment refused the action.
        """
        if self.at == "policy":
            return not is_passing(self.cause)
        return self.at == "step" and refusal(self.cause) is not None


class RolloutsFailed(OpenEnvError, RuntimeError):
    """More rollouts have failed than the error budget allows; written rollouts stay.

    The numbers are those of the moment when the error budget was spent. Episodes that were running
    then may have ended since; `run` includes them.

    Attributes:
        failed: Number of failed rollouts.
        ended: Number of rollouts that had ended.
        causes: Number of failed rollouts by the cause of the last attempt, most common first.
        run: The unfinished run.

    Example:
        >>> from blackjack_env.server.blackjack_environment import BlackjackEnvironment
        >>> from openenv import RolloutsFailed, rollout
        >>> def broken(observation, history):
        ...     raise RuntimeError("no model")
        >>> try:
        ...     rollout(BlackjackEnvironment, broken, n=20, retries=0)
        ... except RolloutsFailed as failed:
        ...     print(failed.causes)
        {'RuntimeError in policy: no model': 3}
    """

    def __init__(self, failed: int, ended: int, causes: Mapping[str, int], run: RolloutRun) -> None:
        self.failed = failed
        self.ended = ended
        self.causes = dict(Counter(causes).most_common())
        self.run = run
        commonest = "; ".join(f"{n} x {cause}" for cause, n in list(self.causes.items())[:3])
        super().__init__(f"{failed} of {ended} rollouts have failed: {commonest}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failed, self.ended, self.causes, self.run)


class EnvironmentsFailing(OpenEnvError, RuntimeError):
    """Too many episodes in a row have failed for training to go on."""


class FailureStreak:
    """Counts failures in a row, for a trainer that would go on without rewards.

    Args:
        most: Maximum number of failures in a row; None for no limit.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._count = 0
        self._tasks: set[Hashable] = set()  # that failed in this row; two are enough

    def ended(self, failure: str | None, task: Hashable | None = None) -> None:
        """Note the end of an episode.

        Args:
            failure: Reason of the failure; None for a success.
            task: The episode's task, if other tasks are played at the same time. Failures of one
                task alone mean that the task is broken, and never count as too many.

        Raises:
            EnvironmentsFailing: Too many rollouts in a row have failed.
        """
        with self._lock:
            if failure is None:
                self._count = 0
                self._tasks.clear()
                return
            self._count += 1
            if len(self._tasks) < 2:
                self._tasks.add(object() if task is None else task)
            is_of_one_task = task is not None and len(self._tasks) == 1
            if self._most is None or self._count < self._most or is_of_one_task:
                return
            count, self._count = self._count, 0
            self._tasks.clear()
        raise EnvironmentsFailing(
            f"{count} episodes in a row have failed; the last one: {failure}. Training would go on "
            "without rewards; see to the environment, or allow for more (failures_in_a_row)"
        )


def _status(error: BaseException) -> int | None:
    """Return the HTTP status that an error of a model's client holds; None if there is none."""
    for place in (error, getattr(error, "response", None)):
        for name in ("status", "status_code"):
            status = getattr(place, name, None)
            if isinstance(status, int):
                return status
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes; clients of models wrap errors several times."""
    found: BaseException | None = error
    for _ in range(LONGEST_CHAIN):
        if found is None:
            return
        yield found
        found = found.__cause__


def _is_called(error: BaseException, names: frozenset[str]) -> bool:
    return any(cls.__name__ in names for cls in type(error).__mro__)


def is_passing(error: BaseException) -> bool:
    """Return whether another attempt may succeed: something was lost, full, late or down."""
    for one in _chain(error):
        if isinstance(one, PASSING) or _is_called(one, PASSING_NAMES):
            return True
        if (status := _status(one)) is not None:
            return status in PASSING_STATUSES or status >= 500
    return False


def pressure(error: BaseException) -> str | None:
    """Return the reason to make fewer requests; None if an error gives none."""
    for one in _chain(error):
        if isinstance(one, PRESSING) or _is_called(one, PRESSING_NAMES):
            return type(one).__name__
        if (status := _status(one)) is not None:
            return f"status {status}" if status in PRESSING_STATUSES else None
    return None


def retry_delay_s(error: BaseException, attempts: int, retries: int) -> float | None:
    """Return the seconds to wait before another attempt: doubled after each, up to 30 s.

    Args:
        error: The failure of the last attempt.
        attempts: Number of failed attempts.
        retries: Further attempts after a passing failure.

    Returns:
        The seconds; None if there is to be no further attempt.
    """
    if attempts > retries or not is_passing(error):
        return None
    first_s = FIRST_DELAY_S if pressure(error) is None else FIRST_PRESSED_DELAY_S
    return backoff_s(attempts, first_s, LONGEST_DELAY_S)
