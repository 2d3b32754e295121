"""An environment that says what a page shows of it, and one that says it awaiting."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from pydantic import Field

from openenv import Action, Environment, Observation, State


class Say(Action):
    """Say a word.

    Attributes:
        word: Which.
    """

    word: str


class Heard(Observation):
    """What was heard.

    Attributes:
        words: Of the episode.
    """

    words: list[str] = Field(default_factory=list)


class Talker(Environment[Say, Heard, State]):
    """Hears words. What its methods for a page return is chosen by the first word."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def reset(self, words: list[str] | None = None) -> Heard:  # type: ignore[override]
        self.words = list(words or [])
        return Heard(words=self.words)

    def step(self, action: Say) -> Heard:  # type: ignore[override]
        if action.word == "die":
            os._exit(3)
        self.words.append(action.word)
        return Heard(words=list(self.words), reward=0.5, done=action.word == "bye")

    @property
    def state(self) -> State:
        return State(step_count=len(self.words))

    def snapshot(self) -> Any:
        return json.dumps(self.words).encode()

    def restore(self, data: bytes) -> Any:
        self.words = json.loads(data)

    def render_web(self, observation: dict[str, Any]) -> Any:
        first = next(iter(observation["words"]), "")
        if first == "no html":
            return None
        if first == "bad html":
            return 7
        if first == "raises":
            raise OSError("no template")
        return f"<b>{len(observation['words'])} {observation['reward']} {observation['done']}</b>"

    def web_actions(self, observation: dict[str, Any]) -> Any:
        if observation["words"][:1] == ["bad moves"]:
            return ["hello"]
        return [("Greet", {"word": "hello"}), ("Leave", Say(word="bye"))]

    def message_to_action(self, message: Any) -> Say:
        return Say(word=message["content"].upper())


class AwaitingTalker(Talker):
    """The same, with coroutines."""

    async def reset_async(self, words: list[str] | None = None) -> Heard:  # type: ignore[override]
        return super().reset(words)

    async def step_async(self, action: Say) -> Heard:  # type: ignore[override]
        return super().step(action)

    async def snapshot(self) -> Any:
        return super().snapshot()

    async def restore(self, data: bytes) -> Any:
        await asyncio.sleep(0)
        super().restore(data)

    async def render_web(self, observation: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        return super().render_web(observation)

    async def web_actions(self, observation: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        return super().web_actions(observation)
