"""An application whose environments misbehave now and then, and that says what it holds.

In worker processes some hang for good: no thread can be interrupted, but a process can be ended.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from openenv import Environment, Limits, create_app
from support.environments import Do, Progress, Seen
from support.held import children, kibibytes, objects

WORKERS = int(os.environ.get("UGLY_WORKERS", "0")) or None


def _hang() -> None:
    if WORKERS:
        threading.Event().wait()


class Ugly(Environment[Do, Seen, Progress]):
    """Has a directory of its own. Its factory and its close may raise, take their time or hang."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    SUPPORTS_ANY_THREAD = True
    chance: ClassVar[random.Random] = random.Random(1)

    def __init__(self) -> None:
        fate = self.chance.random()
        if fate < 0.02:
            raise OSError("no display")
        if fate < 0.04:
            time.sleep(0.1)
        if fate > 0.998:
            _hang()
        self.directory = Path(tempfile.mkdtemp(prefix="ugly-", dir=os.environ["UGLY_DIRECTORY"]))
        self.steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Seen:
        if self.chance.random() < 0.02:
            time.sleep(0.05)
        self.steps = 0
        return Seen(text="ready")

    def step(self, action: Do, timeout_s: float | None = None, **more: Any) -> Seen:
        if action.what == "sleep":
            time.sleep(action.value)
        self.steps += 1
        return Seen(text=f"step {self.steps}", reward=float(self.steps))

    @property
    def state(self) -> Progress:
        return Progress(step_count=self.steps)

    def close(self) -> None:
        shutil.rmtree(self.directory)
        fate = self.chance.random()
        if fate < 0.02:
            raise OSError("it is stuck")
        if fate < 0.04:
            time.sleep(0.1)
        if fate > 0.998:
            _hang()


app = create_app(
    Ugly,
    max_concurrent_envs=2000,
    workers=WORKERS,
    limits=Limits(resume_grace_s=0.5, dead_peer_s=3, close_s=2),
)
managers = app.state.openenv_managers


@app.get("/held")
def held() -> dict[str, int]:
    """What the server's process holds."""
    (manager,) = managers
    return {
        "sessions": manager.active_sessions,
        "connections": len(manager.connections),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "directories": len(os.listdir(os.environ["UGLY_DIRECTORY"])),
        "processes": len(children(os.getpid())),
        "objects": objects(),
        "kibibytes": kibibytes(os.getpid()),
    }
