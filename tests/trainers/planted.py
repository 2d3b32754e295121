"""Environments with planted failures, that keep what was played in them for the test to read."""

from __future__ import annotations

from typing import Any, ClassVar

from openenv import Action, Environment, Observation, State
from openenv.reward import RewardSpec


class Line(Action):
    """Say a line.

    Attributes:
        text: The line.
    """

    text: str


class Cue(Observation):
    """What is said to the one who acts."""

    text: str = ""


class Stage(Environment[Line, Cue, State]):
    """One line each episode, worth the more the longer it is; now and then something breaks.

    Attributes:
        breaks_every: Of this many steps of the server one raises; 0 is none.
        fails_every: The same of resets.
        played: What each episode was begun with.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True
    REWARD = RewardSpec("terminal", (0.0, 1.0))

    breaks_every: ClassVar[int] = 0
    fails_every: ClassVar[int] = 0
    steps: ClassVar[int] = 0
    resets: ClassVar[int] = 0
    played: ClassVar[list[dict[str, Any]]] = []

    @classmethod
    def prepare(cls, *, breaks_every: int = 0, fails_every: int = 0) -> None:
        """Begin anew."""
        Stage.breaks_every, Stage.fails_every = breaks_every, fails_every
        Stage.steps = Stage.resets = 0
        Stage.played = []

    def reset(self, seed: int | None = None, task_id: str = "") -> Cue:  # type: ignore[override]
        Stage.resets += 1
        if self.fails_every and Stage.resets % self.fails_every == 0:
            raise ValueError("the curtain is stuck")
        Stage.played.append({"seed": seed, "task_id": task_id})
        return Cue(text="Speak.")

    def step(self, action: Line) -> Cue:  # type: ignore[override]
        Stage.steps += 1
        if self.breaks_every and Stage.steps % self.breaks_every == 0:
            raise RuntimeError("the stage fell down")
        return Cue(text="Thanks.", reward=min(1.0, len(action.text) / 10), done=True)

    @property
    def state(self) -> State:
        return State()


class Restless(Stage):
    """Begins differently each time, whatever its seed."""

    def reset(self, seed: int | None = None, task_id: str = "") -> Cue:  # type: ignore[override]
        super().reset(seed, task_id)
        return Cue(text=f"Speak for the {Stage.resets}th time.")


class Echoes(Environment[Line, Cue, State]):
    """Wants its seed said, once or up to three times; who says anything else gets nothing."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    REWARD = RewardSpec("terminal", (0.0, 1.0))

    def __init__(self) -> None:
        super().__init__()
        self.word = ""
        self.left = 0
        self.is_right = True

    def reset(self, seed: int | None = None) -> Cue:  # type: ignore[override]
        self.word = str((seed or 0) % 1000)
        self.left = 1 + int(self.word) % 3
        self.is_right = True
        return Cue(text=f"say {self.word}.")

    def step(self, action: Line) -> Cue:  # type: ignore[override]
        self.left -= 1
        self.is_right = self.is_right and action.text.strip() == self.word
        cue = Cue(text=f"say {self.word}.", done=self.left == 0)
        if cue.done:
            cue.reward = float(self.is_right)
        return cue

    @property
    def state(self) -> State:
        return State()
