"""Seeded dice: environments that can be stored, or replayed, or neither."""

from __future__ import annotations

import json
import random
from typing import Annotated, Any, ClassVar

import numpy as np

from openenv import Action, Array, EnvClient, Environment, NotSupported, Observation, State


class Roll(Action):
    """Roll a die, or do what the word says."""

    sides: int = 6
    what: str = ""
    extra: Any = None


class Rolled(Observation):
    number: int = 0
    extra: Any = None


class Total(State):
    total: int = 0


class Dice(Environment[Roll, Rolled, Total]):
    """Determined by seed and actions, and cannot be stored."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.rng = random.Random()
        self.now = Total()

    def reset(  # type: ignore[override]
        self, seed: int | None = None, episode_id: str | None = None, options: Any = None
    ) -> Rolled:
        self.rng = random.Random(seed)
        self.now = Total(episode_id=episode_id)
        if options:
            options.clear()
        return Rolled(number=self.rng.randrange(1000))

    def step(self, action: Roll) -> Rolled:  # type: ignore[override]
        self.now.step_count += 1
        if action.what == "raise":
            raise ValueError("the die fell off the table")
        if action.what == "tell":
            return Rolled(extra=action.extra)
        if action.what == "object":
            return Rolled(extra=object())
        number = self.rng.randrange(action.sides)
        self.now.total += number
        is_over = action.what == "stop"
        return Rolled(number=number, reward=number / 3, done=is_over, metadata={"note": "n"})

    @property
    def state(self) -> Total:
        return self.now


class StoredDice(Dice):
    def snapshot(self) -> bytes:
        stored = {"rng": self.rng.getstate(), "now": self.now.model_dump()}
        return json.dumps(stored).encode()

    def restore(self, data: bytes) -> None:
        stored = json.loads(data)
        version, words, gauss = stored["rng"]
        self.rng = random.Random()
        self.rng.setstate((version, tuple(words), gauss))
        self.now = Total(**stored["now"])


class AsyncStoredDice(StoredDice):
    async def step_async(self, action: Roll) -> Rolled:  # type: ignore[override]
        return self.step(action)

    async def snapshot(self) -> bytes:  # type: ignore[override]
        return super().snapshot()

    async def restore(self, data: bytes) -> None:  # type: ignore[override]
        super().restore(data)


class AnyThreadStoredDice(StoredDice):
    SUPPORTS_ANY_THREAD = True


class InlineStoredDice(StoredDice):
    NEVER_BLOCKS = True


class FinallyStoredDice(StoredDice):
    """Its episodes can be stored once a die was rolled."""

    def snapshot(self) -> bytes:
        if not self.now.step_count:
            raise NotSupported("roll first", feature="snapshot")
        return super().snapshot()


class NoBytes(StoredDice):
    def snapshot(self) -> bytes:
        return "text"  # type: ignore[return-value]  # on purpose


class DriftingDice(Dice):
    """Its instances agree on the first roll only."""

    made: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        DriftingDice.made += 1
        self.drift = DriftingDice.made

    def step(self, action: Roll) -> Rolled:  # type: ignore[override]
        rolled = super().step(action)
        if self.now.step_count > 1:
            rolled.number += 1000 * self.drift
        return rolled


class Pixels(Observation):
    frame: Annotated[np.ndarray, Array(np.uint8, (2, 2), text="base64")]
    depth: Annotated[np.ndarray, Array(np.float64, (2,))]


class Camera(Environment[Roll, Pixels, State]):
    """It sees arrays."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng()

    def reset(self, seed: int | None = None) -> Pixels:  # type: ignore[override]
        self.rng = np.random.default_rng(seed)
        return self._seen()

    def step(self, action: Roll) -> Pixels:  # type: ignore[override]
        return self._seen()

    def _seen(self) -> Pixels:
        frame = self.rng.integers(0, 256, (2, 2), np.uint8)
        return Pixels(frame=frame, depth=self.rng.random(2))

    @property
    def state(self) -> State:
        return State()


class DiceEnv(EnvClient[Roll, Rolled, Total]):
    """The client of all dice."""


class CameraEnv(EnvClient[Roll, Pixels, State]):
    """The client of the camera."""
