"""Environments whose `reset` and `step` have arguments that must be given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from openenv import Action, Environment, Observation, State


class Asking(Environment[Action, Observation, State]):
    """Has to be told a task and a level, and at each step a hint."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, task_id: str, seed: int | None = None, *, level: int) -> Observation:  # type: ignore[override]
        if task_id == "broken":
            raise TypeError("open() missing 1 required positional argument: 'file'")
        return Observation(metadata={"task_id": task_id, "level": level})

    def step(self, action: Action, hint: str, timeout_s: float | None = None) -> Observation:  # type: ignore[override]
        return Observation(metadata={"hint": hint})

    @property
    def state(self) -> State:
        return State()


def passing_on(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a coroutine method, as authors do to log or to time it."""

    @functools.wraps(method)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        return await method(*args, **kwargs)

    return wrapped


class AskingLater(Asking):
    """Does so awaiting, by decorated methods."""

    @passing_on
    async def reset_async(self, task_id: str, *, level: int) -> Observation:
        return super().reset(task_id, level=level)

    @passing_on
    async def step_async(self, action: Action, hint: str) -> Observation:
        return super().step(action, hint)


class Supplied(Asking):
    """Is decorated by what gives a task where the caller names none."""

    def reset(self, *args: Any, **kwargs: Any) -> Observation:
        return super().reset(*args, **{"task_id": "first", "level": 1, **kwargs})

    reset.__wrapped__ = Asking.reset  # type: ignore[attr-defined]
