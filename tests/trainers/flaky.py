"""Blackjack that falls over, now and then or always: what becomes of a trainer then."""

from __future__ import annotations

from typing import ClassVar

from blackjack_env.models import BlackjackAction, BlackjackObservation
from blackjack_env.server.blackjack_environment import BlackjackEnvironment


class Flaky(BlackjackEnvironment):
    """Every third step of the server raises."""

    every: ClassVar[int] = 3
    count: ClassVar[int] = 0

    def step(self, action: BlackjackAction) -> BlackjackObservation:  # type: ignore[override]
        Flaky.count += 1
        if Flaky.count % self.every == 0:
            raise RuntimeError("the cards fell off the table")
        return super().step(action)


class Broken(Flaky):
    """Every step raises."""

    every = 1
