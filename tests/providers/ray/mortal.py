"""An environment that ends its server when it is told to."""

from __future__ import annotations

import os
from typing import Any

from openenv import Action, Environment, Observation, State


class Order(Action):
    """What to do: ``say``, or ``die``."""

    what: str = "say"


class Report(Observation):
    """What the server has of its caller."""

    pid: int = 0
    variable: str = ""


class Mortal(Environment[Order, Report, State]):
    """Ends its process on demand."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Report:
        self.state = State()
        return Report(pid=os.getpid())

    def step(self, action: Order, timeout_s: float | None = None, **kwargs: Any) -> Report:
        print("told to", action.what, flush=True)  # noqa: T201 - for the log
        if action.what == "die":
            os._exit(7)
        return Report(pid=os.getpid(), variable=os.environ.get("TOLD", ""))
