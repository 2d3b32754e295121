"""Batches of rollouts for a trainer whose model replies to many at once, on the trainer's thread.

Design notes.

Two threads. `BatchPlayer.play` runs on the trainer's thread and calls the model there. Everything
that touches an environment runs on the event loop of the sessions, in a `_RolloutBatch`, where each
rollout that waits for its environment is a task. The model's thread only sees rollouts that wait
for a reply, and no task touches these meanwhile.

No waves. A session whose episode is over takes the next start at once, and its reset runs while the
model replies to the others. Starts are taken in order, and results and failures are reported in
that order. Which session plays which start depends on how long the environments take.

When to call the model. A call is assumed to cost the same for few sequences as for many, which is
nearly true on a GPU. A call per reply would starve the GPU, but waiting for the slowest rollout
wastes it too. Leaving out some of the rollouts in play costs their share of a call: the duration of
a call, times the number left out, divided by the number in play. Waiting costs the time until they
are ready, which is predicted from the durations of earlier resets and steps. An overdue rollout is
assumed to need as much time again as it is late. The batch waits as long as waiting for some of the
rollouts is the cheapest choice. Therefore a straggler delays the others by its share of a call at
most, steps in progress are waited for, and so are resets if they are quick and many. A model that
replies faster than environments reset is called with rollouts as they come.

Once no more rollouts are to begin, sessions are not refilled, and a rollout that misses a call may
end the batch a whole call later. Then all are waited for, unless that takes longer than a call.

Rejected: waiting for all rollouts (the resets of a batch of 512 took 50 of 59 seconds, in which the
model was idle); calling as soon as one rollout is ready, or once none has become ready for a while
(the first call then has few sequences, and the resulting cohorts rarely merge again: with resets of
0.1 s and calls of 0.2 s this took 1.4 times as long as waves); a fixed number of milliseconds
(models reply within 10 ms or within a minute). `benchmarks/batches.py` compares the alternatives.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from openenv._internal.redaction import redact
from openenv._internal.timing import Expired, within
from openenv.client import background
from openenv.rollouts.episode_sessions import (
    EpisodeSession,
    EpisodeSessions,
    EpisodeStart,
    Unfinished,
)
from openenv.rollouts.failures import FailureStreak
from openenv.rollouts.meter import Meter
from openenv.rollouts.tokens import Chat, TokenRollout

__all__ = ["BatchPlayer", "Generate", "EpisodeStart"]

logger = logging.getLogger(__name__)

Generate = Callable[
    [list[list[int]]],
    tuple[Sequence[Sequence[int]], "Sequence[Sequence[float | None]] | None"],
]
"""Returns the model's reply to each of several token sequences, and the log-probabilities of the
replies' tokens (None if the model does not return them). It is called on the thread that calls
`BatchPlayer.play`, while another thread resets other rollouts and encodes their texts."""

Kind = Literal["reset", "step"]

FIRST_CALL_S = 1.0  # assumed duration of a call before one was measured
FLOOR_S = 0.002  # minimum time that an unfinished reset or step is assumed to need
TICK_S = 0.01  # how often the decision to wait is made again
TOLD = 100  # maximum number of tasks whose failures are logged


class BatchPlayer:
    """Plays batches of rollouts in sessions that are kept from batch to batch.

    Resets overlap with the model's replies: a session whose episode is over begins the next one at
    once, and the model is called for the rollouts that are ready, without waiting long for the
    others. The design notes at the top of the module describe when.

    Args:
        environment: The environment to play in; see `openenv.rollout`.
        at_once: Maximum number of rollouts at the same time. Default: a whole batch.
        max_turns: Maximum number of replies in a rollout.
        unfinished: Reward of an episode that the model has not brought to an end.
        retries: Further attempts at a reset after a passing failure.
        failures_in_a_row: Number of failed rollouts in a row after which `play` raises; None for
            no limit. Failures of a single task never count as too many if the batch has others.
        shows: The fields of observations that the model is shown; see `EpisodeSessions.of`.
        lockstep: Call the model only once every rollout in play is ready. The same starts then lead
            to the same calls, so that a model with a seed samples the same tokens. Otherwise the
            rollouts that share a call depend on how long the environments take.

    Attributes:
        sessions: The sessions in which rollouts are played.
        meter: The costs of the environments.

    Raises:
        OpenEnvError: The environment cannot be reached, or does not describe its actions.
        TypeError: `environment` is not an environment.
        ValueError: `at_once` is not positive, or `shows` names a field that observations lack.
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
        lockstep: bool = False,
    ) -> None:
        if at_once is not None and at_once < 1:
            raise ValueError(f"at_once={at_once}; expected at least 1")
        self.sessions = background.run(
            EpisodeSessions.of(environment, retries=retries, shows=shows)
        )
        self.meter: Meter = self.sessions.meter
        self._at_once = at_once
        self._max_turns = max_turns
        self._unfinished: Unfinished = unfinished
        self._streak = FailureStreak(failures_in_a_row)
        self._places: list[EpisodeSession] = []
        self._told: set[str] = set()
        self._timing = _Timing(lockstep=lockstep)

    def play(
        self,
        chat: Chat,
        starts: Sequence[EpisodeStart],
        generate: Generate,
        *,
        max_tokens: int | None = None,
        max_context: int | None = None,
    ) -> list[TokenRollout]:
        """Play a rollout from each start.

        If an environment cannot be reset or breaks off, its rollout fails: the failure is counted
        and logged once per task, and the other rollouts continue. These errors end a batch at once:
        there is no room for the rollouts played at the same time, the environment ignores reset
        arguments, the chat template cannot render the messages, or the first observation leaves no
        room for a reply or cannot be shown as text. If a server has gone away, one rollout after
        the other fails until `failures_in_a_row` is reached.

        Args:
            chat: The conversation format of the model.
            starts: The starts of the rollouts.
            generate: Returns the model's replies; called on this thread.
            max_tokens: Maximum number of tokens after a prompt.
            max_context: Maximum number of tokens, prompt included: the model's context length.

        Returns:
            The rollouts, in the order of the starts. A rollout has no reward if its environment has
            failed.

        Raises:
            CapacityError: There is no room for the rollouts played at the same time. If the server
                reports how many sessions it holds, this is checked before the first rollout.
            EnvironmentsFailing: Too many rollouts in a row have failed.
            TaskNotTaken: The environment ignores reset arguments.
            TemplateError: The chat template cannot render the messages.
            ValueError: The first observation leaves no room for a reply.
        """
        size = min(self._at_once or len(starts), len(starts))
        self.sessions.check_room(size)

        def rollout(session: EpisodeSession) -> TokenRollout:
            return TokenRollout(
                session,
                chat,
                max_turns=self._max_turns,
                max_tokens=max_tokens,
                max_context=max_context,
                unfinished=self._unfinished,
            )

        while len(self._places) < size:
            self._places.append(background.run(self.sessions.take()))
        timing = self._timing
        batch = _RolloutBatch(starts, self._places[:size], rollout, self._note_end, timing)
        try:
            live = background.run(batch.begin())
            while live:
                began = time.perf_counter()
                with self.meter.elsewhere():
                    replies, logprobs = generate([one.ids for one in live])
                timing.note_call(time.perf_counter() - began)
                live = background.run(batch.act(live, replies, logprobs))
        finally:
            background.run(batch.stop())
        return batch.played()

    def close(self) -> None:
        """Return every session; this also happens when the program ends."""
        background.run(self.sessions.aclose())

    def _note_end(self, rollout: TokenRollout, start: EpisodeStart, is_alone: bool) -> None:
        """Count a rollout that is over; log the first failure of each task."""
        failure, task = rollout.failure, start.task
        if failure is not None and task not in self._told and len(self._told) < TOLD:
            self._told.add(task)
            logger.warning(
                "a rollout with the reset arguments %.200s has failed, and has no reward: %.500s",
                redact(task),
                redact(failure),
            )
        self._streak.ended(failure, None if is_alone else task)


