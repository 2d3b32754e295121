"""Limits to scorers: time, attempts, calls at a time; and scores that are kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.waiting import wait_until

from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory
from openenv.rewards.external import (
    DirectoryCache,
    MemoryCache,
    TemporarilyUnscored,
    bounded,
    is_temporary,
    limits,
)
from openenv.rewards.external.cache import cache_key
from openenv.rewards.external.scorers import as_score, scorer_identity
from openenv.rewards.llm.client import LLMError

Episode = Trajectory[Any, Any]

pytestmark = pytest.mark.timeout(30)


def episode(*actions: Any, **options: Any) -> Episode:
    return Trajectory([(action, {"seen": action}) for action in actions], **options)


def value(scorer: Any, trajectory: Episode | None = None) -> float | None:
    score: Score = asyncio.run(scorer(episode("a") if trajectory is None else trajectory))
    return score.value


def refusal(scorer: Any, trajectory: Episode | None = None) -> str:
    with pytest.raises(Unscored) as caught:
        value(scorer, trajectory)
    return str(caught.value)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow at once; how long they wait is tested by itself."""
    monkeypatch.setattr(limits, "BACKOFF_S", 0.0)


def one(trajectory: Episode) -> float:
    return 1.0


class Counted:
    """A scorer that counts its calls and fails the first ones."""

    identity = "counted"

    def __init__(self, *errors: Exception, gives: Any = 1.0) -> None:
        self.errors = list(errors)
        self.gives = gives
        self.calls = 0

    def __call__(self, trajectory: Episode) -> Any:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.gives


# ------------------------------------------------------------------ what a scorer may give


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0.5, Score(0.5)),
        (True, Score(1.0)),
        (np.float32(0.5), Score(0.5)),
        ([0.25, 0.5], Score(0.75, step_rewards=[0.25, 0.5])),
        (None, Score()),
        (Score(1.0, {"a": 1.0}), Score(1.0, {"a": 1.0})),
        (Score(unscored="why"), Score(unscored="why")),
    ],
    ids=str,
)
def test_a_number_a_list_a_score_and_nothing_are_outcomes(given: Any, expected: Score) -> None:
    assert as_score(given, 2) == expected


@pytest.mark.parametrize(
    "given",
    ["0.5", b"1", {"reward": 1}, float("nan"), float("inf"), 10**400, [0.5], [1.0, float("nan")]],
    ids=lambda given: repr(given)[:20],
)
def test_anything_else_is_no_score(given: Any) -> None:
    with pytest.raises(Unscored):
        as_score(given, 2)


# ------------------------------------------------------------------ time


def test_plain_and_awaited_scorers_are_both_awaited() -> None:
    async def two(trajectory: Episode) -> float:
        return 2.0

    assert (value(bounded(one)), value(bounded(two))) == (1.0, 2.0)
    assert value(bounded(lambda trajectory: two(trajectory))) == 2.0


def test_a_coroutine_that_takes_too_long_is_cancelled_and_unscored() -> None:
    ended: list[str] = []

    async def slow(trajectory: Episode) -> float:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return 1.0

    why = refusal(bounded(slow, timeout_s=0.05, retries=1))
    assert why == "it was not scored within 0.05 s; asked 2 times"
    assert ended == ["cancelled"] * 2


def test_a_thread_that_takes_too_long_is_left_behind_and_holds_its_place() -> None:
    gate = threading.Event()

    def hangs(trajectory: Episode) -> float:
        assert gate.wait(20)
        return 1.0

    scorer = bounded(hangs, timeout_s=1.0, retries=0, concurrency=1)
    try:
        assert "within 1 s" in refusal(scorer)
        began = time.monotonic()
        assert "held by calls that exceeded their time limit" in refusal(scorer)
        assert time.monotonic() - began < 1.0
    finally:
        gate.set()
    wait_until(lambda: scorer._slots._free == 1, 10)
    assert value(scorer) == 1.0


def test_those_who_wait_for_a_place_that_never_comes_free_are_told() -> None:
    gate = threading.Event()

    def hangs(trajectory: Episode) -> float:
        assert gate.wait(20)
        return 1.0

    async def ask() -> list[Any]:
        scorer = bounded(hangs, timeout_s=0.1, retries=0, concurrency=2)
        return await asyncio.gather(*(scorer(episode(n)) for n in range(5)), return_exceptions=True)

    try:
        outcomes = asyncio.run(ask())
    finally:
        gate.set()
    assert all(isinstance(outcome, Unscored) for outcome in outcomes)
    assert sum("within" in str(outcome) for outcome in outcomes) == 2
    assert sum("all 2 places" in str(outcome) for outcome in outcomes) == 3


