"""The same game as `atari_env`, written as an environment of the public package.

It uses that package alone: frames are flat lists of integers, the only form that it can send.
`ATARI_OBS_TYPE` is rgb or grayscale; `ATARI_FRAMESKIP` is the number of frames per step.
"""

import os
from typing import Any
from uuid import uuid4

from ale_py import ALEInterface, LoggerMode, roms

from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

FRAMESKIP = int(os.environ.get("ATARI_FRAMESKIP", "4"))
SCREENS = {"rgb": ALEInterface.getScreenRGB, "grayscale": ALEInterface.getScreenGrayscale}

ALEInterface.setLoggerMode(LoggerMode.Error)


class AtariAction(Action):
    action_id: int


class AtariObservation(Observation):
    screen: list[int]
    screen_shape: list[int]
    legal_actions: list[int]
    lives: int = 0
    episode_frame_number: int = 0
    frame_number: int = 0


class AtariEnvironment(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.ale = ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        path = roms.get_rom_path("pong")
        assert path is not None
        self.ale.loadROM(path)
        self.actions = self.ale.getMinimalActionSet()
        self.screen = SCREENS[os.environ.get("ATARI_OBS_TYPE", "rgb")]
        self._state = State(episode_id=str(uuid4()))

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        self.ale.reset_game()
        self._state = State(episode_id=episode_id or str(uuid4()))
        return self.observe(0.0)

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        assert isinstance(action, AtariAction)
        self._state.step_count += 1
        reward = 0.0
        for _ in range(FRAMESKIP):
            reward += self.ale.act(self.actions[action.action_id])
            if self.ale.game_over():
                break
        return self.observe(reward)

    def observe(self, reward: float) -> Observation:
        screen = self.screen(self.ale)
        return AtariObservation(
            screen=screen.ravel().tolist(),
            screen_shape=list(screen.shape),
            legal_actions=list(range(len(self.actions))),
            lives=self.ale.lives(),
            episode_frame_number=self.ale.getEpisodeFrameNumber(),
            frame_number=self.ale.getFrameNumber(),
            done=self.ale.game_over(),
            reward=reward,
            metadata={
                "game_name": "pong",
                "action_meanings": [action.name for action in self.actions],
            },
        )

    @property
    def state(self) -> State:
        return self._state


app = create_fastapi_app(
    AtariEnvironment, AtariAction, AtariObservation, max_concurrent_envs=64, env_name="atari"
)