class _Timing:
    """Measured times of model calls, resets and steps, which decide whether to wait for more."""

    def __init__(self, *, lockstep: bool = False) -> None:
        self.lockstep = lockstep
        self.call_s = FIRST_CALL_S
        self._typical_s: dict[Kind, float] = {}

    def note_call(self, seconds: float) -> None:
        """Note how long the model took."""
        self.call_s = (self.call_s + seconds) / 2

    def note(self, kind: Kind, seconds: float) -> None:
        """Note how long a reset or a step took."""
        before = self._typical_s.get(kind, seconds)
        self._typical_s[kind] = 0.8 * before + 0.2 * seconds

    def left_s(self, kind: Kind, elapsed_s: float) -> float:
        """Return the expected seconds until a running reset or step ends."""
        typical = self._typical_s.get(kind, 0.0)
        return max(typical - elapsed_s if elapsed_s < typical else elapsed_s - typical, FLOOR_S)

    def is_worth_waiting(
        self, lefts_s: Sequence[float], ready: int, *, is_last: bool = False
    ) -> bool:
        """Return whether to wait for at least one more rollout before the next call.

        Args:
            lefts_s: Expected seconds until each rollout that is not ready becomes ready.
            ready: Number of rollouts that are ready.
            is_last: True if no more rollouts are to begin.
        """
        if self.lockstep or not ready:
            return bool(lefts_s)
        if is_last:
            return bool(lefts_s) and max(lefts_s) < self.call_s
        missing = len(lefts_s)
        share = self.call_s / (ready + missing)
        without = share * missing
        waits = (
            left + share * (missing - number) for number, left in enumerate(sorted(lefts_s), 1)
        )
        return any(cost < without for cost in waits)


