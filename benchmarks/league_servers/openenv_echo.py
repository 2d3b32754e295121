"""The league's echo environment, served by ours and by the public package.

`ECHO=light` in the process's environment declares that its calls never block.
"""

import os
from typing import Any

from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class EchoAction(Action):
    text: str


class EchoObservation(Observation):
    text: str


class EchoEnvironment(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        self._state = State(episode_id=episode_id)
        return EchoObservation(text="")

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        assert isinstance(action, EchoAction)
        self._state.step_count += 1
        return EchoObservation(text=action.text, reward=1.0)

    @property
    def state(self) -> State:
        return self._state


class LightEnvironment(EchoEnvironment):
    NEVER_BLOCKS = True  # only our package reads it


class AsyncEnvironment(EchoEnvironment):
    """The variant that serves the public package best."""

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        return self.reset(seed, episode_id)

    async def step_async(
        self, action: Action, timeout_s: float | None = None, **kwargs: Any
    ) -> Observation:
        return self.step(action)


ENVIRONMENTS = {"": EchoEnvironment, "light": LightEnvironment, "async": AsyncEnvironment}

app = create_fastapi_app(
    ENVIRONMENTS[os.environ.get("ECHO", "")],
    EchoAction,
    EchoObservation,
    max_concurrent_envs=20_000,
    env_name="echo",
)
