"""The measured environment: one file, served by both packages.

`ECHO` in the process's environment selects a variant of `ENVIRONMENTS`, such as `sync`, `async`, or
`frame`, which also has a screen of 210 x 160 RGB pixels. `ECHO_SESSIONS` is the maximum number of
sessions.
"""

import os
from random import Random
from typing import Annotated, Any
from uuid import uuid4

from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

SCREEN = Random(0).randbytes(210 * 160 * 3)


class EchoAction(Action):
    message: str


class EchoObservation(Observation):
    echoed: str
    length: int


class FrameObservation(EchoObservation):
    pixels: list[int]


class EchoEnvironment(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State(episode_id=str(uuid4()))

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        self._state = State(episode_id=episode_id or str(uuid4()))
        return self.observe("", None)

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        assert isinstance(action, EchoAction)
        self._state.step_count += 1
        return self.observe(action.message, len(action.message) / 10)

    def observe(self, message: str, reward: float | None) -> Observation:
        return EchoObservation(echoed=message, length=len(message), reward=reward)

    @property
    def state(self) -> State:
        return self._state


class AsyncEchoEnvironment(EchoEnvironment):
    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        return self.reset(seed, episode_id)

    async def step_async(
        self, action: Action, timeout_s: float | None = None, **kwargs: Any
    ) -> Observation:
        return self.step(action)


class FrameEnvironment(EchoEnvironment):
    """A screen as a flat list of integers, the form in JSON that costs both packages least."""

    def observe(self, message: str, reward: float | None) -> Observation:
        return FrameObservation(
            echoed=message, length=len(message), reward=reward, pixels=list(SCREEN)
        )


class AnyThreadEnvironment(EchoEnvironment):
    SUPPORTS_ANY_THREAD = True  # the public package ignores it


class LightEnvironment(EchoEnvironment):
    NEVER_BLOCKS = True


ENVIRONMENTS: dict[str, tuple[type[EchoEnvironment], type[Observation]]] = {
    "sync": (EchoEnvironment, EchoObservation),
    "async": (AsyncEchoEnvironment, EchoObservation),
    "frame": (FrameEnvironment, FrameObservation),
    "any thread": (AnyThreadEnvironment, EchoObservation),
    "never blocks": (LightEnvironment, EchoObservation),
}

if os.environ.get("ECHO") == "array":  # only our package has arrays
    import numpy

    from openenv import Array

    class ArrayObservation(EchoObservation):
        pixels: Annotated[numpy.ndarray, Array("uint8", (210, 160, 3))]

    class ArrayEnvironment(EchoEnvironment):
        SCREEN = numpy.frombuffer(SCREEN, numpy.uint8).reshape(210, 160, 3)

        def observe(self, message: str, reward: float | None) -> Observation:
            return ArrayObservation(
                echoed=message, length=len(message), reward=reward, pixels=self.SCREEN
            )

    ENVIRONMENTS["array"] = (ArrayEnvironment, ArrayObservation)

environment, observation = ENVIRONMENTS[os.environ.get("ECHO", "sync")]
app = create_fastapi_app(
    environment,
    EchoAction,
    observation,
    max_concurrent_envs=int(os.environ.get("ECHO_SESSIONS", "20000")),
    env_name="echo",
)
