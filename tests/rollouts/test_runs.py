"""What a run does: which episodes it plays, how they end, what they are worth, what is told."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rollouts.worlds import (
    Cumulative,
    Heard,
    Nan,
    PerStep,
    Say,
    Slow,
    Talk,
    Terminal,
    room_for,
)
from support.servers import serving

from openenv import EnvClient, EnvPool, GenericEnvClient, SessionLost, State, create_app
from openenv._internal.packages import MissingPackage
from openenv.errors import ConnectError, RateLimited, Unscored
from openenv.reward import RewardSpec, Score
from openenv.rewards.delayed import Trajectory
from openenv.rollouts import (
    Decision,
    Rollout,
    RolloutFileError,
    RolloutLimits,
    RolloutProgress,
    RolloutRun,
    RolloutsFailed,
    read_rollouts,
    rollout,
    rollout_async,
    runs,
)
from openenv.rollouts.endings import is_given_up
from openenv.rollouts.episodes import LONG
from openenv.rollouts.jobs import RolloutJob, RolloutQueue, SampleGroup
from openenv.rollouts.sessions import sessions_of
from openenv.tasks.samplers import ShuffledSampler
from openenv.tasks.task import Task


def script(*words: str) -> Any:
    """A policy that says these words, one after the other."""

    def policy(observation: dict[str, Any], step: int) -> dict[str, str]:
        return {"word": words[step]}

    return policy


def one(env: Any, *words: str, **options: Any) -> Rollout:
    """The only rollout of such a script."""
    (found,) = rollout(env, script(*words), concurrency=1, **options).rollouts
    return found


def tasks(count: int) -> list[Task]:
    return [Task(id=f"t{number}", reset={"start": f"w{number}"}) for number in range(count)]


# ------------------------------------------------------------------ what the header tells


@pytest.mark.parametrize("place", ["class", "application", "server", "client"])
def test_the_header_tells_what_rewards_mean_before_anything_is_played(place: str) -> None:
    def header_of(env: Any) -> Any:
        return rollout(env, script("over"), seed=0).header.reward

    declared = Terminal.REWARD.as_data()
    app = create_app(Terminal)
    if place in ("class", "application"):
        assert header_of(Terminal if place == "class" else app) == declared
        return
    with serving(app) as url:
        if place == "server":
            assert header_of(url) == declared
        else:
            with GenericEnvClient(url) as client:
                assert header_of(client) == declared


def test_a_header_tells_nothing_where_nothing_is_declared() -> None:
    assert rollout(Talk, script("over"), seed=0).header.reward is None


# ------------------------------------------------------------------ which episodes


def test_without_tasks_each_episode_has_a_seed_of_its_own() -> None:
    run = rollout(Talk, script("over"), n=5, seed=10)
    assert sorted(r.id for r in run.rollouts) == [f"{seed}#0" for seed in range(10, 15)]
    assert {(r.metadata or {})["seed"] for r in run} == set(range(10, 15)) == {r.seed for r in run}


def test_samples_of_a_task_are_a_group_of_one_seed() -> None:
    run = rollout(Talk, script("over"), tasks(3), n=4, seed=1)
    groups: dict[str, list[Rollout]] = {}
    for found in run:
        groups.setdefault(found.group, []).append(found)
    assert set(groups) == {"t0", "t1", "t2"}
    for key, members in groups.items():
        assert sorted(r.sample for r in members) == [0, 1, 2, 3]
        assert sorted(r.id for r in members) == [f"{key}#{n}" for n in range(4)]
        assert len({r.seed for r in members}) == 1
        assert all(r.first["words"] == [f"w{key[1:]}"] for r in members)
    assert len({r.seed for r in run}) == 3


def test_the_same_seed_plays_the_same_episodes() -> None:
    runs = [rollout(Talk, script("over"), tasks(3), n=2, seed=4) for _ in range(2)]
    first, second = ({r.id: r.seed for r in run} for run in runs)
    assert first == second


def test_a_seed_that_nobody_gave_is_told() -> None:
    run = rollout(Talk, script("over"), n=1)
    assert run.rollouts[0].seed == run.header.settings["seed"]


def test_a_task_that_comes_again_is_another_epoch() -> None:
    run = rollout(Talk, script("over"), iter([*tasks(1), *tasks(2)]))
    assert sorted(r.id for r in run) == ["t0#0", "t0.1#0", "t1#0"]


def test_a_seed_of_the_task_is_the_one_that_counts() -> None:
    run = rollout(Talk, script("over"), [Task(id="a", reset={"seed": 77})], n=2)
    assert {(r.metadata or {})["seed"] for r in run} == {77} == {r.seed for r in run}


def test_only_so_many_tasks_are_taken() -> None:
    taken: list[int] = []

    def endless() -> Iterator[Task]:
        for number in range(10**6):
            taken.append(number)
            yield Task(id=str(number))

    run = rollout(Talk, script("over"), endless(), num_tasks=20, concurrency=4)
    assert len(run) == 20
    assert len(taken) == 20


@pytest.mark.slow
def test_tasks_are_taken_as_places_become_free() -> None:
    """So that a million of them take no more memory than a few."""
    ahead = 0
    counts = {"taken": 0, "done": 0}

    def counted() -> Iterator[Task]:
        for number in range(500):
            counts["taken"] += 1
            yield Task(id=str(number))

    def note(_: Rollout) -> None:
        nonlocal ahead
        counts["done"] += 1
        ahead = max(ahead, counts["taken"] - counts["done"])

    rollout(Talk, script("over"), counted(), concurrency=8, on_rollout=note)
    assert counts["done"] == 500
    assert ahead <= 2 * 8


def test_a_task_that_the_environment_ignores_is_a_failure() -> None:
    with pytest.warns(UserWarning, match="level"), pytest.raises(RolloutsFailed) as raised:
        rollout(Talk, script("over"), [Task(id="a", reset={"level": 3})], concurrency=1)
    (found,) = raised.value.run.rollouts
    assert found.outcome == "failed"
    assert [failure.type for failure in found.failures] == ["TaskNotTaken"]
    assert found.reward is None


# ------------------------------------------------------------------ what is kept


def test_a_record_tells_what_was_done_and_seen() -> None:
    found = one(PerStep, "ab", "over", tasks=tasks(1), seed=1)
    assert [step.action for step in found.steps] == [{"word": "ab"}, {"word": "over"}]
    assert found.steps[0].observation == {"words": ["w0", "ab"]}
    assert [step.reward for step in found.steps] == [2.5, 4.5]
    assert [step.done for step in found.steps] == [False, True]
    assert found.steps[0].reward_info == {"components": {"length": 2.0, "style": 0.5}}
    assert found.task == {"id": "t0", "reset": {"start": "w0"}, "split": "train", "index": 0}
    assert found.outcome == "done"
    assert found.usage.seconds > 0
    assert found.ended_at >= found.started_at > 0


def test_what_a_task_is_scored_by_is_in_no_record() -> None:
    secret = Task(id="a", reset={"start": "x"}, criteria={"answer": "xyzzy"})
    shown: list[Any] = []

    def policy(observation: Any, task: Any) -> dict[str, str]:
        shown.append(task)
        return {"word": "over"}

    run = rollout(
        Talk, policy, [secret], trajectory_scorer=lambda t: len(t.task.criteria["answer"])
    )
    (found,) = run.rollouts
    assert found.reward == 5
    assert "xyzzy" not in found.model_dump_json()
    assert "xyzzy" not in repr(shown)


def test_actions_and_observations_may_be_models() -> None:
    class TalkEnv(EnvClient[Say, Heard, State]):
        pass

    seen: list[Any] = []

    def policy(observation: Heard) -> Say:
        seen.append(observation)
        return Say(word="over")

    with serving(create_app(Talk)) as url:
        run = rollout(lambda: TalkEnv(base_url=url), policy, n=2)
    assert all(isinstance(observation, Heard) for observation in seen)
    assert {r.steps[0].action["word"] for r in run} == {"over"}
    assert run.rollouts[0].steps[0].observation == {"words": ["over"]}


def test_what_is_not_kept_is_left_out_and_counted() -> None:
    def policy(observation: Any, turn: Any) -> dict[str, str]:
        return {"word": "over"}

    run = rollout(Terminal, policy, n=4, seed=0, keep=lambda r: r.id in ("0#0", "2#0"))
    assert {r.seed: r.is_kept for r in run} == {0: True, 1: False, 2: True, 3: False}
    assert {r.seed: len(r.steps) for r in run} == {0: 1, 1: 0, 2: 1, 3: 0}
    assert {r.reward for r in run} == {1.0}
    assert run.summary().rollouts == 4


# ------------------------------------------------------------------ what an episode is worth


@pytest.mark.parametrize(
    ("env", "reward", "shares", "kind"),
    [
        (Talk, 6.0, [2.0, 4.0], None),
        (PerStep, 7.0, [2.5, 4.5], "per_step"),
        (Cumulative, 6.0, [2.0, 4.0], "cumulative"),
        (Terminal, 2.0, [0.0, 2.0], "terminal"),
    ],
)
def test_an_episode_is_worth_what_its_environment_declares(
    env: Any, reward: float, shares: list[float], kind: str | None
) -> None:
    found = one(env, "ab", "over")
    assert found.reward == reward
    assert found.step_rewards == shares
    assert found.reward_kind == kind
    assert found.unscored is None


class Games(Terminal):
    """Declares what its rewards mean once it knows which game is played."""

    def reset(self, seed: int | None = None, start: str = "") -> Any:  # type: ignore[override]
        self.REWARD = RewardSpec("terminal", (-3.0, 1.0), unfinished=-2.0)  # type: ignore[misc]
        return super().reset(seed, start)


def test_a_record_tells_the_range_of_rewards_of_its_own_episode() -> None:
    found = one(Games, "ab", "over", limits=RolloutLimits(steps=1))
    assert (found.reward, found.reward_range) == (None, (-3.0, 1.0))
    assert found.reward_unfinished == -2.0
    assert one(Terminal, "over").reward_range is None


def test_components_add_up_over_the_steps() -> None:
    assert one(PerStep, "ab", "over").components == {"length": 6.0, "style": 1.0}


def test_an_episode_with_a_step_that_was_not_scored_has_no_reward() -> None:
    found = one(PerStep, "ab", "mumble", "over")
    assert (found.reward, found.unscored) == (None, "the judge heard nothing")
    assert found.outcome == "done"
    assert found.step_rewards is None
    assert not found.is_scored


def test_a_reward_that_is_no_number_is_none() -> None:
    found = one(Nan, "over")
    assert (found.reward, found.unscored) == (None, "the reward is nan")
    assert found.steps[0].reward is None


def test_a_terminal_reward_of_an_episode_that_was_cut_off_is_not_known() -> None:
    """The zeros that come before it are no reward of 0."""
    found = one(Terminal, "ab", "ab", limits=RolloutLimits(steps=2))
    assert found.outcome == "limit"
    assert found.reward is None
    assert found.unscored is not None and "steps" in found.unscored


def test_a_trajectory_scorer_scores_the_whole() -> None:
    def scorer(trajectory: Trajectory[Any, Any]) -> float:
        assert trajectory.first["words"] == []
        assert trajectory.rewards == [2.0, 4.0]
        return float(len(trajectory))

    found = one(Talk, "ab", "over", trajectory_scorer=scorer, credit="uniform")
    assert found.reward == 2.0
    assert found.step_rewards == [1.0, 1.0]


async def _async_scorer(trajectory: Any) -> Score:
    await asyncio.sleep(0)
    return Score(1.0, {"a": 0.75, "b": 0.25})


def test_a_trajectory_scorer_may_be_a_coroutine_and_have_components() -> None:
    found = one(Talk, "ab", "over", trajectory_scorer=_async_scorer, credit="discounted:0.5")
    assert found.components == {"a": 0.75, "b": 0.25}
    assert found.step_rewards == [0.5, 1.0]


def test_a_trajectory_scorer_that_cannot_score_gives_none() -> None:
    def unable(trajectory: Any) -> float:
        raise Unscored("the judge is ill")

    found = one(Talk, "over", trajectory_scorer=unable)
    assert (found.reward, found.unscored, found.outcome) == (None, "the judge is ill", "done")
    found = one(Talk, "over", trajectory_scorer=lambda trajectory: None)
    assert found.reward is None
    assert found.unscored


def test_a_trajectory_scorer_holds_up_no_episode() -> None:
    """One that blocks does so in a thread, several at once."""
    barrier = threading.Barrier(4)

    def blocking(trajectory: Any) -> float:
        barrier.wait(10)
        return 1.0

    run = rollout(Talk, script("over"), n=4, concurrency=4, trajectory_scorer=blocking)
    assert run.summary().mean_reward == 1.0


def test_tokens_get_their_share() -> None:
    def policy(observation: Any, step: int) -> Decision:
        word = ("ab", "over")[step]
        ids = list(range(step + 2))
        return Decision({"word": word}, {"completion_token_ids": ids}, completion_tokens=step + 2)

    (found,) = rollout(Talk, policy, token_credit="spread").rollouts
    assert found.token_rewards == [[1.0, 1.0], [4 / 3] * 3]
    assert found.usage.completion_tokens == 5
    run = rollout(Talk, script("over"), token_credit="last")
    (found,) = run.rollouts
    assert found.token_rewards is None
    assert found.no_token_rewards is not None and "does not tell" in found.no_token_rewards
    assert run.summary().without_token_rewards == 1


def test_a_credit_assignment_to_tokens_that_fails_costs_the_tokens_only() -> None:
    def policy(observation: Any) -> Decision:
        return Decision({"word": "over"}, completion_tokens=2)

    (found,) = rollout(Talk, policy, token_credit=lambda rewards, counts: [[1.0]]).rollouts
    assert (found.outcome, found.reward, found.token_rewards) == ("done", 4.0, None)
    assert found.no_token_rewards == "the credit assignment gave [1] for [2] tokens"


# ------------------------------------------------------------------ limits


def test_a_limit_of_steps_ends_an_episode() -> None:
    found = one(Talk, "a", "b", "c", limits=RolloutLimits(steps=2))
    assert (found.outcome, found.limit, len(found.steps)) == ("limit", "steps", 2)
    assert found.reward == 2.0
    assert found.failures == []


def test_an_episode_that_ends_at_its_limit_is_done() -> None:
    assert one(Talk, "a", "over", limits=RolloutLimits(steps=2)).outcome == "done"


def test_a_limit_of_tokens_ends_an_episode() -> None:
    left: list[int | None] = []

    def policy(observation: Any, tokens_left: int | None) -> Decision:
        left.append(tokens_left)
        return Decision({"word": "a"}, completion_tokens=3)

    (found,) = rollout(Talk, policy, limits=RolloutLimits(tokens=8)).rollouts
    assert (found.outcome, found.limit, len(found.steps)) == ("limit", "tokens", 3)
    assert left == [8, 5, 2]
    assert found.usage.completion_tokens == 9


@pytest.mark.slow
def test_a_limit_of_seconds_ends_a_step_that_hangs_and_the_place_goes_on() -> None:
    Slow.free.clear()

    def policy(observation: Any, task: Any) -> dict[str, str]:
        return {"word": "slow" if task["id"] == "t0" else "over"}

    def let_go(found: Rollout) -> None:
        if found.id == "t1#0":  # it was played while t0 was hanging yet
            Slow.free.set()

    limits = RolloutLimits(seconds=0.3)
    run = rollout(Slow, policy, tasks(2), concurrency=1, limits=limits, on_rollout=let_go)
    first, second = run.rollouts
    assert (first.outcome, first.limit, first.failures) == ("limit", "wall_clock", [])
    assert first.usage.seconds < 5
    assert second.outcome == "done"


def test_a_limit_of_seconds_ends_a_policy_that_hangs() -> None:
    async def policy(observation: Any, seconds_left: float | None) -> dict[str, str]:
        assert seconds_left is not None and seconds_left <= 0.2
        await asyncio.sleep(30)
        return {"word": "over"}

    (found,) = rollout(Talk, policy, limits=RolloutLimits(seconds=0.2)).rollouts
    assert (found.outcome, found.limit) == ("limit", "wall_clock")


@pytest.mark.slow
@pytest.mark.parametrize("who", ["policy", "environment"])
def test_a_timer_that_is_a_little_early_is_the_limit_too(who: str) -> None:
    """Where the loop is libuv's, one in ten is."""

    class Dozes(Talk):
        async def step_async(  # type: ignore[override]
            self, action: Say
        ) -> Heard:
            await asyncio.sleep(5)
            return super().step(action)

    async def policy(observation: Any) -> dict[str, str]:
        await asyncio.sleep(5 if who == "policy" else 0)
        return {"word": "over"}

    limits = RolloutLimits(seconds=0.03)
    run = rollout(Talk if who == "policy" else Dozes, policy, n=60, limits=limits, retries=0)
    assert {(one.outcome, one.limit) for one in run.rollouts} == {("limit", "wall_clock")}


