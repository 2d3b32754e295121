"""A crossing with a light, and a driver who does what it says in three of four episodes."""

from __future__ import annotations

from typing import Any

from openenv import Action, Environment, Observation, State
from openenv.reward import RewardSpec

RULES = {"red": "stop", "green": "drive", "amber": "slow"}
LIGHTS = tuple(RULES)


class Pedal(Action):
    """Act on a light.

    Attributes:
        move: stop, drive or slow.
    """

    move: str


class Light(Observation):
    """What the driver sees."""

    text: str = ""


class Crossing(Environment[Pedal, Light, State]):
    """Two lights; the reward is the share that was obeyed."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    REWARD = RewardSpec("terminal", range=(0.0, 1.0))

    def reset(self, seed: int | None = None) -> Light:  # type: ignore[override]
        self.shown, self.right = seed or 0, 0
        self.steps = 0
        return Light(text=" ".join([self.light] * 4))

    @property
    def light(self) -> str:
        return LIGHTS[(self.shown + self.steps) % len(LIGHTS)]

    def step(self, action: Pedal) -> Light:  # type: ignore[override]
        self.right += action.move == RULES[self.light]
        self.steps += 1
        if self.steps == 2:
            return Light(text="home", done=True, reward=self.right / 2)
        return Light(text=" ".join([self.light] * 4))

    @property
    def state(self) -> State:
        return State(step_count=getattr(self, "steps", 0))


def driver(observation: Any, task: dict[str, Any]) -> dict[str, str]:
    """Obeys, but drives through everything in every fourth episode."""
    light = observation["text"].split()[-1]
    is_wild = int(task["id"].rpartition("-")[2]) % 4 == 3
    return {"move": "drive" if is_wild else RULES[light]}
