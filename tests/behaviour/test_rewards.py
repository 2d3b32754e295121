"""What is known of a reward arrives with it: over every transport, by every form of environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.environments import KINDS, Counter, CounterEnv, Do
from support.scoring import DELAYED, SCORERS, SPEC, Scorer, last_words

from openenv.reward import REWARD_INFO, RewardSpec, Score

pytestmark = pytest.mark.anyio

Connect = Callable[..., CounterEnv]


@pytest.mark.parametrize("kind", SCORERS)
async def test_the_first_observation_tells_what_rewards_mean(connect: Connect, kind: str) -> None:
    async with connect(SCORERS[kind]) as env:
        assert env.reward_spec is None
        first = await env.reset()
        assert env.reward_spec == SPEC
        assert first.reward_info == {"spec": SPEC.as_data()}
        assert (await env.step(Do(value=1.0))).reward_info != first.reward_info


@pytest.mark.parametrize("kind", KINDS)
async def test_who_declares_nothing_tells_nothing(connect: Connect, kind: str) -> None:
    async with connect(KINDS[kind]) as env:
        first = await env.reset()
        assert env.reward_spec is None
        assert first.reward_info is None and not first.metadata
        second = await env.step(Do())
        assert second.reward_info is None and second.components == {} and second.unscored is None


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_components_arrive_by_name(connect: Connect, kind: str) -> None:
    async with connect(SCORERS[kind]) as env:
        await env.reset()
        result = await env.step(Do(value=1.5))
        assert result.reward == 1.5
        assert result.components == {"work": 0.75, "style": 0.75}
        assert result.unscored is None
        assert result.metadata == {REWARD_INFO: {"components": result.components}}


@pytest.mark.parametrize("kind", SCORERS)
async def test_a_step_that_could_not_be_scored_says_why(connect: Connect, kind: str) -> None:
    async with connect(SCORERS[kind]) as env:
        await env.reset()
        result = await env.step(Do(value="the grader crashed"))
        assert result.reward is None and result.unscored == "the grader crashed"
        assert result.components == {}
        assert not result.done, "the episode goes on"
        assert (await env.step(Do(value=1.0))).reward == 1.0


@pytest.mark.parametrize("kind", DELAYED)
async def test_an_episode_is_scored_as_a_whole_at_its_end(connect: Connect, kind: str) -> None:
    async with connect(DELAYED[kind]) as env:
        for _ in range(2):  # one episode knows nothing of the one before
            first = await env.reset()
            declared = {"spec": RewardSpec("terminal").as_data()} if kind == "sync" else None
            assert first.reward_info == declared
            early = await env.step(Do())
            assert early.reward == 1.0 and early.step_rewards is None
            await env.step(Do())
            last = await env.step(Do(what="done"))
            assert last.done and last.reward == 2.0
            assert last.step_rewards == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("kind", DELAYED)
async def test_a_scorer_that_fails_scores_nothing(connect: Connect, kind: str) -> None:
    async with connect(DELAYED[kind]) as env:
        await env.reset()
        last = await env.step(Do(what="done", value="odd"))
        assert last.done and last.reward is None and last.unscored == "that is odd"
        await env.reset()
        last = await env.step(Do(what="done", value="broken"))
        assert last.done and last.reward is None
        assert last.unscored is not None and "KeyError" in last.unscored
        assert "secret" not in last.unscored
        await env.reset()
        assert (await env.step(Do(what="done"))).reward == 0.0


async def test_an_episode_that_was_not_seen_from_its_beginning_is_not_scored(
    connect: Connect,
) -> None:
    async with connect(DELAYED["sync"]) as env:
        last = await env.step(Do(what="done"))
        assert last.reward is None and last.unscored is not None
        await env.reset()
        assert (await env.step(Do(what="done"))).reward == 0.0
        again = await env.step(Do(what="done"))
        assert again.reward is None and again.unscored is not None


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_scores_what_the_environment_does_not(connect: Connect, kind: str) -> None:
    async with connect(KINDS[kind], trajectory_scorer=last_words, credit="uniform") as env:
        await env.reset()
        assert (await env.step(Do())).reward == 1.0
        last = await env.step(Do(what="done"))
        assert last.reward == 1.0 and last.step_rewards == [1.0, 0.0]
        assert last.observation.reward == 1.0


async def test_a_clients_score_is_shared_among_the_steps(connect: Connect) -> None:
    def scorer(trajectory: Any) -> Score:
        return Score(3.0, {"length": float(len(trajectory)), "bonus": 3.0 - len(trajectory)})

    async with connect(Counter, trajectory_scorer=scorer, credit="discounted:0.5") as env:
        await env.reset()
        await env.step(Do())
        last = await env.step(Do(what="done"))
        assert last.reward == 3.0 and last.components == {"length": 2.0, "bonus": 1.0}
        assert last.step_rewards == [1.5, 3.0]


async def test_a_credit_assignment_of_no_known_name_is_refused(connect: Connect) -> None:
    with pytest.raises(ValueError, match="did you mean 'uniform'"):
        connect(Scorer, trajectory_scorer=last_words, credit="unifrom")
