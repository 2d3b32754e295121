"""An environment that breaks now and then; every episode that does not is worth 10."""

from __future__ import annotations

import itertools
from typing import Literal

from openenv import Action, Environment, Observation, State

STEPS = 10
BREAKS_EVERY = 97


class Push(Action):
    """Push left or right."""

    side: Literal[0, 1]


class Ground(Observation):
    """How far the ground has moved."""

    place: float = 0.0


class Shaky(Environment[Push, Ground, State]):
    """Ten steps, each worth 1; every 97th of all steps in the process raises."""

    steps_of_all = itertools.count(1)

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def reset(self) -> Ground:  # type: ignore[override]
        self.steps = 0
        return Ground()

    def step(self, action: Push) -> Ground:  # type: ignore[override]
        if next(self.steps_of_all) % BREAKS_EVERY == 0:
            raise RuntimeError("the ground has given way")
        self.steps += 1
        return Ground(place=self.steps / STEPS, reward=1.0, done=self.steps == STEPS)

    @property
    def state(self) -> State:
        return State(step_count=self.steps)
