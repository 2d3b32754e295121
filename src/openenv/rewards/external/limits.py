"""Limits on a scorer (time, attempts, concurrent calls) and a cache of scores.

Invariants:

- A call holds one slot of `ScoringSlots` from start to end. A thread cannot be killed, so a call
  that exceeded its time limit keeps its slot until its thread returns. If such calls hold all
  slots, waiters fail at once instead of waiting forever.
- With a cache, equal episodes that arrive together are scored once: the first caller leads, and the
  others wait for the leader's future (`_running`). If the leader is cancelled, a waiter takes over.
- Threads and event loops share slots and futures. Every change is made under a lock, and
  nothing is awaited while a lock is held.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from openenv._internal.timing import backoff_s
from openenv.errors import OpenEnvError, Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory, TrajectoryScorer, score_of_failure
from openenv.rewards.external.cache import MemoryCache, ScoreCache, cache_key, open_cache
from openenv.rewards.external.scorers import (
    TEMPORARY_STATUS,
    TemporarilyUnscored,
    as_score,
    is_coroutine_function,
    on_thread,
    require_score,
    scorer_identity,
    scorer_name,
)

logger = logging.getLogger(__name__)

TIMEOUT_S = 60.0
RETRIES = 2
CONCURRENCY = 16
BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 30.0

_Work = asyncio.Future[Any] | concurrent.futures.Future[Any]

LONGEST_CHAIN = 10
END_GRACE_S = 1.0  # for a cancelled coroutine


class _ScoringAbandoned(Exception):
    """An error for waiters: the caller that computed the shared score was cancelled."""


def is_temporary(error: BaseException) -> bool:
    """Return whether a repeated call may succeed after this error.

    True for `TemporarilyUnscored`, a timeout, a refused or broken connection, and an HTTP status of
    a busy server. The status is read from ``status_code``, which httpx and the clients of OpenAI
    and Anthropic set, or from the ``status`` of an `OpenEnvError` such as `LLMError`. Causes are
    searched too.
    """
    seen: BaseException | None = error
    for _ in range(LONGEST_CHAIN):
        if seen is None:
            return False
        own = getattr(seen, "status", None) if isinstance(seen, OpenEnvError) else None
        status = getattr(seen, "status_code", own)
        status = getattr(getattr(seen, "response", None), "status_code", status)
        if isinstance(status, int):
            return status in TEMPORARY_STATUS
        if isinstance(seen, Unscored):
            return isinstance(seen, TemporarilyUnscored)
        if isinstance(seen, ConnectionError | TimeoutError | asyncio.TimeoutError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


class ScoringSlots:
    """A semaphore that all threads and event loops share.

    A call that exceeds its time limit keeps its slot until the call really ends.
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"concurrency must be at least 1, not {count}")
        self.count = count
        self._free = count
        self._overdue = 0
        self._waiting: deque[concurrent.futures.Future[None]] = deque()
        self._lock = threading.Lock()

    async def acquire(self) -> None:
        """Wait for a free slot.

        Raises:
            Unscored: All slots are held by calls that exceeded their time limit.
        """
        with self._lock:
            if self._free:
                self._free -= 1
                return
            if self._overdue >= self.count:
                raise self._stuck()
            place: concurrent.futures.Future[None] = concurrent.futures.Future()
            self._waiting.append(place)
        try:
            await asyncio.wrap_future(place)
        except asyncio.CancelledError:
            if not place.cancel() and place.exception() is None:
                self.release()
            raise

    def release(self) -> None:
        """Give the slot to the call that has waited longest, or make it free."""
        with self._lock:
            while self._waiting:
                place = self._waiting.popleft()
                if place.set_running_or_notify_cancel():
                    place.set_result(None)
                    return
            self._free += 1

    def be_overdue(self) -> None:
        """Record that a call exceeded its time limit; fail all waiters if no slot is left."""
        with self._lock:
            self._overdue += 1
            stuck = []
            if self._overdue >= self.count:
                stuck, self._waiting = list(self._waiting), deque()
        for place in stuck:
            if place.set_running_or_notify_cancel():
                place.set_exception(self._stuck())

    def be_over(self) -> None:
        """Record that an overdue call has ended after all."""
        with self._lock:
            self._overdue -= 1
        self.release()

    def _stuck(self) -> Unscored:
        held = "the only place is" if self.count == 1 else f"all {self.count} places are"
        return Unscored(f"{held} held by calls that exceeded their time limit and cannot be ended")