class Limited(GenericEnvClient):
    """Is told to come again in a minute."""

    async def step(self, action: Any, **options: Any) -> Any:  # type: ignore[override]
        raise RateLimited("too often", "RATE_LIMITED", {"retry_after_s": 60.0})


def test_a_limit_of_seconds_ends_the_wait_for_a_key_that_asks_too_much() -> None:
    limits = RolloutLimits(seconds=0.2)
    (found,) = rollout(lambda: Limited.local(Talk), script("a"), limits=limits).rollouts
    assert (found.outcome, found.limit, found.failures) == ("limit", "wall_clock", [])


def test_an_episode_that_never_began_is_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()

    class Hangs(Talk):
        def reset(self, seed: int | None = None, start: str = "") -> Heard:  # type: ignore[override]
            free.wait(30)
            return super().reset(seed, start)

    monkeypatch.setattr("openenv.rollouts.engine.SLACK_S", 0.0)
    (found,) = rollout(
        Hangs,
        script("over"),
        limits=RolloutLimits(seconds=0.1),
        trajectory_scorer=lambda trajectory: 0.0,
        on_rollout=lambda _: free.set(),
    ).rollouts
    assert (found.outcome, found.limit, found.reward) == ("limit", "wall_clock", None)
    assert found.unscored == "its limit of wall_clock ended it before it had begun"


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"seconds": -1.0}, {"seconds": float("inf")}])
def test_limits_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RolloutLimits(**wrong)


