"""An environment against the public interface, which also does what goes wrong."""

import time
from typing import Any, ClassVar

from openenv.core.env_server import Action, Environment, Observation, State, create_app


class Do(Action):
    what: str = "count"
    n: int = 0


class Seen(Observation):
    text: str = ""
    data: Any = None


class Progress(State):
    board: list[int] = []  # noqa: RUF012 - Pydantic copies it


class Toy(Environment):
    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True

    def __init__(self):
        super().__init__()
        self.progress = Progress()

    def reset(self, seed=None, episode_id=None, difficulty="easy"):
        self.progress = Progress(episode_id=episode_id, board=[seed or 0])
        return Seen(text=f"reset {difficulty}", metadata={"seed": seed})

    def step(self, action, timeout_s=None, **kwargs):
        self.progress.step_count += 1
        if action.what == "raise":
            raise RuntimeError("kaboom")
        if action.what == "sleep":
            time.sleep(action.n)
        return Seen(
            text=action.what,
            data={"n": [action.n] * action.n, "none": None},
            reward=float("nan") if action.what == "nan" else action.n / 2,
            done=action.what == "finish",
        )

    @property
    def state(self):
        return self.progress


class Broken(Toy):
    def __init__(self):
        raise OSError("no such device")


class Alone(Toy):
    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = False


toy = create_app(Toy, Do, Seen, env_name="toy", max_concurrent_envs=8, state_cls=Progress)
alone = create_app(Alone, Do, Seen, env_name="alone")
broken = create_app(Broken, Do, Seen, env_name="broken")
