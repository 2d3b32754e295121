"""Batches of rollouts for a trainer whose model replies to many at once, on the trainer's thread.

The model replies to all rollouts of a batch; then all their environments step at the same time, on
the loop that they live on; and again, until none goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openenv.client import background
from openenv.rollouts.failures import FailureStreak
from openenv.rollouts.meter import Meter
from openenv.rollouts.seats import Seat, Seats, Unfinished
from openenv.rollouts.tokens import Chat, TokenRollout, act_together

__all__ = ["BatchPlayer", "Generate", "Start"]

Generate = Callable[
    [list[list[int]]], tuple[Sequence[Sequence[int]], "Sequence[Sequence[float]] | None"]
]
"""Of sequences of tokens, the model's reply to each, and of these tokens the log-probabilities,
if it gives any."""


@dataclass
class Start:
    """How a rollout begins.

    Attributes:
        messages: What the model is told before the environment shows anything.
        arguments: Of the environment's reset.
        may_ignore: Which of them may have no meaning to it.
    """

    messages: Sequence[Mapping[str, Any]]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    may_ignore: frozenset[str] = frozenset()


class BatchPlayer:
    """Plays batches of rollouts, each in a session of its own, which is kept from batch to batch.

    Args:
        environment: As `openenv.rollout` takes it.
        at_once: How many rollouts are played at the same time. Default: a whole batch.
        max_turns: How many replies the model may have in a rollout.
        unfinished: What an episode is worth that the model has not brought to its end.
        retries: How often a reset is tried again whose failure may pass.
        failures_in_a_row: After how many failed rollouts in a row `play` raises; None never.
        shows: The fields of observations that the model is shown; see `Seats.of`.

    Attributes:
        seats: Where they are played.
        meter: What the environments have cost.

    Raises:
        OpenEnvError: The environment cannot be reached, or does not tell how one acts in it.
        TypeError: It is no environment.
        ValueError: `at_once` is not positive; observations have no field of a name in `shows`.
    """

    def __init__(
        self,
        environment: Any,
        *,
        at_once: int | None = None,
        max_turns: int = 32,
        unfinished: Unfinished = "earned",
        retries: int = 2,
        failures_in_a_row: int | None = 32,
        shows: Sequence[str] | None = None,
    ) -> None:
        if at_once is not None and at_once < 1:
            raise ValueError(f"at_once={at_once}; expected at least 1")
        self.seats = background.run(Seats.of(environment, retries=retries, shows=shows))
        self.meter: Meter = self.seats.meter
        self._at_once = at_once
        self._max_turns = max_turns
        self._unfinished: Unfinished = unfinished
        self._streak = FailureStreak(failures_in_a_row)
        self._places: list[Seat] = []

    def play(
        self,
        chat: Chat,
        starts: Sequence[Start],
        generate: Generate,
        *,
        max_tokens: int | None = None,
    ) -> list[TokenRollout]:
        """Play a rollout from each start.

        Args:
            chat: How the model is spoken to.
            starts: How they begin.
            generate: Has the model reply; called on this thread.
            max_tokens: How long what comes behind a prompt may become.

        Returns:
            The rollouts, in the order of the starts. One whose environment has failed has no
            reward.

        Raises:
            CapacityError: There is not room for as many as are played at once.
            EnvironmentsFailing: As too many did.
            OpenEnvError: The environment cannot be reset so.
        """
        size = min(self._at_once or len(starts), len(starts))
        if len(self._places) < size:
            background.run(self._grow(size))
        played: list[TokenRollout] = []
        for at in range(0, len(starts), size or 1):
            together = starts[at : at + size]
            wave = [
                TokenRollout(
                    seat,
                    chat,
                    max_turns=self._max_turns,
                    max_tokens=max_tokens,
                    unfinished=self._unfinished,
                )
                for seat in self._places[: len(together)]
            ]
            live = background.run(_begun(wave, together))
            while live:
                replies, logprobs = generate([one.ids for one in live])
                live = background.run(act_together(live, replies, logprobs))
            for one in wave:
                one.settle()
                self._streak.ended(one.failure)
            played += wave
        return played

    def close(self) -> None:
        """Give back every session; a program that ends does so too."""
        background.run(self.seats.aclose())

    async def _grow(self, size: int) -> None:
        while len(self._places) < size:
            self._places.append(await self.seats.take())


async def _begun(wave: Sequence[TokenRollout], starts: Sequence[Start]) -> list[TokenRollout]:
    goes_on = await asyncio.gather(
        *(
            one.begin(start.messages, start.arguments, start.may_ignore)
            for one, start in zip(wave, starts, strict=True)
        )
    )
    return [one for one, goes in zip(wave, goes_on, strict=True) if goes]
