"""Which errors are worth another attempt, and which say that less should be asked for."""

from __future__ import annotations

from typing import Any

import pytest

from openenv.errors import CapacityError, SessionLost
from openenv.rewards.llm.client import LLMError, LLMTimeout, LLMUnreachable
from openenv.rollouts.failures import AttemptFailed, is_passing, pressure
from openenv.rollouts.records import Rollout


class Response:
    status_code = 503


class Answered(Exception):
    """As of httpx: the status is that of its response."""

    response = Response()


class APIConnectionError(Exception):
    """As of the SDKs of OpenAI and Anthropic, which tell no status."""


class APITimeoutError(APIConnectionError):
    """The same."""


def of(cause: BaseException, error: BaseException | None = None) -> BaseException:
    """An error that came of another one."""
    error = error or LLMError("the model said nothing")
    error.__cause__ = cause
    return error


def within(error: BaseException) -> BaseException:
    """One that was raised while another one was dealt with, which is no cause."""
    mistake = KeyError("board")
    mistake.__context__ = error
    return mistake


@pytest.mark.parametrize(
    ("error", "passes", "why"),
    [
        (SessionLost("gone"), True, None),
        (CapacityError("full", "CAPACITY_REACHED"), True, "CapacityError"),
        (TimeoutError(), True, "TimeoutError"),
        (LLMError("busy", status=429), True, "status 429"),
        (LLMError("ill", status=500), True, None),
        (LLMError("no", status=401), False, None),
        (LLMError("unreadable"), False, None),
        (LLMTimeout("late"), True, "LLMTimeout"),
        (LLMUnreachable("away"), True, None),
        (Answered(), True, "status 503"),
        (APIConnectionError(), True, None),
        (APITimeoutError(), True, "APITimeoutError"),
        (of(of(APITimeoutError())), True, "APITimeoutError"),
        (of(TimeoutError(), LLMError("no", status=400)), False, None),
        (KeyError("board"), False, None),
        (within(TimeoutError()), False, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_what_may_pass_is_told_from_what_will_not(error: Any, passes: bool, why: Any) -> None:
    assert (is_passing(error), pressure(error)) == (passes, why)


def test_a_secret_is_not_in_what_is_kept_of_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "sk-very-secret")
    failure = AttemptFailed(ValueError("wrong key: sk-very-secret"), "policy", Rollout(id="a#0"))
    assert failure.record(is_retried=False).message == "wrong key: ***"