# ------------------------------------------------------------------ refusals and failures


def test_a_policy_that_wants_to_know_is_told_why_its_action_was_not_taken() -> None:
    told: list[str | None] = []

    def policy(observation: Any, refusal: str | None) -> dict[str, str]:
        told.append(refusal)
        return {"word": "over" if refusal else "rude"}

    (found,) = rollout(Talk, policy, n=1).rollouts
    assert told == [None, "mind your language"]
    assert found.outcome == "done"
    assert len(found.steps) == 1
    assert found.steps[0].policy == {
        "refused": [{"action": {"word": "rude"}, "why": "mind your language"}]
    }


def test_an_action_that_does_not_fit_its_model_is_told_field_by_field() -> None:
    told: list[str | None] = []

    def policy(observation: Any, refusal: str | None) -> dict[str, Any]:
        told.append(refusal)
        return {"word": "over"} if refusal else {"word": 3}

    (found,) = rollout(Talk, policy, n=1).rollouts
    assert found.outcome == "done"
    assert told[1] is not None and "word" in told[1]


def test_any_other_policy_fails_by_it_and_has_no_reward_of_0() -> None:
    run = rollout(Talk, script("ab", "rude"), n=1, error_budget=1)
    (found,) = run.rollouts
    assert (found.outcome, found.reward) == ("failed", None)
    (failure,) = found.failures
    assert (failure.type, failure.at, failure.step) == ("ExecutionFailed", "step", 1)
    assert not failure.is_retried
    assert len(found.steps) == 1