class BoundedScorer:
    """A scorer with limits, created by `bounded`."""

    def __init__(
        self,
        scorer: TrajectoryScorer,
        timeout_s: float | None,
        retries: int,
        slots: ScoringSlots,
        cache: ScoreCache | None,
        identity: str | None,
        retry_on: Callable[[BaseException], bool],
    ) -> None:
        self.scorer = scorer
        self.name = self.__qualname__ = scorer_name(scorer)
        self.timeout_s = timeout_s
        self.retries = retries
        self.cache = cache
        self.keep = getattr(scorer, "keep", None)
        self._slots = slots
        self._retry_on = retry_on
        self._kept_as = identity or uuid.uuid4().hex
        if identity is not None:
            self.identity = identity
        self._running: dict[str, concurrent.futures.Future[Score]] = {}
        self._lock = threading.Lock()

    @property
    def is_batch(self) -> bool:
        """True if the scorer accepts several episodes in one call."""
        return hasattr(self.scorer, "score_many")

    async def __call__(self, trajectory: Trajectory[Any, Any]) -> Score:
        """Score an episode.

        Raises:
            Unscored: The episode was not scored after all attempts, or not in time.
        """
        key = self._key(trajectory)
        if key is None:
            return await self._attempt(trajectory)
        return await self._score_once(key, trajectory)

    async def score_many(self, trajectories: Sequence[Trajectory[Any, Any]]) -> list[Score]:
        """Score several episodes, in one call if the scorer has a method ``score_many``.

        Returns:
            One score per episode, in order. An episode that could not be scored has the reason in
            `Score.unscored`.
        """
        if not self.is_batch:
            return list(await asyncio.gather(*(self._score_or_reason(one) for one in trajectories)))
        keys = [self._key(one) for one in trajectories]
        scores = [None if key is None else self._lookup(key) for key in keys]
        missing = [at for at, score in enumerate(scores) if score is None]
        new = await self._batch([trajectories[at] for at in missing]) if missing else []
        for at, score in zip(missing, new, strict=True):
            scores[at], key = score, keys[at]
            if key is not None and not score.unscored:
                self._keep(key, score)
        return [score for score in scores if score is not None]

    def _key(self, trajectory: Trajectory[Any, Any]) -> str | None:
        """Return the cache key of an episode, or None if the episode is not cached."""
        if self.cache is None:
            return None
        try:
            return cache_key(self._kept_as, trajectory)
        except Unscored as error:  # the episode may still be scorable
            logger.warning("a score is not kept: %s", error)
            return None

    def _lookup(self, key: str) -> Score | None:
        try:
            return self.cache.get(key) if self.cache is not None else None
        except Exception:
            logger.warning("the scores that are kept cannot be read", exc_info=True)
            return None

    def _keep(self, key: str, score: Score) -> None:
        try:
            if self.cache is not None:
                self.cache.put(key, score)
        except Exception:
            logger.warning("a score could not be kept", exc_info=True)

    async def _score_or_reason(self, trajectory: Trajectory[Any, Any]) -> Score:
        try:
            return await self(trajectory)
        except Exception as error:
            return self._why(error)

    def _why(self, error: Exception) -> Score:
        return score_of_failure(error, f"the scorer {self.name}")

    # ------------------------------------------------------------------ shared results

    async def _score_once(self, key: str, trajectory: Trajectory[Any, Any]) -> Score:
        """Return the cached score, or compute a score shared by all concurrent callers."""
        while (found := self._lookup(key)) is None:
            with self._lock:
                running = self._running.get(key)
                mine = concurrent.futures.Future[Score]()
                if running is None:
                    mine.set_running_or_notify_cancel()  # so that waiters cannot cancel it
                    self._running[key] = mine
            if running is None:
                return await self._lead(key, trajectory, mine)
            try:
                return await asyncio.wrap_future(running)
            except _ScoringAbandoned:
                continue
        return found

    async def _lead(
        self,
        key: str,
        trajectory: Trajectory[Any, Any],
        mine: concurrent.futures.Future[Score],
    ) -> Score:
        try:
            score = await self._attempt(trajectory)
            self._keep(key, score)
        except BaseException as error:
            self._end(key)
            mine.set_exception(error if isinstance(error, Exception) else _ScoringAbandoned())
            raise
        self._end(key)
        mine.set_result(score)
        return score

    def _end(self, key: str) -> None:
        with self._lock:
            del self._running[key]

    # ------------------------------------------------------------------ attempts

    async def _attempt(self, trajectory: Trajectory[Any, Any]) -> Score:
        async def attempt() -> Score:
            outcome = await self._call_limited(self.scorer, trajectory)
            return require_score(as_score(outcome, len(trajectory)))

        found: Score = await self._retry(attempt)
        return found

    async def _batch(self, trajectories: list[Trajectory[Any, Any]]) -> list[Score]:
        async def attempt() -> list[Score]:
            score_many = self.scorer.score_many  # type: ignore[attr-defined]
            outcomes = await self._call_limited(score_many, trajectories)
            is_list = isinstance(outcomes, Sequence) and not isinstance(outcomes, str)
            if not is_list or len(outcomes) != len(trajectories):
                count = len(outcomes) if is_list else "no list of"
                raise Unscored(f"it gave {count} scores for {len(trajectories)} episodes")
            pairs = zip(outcomes, trajectories, strict=True)
            return [_to_score(outcome, len(one)) for outcome, one in pairs]

        try:
            found: list[Score] = await self._retry(attempt)
        except Exception as error:
            why = self._why(error)
            return [why for _ in trajectories]
        return found

    async def _retry(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """Make up to `retries` + 1 attempts, with growing pauses between them."""
        for number in range(self.retries + 1):
            try:
                return await attempt()
            except Exception as error:
                if not self._retry_on(error):
                    raise
                if number == self.retries:
                    told = f"{type(error).__name__} of the scorer"
                    why = str(error) if isinstance(error, Unscored) else told
                    raise Unscored(f"{why}; asked {number + 1} times" if number else why) from error
                pause = _pause(number, getattr(error, "retry_after_s", None))
                logger.info("%s is asked again in %.2f s: %s", self.name, pause, error)
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def _call_limited(self, function: Callable[[Any], Any], argument: Any) -> Any:
        if is_coroutine_function(function):
            return await self._run_in_slot(lambda: asyncio.ensure_future(function(argument)))
        outcome = await self._run_in_slot(lambda: on_thread(function, argument))
        if not hasattr(outcome, "__await__"):
            return outcome
        return await self._run_in_slot(lambda: asyncio.ensure_future(outcome), outcome)

    async def _run_in_slot(self, begin: Callable[[], _Work], coroutine: Any = None) -> Any:
        """Start work in a slot and wait for the result; close `coroutine` if there is no slot."""
        try:
            await self._slots.acquire()
        except BaseException:
            if asyncio.iscoroutine(coroutine):
                coroutine.close()
            raise
        try:
            work = begin()
        except BaseException:  # for example, no thread can be started
            self._slots.release()
            raise
        return await self._wait_for(work)

    async def _wait_for(self, work: _Work) -> Any:
        """Wait for work that holds a slot, and release the slot when the work ends.

        A coroutine is cancelled when its time is up. A thread cannot be ended: the thread is left
        running and holds its slot until it returns.
        """
        is_thread = isinstance(work, concurrent.futures.Future)
        waited, is_late = asyncio.wrap_future(work), False
        try:
            await asyncio.wait({waited}, timeout=self.timeout_s)
            is_late = not waited.done()
            if is_late and not is_thread:
                work.cancel()
                await asyncio.wait({waited}, timeout=END_GRACE_S)
        except BaseException:
            waited.cancel()
            self._leave(work, is_overdue=is_thread)
            raise
        if waited.done() and not waited.cancelled():
            self._slots.release()
            return waited.result()
        waited.cancel()
        self._leave(work, is_overdue=not work.done())
        if is_late:
            raise TemporarilyUnscored(f"it was not scored within {self.timeout_s:g} s")
        raise Unscored("scoring was cancelled")

    def _leave(self, work: _Work, *, is_overdue: bool) -> None:
        """Release the slot of abandoned work once the work ends."""
        if is_overdue:
            self._slots.be_overdue()

        def is_over(done: Any) -> None:
            if not done.cancelled():
                done.exception()  # otherwise asyncio logs that it was never retrieved
            self._slots.be_over() if is_overdue else self._slots.release()

        work.add_done_callback(is_over)


def _pause(number: int, retry_after_s: float | None) -> float:
    """Return the seconds to wait after attempt `number`, which counts from 0.

    The pause is drawn between 0 and the backoff ("full jitter": Brooker, Exponential Backoff And
    Jitter, AWS Architecture Blog, 2015), so that many refused callers do not return at the same
    time.
    """
    drawn = backoff_s(number + 1, BACKOFF_S, LONGEST_BACKOFF_S, jitter=1.0)
    return max(drawn, min(retry_after_s or 0.0, LONGEST_BACKOFF_S))


def _to_score(outcome: Any, steps: int) -> Score:
    try:
        return as_score(outcome, steps)
    except Unscored as error:
        return Score(unscored=str(error))


def bounded(
    scorer: TrajectoryScorer,
    *,
    timeout_s: float | None = TIMEOUT_S,
    retries: int = RETRIES,
    concurrency: int = CONCURRENCY,
    cache: ScoreCache | str | os.PathLike[str] | int | None = None,
    identity: str | None = None,
    retry_on: Callable[[BaseException], bool] = is_temporary,
) -> BoundedScorer:
    """Limit the time, attempts and concurrency of a scorer, and cache the scores.

        env.trajectory_scorer = bounded(http_scorer(URL), timeout_s=10, cache="scores")

    The result is a scorer too: a coroutine function that any number of threads and event loops may
    call. A plain scorer is called on threads, so that it does not block the event loop. An episode
    that is not scored in time or after the last attempt is `Unscored`, with the reason, and never
    gets 0.

    Args:
        scorer: The scorer to limit.
        timeout_s: Time limit in seconds for one attempt, without the wait for a slot; None for no
            limit. Default: 60. A coroutine is cancelled; a thread cannot be ended and keeps its
            slot.
        retries: Number of further attempts after a temporary error. Default: 2. Pauses grow from up
            to 0.5 s to up to 30 s; a server's ``Retry-After`` is obeyed up to 30 s.
        concurrency: Maximum number of concurrent calls of this scorer in the process. Default: 16,
            or the scorer's ``max_concurrency`` if that is lower. If calls that exceeded their time
            limit hold all slots, further calls are unscored at once.
        cache: A directory, a number of scores to keep in memory, or a `ScoreCache`. Equal episodes
            are then scored once, even if they arrive together. Failures are not cached.
        identity: Text that identifies the scorer in the cache; by default from `scorer_identity`.
            Change it when the scorer starts to score differently, such as with another judge model.
        retry_on: Function that decides whether to try again after an error.

    Raises:
        ValueError: A limit is out of range, or a cache outside memory is given for a scorer without
            an identity.
    """
    if timeout_s is not None and not timeout_s > 0:
        raise ValueError(f"timeout_s must be above 0, not {timeout_s}")
    if retries < 0:
        raise ValueError(f"retries must be at least 0, not {retries}")
    identity = identity or scorer_identity(scorer)
    kept = open_cache(cache)
    if identity is None and kept is not None and not isinstance(kept, MemoryCache):
        raise ValueError(
            f"the scorer {scorer_name(scorer)} has no identity, under which scores are "
            "cached on disk: pass identity=, a text that changes when it scores differently"
        )
    slots = ScoringSlots(min(concurrency, getattr(scorer, "max_concurrency", concurrency)))
    return BoundedScorer(scorer, timeout_s, retries, slots, kept, identity, retry_on)
