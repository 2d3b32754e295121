"""Environments whose calls overstay their deadlines in every way that there is, as applications."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from openenv import Environment, create_app
from support.environments import Do, Progress, Seen
from support.held import objects

LATE_S = 0.15


class Late(Environment[Do, Seen, Progress]):
    """A step that says "late" takes its time, and "die" ends the process. It must not be entered
    twice at once, and each step counts in its own episode.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        self.steps = self.inside = 0

    def _enter(self) -> None:
        assert self.inside == 0, "two calls at once"
        self.inside += 1

    def _leave(self) -> Seen:
        self.inside -= 1
        self.steps += 1
        return Seen(text=f"step {self.steps}", value=os.getpid())

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Seen:
        self._enter()
        self.inside -= 1
        self.steps = 0
        return Seen(text="ready", value=os.getpid())

    def step(self, action: Do, timeout_s: float | None = None, **more: Any) -> Seen:
        self._enter()
        if action.what == "late":
            time.sleep(LATE_S)
        if action.what == "die":
            os._exit(3)
        return self._leave()

    @property
    def state(self) -> Progress:
        return Progress(step_count=self.steps)

    def close(self) -> None:
        assert self.inside == 0, "closed during a call"


class LateAnywhere(Late):
    SUPPORTS_ANY_THREAD = True


class LateAsync(Late):
    """Its step is told that it was cancelled, and goes on."""

    async def step_async(self, action: Do, timeout_s: float | None = None, **more: Any) -> Seen:
        self._enter()
        if action.what == "die":
            os._exit(3)
        late_s = action.value if isinstance(action.value, float) else LATE_S
        end = time.monotonic() + (late_s if action.what == "late" else 0)
        while (left := end - time.monotonic()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                if action.value == "cancelled":
                    self.inside -= 1
                    raise
        return self._leave()


class LateToClose(Late):
    def close(self) -> None:
        time.sleep(LATE_S)


class LateToReset(Late):
    """Its reset takes its time, and has no deadline: the client gives it up."""

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Seen:
        time.sleep(LATE_S)
        return super().reset()


ENVIRONMENTS = {
    cls.__name__: cls for cls in (Late, LateAnywhere, LateAsync, LateToClose, LateToReset)
}


def app() -> Any:
    """Serve what the variables name, and say what there is in this process."""
    workers = int(os.environ["TEST_WORKERS"]) or None
    app = create_app(ENVIRONMENTS[os.environ["TEST_ENVIRONMENT"]], workers=workers)

    @app.get("/held")
    async def held() -> dict[str, int]:
        return {"tasks": len(asyncio.all_tasks()), "objects": objects()}

    return app
