"""An environment whose state is a hash chain of what it was asked, and a ledger of it on disk.

An answer shows that everything before it was done, once and in order. What nobody had an answer of
stands in the ledger: a file for each instance in the folder that PROMISE_LEDGER names.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import time
import uuid
from typing import Any

from openenv import Action, Environment, Observation, State
from openenv.tools.environment import MCPEnvironment

LEDGER = os.environ.get("PROMISE_LEDGER", "")


def link(chain: str, number: int) -> str:
    """Return the chain with one more call in it."""
    return hashlib.sha256(f"{chain}|{number}".encode()).hexdigest()[:16]


class Ask(Action):
    """A step. `number` is given to no other, however often it is asked for."""

    number: int
    sleep_s: float = 0.0
    fault: str = ""


class Told(Observation):
    """What came of it."""

    instance: str = ""
    count: int = 0
    number: int = -1
    chain: str = ""


class _Chain:
    """The chain, and the way into the ledger."""

    def __init__(self) -> None:
        self.instance = uuid.uuid4().hex
        self.count, self.chain = 0, ""
        self.note("made")

    def note(self, line: str) -> None:
        if LEDGER:
            descriptor = os.open(
                f"{LEDGER}/{self.instance}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644
            )
            try:
                os.write(descriptor, f"{line}\n".encode())
            finally:
                os.close(descriptor)

    def begin(self, seed: int | None) -> Told:
        self.note(f"reset {seed}")
        self.count, self.chain = 0, link("", -1 if seed is None else seed)
        return self.told(-1 if seed is None else seed)

    def add(self, number: int) -> Told:
        self.count += 1
        self.chain = link(self.chain, number)
        self.note(f"step {number}")
        return self.told(number)

    def told(self, number: int) -> Told:
        return Told(
            instance=self.instance,
            count=self.count,
            number=number,
            chain=self.chain,
            reward=float(self.count),
        )

    def write(self) -> bytes:
        return json.dumps([self.count, self.chain]).encode()

    def read(self, data: bytes) -> None:
        count, chain = json.loads(data)
        self.note("restore")
        self.count, self.chain = count, chain


class Chained(Environment[Ask, Told, State]):
    """The chain, on threads."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.of = _Chain()

    def reset(self, seed: int | None = None, **_: Any) -> Told:  # type: ignore[override]
        return self.of.begin(seed)

    def step(self, action: Ask, **_: Any) -> Told:  # type: ignore[override]
        self.of.note(f"begin {action.number}")
        time.sleep(action.sleep_s)
        if action.fault == "exit":
            os._exit(3)
        if action.fault == "raise":
            raise RuntimeError("as it was asked to")
        return self.of.add(action.number)

    @property
    def state(self) -> State:
        return State(episode_id=self.of.instance, step_count=self.of.count)

    def render(self) -> str:
        return self.of.chain

    def render_web(self, observation: dict[str, Any]) -> str:
        return str(observation["chain"])

    def snapshot(self) -> bytes:
        return self.of.write()

    def restore(self, data: bytes) -> None:
        self.of.read(data)

    def close(self) -> None:
        self.of.note("closed")


class AsyncChained(Environment[Ask, Told, State]):
    """The chain, as coroutines; some of which do not heed a cancellation."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.of = _Chain()

    async def reset(self, seed: int | None = None, **_: Any) -> Told:  # type: ignore[override]
        return self.of.begin(seed)

    async def step(self, action: Ask, **_: Any) -> Told:  # type: ignore[override]
        self.of.note(f"begin {action.number}")
        end = time.monotonic() + action.sleep_s
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(left)
        if action.fault == "raise":
            raise RuntimeError("as it was asked to")
        return self.of.add(action.number)

    @property
    def state(self) -> State:
        return State(episode_id=self.of.instance, step_count=self.of.count)

    def render(self) -> str:
        return self.of.chain

    async def render_web(self, observation: dict[str, Any]) -> str:
        return str(observation["chain"])

    async def snapshot(self) -> bytes:
        return self.of.write()

    async def restore(self, data: bytes) -> None:
        self.of.read(data)

    async def close(self) -> None:  # type: ignore[override]
        self.of.note("closed")


class Tooled(MCPEnvironment):
    """The chain, by a tool."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.of = _Chain()

        @self.tool()
        def add(number: int, sleep_s: float = 0.0, fault: str = "") -> dict[str, object]:
            self.of.note(f"begin {number}")
            time.sleep(sleep_s)
            if fault == "raise":
                raise RuntimeError("as it was asked to")
            told = self.of.add(number)
            return {name: getattr(told, name) for name in ("instance", "count", "number", "chain")}

    def reset(self, seed: int | None = None, **_: Any) -> Told:  # type: ignore[override]
        return self.of.begin(seed)

    @property
    def state(self) -> State:
        return State(episode_id=self.of.instance, step_count=self.of.count)

    def close(self) -> None:
        super().close()
        self.of.note("closed")
