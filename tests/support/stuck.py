"""Environments whose steps do not come back."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any, ClassVar

from openenv import Environment
from support.environments import Do, Log, Progress, Seen


class Stuck(Environment[Do, Seen, Progress]):
    """A step that says "hang" takes until it is let go; "sleep" sleeps."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    let_go: ClassVar[threading.Event] = threading.Event()
    log: ClassVar[Log] = Log()

    def __init__(self) -> None:
        self.log.note("init")
        self.steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Seen:
        self.steps = 0
        return Seen(text="ready")

    def step(self, action: Do, timeout_s: float | None = None, **more: Any) -> Seen:
        self.log.note("step")
        if action.what == "hang":
            self.let_go.wait()
        elif action.what == "sleep":
            time.sleep(action.value)
        elif action.what == "deadline":
            return Seen(value=timeout_s)
        self.steps += 1
        return Seen(text=f"step {self.steps}")

    @property
    def state(self) -> Progress:
        return Progress(step_count=self.steps)

    def close(self) -> None:
        self.log.note("close")


class StuckAsync(Stuck):
    """Waits where it can be cancelled, and notes that it was."""

    async def step_async(self, action: Do, timeout_s: float | None = None, **more: Any) -> Seen:
        self.log.note("step")
        try:
            await asyncio.sleep(30 if action.what == "hang" else 0)
        except asyncio.CancelledError:
            self.log.note("cancelled")
            if action.value == "answers":
                return Seen(text="interrupted")
            raise
        self.steps += 1
        return Seen(text=f"step {self.steps}")


class Alone(Stuck):
    SUPPORTS_CONCURRENT_SESSIONS = False


class Pid(Stuck):
    """Says which process it is in."""

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Seen:
        return Seen(value=os.getpid())


class StuckInFactory(Pid):
    def __init__(self) -> None:
        super().__init__()
        self.let_go.wait()


class StuckInReset(Pid):
    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Seen:
        self.let_go.wait()
        return Seen(text="ready")


class StuckInClose(Pid):
    def close(self) -> None:
        self.let_go.wait()
        super().close()


class StuckInAsyncClose(Stuck):
    async def close(self) -> None:  # type: ignore[override]
        self.log.note("close")
        await asyncio.Event().wait()