def test_a_crash_of_the_environment_is_no_refusal() -> None:
    def policy(observation: Any, refusal: str | None) -> dict[str, str]:
        return {"word": "crash" if refusal is None else "over"}

    (found,) = rollout(Talk, policy, n=1, error_budget=1).rollouts
    assert found.outcome == "failed"
    assert [failure.type for failure in found.failures] == ["ExecutionFailed"]


def test_invalid_actions_in_a_row_are_bounded() -> None:
    def stubborn(observation: Any, refusal: str | None) -> dict[str, str]:
        return {"word": "rude"}

    (found,) = rollout(Talk, stubborn, n=1, limits=RolloutLimits(invalid_actions=3)).rollouts
    assert (found.outcome, found.limit) == ("limit", "invalid_actions")
    assert [one["action"] for one in found.refused] == [{"word": "rude"}] * 3
    assert found.reward is None and is_given_up(found)


class Overloaded(Exception):
    status_code = 429


@pytest.mark.slow
def test_a_policy_that_fails_for_a_passing_cause_plays_anew() -> None:
    failures = Counter[str]()

    def policy(observation: Any, task: Any, step: int) -> dict[str, str]:
        if step == 1 and failures[task["id"]] < 2:
            failures[task["id"]] += 1
            raise Overloaded("too much to do") if failures[task["id"]] == 1 else TimeoutError
        return {"word": ("ab", "over")[step]}

    run = rollout(Talk, policy, tasks(1), retries=2, concurrency=4)
    (found,) = run.rollouts
    assert found.outcome == "done"
    assert len(found.steps) == 2
    assert [(f.type, f.at, f.step, f.is_retried) for f in found.failures] == [
        ("Overloaded", "policy", 1, True),
        ("TimeoutError", "policy", 1, True),
    ]
    summary = run.summary()
    assert summary.retries == 2
    assert summary.failures == {"Overloaded": 1, "TimeoutError": 1}


