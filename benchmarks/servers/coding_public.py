"""Python as an environment of the public package, with its `PyExecutor`.

The environment uses that package alone, which needs smolagents beside it. Names last for an
episode, and steps have no reward.
"""

import os
from typing import Any
from uuid import uuid4

from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from openenv.core.tools import PyExecutor


class CodeAction(Action):
    code: str


class CodeObservation(Observation):
    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


class CodingEnvironment(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.executor = PyExecutor()
        self._state = State(episode_id=str(uuid4()))

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        self.executor = PyExecutor()
        self._state = State(episode_id=episode_id or str(uuid4()))
        return CodeObservation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        assert isinstance(action, CodeAction)
        self._state.step_count += 1
        done = self.executor.run(action.code)
        return CodeObservation(stdout=done.stdout, stderr=done.stderr, exit_code=done.exit_code)

    @property
    def state(self) -> State:
        return self._state


app = create_fastapi_app(
    CodingEnvironment,
    CodeAction,
    CodeObservation,
    max_concurrent_envs=int(os.environ.get("MAX_CONCURRENT_ENVS", "64")),
    env_name="coding",
)
