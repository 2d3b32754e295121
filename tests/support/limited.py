"""An application with every limit so low that a test goes over it at once.

Each answer of its environment depends on all actions before it. A client that counts along notices
a step which was lost, was taken twice or belongs to another session.
"""

from __future__ import annotations

import os
import time
from typing import Any

import openenv.events
from openenv import Environment, Limits, create_app
from openenv.execution import slow_readers
from openenv.execution.connections.v1 import connection
from openenv.execution.recording import RecordingOptions
from openenv.server import Key, KeyLimits, heads
from openenv.server.mcp import bindings as seats
from openenv.server.mcp import bridge
from openenv.web import watch
from support.environments import Do, Progress, Seen

__all__ = ["KEYS", "LIMITS", "RECORDED_BYTES", "SLOTS", "Chained", "linked"]

KEYS = {
    "witness": Key("the-witness-has-this-key", name="witness"),
    "gateway": Key("the-gateway-has-this-key", name="gateway"),
    "rogue": Key("a-rogue-has-this-key-too", name="rogue"),
    "one session": Key("a-key-for-one-session-01", limits=KeyLimits(max_sessions=1)),
    "few requests": Key("a-key-for-few-requests-1", limits=KeyLimits(requests_per_s=2)),
    "few bytes": Key("a-key-for-few-bytes-0123", limits=KeyLimits(bytes_per_s=50_000)),
}
SLOTS = 8
RECORDED_BYTES = 2**21
LIMITS = Limits(
    resume_grace_s=0.3,
    max_queue=2,
    max_queue_s=0.3,
    max_message_bytes=200_000,
    max_unread_bytes=300_000,
)


def linked(chain: str, value: str) -> str:
    """Return the next link of a chain."""
    return f"{hash_of(chain + value):08x}"


def hash_of(text: str) -> int:
    """Return the same number in every process."""
    number = 2166136261
    for byte in text.encode():
        number = (number ^ byte) * 16777619 % 2**32
    return number


class Chained(Environment[Do, Seen, Progress]):
    """Answers with a link of a chain, or does what it is asked for."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.chain, self.steps = "", 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Seen:
        self.chain, self.steps = linked("", str(seed)), 0
        return Seen(text=self.chain)

    def step(self, action: Do, timeout_s: float | None = None, **more: Any) -> Seen:
        self.steps += 1
        if action.what == "large":
            return Seen(value="x" * action.value)
        if action.what == "sleep":
            time.sleep(action.value)
        if action.what == "push":
            for _ in range(action.value):
                self.events.push("x")
        self.chain = linked(self.chain, str(action.value))
        return Seen(text=self.chain, reward=float(self.steps))

    @property
    def state(self) -> Progress:
        return Progress(step_count=self.steps)


def _lower() -> None:
    """Lower the limits that are no settings; only in a server's process, not in that of tests."""
    heads.HEAD_S = 0.3
    slow_readers.PATIENCE_S = 0.3
    connection.MOST_UNHEARD = 3
    bridge.MAX_SESSIONS = 3
    seats.MAX_SUBSCRIBED = 3
    watch.MAX_UNSENT = 16
    watch.MAX_EVENT_BYTES = 100_000
    openenv.events.MAX_WAITING = 1000


if "LIMITED_RECORDINGS" in os.environ:
    _lower()
    app = create_app(
        Chained,
        env_name="chained",
        max_concurrent_envs=SLOTS,
        limits=LIMITS,
        keys=KEYS.values(),
        web=True,
        tasks=[{"id": f"t{number}", "prompt": "x" * 1000} for number in range(300)],
        record=RecordingOptions(
            os.environ["LIMITED_RECORDINGS"],
            max_file_bytes=2**18,
            max_total_bytes=RECORDED_BYTES,
        ),
    )
    (manager,) = app.state.openenv_managers

    @app.get("/held")
    def held() -> dict[str, int]:
        """What the server holds for its clients."""
        return {"sessions": manager.active_sessions, "connections": len(manager.connections)}
