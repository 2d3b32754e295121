"""An environment whose episode is one sum, and which remembers how often each one was done."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

from pydantic import Field

from openenv import Action, Environment, Observation, State, create_app
from openenv.reward import RewardSpec


class Answer(Action):
    value: int


class Question(Observation):
    first: int = 0
    second: int = 0


class ResendBuffer(State):
    """What all sessions of the server have done."""

    finished: dict[int, int] = Field(default_factory=dict)
    most_sessions: int = 0


class Sums(Environment[Answer, Question, ResendBuffer]):
    """Asks for the sum of a number and the number after it."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    NEVER_BLOCKS = True
    REWARD = RewardSpec("terminal", range=(0.0, 1.0))

    finished: ClassVar[Counter[int]] = Counter()
    sessions = most_sessions = 0

    def __init__(self) -> None:
        super().__init__()
        Sums.sessions += 1
        Sums.most_sessions = max(Sums.most_sessions, Sums.sessions)
        self.number = self.steps = 0

    def reset(self, seed: int | None = None, number: int = 0, **_: Any) -> Question:  # type: ignore[override]
        self.number, self.steps = number, 0
        return Question(first=number, second=number + 1)

    def step(self, action: Answer) -> Question:  # type: ignore[override]
        self.steps += 1
        Sums.finished[self.number] += 1
        return Question(done=True, reward=float(action.value == 2 * self.number + 1))

    @property
    def state(self) -> ResendBuffer:
        return ResendBuffer(
            step_count=self.steps, finished=dict(Sums.finished), most_sessions=Sums.most_sessions
        )

    def close(self) -> None:
        Sums.sessions -= 1


# A run that is killed leaves its sessions behind for a while.
app = create_app(Sums, max_concurrent_envs=2000)
