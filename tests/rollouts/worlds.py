"""Environments that rewards, limits and failures of rollouts are tried in."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from pydantic import Field

from openenv import Action, Environment, Observation, Refused, State
from openenv.environment import scored
from openenv.reward import RewardSpec, Score
from openenv.types import StepResult


class Say(Action):
    word: str


class Heard(Observation):
    words: list[str] = Field(default_factory=list)


class Talk(Environment[Say, Heard, State]):
    """Lasts until it hears ``over``; every word has a meaning of its own."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    ends_with = "over"

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.begun: dict[str, Any] = {}

    def reset(self, seed: int | None = None, start: str = "") -> Heard:  # type: ignore[override]
        self.words = [start] if start else []
        self.begun = {"seed": seed}
        return Heard(words=list(self.words), metadata=self.begun)

    def step(self, action: Say) -> Heard:  # type: ignore[override]
        word = action.word
        if word == "rude":
            raise Refused("mind your language")
        if word == "crash":
            raise RuntimeError("kaboom")
        self.words.append(word)
        done = word == self.ends_with
        return self.answer(Heard(words=list(self.words), done=done), word)

    def answer(self, heard: Heard, word: str) -> Heard:
        return scored(heard, float(len(word)))

    @property
    def state(self) -> State:
        return State(step_count=len(self.words))


class PerStep(Talk):
    REWARD = RewardSpec("per_step", components=("length", "style"))

    def answer(self, heard: Heard, word: str) -> Heard:
        if word == "mumble":
            return scored(heard, Score(unscored="the judge heard nothing"))
        return scored(heard, Score(len(word) + 0.5, {"length": len(word), "style": 0.5}))


class Cumulative(Talk):
    REWARD = RewardSpec("cumulative")

    def answer(self, heard: Heard, word: str) -> Heard:
        return scored(heard, float(sum(map(len, self.words))))


class Terminal(Talk):
    """Tells 0 until the end, as many do."""

    REWARD = RewardSpec("terminal")

    def answer(self, heard: Heard, word: str) -> Heard:
        return scored(heard, float(len(self.words)) if heard.done else 0.0)


class Slow(Talk):
    """Takes its time over a word, unless it is let go."""

    entered: ClassVar[threading.Event] = threading.Event()
    free: ClassVar[threading.Event] = threading.Event()

    def step(self, action: Say) -> Heard:  # type: ignore[override]
        if action.word == "slow":
            Slow.entered.set()
            Slow.free.wait(30)
        return super().step(action)


class Nan(Talk):
    def step(self, action: Say) -> StepResult[Heard]:  # type: ignore[override]
        return StepResult(super().step(action), float("nan"), True)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
