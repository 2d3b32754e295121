"""Environments for worker processes, which import this module."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

from openenv import Environment, State
from openenv.execution.spec import EnvironmentSpec
from support.environments import Do, Seen
from support.probe import DEEDS, Answer, Ask, ProbeEnvironment
from support.stuck import Pid


class NeedsOneThread(ProbeEnvironment):
    REQUIRES_SINGLE_THREAD_EXECUTOR = True


class OneSession(ProbeEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = False


class Patient(ProbeEnvironment):
    """Its steps are coroutines."""

    async def step(self, action: Ask) -> Answer:  # type: ignore[override]
        if action.what == "sleep":
            await asyncio.sleep(action.value)
            return Answer()
        return Answer(value=DEEDS[action.what](action.value))


class Unmakeable(ProbeEnvironment):
    """Making it ends the process."""

    def __init__(self) -> None:
        os._exit(7)


class Untidy(ProbeEnvironment):
    """Closing it writes a file, or hangs if it was asked to.

    Where it writes one, a step writes another, FILE.busy, as it begins.
    """

    what: tuple[str, Any] = ("", None)

    def step(self, action: Ask) -> Answer:  # type: ignore[override]
        if action.what == "at close":
            self.what = action.value
            return Answer()
        if self.what[0] == "write":
            Path(f"{self.what[1]}.busy").touch()
        return super().step(action)

    def close(self) -> None:
        what, value = self.what
        if what == "write":
            with open(value, "w") as file:
                file.write("closed")
        elif what:
            DEEDS[what](value)


def make_probe():  # type: ignore[no-untyped-def]  # it does not say what it makes
    return ProbeEnvironment()


def make_one_session():  # type: ignore[no-untyped-def]
    return OneSession()


def no_weights() -> Any:
    raise FileNotFoundError("no weights")


def not_data(_: Any) -> Any:
    return lambda: None


class HangsOnRequest(Environment[Do, Seen, State]):
    """Says which thread it is on; "hang" never comes back."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Seen:
        return Seen()

    def step(self, action: Do, timeout_s: float | None = None, **more: Any) -> Seen:
        if action.what == "hang":
            threading.Event().wait()
        return Seen(value=threading.get_ident())

    @property
    def state(self) -> State:
        return State()


def spec_of_hanging() -> EnvironmentSpec:
    return EnvironmentSpec.of(HangsOnRequest, Do, Seen)


def pid_once_it_may() -> EnvironmentSpec:
    """Find it once the file that ``TEST_HELD`` names is gone."""
    held = Path(os.environ["TEST_HELD"])
    while held.exists():
        time.sleep(0.01)
    return EnvironmentSpec.of(Pid, Do, Seen)
