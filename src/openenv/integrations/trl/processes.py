"""Collective model calls by all processes of a training run, equal in number and size.

If processes share a model that replies to all of them at once (a vLLM server, or weights split by
FSDP or ZeRO), TRL's `_generate_single_turn` is a collective call. Each process has to make it
equally often and with equally many prompts; otherwise processes get each other's completions or
wait forever. But rollouts differ in length, so no process knows how often the others will call.

So each round gathers the sequences of all processes and splits them evenly. Each process calls the
model with its share, padded with at most one unneeded prompt, and the replies return to the
processes that need them. A process that has finished keeps taking part until all have finished. A
process that fails tells the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Replies = tuple[Sequence[Sequence[int]], "Sequence[Sequence[float]] | None"]
Ask = Callable[[list[list[int]]], Replies]


class ProcessFailed(RuntimeError):
    """Another process of the training run has failed."""


class SharedModel:
    """A model that all processes of a training run call together.

    Args:
        ask: Calls the model; a collective call.
        gather: Returns the values of all processes in order; a collective call.
        rank: The rank of this process.
        idle: A prompt that pads a share; its reply is discarded.
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
        """Return the model's reply to each sequence; the other processes call at the same time.

        Raises:
            ProcessFailed: Another process has failed.
        """
        found = self._round(sequences)
        assert found is not None  # the round had sequences, at least those of this process
        return found

    def run(self, play: Callable[[], T]) -> T:
        """Call `play`, then take part in rounds until all processes have finished."""
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
        """Call the model once, together with all processes; return None if none has sequences."""
        # An error within a round occurs on all processes, or cannot be reported by a gather.
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
