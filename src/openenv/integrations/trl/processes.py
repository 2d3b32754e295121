"""Model calls shared by all processes of a training: equally many, of equal size.

Where processes share a model that replies to all of them at once (a vLLM server, weights that are
split by FSDP or ZeRO), TRL's `_generate_single_turn` is a collective call: each process has to make
it equally often, and with equally many prompts, or they get each other's completions, or wait for
ever. Rollouts end when they end, so that no process knows how often the others will ask.

So what all processes want replies to is put together, and parted evenly; each process asks for its
part, with at most one prompt that nobody needs; and the replies go back to who needs them. One that
has ended goes on taking part until all have. One that fails tells the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Replies = tuple[Sequence[Sequence[int]], "Sequence[Sequence[float]] | None"]
Ask = Callable[[list[list[int]]], Replies]


class ProcessFailed(RuntimeError):
    """Another process of the training has failed."""


class SharedModel:
    """A model that all processes of a training ask together.

    Args:
        ask: Has the model reply; collective.
        gather: Returns a value of all processes in order; a collective call.
        idle: A prompt that may be replied to in vain.
    """

    def __init__(
        self, ask: Ask, gather: Callable[[Any], list[Any]], rank: int, idle: list[int]
    ) -> None:
        self._ask = ask
        self._gather = gather
        self._rank = rank
        self._idle = idle
        self._is_gathering = False

    def generate(self, sequences: list[list[int]]) -> Replies:
        """Return the model's reply to each sequence; other processes ask at the same time.

        Raises:
            ProcessFailed: Another process has failed.
        """
        found = self._round(sequences)
        assert found is not None  # since there are sequences, this process has not ended
        return found

    def run(self, play: Callable[[], T]) -> T:
        """Play, and take part until all processes have played."""
        try:
            played = play()
        except Exception as error:
            if not self._is_gathering and not isinstance(error, ProcessFailed):
                self._gather((None, f"{type(error).__name__}: {error}"))
            raise
        while self._round([]) is not None:
            pass
        return played

    def _round(self, sequences: list[list[int]]) -> Replies | None:
        """Ask once, together with all processes; return None if no process asks."""
        # What fails within is failing on each process, or cannot be told by another gathering.
        self._is_gathering = True
        wanted = self._gathered(sequences)
        together = [one for its in wanted for one in its]
        if not together:
            self._is_gathering = False
            return None
        share = -(-len(together) // len(wanted))
        padded = together + [self._idle] * (share * len(wanted) - len(together))
        replies, logprobs = self._ask(padded[self._rank * share : (self._rank + 1) * share])
        given = self._gather((list(replies), None if logprobs is None else list(logprobs)))
        self._is_gathering = False
        before = sum(map(len, wanted[: self._rank]))
        mine = slice(before, before + len(sequences))
        has_logprobs = all(one[1] is not None for one in given)
        return (
            [reply for one in given for reply in one[0]][mine],
            [its for one in given for its in one[1]][mine] if has_logprobs else None,
        )

    def _gathered(self, sequences: list[list[int]]) -> list[list[list[int]]]:
        found = self._gather((sequences, None))
        failures = [
            f"process {rank} has failed: {failure}"
            for rank, (_, failure) in enumerate(found)
            if failure is not None
        ]
        if failures:
            raise ProcessFailed("; ".join(failures))
        return [its for its, _ in found]


def gather_values(value: Any) -> list[Any]:
    """Return the values of all processes in the order of ranks; a collective call."""
    from accelerate.utils import gather_object  # type: ignore[import-not-found,unused-ignore]

    found: list[Any] = gather_object([value])
    return found
