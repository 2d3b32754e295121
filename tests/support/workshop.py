"""Environments that agents play by MCP: one of tools, and one of actions."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from openenv import Action, Environment, Observation, Private, State
from openenv.arrays import Array
from openenv.tools import Image, MCPEnvironment, tool
from openenv.tools.results import encode_png


class Workshop(MCPEnvironment):
    """A workshop, whose tools are what an agent has."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.cancelled = self.resets = self.inside = self.at_once = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Any:
        self.resets += 1
        return super().reset(seed, episode_id, **kwargs)

    @tool(title="Add", annotations={"readOnlyHint": True})
    def add(self, a: float, b: Annotated[float, Field(description="What is added")] = 1) -> float:
        """Add two numbers."""
        sys.stdout.write("a tool prints\n")  # which nobody may take for the protocol
        return a + b

    @tool
    def picture(self) -> Image:
        """Draw."""
        png = encode_png(np.zeros((16, 16, 3), np.uint8))
        assert png is not None
        return Image(png)

    @tool
    def fail(self) -> str:
        """Fail."""
        raise ValueError("no such luck")

    @tool
    async def wait(self, seconds: float = 30) -> str:
        """Do nothing for a while."""
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return "waited"

    @tool
    def seen(self) -> dict[str, int]:
        """Tell what has happened in this session."""
        self.calls += 1
        return {"calls": self.calls, "cancelled": self.cancelled, "resets": self.resets}

    @tool
    def block(self, seconds: float) -> int:
        """Hold a thread up; tells how many calls of this there were at once, at the most."""
        self.inside += 1
        self.at_once = max(self.at_once, self.inside)
        time.sleep(seconds)
        self.inside -= 1
        return self.at_once

    @tool
    def learn(self, name: str) -> str:
        """Have one tool more."""

        def learned() -> str:
            """Do what was learned."""
            return name

        learned.__name__ = name
        self.tool()(learned)
        return f"learned {name}"

    @tool(mode="production")
    def order(self) -> str:
        """Do what only the real world has."""
        return "ordered"

    @tool(mode="simulation")
    def pretend(self) -> str:
        """Do what only a simulation has."""
        return "pretended"


class MoveAction(Action):
    """Go one step."""

    type: Literal["move"] = "move"
    direction: Literal["north", "south"]


class SayAction(Action):
    """Say something."""

    type: Literal["say"] = "say"
    words: str = Field(description="What is said")


class View(Observation):
    """What is to be seen."""

    instruction: str = "Go south."
    place: int = 0
    frame: Annotated[np.ndarray, Array(np.uint8, (16, 16, 3))]
    secret: Annotated[str, Private] = "behind the mirror"


class Street(Environment[MoveAction | SayAction, View, State]):
    """A street."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.place = 0

    def view(self, **more: Any) -> View:
        return View(place=self.place, frame=np.full((16, 16, 3), 7, np.uint8), **more)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> View:
        self.place = 0
        return self.view()

    def step(
        self, action: MoveAction | SayAction, timeout_s: float | None = None, **kwargs: Any
    ) -> View:
        if isinstance(action, MoveAction):
            self.place += 1 if action.direction == "south" else -1
        return self.view(reward=0.5, done=self.place == 2)

    @property
    def state(self) -> State:
        return State()