@pytest.mark.slow
def test_a_scorer_that_swallows_its_cancellation_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "END_GRACE_S", 0.05)

    async def stubborn(trajectory: Episode) -> float:
        for _ in range(50):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return 1.0

    async def ask() -> Any:
        scorer = bounded(stubborn, timeout_s=0.02, retries=0, concurrency=1)
        return [await asyncio.gather(scorer(episode(n)), return_exceptions=True) for n in (1, 2)]

    (late,), (refused,) = asyncio.run(ask())
    assert "within 0.02 s" in str(late)
    assert "held by calls that exceeded their time limit" in str(refused)


def test_who_asks_can_be_cancelled_and_the_place_comes_free() -> None:
    async def ask() -> float | None:
        begun = asyncio.Event()

        async def slow(trajectory: Episode) -> float:
            if trajectory[0][0] == "slow":
                begun.set()
                await asyncio.Event().wait()
            return 1.0

        scorer = bounded(slow, concurrency=1)
        task = asyncio.ensure_future(scorer(episode("slow")))
        await begun.wait()
        queued = asyncio.ensure_future(scorer(episode("waits")))
        await asyncio.sleep(0)
        task.cancel()
        queued.cancel()
        await asyncio.gather(task, queued, return_exceptions=True)
        return (await asyncio.wait_for(scorer(episode("a")), 5)).value

    assert asyncio.run(ask()) == 1.0


def test_a_place_that_comes_free_for_who_is_just_cancelled_is_not_lost() -> None:
    async def ask() -> None:
        slots = limits.ScoringSlots(1)
        await slots.acquire()
        waits = asyncio.ensure_future(slots.acquire())
        await asyncio.sleep(0)
        slots.release()  # to who waits, who is cancelled before it knows
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        await asyncio.wait_for(slots.acquire(), 5)

    asyncio.run(ask())


def test_a_place_is_not_lost_where_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    limited = bounded(one, concurrency=1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread"):
            value(limited)
    assert value(limited) == 1.0


def test_a_stop_iteration_in_a_thread_is_an_error_like_any_other() -> None:
    scorer = bounded(Counted(StopIteration()), retries=0)
    with pytest.raises(RuntimeError):
        value(scorer)


@pytest.mark.parametrize(
    "options",
    [{"timeout_s": 0}, {"timeout_s": -1.0}, {"retries": -1}, {"concurrency": 0}, {"cache": 0}],
    ids=str,
)
def test_a_limit_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        bounded(one, **options)


# ------------------------------------------------------------------ attempts


class Status(Exception):
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "is_worth_it"),
    [
        (TemporarilyUnscored("busy"), True),
        (Unscored("wrong"), False),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (Status(429), True),
        (Status(503), True),
        (Status(401), False),
        (LLMError("busy", status=429), True),
        (LLMError("refused", status=401), False),
        (caused(RuntimeError("APIConnectionError"), ConnectionRefusedError()), True),
        (caused(RuntimeError("wrapped"), Status(429)), True),
        (ValueError("a bug"), False),
        (KeyError("answer"), False),
    ],
    ids=repr,
)
def test_it_is_asked_again_only_after_what_passes(error: Exception, is_worth_it: bool) -> None:
    assert is_temporary(error) is is_worth_it
    scorer = Counted(error)
    limited = bounded(scorer, retries=2)
    if is_worth_it:
        assert value(limited) == 1.0
    else:
        with pytest.raises(type(error)):
            value(limited)
    assert scorer.calls == (2 if is_worth_it else 1)


def test_the_last_attempt_says_why_and_how_many_there_were() -> None:
    scorer = Counted(*(TemporarilyUnscored("the judge is busy") for _ in range(9)))
    assert refusal(bounded(scorer, retries=2)) == "the judge is busy; asked 3 times"
    assert scorer.calls == 3
    scorer = Counted(*(ConnectionResetError("secret") for _ in range(9)))
    assert refusal(bounded(scorer, retries=1)) == (
        "ConnectionResetError of the scorer; asked 2 times"
    )


def test_what_passes_can_be_said() -> None:
    scorer = Counted(KeyError("flaky"))
    assert value(bounded(scorer, retry_on=lambda error: isinstance(error, KeyError))) == 1.0