class _RolloutBatch:
    """The rollouts of one batch, on the loop of their sessions."""

    def __init__(
        self,
        starts: Sequence[EpisodeStart],
        sessions: Sequence[EpisodeSession],
        rollout: Callable[[EpisodeSession], TokenRollout],
        note_end: Callable[[TokenRollout, EpisodeStart, bool], None],
        timing: _Timing,
    ) -> None:
        self._timing = timing
        self._starts = starts
        self._left = deque(range(len(starts)))
        self._free = deque(sessions)
        self._rollout = rollout
        self._note_end = note_end
        self._is_alone = len({one.task for one in starts}) == 1
        self._numbers: dict[TokenRollout, int] = {}  # the start's number, by rollout in play
        self._sessions: dict[TokenRollout, EpisodeSession] = {}
        self._ready: list[TokenRollout] = []
        self._over: dict[int, TokenRollout] = {}
        self._told = 0  # number of ended rollouts reported so far, in order of the starts
        self._busy: dict[asyncio.Task[bool], tuple[TokenRollout, Kind, float]] = {}
        self._error: BaseException | None = None
        self._changed = asyncio.Event()  # something is ready, or nothing is busy
        self._rested = asyncio.Event()  # nothing is busy

    async def begin(self) -> list[TokenRollout]:
        """Begin as many rollouts as there are sessions; return those that wait for a reply."""
        self._fill()
        return await self._worth_a_call()

    async def act(
        self,
        rollouts: Sequence[TokenRollout],
        replies: Sequence[Sequence[int]],
        logprobs: Sequence[Sequence[float | None]] | None,
    ) -> list[TokenRollout]:
        """Let rollouts act by their replies; return those that the model replies to next."""
        of_each: Sequence[Sequence[float | None] | None] = logprobs or [None] * len(rollouts)
        for one, reply, its in zip(rollouts, replies, of_each, strict=True):
            self._work(one, "step", one.take(reply, its))
        return await self._worth_a_call()

    async def stop(self) -> None:
        """Cancel resets and steps that still run after a batch was broken off."""
        self._left.clear()
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)

    def played(self) -> list[TokenRollout]:
        """Return the rollouts in the order of their starts."""
        return [self._over[number] for number in range(len(self._starts))]

    # ------------------------------------------------------------------ rollouts

    def _fill(self) -> None:
        while self._free and self._left:
            session, number = self._free.popleft(), self._left.popleft()
            one = self._rollout(session)
            self._numbers[one], self._sessions[one] = number, session
            self._work(one, "reset", one.begin(self._starts[number]))

    def _work(self, one: TokenRollout, kind: Kind, work: Coroutine[Any, Any, bool]) -> None:
        self._rested.clear()
        task = asyncio.ensure_future(work)
        self._busy[task] = one, kind, time.monotonic()
        task.add_done_callback(self._rests)

    def _rests(self, task: asyncio.Task[bool]) -> None:
        one, kind, began = self._busy.pop(task)
        if not task.cancelled():
            try:
                self._note(one, task.result())
            except BaseException as error:
                self._error = self._error or error
            else:
                if one.failure is None:  # a failed reset may include several attempts
                    self._timing.note(kind, time.monotonic() - began)
        if self._ready or self._error is not None or not self._busy:
            self._changed.set()
        if self._error is not None or not self._busy:
            self._rested.set()

    def _note(self, one: TokenRollout, goes_on: bool) -> None:
        if goes_on:
            self._ready.append(one)
            return
        one.settle()
        self._over[self._numbers.pop(one)] = one
        self._free.append(self._sessions.pop(one))
        self._fill()
        # Report in the order of the starts: otherwise failures that come at once would form a
        # row, before any rollout that takes its time.
        while self._told in self._over:
            number, self._told = self._told, self._told + 1
            self._note_end(self._over[number], self._starts[number], self._is_alone)

    # ------------------------------------------------------------------ when to call the model

    async def _worth_a_call(self) -> list[TokenRollout]:
        """Wait until a model call pays off; return the rollouts of the call in the order of their
        starts, or none if all are over.
        """
        while not self._ready and self._busy and self._error is None:
            self._changed.clear()
            await self._changed.wait()
        while self._busy and self._error is None:
            now = time.monotonic()
            lefts = [
                self._timing.left_s(kind, now - began) for _, kind, began in self._busy.values()
            ]
            is_last = not self._left
            if not self._timing.is_worth_waiting(lefts, len(self._ready), is_last=is_last):
                break
            with contextlib.suppress(Expired):
                await within(TICK_S, self._rested.wait())
        if self._error is not None:
            raise self._error
        found = sorted(self._ready, key=self._numbers.__getitem__)
        self._ready.clear()
        return found