def test_retries_come_to_an_end() -> None:
    def policy(observation: Any) -> dict[str, str]:
        raise SessionLost("gone")

    with pytest.raises(RolloutsFailed) as raised:
        rollout(Talk, policy, tasks(1), retries=1)
    (found,) = raised.value.run.rollouts
    assert [failure.is_retried for failure in found.failures] == [True, False]
    assert found.unscored == "gone"


def test_a_mistake_in_a_policy_is_not_tried_again() -> None:
    calls = 0

    def policy(observation: Any) -> dict[str, str]:
        nonlocal calls
        calls += 1
        raise KeyError("board")

    with pytest.raises(RolloutsFailed):
        rollout(Talk, policy, tasks(1))
    assert calls == 1


def test_more_failures_than_the_budget_end_the_run_and_name_the_causes(tmp_path: Path) -> None:
    def policy(observation: Any, task: Any) -> dict[str, str]:
        if int(task["id"][1:]) % 2:
            raise KeyError("board")
        return {"word": "over"}

    output = tmp_path / "x.jsonl"
    with pytest.raises(RolloutsFailed) as raised:
        rollout(Talk, policy, tasks(400), error_budget=0.05, output=output, concurrency=4)
    error = raised.value
    assert error.failed == 21
    assert "KeyError in policy" in next(iter(error.causes))
    assert "21 x KeyError" in str(error)
    found = list(read_rollouts(output))
    assert 40 <= len(found) <= 60
    assert error.run.summary().failed == sum(r.outcome == "failed" for r in found) >= 21


def test_what_fails_once_the_budget_is_spent_is_not_counted_against_it() -> None:
    begun, all_begun = 0, asyncio.Event()

    async def policy(observation: Any) -> dict[str, str]:
        nonlocal begun
        begun += 1
        if begun == 4:
            all_begun.set()
        await all_begun.wait()
        raise KeyError("board")

    async def note(found: Rollout) -> None:
        await asyncio.sleep(0.01)  # for as long as it takes the others to fail too

    with pytest.raises(RolloutsFailed) as raised:
        rollout(Talk, policy, tasks(4), error_budget=1, concurrency=4, on_rollout=note)
    assert (raised.value.failed, raised.value.ended) == (2, 2)
    assert sum(raised.value.causes.values()) == 2
    assert raised.value.run.summary().failed == 4


def test_a_run_of_which_everything_fails_ends_early() -> None:
    def policy(observation: Any) -> dict[str, str]:
        raise KeyError("board")

    with pytest.raises(RolloutsFailed) as raised:
        rollout(Talk, policy, tasks(1000), error_budget=0.5, concurrency=2)
    assert raised.value.ended < 40


def test_failures_within_the_budget_are_counted_only() -> None:
    def policy(observation: Any, task: Any) -> dict[str, str]:
        if task["id"] == "t3":
            raise KeyError("board")
        return {"word": "over"}

    run = rollout(Talk, policy, tasks(10), error_budget=1)
    assert run.summary().outcomes == {"done": 9, "failed": 1}
    assert run.summary().mean_reward == 4.0


class Brittle(Talk):
    """Cannot begin what is called broken."""

    def reset(self, seed: int | None = None, start: str = "") -> Any:  # type: ignore[override]
        if start == "broken":
            raise ValueError("there is no such board")
        return super().reset(seed, start)


def test_one_task_whose_reset_raises_does_not_end_a_run(caplog: pytest.LogCaptureFixture) -> None:
    """Of three tasks it is a third, which is more than a tenth; and it is said once."""
    three = [Task(id=name, reset={"start": name}) for name in ("broken", "a", "b")]
    run = rollout(Brittle, script("over"), three, n=4, concurrency=2)
    assert run.summary().outcomes == {"done": 8, "failed": 4}
    assert {r.task_id for r in run if r.outcome == "failed"} == {"broken"}
    assert [r.getMessage() for r in caplog.records if "broken" in r.getMessage()] == [
        "the reset of task 'broken' fails, and its rollouts count as failed: "
        "ExecutionFailed: Server error: there is no such board (code: EXECUTION_ERROR)"
    ]
    for tasks, budget in ((three[:1], 0.1), (three, 0.0), (three, 3)):
        with pytest.raises(RolloutsFailed, match="there is no such board"):
            rollout(Brittle, script("over"), tasks, n=4, error_budget=budget)
    two = [*three, Task(id="worse", reset={"start": "broken"})]
    with pytest.raises(RolloutsFailed, match="there is no such board"):
        rollout(Brittle, script("over"), two, n=4)


