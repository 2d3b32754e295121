"""An environment as people have written them: the import paths, and the liberties taken."""

import enum
from typing import Any, ClassVar, Optional

from pydantic import BaseModel, Field, field_validator

from openenv.core.env_server.base_transforms import CompositeTransform, NullTransform
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment, Transform
from openenv.core.env_server.mcp_types import Tool
from openenv.core.env_server.types import (
    Action,
    CodeExecResult,
    EnvironmentMetadata,
    Observation,
    State,
)


class Direction(str, enum.Enum):
    UP = "up"
    DOWN = "down"


class Point(BaseModel):
    x: int
    y: float = 0.5


class GridAction(Action):
    direction: Direction = Direction.UP
    distance: int = Field(default=1, ge=0, le=9)
    note: Optional[str] = None  # noqa: UP045 - as it is written

    @field_validator("note")
    @classmethod
    def no_shouting(cls, note):
        if note is not None and note.isupper():
            raise ValueError("please do not shout")
        return note


class GridObservation(Observation):
    """Redeclares what it inherits, as several of the shipped environments do."""

    at: Point = Field(default_factory=lambda: Point(x=0))
    trail: list[Point] = []  # noqa: RUF012
    facing: Direction = Direction.UP
    run: Optional[CodeExecResult] = None  # noqa: UP045
    tool: Optional[Tool] = None  # noqa: UP045
    raw: bytes = b""
    done: bool = False
    reward: Optional[float] = 0.0  # noqa: UP045
    metadata: dict[str, Any] = {}  # noqa: RUF012


class Bonus(Transform):
    def __call__(self, observation):
        observation.reward = (observation.reward or 0.0) + 0.25
        return observation


class GridEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True

    def __init__(self):  # no super().__init__()
        self.place = 0
        self.steps = 0
        self.bonus = CompositeTransform([NullTransform(), Bonus()])

    def reset(self):
        self.place = self.steps = 0
        return GridObservation(metadata={"level": 1})

    def step(self, action: GridAction):
        self.steps += 1
        self.place += action.distance if action.direction is Direction.UP else -action.distance
        if self.place < 0:
            raise ValueError(f"fell off the grid at {self.place}")
        observation = GridObservation(
            at=Point(x=self.place),
            trail=[Point(x=x) for x in range(self.place)],
            facing=action.direction,
            run=CodeExecResult(stdout="moved\n", stderr="", exit_code=0),
            tool=Tool(name="look", description="Look", input_schema={"type": "object"}),
            raw=b"bytes",
            done=self.place >= 9,
            reward=self.place / 10,
            metadata={"note": action.note} if action.note else {},
        )
        return self.bonus(observation)

    @property
    def state(self) -> State:
        return State(episode_id="fixed", step_count=self.steps, place=self.place)

    def get_metadata(self):
        return EnvironmentMetadata(name="Grid", description="A grid", version="2", author="us")


def make_environment():
    return GridEnvironment()


app = create_app(
    make_environment, GridAction, GridObservation, env_name="grid_env", max_concurrent_envs=4
)
