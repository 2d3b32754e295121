"""An environment that takes all kinds of values, and tells them again."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from openenv import Action, Environment, Observation, State
from openenv.arrays import Array
from openenv.tools import CallToolAction, ListToolsAction, MCPEnvironment, tool


class Act(Action):
    """A value of each kind."""

    text: str = ""
    numbers: list[float] = Field(default_factory=list)
    choice: Literal["left", "right"] | None = None
    named: dict[str, int] = Field(default_factory=dict)
    anything: Any = None
    grid: Annotated[np.ndarray, Array(np.int64, (None, None))] | None = None


class Got(Observation):
    """What was sent."""

    text: str = ""
    numbers: list[float] = Field(default_factory=list)
    named: dict[str, int] = Field(default_factory=dict)
    anything: Any = None
    grid: Annotated[np.ndarray, Array(np.int64, (None, None))] | None = None


class Workbench(Environment[Act, Got, State]):
    """Tells what it is told."""

    PLAY: ClassVar[dict[str, Any]] = {"text": "mine"}

    SUPPORTS_CONCURRENT_SESSIONS = True
    NEVER_BLOCKS = True

    def __init__(self) -> None:
        super().__init__()
        self.now = State()

    def reset(  # type: ignore[override]
        self, seed: int | None = None, episode_id: str | None = None, size: int = 0
    ) -> Got:
        self.now = State(episode_id=episode_id)
        return Got(text="ready")

    def step(self, action: Act) -> Got:  # type: ignore[override]
        self.now.step_count += 1
        return Got(
            text=f"{action.text}, {self.now.step_count}",
            numbers=action.numbers,
            named=action.named,
            anything=action.anything,
            grid=action.grid,
            reward=1.0,
        )

    @property
    def state(self) -> State:
        return self.now

    def render(self) -> str:
        return f"step {self.now.step_count}"


class Tools(MCPEnvironment[CallToolAction | ListToolsAction, Observation]):
    """Tools with arguments of each kind."""

    PLAY: ClassVar[dict[str, Any]] = {"type": "call_tool", "tool_name": "count", "arguments": {}}
    calls = 0

    SUPPORTS_CONCURRENT_SESSIONS = True
    NEVER_BLOCKS = True

    @tool
    def count(self) -> str:
        """Count the calls."""
        self.calls += 1
        return f"mine, {self.calls}"

    @tool
    def add(self, a: int, b: float = 0.5) -> float:
        """Add two numbers."""
        return a + b

    @tool
    def echo(self, value: Any, named: dict[str, list[int]] | None = None) -> Any:
        """Tell what was sent."""
        return {"value": value, "named": named}

    @tool
    def choose(self, side: Literal["left", "right"], act: Act | None = None) -> str:
        """Choose a side."""
        return f"{side}: {act.text if act else ''}"
