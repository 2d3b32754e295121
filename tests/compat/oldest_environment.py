"""The same kind of environment by the package's name of old, asynchronous this time."""

import warnings

warnings.simplefilter("ignore", DeprecationWarning)

from openenv_core.env_server import create_fastapi_app  # noqa: E402
from openenv_core.env_server.interfaces import Environment  # noqa: E402
from openenv_core.env_server.types import Action, Observation, State  # noqa: E402


class WordAction(Action):
    word: str


class WordObservation(Observation):
    words: list[str] = []  # noqa: RUF012


class WordEnvironment(Environment):
    def __init__(self):
        self.words = []

    def reset(self):
        raise NotImplementedError

    def step(self, action):
        raise NotImplementedError

    async def reset_async(self, seed=None, episode_id=None, first="once", **kwargs):
        self.words = [first]
        return WordObservation(words=self.words)

    async def step_async(self, action, timeout_s=None, **kwargs):
        self.words = [*self.words, action.word]
        return WordObservation(words=self.words, reward=len(self.words), done=action.word == "end")

    @property
    def state(self):
        return State(episode_id="words", step_count=len(self.words))


app = create_fastapi_app(WordEnvironment, WordAction, WordObservation)
