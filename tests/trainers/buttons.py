"""An environment in which what goes wrong is chosen by the seed, and who does as it says."""

from __future__ import annotations

import re

from openenv import Action, Environment, Observation, Refused, State
from openenv.environment import scored
from openenv.reward import RewardSpec, Score

FINE, BREAKS, UNSCORED, LEFT, REFUSES = range(5)


class Press(Action):
    """Press a button.

    Attributes:
        button: Which.
    """

    button: str


class Wall(Observation):
    """What is written on the wall."""

    text: str = ""


class Buttons(Environment[Press, Wall, State]):
    """Says which button to press. Each that is pressed is worth 0.5, and the second is the last."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    REWARD = RewardSpec("per_step", (0.0, 0.5))

    def __init__(self) -> None:
        super().__init__()
        self.kind = FINE
        self.pressed = 0

    def reset(self, seed: int | None = None) -> Wall:  # type: ignore[override]
        self.kind, self.pressed = seed or FINE, 0
        return Wall(text="press wrong" if self.kind == REFUSES else "press go")

    def step(self, action: Press) -> Wall:  # type: ignore[override]
        if action.button == "wrong":
            raise Refused("there is no such button; press go")
        if self.kind == BREAKS:
            raise RuntimeError("the wall fell down")
        self.pressed += 1
        if self.kind == UNSCORED:
            return scored(Wall(text="?", done=True), Score(unscored="the camera was off"))
        if self.kind == LEFT:
            return Wall(text="say nothing", reward=0.5)
        return Wall(text="press on", reward=0.5, done=self.pressed == 2)

    @property
    def state(self) -> State:
        return State(step_count=self.pressed)


def obedient(text: str) -> str | None:
    """The button that a text says to press; None where it says to press none."""
    found = re.findall(r"press (\w+)", text)
    return found[-1] if found else None
