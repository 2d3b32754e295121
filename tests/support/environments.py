"""Environments that do what tests ask of them, in each of the forms that authors write."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from openenv import Action, EnvClient, Environment, Observation, State, StepResult
from support.waiting import eventually, wait_until


class Do(Action):
    """Ask the environment to do something; see `perform`."""

    what: str = "count"
    value: Any = None


class Seen(Observation):
    """What it did, and what it was told."""

    text: str = ""
    value: Any = None
    arguments: dict[str, Any] = Field(default_factory=dict)


class Progress(State):
    """A state with a field of its own."""

    board: list[int] = Field(default_factory=list)


class Hold:
    """A step that begins and then goes on until it is let go; also in another process.

    Args:
        folder: An empty directory, by which the test and the environment tell each other.
    """

    def __init__(self, folder: str | Path) -> None:
        self._begun, self._free = Path(folder) / "begun", Path(folder) / "free"

    @property
    def action(self) -> Do:
        """The action that holds."""
        return Do(what="hold", value=str(self._begun.parent))

    async def begun(self) -> None:
        """Wait until the environment carries out the step."""
        await eventually(self._begun.exists)

    def release(self) -> None:
        """Let the step end."""
        self._free.touch()

    def wait(self) -> None:
        """Hold a synchronous environment."""
        self._begun.touch()
        wait_until(self._free.exists)

    async def wait_async(self) -> None:
        """Hold an asynchronous environment."""
        self._begun.touch()
        await eventually(self._free.exists)


class Log:
    """What happened to every instance of a class, and on which thread."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def note(self, event: str) -> None:
        self.events.append((event, threading.get_ident()))

    def count(self, event: str) -> int:
        return sum(name == event for name, _ in self.events)

    @property
    def threads(self) -> set[int]:
        return {thread for _, thread in self.events}


def perform(action: Do, count: int) -> Seen:
    """Carry out an action: each word is a behaviour under test."""
    match action.what:
        case "raise":
            raise RuntimeError("kaboom")
        case "exit":
            raise SystemExit(3)
        case "done":
            return Seen(text="over", done=True, reward=1.0)
        case "truncate":
            return Seen(text="cut", done=True, truncated=True, reward=0.5)
        case "annotate":
            return Seen(text="noted", metadata={"k": [1, {"a": None}]})
        case "reward":
            return Seen(reward=action.value)
        case "nothing":
            return None  # type: ignore[return-value]  # on purpose
        case "unencodable":
            return Seen(value=object())
        case "badbytes":
            return Seen(value=b"\xff")
        case "echo":
            return Seen(text="echo", value=action.value)
        case "large":
            return Seen(value="x" * action.value)
    return Seen(text=f"step {count}", reward=float(count))


class Counter(Environment[Do, Seen, Progress]):
    """Synchronous, with the contract's own signatures."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    log: ClassVar[Log] = Log()

    def __init__(self) -> None:
        super().__init__()
        self.log.note("init")
        self.progress = Progress()

    def reset(  # type: ignore[override]
        self, seed: int | None = None, episode_id: str | None = None, size: int = 0
    ) -> Seen:
        self.log.note("reset")
        self.progress = Progress(episode_id=episode_id or "made up", board=[0] * size)
        return Seen(text="ready", arguments={"seed": seed, "size": size})

    def step(self, action: Do, timeout_s: float | None = None) -> Seen:  # type: ignore[override]
        self.log.note("step")
        self.progress.step_count += 1
        if action.what == "sleep":
            time.sleep(action.value)
        if action.what == "hold":
            Hold(action.value).wait()
        return perform(action, self.progress.step_count)

    @property
    def state(self) -> Progress:
        self.log.note("state")
        return self.progress

    def render(self) -> str:
        self.log.note("render")
        return f"at {self.progress.step_count}"

    def close(self) -> None:
        self.log.note("close")


class AsyncCounter(Environment[Do, Seen, Progress]):
    """Every method a coroutine."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    log: ClassVar[Log] = Log()

    def __init__(self) -> None:
        self.log.note("init")
        self.progress = Progress()

    async def reset(  # type: ignore[override]
        self, seed: int | None = None, episode_id: str | None = None, size: int = 0
    ) -> Seen:
        self.log.note("reset")
        self.progress = Progress(episode_id=episode_id or "made up", board=[0] * size)
        return Seen(text="ready", arguments={"seed": seed, "size": size})

    async def step(self, action: Do) -> StepResult[Seen]:  # type: ignore[override]
        self.log.note("step")
        self.progress.step_count += 1
        if action.what == "sleep":
            await asyncio.sleep(action.value)
        if action.what == "hold":
            await Hold(action.value).wait_async()
        seen = perform(action, self.progress.step_count)
        if seen is None:
            return None
        return StepResult(
            observation=seen, reward=seen.reward, done=seen.done, truncated=seen.truncated
        )

    async def state(self) -> Progress:  # type: ignore[override]
        self.log.note("state")
        return self.progress

    async def render(self) -> str:
        self.log.note("render")
        return f"at {self.progress.step_count}"

    async def close(self) -> None:  # type: ignore[override]
        self.log.note("close")


class HookCounter(Counter):
    """The synchronous form, with the asynchronous hooks overridden."""

    log: ClassVar[Log] = Log()

    async def reset_async(  # type: ignore[override]
        self, seed: int | None = None, episode_id: str | None = None, size: int = 0
    ) -> Seen:
        return self.reset(seed, episode_id, size)

    async def step_async(  # type: ignore[override]
        self, action: Do, timeout_s: float | None = None
    ) -> Seen:
        if action.what == "sleep":
            await asyncio.sleep(action.value)
            action = Do()
        if action.what == "hold":
            await Hold(action.value).wait_async()
            action = Do()
        return self.step(action)


KINDS: dict[str, type[Environment[Any, Any, Any]]] = {
    "sync": Counter,
    "async": AsyncCounter,
    "hooks": HookCounter,
}


class CounterEnv(EnvClient[Do, Seen, Progress]):
    """A client in one line."""
