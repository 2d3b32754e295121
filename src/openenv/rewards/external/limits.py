"""Limits to what a scorer may take: time, attempts, calls at a time; and scores that are kept."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import random
import threading
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from openenv.errors import OpenEnvError, Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory, TrajectoryScorer, failed
from openenv.rewards.external.cache import MemoryCache, ScoreCache, cache_of, key_of
from openenv.rewards.external.scorers import (
    TEMPORARY_STATUS,
    Temporary,
    as_score,
    identity_of,
    is_coroutine_function,
    name_of,
    on_thread,
)

__all__ = ["Bounded", "Slots", "bounded", "is_temporary"]

logger = logging.getLogger(__name__)

TIMEOUT_S = 60.0
RETRIES = 2
CONCURRENCY = 16
BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 30.0

_Work = asyncio.Future[Any] | concurrent.futures.Future[Any]

LONGEST_CHAIN = 10
END_GRACE_S = 1.0  # for a coroutine that was cancelled


class _Abandoned(Exception):
    """Who was scoring was cancelled; somebody else has to."""


def is_temporary(error: BaseException) -> bool:
    """Whether it is worth to ask again after an error.

    So it is after `Temporary`, after a time limit, a connection that broke or was refused, and
    after an answer of HTTP that says that a server is busy: that is told by ``status_code``, which
    the clients of OpenAI and Anthropic, and httpx, give their errors, or by the ``status`` of an
    `LLMError`.
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
            return isinstance(seen, Temporary)
        if isinstance(seen, ConnectionError | TimeoutError | asyncio.TimeoutError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


class Slots:
    """Places for calls, shared by all threads and event loops.

    A call that is overdue goes on to hold its place until it is really over.
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
        """Wait for a place.

        Raises:
            Unscored: All are held by calls whose time is over.
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
        """Give a place to who has waited longest."""
        with self._lock:
            while self._waiting:
                place = self._waiting.popleft()
                if place.set_running_or_notify_cancel():
                    place.set_result(None)
                    return
            self._free += 1

    def be_overdue(self) -> None:
        """Note that a call which holds a place is overdue; where all are, nobody waits any more."""
        with self._lock:
            self._overdue += 1
            stuck = []
            if self._overdue >= self.count:
                stuck, self._waiting = list(self._waiting), deque()
        for place in stuck:
            if place.set_running_or_notify_cancel():
                place.set_exception(self._stuck())

    def be_over(self) -> None:
        """Note that an overdue call is over after all."""
        with self._lock:
            self._overdue -= 1
        self.release()

    def _stuck(self) -> Unscored:
        held = "the only place is" if self.count == 1 else f"all {self.count} places are"
        return Unscored(f"{held} held by scoring that is overdue and cannot be ended")


class Bounded:
    """A scorer within limits; see `bounded`."""

    def __init__(
        self,
        scorer: TrajectoryScorer,
        timeout_s: float | None,
        retries: int,
        slots: Slots,
        cache: ScoreCache | None,
        identity: str | None,
        retry_on: Callable[[BaseException], bool],
    ) -> None:
        self.scorer = scorer
        self.name = self.__qualname__ = name_of(scorer)
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
        """It scores several episodes in one call."""
        return hasattr(self.scorer, "score_many")

    async def __call__(self, trajectory: Trajectory[Any, Any]) -> Score:
        """Score an episode.

        Raises:
            Unscored: It could not be scored: in time, or after all attempts.
        """
        key = self._key(trajectory)
        if key is None:
            return await self._attempted(trajectory)
        return await self._once(key, trajectory)

    async def score_many(self, trajectories: Sequence[Trajectory[Any, Any]]) -> list[Score]:
        """Score several episodes: in one call, where the scorer takes several.

        Returns:
            A score for each, in their order. One that could not be had says why.
        """
        if not self.is_batch:
            return list(await asyncio.gather(*(self._told(one) for one in trajectories)))
        keys = [self._key(one) for one in trajectories]
        scores = [None if key is None else self._kept(key) for key in keys]
        missing = [at for at, score in enumerate(scores) if score is None]
        new = await self._batch([trajectories[at] for at in missing]) if missing else []
        for at, score in zip(missing, new, strict=True):
            scores[at], key = score, keys[at]
            if key is not None and not score.unscored:
                self._keep(key, score)
        return [score for score in scores if score is not None]

    def _key(self, trajectory: Trajectory[Any, Any]) -> str | None:
        """What its score is kept under; None where none is kept."""
        if self.cache is None:
            return None
        try:
            return key_of(self._kept_as, trajectory)
        except Unscored as error:  # which says nothing of whether it can be scored
            logger.warning("a score is not kept: %s", error)
            return None

    def _kept(self, key: str) -> Score | None:
        """The score that is kept under a key. A cache that fails costs no more than scoring it
        again.
        """
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

    async def _told(self, trajectory: Trajectory[Any, Any]) -> Score:
        """The score, or why there is none."""
        try:
            return await self(trajectory)
        except Exception as error:
            return self._why(error)

    def _why(self, error: Exception) -> Score:
        return failed(error, f"the scorer {self.name}")

    # ------------------------------------------------------------------ once for all who ask

    async def _once(self, key: str, trajectory: Trajectory[Any, Any]) -> Score:
        """What is kept under a key, or else is found now, once for all who ask meanwhile."""
        while (found := self._kept(key)) is None:
            with self._lock:
                running = self._running.get(key)
                mine = concurrent.futures.Future[Score]()
                if running is None:
                    mine.set_running_or_notify_cancel()  # so that nobody who waits can cancel it
                    self._running[key] = mine
            if running is None:
                return await self._leading(key, trajectory, mine)
            try:
                return await asyncio.wrap_future(running)
            except _Abandoned:
                continue
        return found

    async def _leading(
        self,
        key: str,
        trajectory: Trajectory[Any, Any],
        mine: concurrent.futures.Future[Score],
    ) -> Score:
        try:
            score = await self._attempted(trajectory)
            self._keep(key, score)
        except BaseException as error:
            self._end(key)
            mine.set_exception(error if isinstance(error, Exception) else _Abandoned())
            raise
        self._end(key)
        mine.set_result(score)
        return score

    def _end(self, key: str) -> None:
        with self._lock:
            del self._running[key]

    # ------------------------------------------------------------------ attempts

    async def _attempted(self, trajectory: Trajectory[Any, Any]) -> Score:
        async def attempt() -> Score:
            return _score(await self._limited(self.scorer, trajectory), len(trajectory))

        found: Score = await self._tried(attempt)
        return found

    async def _batch(self, trajectories: list[Trajectory[Any, Any]]) -> list[Score]:
        async def attempt() -> list[Score]:
            score_many = self.scorer.score_many  # type: ignore[attr-defined]
            return _scores(await self._limited(score_many, trajectories), trajectories)

        try:
            found: list[Score] = await self._tried(attempt)
        except Exception as error:
            why = self._why(error)
            return [why for _ in trajectories]
        return found

    async def _tried(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """Attempt it as often as may be, and wait longer each time."""
        for number in range(self.retries + 1):
            try:
                return await attempt()
            except Exception as error:
                if not self._retry_on(error):
                    raise
                if number == self.retries:
                    raise Unscored(_words(error, number + 1)) from error
                pause = _pause(number, getattr(error, "retry_after_s", None))
                logger.info("%s is asked again in %.2f s: %s", self.name, pause, error)
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def _limited(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """Call it, in a place of its own and for so long at most."""
        if is_coroutine_function(function):
            return await self._placed(lambda: asyncio.ensure_future(function(argument)))
        outcome = await self._placed(lambda: on_thread(function, argument))
        if not hasattr(outcome, "__await__"):
            return outcome
        return await self._placed(lambda: asyncio.ensure_future(outcome), outcome)

    async def _placed(self, begin: Callable[[], _Work], coroutine: Any = None) -> Any:
        """Begin work in a place of its own, and wait for it; `coroutine` is to be closed where
        there is no place.
        """
        try:
            await self._slots.acquire()
        except BaseException:
            if asyncio.iscoroutine(coroutine):
                coroutine.close()
            raise
        try:
            work = begin()
        except BaseException:  # there are too many threads, say
            self._slots.release()
            raise
        return await self._waited_for(work)

    async def _waited_for(self, work: _Work) -> Any:
        """Wait for work that holds a place; when it is over, so is that.

        A coroutine is cancelled when its time is over. A thread cannot be ended: it is left behind,
        and holds its place until it is over.
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
            raise Temporary(f"it was not scored within {self.timeout_s:g} s")
        raise Unscored("scoring was cancelled")

    def _leave(self, work: _Work, *, is_overdue: bool) -> None:
        """Give its place away once it is over."""
        if is_overdue:
            self._slots.be_overdue()

        def is_over(done: Any) -> None:
            if not done.cancelled():
                done.exception()  # nobody is going to ask for it
            self._slots.be_over() if is_overdue else self._slots.release()

        work.add_done_callback(is_over)


def _words(error: Exception, attempts: int) -> str:
    why = str(error) if isinstance(error, Unscored) else f"{type(error).__name__} of the scorer"
    return why if attempts == 1 else f"{why}; asked {attempts} times"


def _pause(number: int, retry_after_s: float | None) -> float:
    """Seconds to wait after attempt `number`, from 0.

    Drawn from 0 to the backoff ("full jitter": Brooker, Exponential Backoff And Jitter, AWS
    Architecture Blog, 2015), so that many who were refused do not come again all at once.
    """
    longest = min(LONGEST_BACKOFF_S, BACKOFF_S * 2**number)
    drawn = random.uniform(0, longest)  # nosec B311  # no secret
    return max(drawn, min(retry_after_s or 0.0, LONGEST_BACKOFF_S))


def _score(outcome: Any, steps: int) -> Score:
    score = as_score(outcome, steps)
    if score.unscored:
        raise Unscored(score.unscored)
    return score


def _scores(outcomes: Any, trajectories: Sequence[Trajectory[Any, Any]]) -> list[Score]:
    is_list = isinstance(outcomes, Sequence) and not isinstance(outcomes, str)
    if not is_list or len(outcomes) != len(trajectories):
        count = len(outcomes) if is_list else "no list of"
        raise Unscored(f"it gave {count} scores for {len(trajectories)} episodes")
    return [_one(outcome, len(one)) for outcome, one in zip(outcomes, trajectories, strict=True)]


def _one(outcome: Any, steps: int) -> Score:
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
) -> Bounded:
    """Put limits to what a scorer may take.

        env.trajectory_scorer = bounded(http_scorer(URL), timeout_s=10, cache="scores")

    What comes of it is a scorer too, a coroutine function, for any number of threads and event
    loops. A plain scorer is called on threads of their own, so that it blocks nobody. An episode
    that is not scored in time, or after the last attempt, is `Unscored` and says why; never 0.

    Args:
        scorer: What scores.
        timeout_s: Seconds for one attempt, without the wait for a place; None for no limit. A
            coroutine is cancelled then. A thread cannot be ended: it goes on, and holds its place.
        retries: How often it is asked again after an error that passes; each time it waits longer,
            from up to 0.5 to up to 30 s, or as long as a server asks it to, up to 30 s.
        concurrency: Calls at a time, of this scorer, in the process; fewer, if its
            ``max_concurrency`` is lower. Where all are overdue and cannot be ended, others do not
            wait for them, but are unscored at once.
        cache: Where scores are kept: a directory; how many of them in memory; or a `ScoreCache`.
            Equal episodes are then scored once, those that come at the same time too. What could
            not be scored is not kept.
        identity: What the scores of this scorer are kept under; by default `identity_of` tells.
            Give another one when it begins to score in another way: another model of a judge, say.
        retry_on: Whether it is worth to ask again after an error.

    Raises:
        ValueError: A limit is out of range; or scores are to be kept on disk of a scorer of which
            nobody can tell what identifies it.
    """
    if timeout_s is not None and not timeout_s > 0:
        raise ValueError(f"timeout_s must be above 0, not {timeout_s}")
    if retries < 0:
        raise ValueError(f"retries must be at least 0, not {retries}")
    identity = identity or identity_of(scorer)
    kept = cache_of(cache)
    if identity is None and kept is not None and not isinstance(kept, MemoryCache):
        raise ValueError(
            f"nobody can tell what identifies the scorer {name_of(scorer)}, by which scores are "
            "kept: give identity=, a text that changes when it scores in another way"
        )
    slots = Slots(min(concurrency, getattr(scorer, "max_concurrency", concurrency)))
    return Bounded(scorer, timeout_s, retries, slots, kept, identity, retry_on)