def test_the_pause_grows_is_drawn_and_is_as_long_as_a_server_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "BACKOFF_S", 0.5)
    longest = limits.LONGEST_BACKOFF_S
    assert all(0 <= limits._pause(number, None) <= longest for number in range(12))
    assert limits._pause(0, None) <= 0.5
    assert len({limits._pause(3, None) for _ in range(9)}) > 1
    assert (limits._pause(0, 7.0), limits._pause(0, 1e9)) == (7.0, longest)


# ------------------------------------------------------------------ calls at a time


class Crowd:
    """Counts how many are in it at a time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def inside(self) -> Any:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1


def test_the_limit_holds_over_threads_and_event_loops() -> None:
    crowd = Crowd()

    async def scorer(trajectory: Episode) -> float:
        with crowd.inside():
            await asyncio.sleep(0.005)
        return 1.0

    limited = bounded(scorer, concurrency=3)

    async def ask() -> list[Score]:
        return await asyncio.gather(*(limited(episode(n)) for n in range(10)))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: asyncio.run(ask()), range(4)))
    assert [score.value for scores in found for score in scores] == [1.0] * 40
    assert crowd.most == 3 and crowd.now == 0


def test_a_scorer_may_ask_for_fewer_calls_at_a_time() -> None:
    crowd = Crowd()

    class Alone:
        max_concurrency = 1

        def __call__(self, trajectory: Episode) -> float:
            with crowd.inside():
                time.sleep(0.002)
            return 1.0

    async def ask() -> None:
        limited = bounded(Alone(), concurrency=8)
        await asyncio.gather(*(limited(episode(n)) for n in range(8)))

    asyncio.run(ask())
    assert crowd.most == 1


# ------------------------------------------------------------------ scores that are kept


@pytest.mark.parametrize("make", [lambda path: 10, lambda path: path], ids=["memory", "directory"])
def test_equal_episodes_are_scored_once_and_others_again(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    scorer = Counted(gives=[0.5])
    limited = bounded(scorer, cache=make(tmp_path))
    first = asyncio.run(limited(episode("a")))
    assert asyncio.run(limited(episode("a"))) == first == Score(0.5, step_rewards=[0.5])
    assert scorer.calls == 1
    others = [
        episode("b"),
        episode("a", first="x"),
        episode("a", task={"id": 1}),
        episode("a", rewards=[1.0]),
    ]
    for other in others:
        value(limited, other)
    assert scorer.calls == 5


def test_scores_on_disk_outlive_the_scorer_and_belong_to_its_identity(tmp_path: Path) -> None:
    first, second = Counted(gives=0.25), Counted(gives=0.5)
    assert value(bounded(first, cache=tmp_path)) == 0.25
    assert value(bounded(second, cache=tmp_path)) == 0.25
    assert value(bounded(second, cache=tmp_path, identity="another")) == 0.5
    assert (first.calls, second.calls) == (1, 1)


def test_numbers_of_numpy_can_be_kept_on_disk(tmp_path: Path) -> None:
    half: Any = np.float32(0.5)
    scorer = Counted(gives=Score(half, {"a": half}))
    for _ in range(2):
        assert value(bounded(scorer, cache=tmp_path)) == 0.5
    assert scorer.calls == 1


def test_what_could_not_be_scored_is_not_kept(tmp_path: Path) -> None:
    scorer = Counted(Unscored("not now"), gives=1.0)
    limited = bounded(scorer, cache=tmp_path)
    assert refusal(limited) == "not now"
    assert value(limited) == 1.0
    given = bounded(Counted(gives=Score(unscored="no")), cache=10)
    assert refusal(given) == refusal(given) == "no"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"key": "x"}', b'{"key": 1, "value": []}'])
def test_a_damaged_file_counts_as_none_and_is_written_anew(damage: bytes, tmp_path: Path) -> None:
    scorer = Counted(gives=1.0)
    limited = bounded(scorer, cache=tmp_path)
    value(limited)
    (file,) = tmp_path.glob("*/*.json")
    file.write_bytes(damage)
    assert value(limited) == 1.0
    assert scorer.calls == 2
    assert json.loads(file.read_bytes())["value"] == 1.0
    assert not list(tmp_path.glob("*/.*"))
    assert file.stat().st_mode & 0o077 == 0  # other users do not read scores


def test_a_score_under_the_name_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    limited = bounded(Counted(gives=1.0), cache=tmp_path)
    value(limited)
    (file,) = tmp_path.glob("*/*.json")
    moved = DirectoryCache(tmp_path)._file("0" * 64)
    moved.parent.mkdir(exist_ok=True)
    file.rename(moved)
    assert limited.cache is not None and limited.cache.get("0" * 64) is None


def test_a_directory_that_cannot_be_written_to_costs_no_score(tmp_path: Path) -> None:
    limited = bounded(Counted(gives=1.0), cache=tmp_path / "scores")
    (tmp_path / "scores").rmdir()
    (tmp_path / "scores").write_text("a file")
    assert value(limited) == 1.0


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_cache_that_fails_costs_no_score(
    is_batch: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Gone:
        def get(self, key: str) -> Score | None:
            raise ConnectionRefusedError("planted")

        def put(self, key: str, score: Score) -> None:
            raise ConnectionRefusedError("planted")

    scorer: Any = Batch() if is_batch else Counted()
    found = asyncio.run(bounded(scorer, cache=Gone()).score_many([episode("a"), episode("b")]))
    assert [score.value is None for score in found] == [False, False]
    assert caplog.text.count("planted") >= 4


def test_memory_holds_so_many_and_forgets_the_least_lately_used() -> None:
    cache = MemoryCache(2)
    for key in ("a", "b"):
        cache.put(key, Score(1.0))
    assert cache.get("a") is not None
    cache.put("c", Score(1.0))
    assert [cache.get(key) is not None for key in "abc"] == [True, False, True]
    assert len(cache) == 2


def test_those_who_ask_for_the_same_at_a_time_are_scored_once_over_threads() -> None:
    calls = Crowd()
    total: list[int] = []

    async def scorer(trajectory: Episode) -> float:
        total.append(1)
        with calls.inside():
            await asyncio.sleep(0.05)
        return 1.0

    limited = bounded(scorer, cache=10, identity="x")
    start = threading.Barrier(4)

    async def ask() -> list[Score]:
        return await asyncio.gather(*(limited(episode("a")) for _ in range(5)))

    def run(_: int) -> list[Score]:
        start.wait(10)
        return asyncio.run(ask())

    with ThreadPoolExecutor(4) as pool:
        found = [score.value for scores in pool.map(run, range(4)) for score in scores]
    assert found == [1.0] * 20
    assert len(total) == 1


def test_who_waits_for_the_same_takes_over_where_who_scores_is_cancelled() -> None:
    async def ask() -> tuple[Any, int]:
        begun, calls = asyncio.Event(), 0

        async def scorer(trajectory: Episode) -> float:
            nonlocal calls
            calls += 1
            if calls == 1:
                begun.set()
                await asyncio.Event().wait()
            return 1.0

        limited = bounded(scorer, cache=10)
        leader = asyncio.ensure_future(limited(episode("a")))
        await begun.wait()
        follower = asyncio.ensure_future(limited(episode("a")))
        await asyncio.sleep(0)
        leader.cancel()
        return (await asyncio.wait_for(follower, 5)).value, calls

    assert asyncio.run(ask()) == (1.0, 2)


def test_a_follower_that_is_cancelled_harms_nobody() -> None:
    async def ask() -> float | None:
        gate = asyncio.Event()

        async def scorer(trajectory: Episode) -> float:
            await gate.wait()
            return 1.0

        limited = bounded(scorer, cache=10)
        leader = asyncio.ensure_future(limited(episode("a")))
        await asyncio.sleep(0)
        follower = asyncio.ensure_future(limited(episode("a")))
        await asyncio.sleep(0)
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
        gate.set()
        return (await asyncio.wait_for(leader, 5)).value

    assert asyncio.run(ask()) == 1.0


def test_an_episode_that_cannot_be_written_down_is_scored_and_not_kept() -> None:
    scorer = Counted()
    limited = bounded(scorer, cache=10)
    odd: Episode = Trajectory([(object(), None)])
    assert value(limited, odd) == value(limited, odd) == 1.0
    assert scorer.calls == 2


def test_a_key_is_the_same_for_equal_episodes_only() -> None:
    assert cache_key("x", episode("a")) == cache_key("x", episode("a"))
    assert cache_key("x", Trajectory([({"a": 1, "b": 2}, None)])) == cache_key(
        "x", Trajectory([({"b": 2, "a": 1}, None)])
    )
    arrays = [cache_key("x", Trajectory([(np.arange(n), None)])) for n in (3, 4)]
    keys = [
        cache_key("x", episode("a")),
        cache_key("y", episode("a")),
        cache_key("x", episode("b")),
    ]
    assert len({*keys, *arrays}) == 5
    cache_key("x", episode(float("nan"), "\ud800"))


def test_functions_are_told_apart_by_their_code_and_closures_not_at_all(tmp_path: Path) -> None:
    def other(trajectory: Episode) -> float:
        return 2.0

    weight = 2.0

    def closure(trajectory: Episode) -> float:
        return weight

    assert scorer_identity(one) is not None
    assert len({scorer_identity(one), scorer_identity(other)}) == 2
    assert scorer_identity(closure) is scorer_identity(Counted().__call__) is None
    with pytest.raises(ValueError, match="identity="):
        bounded(closure, cache=tmp_path)
    assert value(bounded(closure, cache=10)) == 2.0


def test_two_scorers_nobody_can_tell_apart_do_not_share_scores() -> None:
    cache = MemoryCache()

    def made(gives: float) -> Callable[[Episode], float]:
        return lambda trajectory: gives

    assert [value(bounded(made(gives), cache=cache)) for gives in (1.0, 2.0)] == [1.0, 2.0]


# ------------------------------------------------------------------ several at a time


class Batch:
    """Scores several episodes by the length of their first action."""

    identity = "batch"

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(self, trajectory: Episode) -> Any:
        return self.score_many([trajectory])[0]

    def score_many(self, trajectories: Sequence[Episode]) -> list[Any]:
        self.batches.append(len(trajectories))
        return [float(len(one[0][0])) for one in trajectories]


def many(scorer: Any, *actions: str) -> list[Score]:
    found: list[Score] = asyncio.run(scorer.score_many([episode(action) for action in actions]))
    return found


def test_a_batch_is_one_call_and_only_of_what_is_not_kept() -> None:
    scorer = Batch()
    limited = bounded(scorer, cache=10)
    assert [score.value for score in many(limited, "a", "bb")] == [1.0, 2.0]
    assert [score.value for score in many(limited, "bb", "ccc", "a")] == [2.0, 3.0, 1.0]
    assert value(limited, episode("ccc")) == 3.0
    assert scorer.batches == [2, 1]


def test_a_scorer_of_one_is_asked_for_each_and_says_why_of_each() -> None:
    def scorer(trajectory: Episode) -> float:
        if trajectory[0][0] == "bad":
            raise Unscored("it is bad")
        return {"a": 1.0}[trajectory[0][0]]

    good, bad, bug = many(bounded(scorer), "a", "bad", "zzz")
    assert (good.value, bad.unscored) == (1.0, "it is bad")
    assert bug.unscored is not None and "KeyError" in bug.unscored


@pytest.mark.parametrize("given", [[1.0], None, "ab", 3.0, {"a": 1}], ids=str)
def test_a_batch_with_another_number_of_scores_scores_nobody(given: Any) -> None:
    class Wrong(Batch):
        def score_many(self, trajectories: Sequence[Episode]) -> Any:
            return given

    scores = many(bounded(Wrong()), "a", "b")
    assert all(score.value is None and "for 2 episodes" in str(score.unscored) for score in scores)


def test_one_that_is_no_score_leaves_the_others_of_its_batch_scored() -> None:
    class Odd(Batch):
        def score_many(self, trajectories: Sequence[Episode]) -> list[Any]:
            return [1.0, float("nan"), Score(unscored="hm")]

    good, nan, unscored = many(bounded(Odd()), "a", "b", "c")
    assert good.value == 1.0 and "finite" in str(nan.unscored) and unscored.unscored == "hm"


def test_what_could_not_be_scored_in_a_batch_is_not_kept() -> None:
    class Recovers(Batch):
        def score_many(self, trajectories: Sequence[Episode]) -> list[Any]:
            self.batches.append(len(trajectories))
            return [Score(unscored="no") if len(self.batches) == 1 else 1.0 for _ in trajectories]

    limited = bounded(Recovers(), cache=10)
    assert [score.value for score in many(limited, "a") + many(limited, "a")] == [None, 1.0]


def test_a_batch_is_asked_again_and_its_failure_is_everybodys() -> None:
    class Flaky(Batch):
        def score_many(self, trajectories: Sequence[Episode]) -> list[Any]:
            self.batches.append(len(trajectories))
            if len(self.batches) == 1:
                raise ConnectionResetError
            raise KeyError("a bug")

    scorer = Flaky()
    scores = many(bounded(scorer), "a", "b")
    assert scorer.batches == [2, 2]
    assert {score.unscored for score in scores} == {"the scorer Flaky raised KeyError"}


def test_limits_can_be_put_around_limits(tmp_path: Path) -> None:
    inner = bounded(Batch(), cache=DirectoryCache(tmp_path))
    assert [score.value for score in many(bounded(inner), "a", "bb")] == [1.0, 2.0]