def test_whose_fault_a_failure_is_is_recorded() -> None:
    def late(observation: Any) -> Any:
        raise TimeoutError

    def wrong(observation: Any) -> Any:
        raise KeyError("board")

    def told(policy: Any, env: Any = Talk) -> bool:
        run = rollout(env, policy, n=1, error_budget=1, retries=0)
        assert run.summary().given_up == run.rollouts[0].failures[-1].is_by_policy
        return run.rollouts[0].failures[-1].is_by_policy

    assert told(wrong) and told(script("rude"))
    assert not told(late) and not told(script("crash"))


def test_what_failed_is_done_again_by_a_resume(tmp_path: Path) -> None:
    output, ill = tmp_path / "x.jsonl", True

    def policy(observation: Any, task: Any) -> dict[str, str]:
        if ill and task["id"] in ("t1", "t2"):
            raise KeyError("board")
        return {"word": "over"}

    given: dict[str, Any] = {"output": output, "error_budget": 2, "seed": 0}
    assert rollout(Talk, policy, tasks(5), **given).summary().failed == 2
    ill = False
    run = rollout(Talk, policy, tasks(5), resume=True, **given)
    assert run.summary().outcomes == {"done": 5}
    assert sorted(r.id for r in run) == [f"t{n}#0" for n in range(5)]
    assert [f.type for r in run if r.id == "t1#0" for f in r.failures] == ["KeyError"]


def test_other_tasks_are_not_gone_on_with(tmp_path: Path) -> None:
    output = tmp_path / "x.jsonl"
    rollout(Talk, script("over"), tasks(3), output=output)
    with pytest.raises(RolloutFileError, match=r"settings\.tasks"):
        rollout(Talk, script("over"), tasks(4), output=output, resume=True)


# ------------------------------------------------------------------ where it is played


def test_a_server_with_fewer_places_than_asked_for_is_played_to_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(create_app(Talk, max_concurrent_envs=3)) as url:
        run = rollout(url, script("a", "over"), tasks(60), concurrency=16)
    assert run.summary().outcomes == {"done": 60}
    assert run.summary().failures == {}
    (told,) = [one.getMessage() for one in caplog.records if "full" in one.getMessage()]
    assert "full with 3 sessions" in told and "MAX_CONCURRENT_ENVS" in told


def test_a_server_that_holds_all_that_there_are_is_nothing_to_be_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(create_app(Talk, max_concurrent_envs=3)) as url:
        rollout(url, script("over"), tasks(3), concurrency=16)
    assert not [one for one in caplog.records if "full" in one.getMessage()]


def test_sessions_are_reset_and_given_back() -> None:
    app = create_app(Talk, max_concurrent_envs=4)
    with serving(app) as url:
        for _ in range(3):  # each finds all places free
            run = rollout(url, script("over"), tasks(20), concurrency=4)
            assert run.summary().outcomes == {"done": 20}
        with GenericEnvClient(base_url=url, queue_timeout_s=0).sync() as env:
            env.reset()


@pytest.mark.parametrize("make", ["client", "entered", "application", "class", "pool"])
def test_an_environment_may_be_given_in_many_forms(make: str) -> None:
    with serving(create_app(Talk)) as url:
        if make == "client":
            client = GenericEnvClient(base_url=url)
            run = rollout(client, script("over"), n=3)
            client.close()
        elif make == "entered":
            with GenericEnvClient(base_url=url) as client:
                run = rollout(client, script("over"), n=3)
                client.reset()  # it is there yet
        elif make == "pool":
            with EnvPool[Any](url) as pool:
                run = rollout(pool, script("over"), n=3)
        else:
            run = rollout(create_app(Talk) if make == "application" else Talk, script("over"), n=3)
    assert run.summary().outcomes == {"done": 3}


def test_what_is_no_environment_is_refused() -> None:
    with pytest.raises(TypeError, match="no environment"):
        rollout(3, script("over"))
    with pytest.raises(TypeError, match="where its server is"):
        rollout(GenericEnvClient, script("over"))


def test_a_server_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(ConnectError):
        rollout("http://127.0.0.1:9", script("over"), n=3)


