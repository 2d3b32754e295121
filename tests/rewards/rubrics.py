"""Rubrics that tests are made of."""

from __future__ import annotations

import asyncio
from typing import Any

from openenv.errors import Unscored
from openenv.rewards import Rubric


class Fixed(Rubric):
    """Gives one score, and counts how often it was asked."""

    def __init__(self, score: Any = 1.0) -> None:
        super().__init__()
        self.score = score
        self.asked = 0

    def forward(self, action: Any, observation: Any) -> Any:
        self.asked += 1
        return self.score


class Awaited(Fixed):
    """The same, after a turn of the event loop."""

    async def forward(self, action: Any, observation: Any) -> Any:
        await asyncio.sleep(0)
        return super().forward(action, observation)


class Failing(Rubric):
    """Cannot score."""

    def forward(self, action: Any, observation: Any) -> float:
        raise Unscored("the grader is gone")


class FailingLater(Rubric):
    """Cannot score, as it finds out after a turn of the event loop."""

    async def forward(self, action: Any, observation: Any) -> float:
        await asyncio.sleep(0)
        raise Unscored("the grader is gone")