@pytest.mark.timeout(30)
def test_a_server_that_does_not_tell_how_one_acts_is_given_up_at_once() -> None:
    """Sessions of it can be opened, and every one of them ends at its ``/schema``."""
    app = create_app(Talk)

    async def mute(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/schema":
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    with serving(mute) as url, pytest.raises(ConnectError, match="/schema answered with status"):
        rollout(url, "random", n=2)


def test_why_no_session_can_be_had_is_told_until_the_run_gives_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PATIENCE_S", 0.5)
    monkeypatch.setattr(runs, "RETRY_TOLD_EVERY_S", 0.2)

    def stop(observation: Any, step: int) -> dict[str, str]:
        if not stopped.is_set():
            stopped.set()
            server.close()
        return {"word": "over"}

    stopped, server = threading.Event(), ExitStack()
    with server:
        url = server.enter_context(serving(create_app(Talk)))
        rollout(url, script("over"))
        with pytest.raises(ConnectError):
            rollout(url, stop, n=40, concurrency=1, retries=1000, error_budget=1.0)
    told = [one for one in caplog.records if "is tried again for 0 s" in one.getMessage()]
    assert len(told) in range(1, 6) and "refused" in told[0].getMessage()
    assert all(one.levelname == "WARNING" for one in told)


@pytest.mark.parametrize(
    ("limits", "is_told"),
    [({}, True), ({"steps": 300}, False), ({"seconds": 30.0}, False), ({"tokens": 9}, False)],
)
def test_that_no_episode_ends_is_told_once_and_at_once(
    limits: dict[str, Any], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def goes_on(observation: Any, step: int) -> dict[str, str]:
        assert step < LONG or is_told == ("--max-steps" in caplog.text)
        return {"word": "over" if step > LONG else "on"}

    rollout(Talk, goes_on, n=3, concurrency=3, limits=RolloutLimits(**limits))
    assert caplog.text.count("no episode has ended within 200 steps") == is_told


@pytest.mark.anyio
async def test_it_can_be_awaited() -> None:
    async def policy(observation: Any) -> dict[str, str]:
        assert asyncio.get_running_loop() is here
        return {"word": "over"}

    here = asyncio.get_running_loop()
    with serving(create_app(Talk)) as url:
        run = await rollout_async(url, policy, tasks(5))
    assert run.summary().outcomes == {"done": 5}


@pytest.mark.anyio
async def test_it_may_be_called_where_a_loop_runs() -> None:
    run = await asyncio.to_thread(rollout, Talk, script("over"), n=2)
    assert len(run) == 2
    assert len(rollout(Talk, script("over"), n=2)) == 2


def test_it_may_be_called_from_several_threads_at_once() -> None:
    runs: list[RolloutRun] = []
    threads = [
        threading.Thread(target=lambda: runs.append(rollout(Talk, script("over"), tasks(20))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [len(run) for run in runs] == [20, 20, 20]


# ------------------------------------------------------------------ what is told


def test_it_is_the_same_call_awaited_or_not() -> None:
    assert inspect.signature(rollout) == inspect.signature(rollout_async)
    assert inspect.iscoroutinefunction(rollout_async) and not inspect.iscoroutinefunction(rollout)
    assert rollout.__name__ == "rollout" and "concurrency:" in (rollout.__doc__ or "")


@pytest.mark.slow
def test_tasks_may_be_those_that_the_server_of_a_client_has() -> None:
    """They are asked for a page at a time, while the run goes on."""
    app = create_app(Talk, tasks={"train": [{"id": str(n)} for n in range(300)]})
    with GenericEnvClient.local(app).sync() as client:
        run = rollout(app, script("over"), client)
    assert len({found.task_id for found in run}) == 300


@pytest.mark.anyio
async def test_a_secret_in_an_address_is_not_told_of() -> None:
    sessions = await sessions_of("http://me:hunter22@127.0.0.1:9", lambda _: None)
    assert sessions.name == "http://me:***@127.0.0.1:9"


@pytest.mark.anyio
async def test_sessions_that_are_open_yet_are_closed_at_the_end() -> None:
    with serving(create_app(Talk, max_concurrent_envs=1)) as url:
        for _ in range(2):
            sessions = await sessions_of(url, lambda _: None)
            await asyncio.wait_for(sessions.open(), 10)
            await sessions.aclose()


@pytest.mark.anyio
async def test_what_was_on_its_way_when_a_run_was_stopped_is_not_begun() -> None:
    is_taking, go_on = threading.Event(), threading.Event()

    class Slowly:
        def take(self) -> RolloutJob:
            is_taking.set()
            go_on.wait(10)
            return RolloutJob("a#0", SampleGroup("a", None, None), 0, 0)

    jobs = RolloutQueue(Slowly(), {})  # type: ignore[arg-type]
    taking = asyncio.ensure_future(jobs.take())
    await asyncio.to_thread(is_taking.wait, 10)
    await jobs.stop()
    go_on.set()
    assert await taking is None
    jobs.close()


def test_it_tells_how_far_it_has_come() -> None:
    told: list[RolloutProgress] = []
    rollout(Talk, script("over"), tasks(30), n=2, progress=told.append)
    last = told[-1]
    assert (last.done, last.total, last.failed, last.running) == (60, 60, 0, 0)
    assert last.mean_reward == 4.0
    assert last.per_s > 0


def test_groups_with_signal_are_counted() -> None:
    def policy(observation: Any, turn: Any) -> dict[str, str]:
        raise AssertionError

    class Sometimes:
        """Says another word in one sample of t1."""

        def reset(self, rollout_id: str) -> None:
            self.is_other = rollout_id == "t1#2"

        def act(self, observation: Any, step: int) -> dict[str, str]:
            return {"word": "longer" if self.is_other and step == 0 else "over"}

    summary = rollout(Talk, Sometimes, tasks(3), n=3).summary()
    assert (summary.groups, summary.groups_with_signal) == (3, 1)


def test_each_rollout_is_handed_over_once_it_is_written(tmp_path: Path) -> None:
    output, handed = tmp_path / "x.jsonl", []

    async def take(found: Rollout) -> None:
        assert found.id in output.read_text()
        handed.append(found.id)

    run = rollout(Talk, script("over"), tasks(4), output=output, on_rollout=take)
    assert sorted(handed) == sorted(r.id for r in run)


def test_an_error_of_a_callback_ends_the_run_and_loses_nothing(tmp_path: Path) -> None:
    output = tmp_path / "x.jsonl"

    def breaks(found: Rollout) -> None:
        if found.id == "t5#0":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rollout(Talk, script("over"), tasks(50), output=output, on_rollout=breaks, seed=1)
    assert "t5#0" in {r.id for r in read_rollouts(output)}
    run = rollout(Talk, script("over"), tasks(50), output=output, resume=True, seed=1)
    assert sorted(r.id for r in run) == sorted(f"t{n}#0" for n in range(50))


def test_a_run_whose_disk_is_full_says_so_and_can_be_gone_on_with(tmp_path: Path) -> None:
    output = tmp_path / "x.jsonl"
    given: dict[str, Any] = {"output": output, "seed": 1, "concurrency": 4}
    with room_for(10_000), pytest.raises(OSError, match="can be gone on with") as raised:
        rollout(Talk, script("over"), tasks(100), **given)
    assert raised.value.filename == str(output)
    before = {found.id for found in read_rollouts(output)}
    assert 0 < len(before) < 100
    run = rollout(Talk, script("over"), tasks(100), resume=True, **given)
    ids = [found.id for found in run]
    assert sorted(ids) == sorted(f"t{n}#0" for n in range(100))
    assert set(ids[: len(before)]) == before
    assert run.summary().outcomes == {"done": 100}


def test_a_table_that_cannot_be_made_is_told_before_anything_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(observation: Any) -> dict[str, str]:
        raise AssertionError

    table = tmp_path / "x.parquet"
    table.write_bytes(b"of another run")
    with pytest.raises(FileExistsError):
        rollout(Talk, never, output=table)
    with pytest.raises(RolloutFileError, match=r"no .*x\.jsonl"):
        rollout(Talk, never, output=table, resume=True)
    assert table.read_bytes() == b"of another run"
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackage, match="datasets"):
        rollout(Talk, never, output=tmp_path / "y.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


def test_a_run_of_a_table_is_gone_on_with_by_its_lines(tmp_path: Path) -> None:
    table = tmp_path / "x.parquet"
    rollout(Talk, script("over"), tasks(3), output=table, seed=1)
    assert [r.id for r in read_rollouts(table)] == [
        r.id for r in read_rollouts(tmp_path / "x.jsonl")
    ]
    with pytest.raises(FileExistsError):
        rollout(Talk, script("over"), tasks(3), output=table, seed=1)
    run = rollout(Talk, script("over"), tasks(3), output=table, resume=True)
    assert len(run) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 0},
        {"concurrency": 0},
        {"retries": -1},
        {"error_budget": 1.5},
        {"error_budget": -1},
        {"error_budget": float("nan")},
        {"credit": "uniformly"},
        {"token_credit": "lats"},
    ],
)
def test_what_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    named = next(iter(wrong)).replace("token_credit", "credit assignment to tokens")
    with pytest.raises(ValueError, match=named):
        rollout(Talk, script("over"), **wrong)


def test_a_seed_that_the_environment_ignores_is_not_told_as_if_it_had_been_taken() -> None:
    class Unseeded(Talk):
        def reset(self, start: str = "") -> Heard:  # type: ignore[override]
            return super().reset(None, start)

    with pytest.warns(UserWarning, match="seed") as warned:
        run = rollout(Unseeded, script("over"), tasks(20), concurrency=1)
    assert {found.seed for found in run} == {None}
    assert len(warned) == 1


def test_a_server_that_can_only_refuse_is_played_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under protocol version 0 there is no queue."""
    monkeypatch.setenv("OPENENV_PROTOCOL", "0")
    with serving(create_app(Talk, max_concurrent_envs=2)) as url:
        run = rollout(url, script("a", "over"), tasks(40), concurrency=6, seed=0)
    assert run.summary().outcomes == {"done": 40}
    assert run.summary().failures == {}


def test_an_environment_for_one_session_is_played_one_episode_at_a_time() -> None:
    class Alone(Talk):
        SUPPORTS_CONCURRENT_SESSIONS = False

    run = rollout(Alone, script("over"), tasks(10), concurrency=4)
    assert run.summary().outcomes == {"done": 10}


@pytest.mark.anyio
async def test_a_slow_disk_does_not_hold_up_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, fsync = [], os.fsync

    def noted(file: int) -> None:
        where.append(threading.current_thread())
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    sampler = ShuffledSampler(tasks(2), epochs=1)
    run = await rollout_async(Talk, script("over"), sampler, n=2, output=tmp_path / "x.jsonl")
    assert len(run.rollouts) == 4
    assert len(where) >= 4  # the file, its directory, and at the end the file and the sampler's
    assert threading.current_thread() not in where


@pytest.mark.anyio
async def test_a_run_that_is_cancelled_leaves_whole_lines_and_no_session(tmp_path: Path) -> None:
    output, begun = tmp_path / "x.jsonl", asyncio.Event()

    def note(found: Rollout) -> None:
        begun.set()

    app = create_app(Talk, max_concurrent_envs=4)
    with serving(app) as url:
        work = asyncio.ensure_future(
            rollout_async(
                url, script("over"), tasks(10_000), concurrency=4, output=output, on_rollout=note
            )
        )
        await asyncio.wait_for(begun.wait(), 10)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        found = list(read_rollouts(output))
        assert 0 < len(found) < 10_000
        clients = [GenericEnvClient(base_url=url, queue_timeout_s=0) for _ in range(4)]
        for client in clients:
            await client.reset()  # all places are free
        for client in clients:
            await client.close()
