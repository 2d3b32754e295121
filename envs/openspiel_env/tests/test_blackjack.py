"""Tests of the learner of `openenv demo`."""

from __future__ import annotations

import asyncio
import io
import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest

from openspiel_env import OpenSpielEnv, blackjack
from openspiel_env.blackjack import Choose, Episode, Key, SoftmaxPolicy, Step
from openspiel_env.server.openspiel_environment import OpenSpielEnvironment

HIT, STAND = 0, 1
HAND = Key(16, False, 10)


class Table(OpenSpielEnvironment):
    def __init__(self) -> None:
        super().__init__("blackjack")


async def with_clients(count: int, use: Any) -> Any:
    envs = [OpenSpielEnv.local(Table) for _ in range(count)]
    try:
        return await use(envs)
    finally:
        await asyncio.gather(*(env.close() for env in envs))


def played(count: int, choose: Choose, seeds: range) -> list[Episode]:
    episodes: list[Episode] = asyncio.run(
        with_clients(count, lambda envs: blackjack.play_episodes(envs, choose, seeds))
    )
    return episodes


@pytest.mark.parametrize(
    ("cards", "key"),
    [
        ([9, 23, 0, 5], Key(20, False, 6)),
        ([0, 18, 3, 12], Key(17, True, 10)),
        ([0, 13, 3, 26], Key(12, True, 1)),
        ([1, 2, 3, 9], Key(5, False, 10)),
    ],
)
def test_a_hand_is_read_off_the_observation(cards: list[int], key: Key) -> None:
    pyspiel = pytest.importorskip("pyspiel")
    state = pyspiel.load_game("blackjack").new_initial_state()
    for card in cards:
        state.apply_action(card)
    assert blackjack.hand_key(state.observation_tensor(0)) == key


def test_an_ace_stops_being_eleven_when_the_hand_would_go_over() -> None:
    pyspiel = pytest.importorskip("pyspiel")
    state = pyspiel.load_game("blackjack").new_initial_state()
    for action in [0, 5, 9, 10, HIT, 8]:
        state.apply_action(action)
    assert blackjack.hand_key(state.observation_tensor(0)) == Key(16, False, 10)


def test_another_games_observation_is_refused() -> None:
    with pytest.raises(ValueError, match="189"):
        blackjack.hand_key([0.0] * 27)


def test_an_update_follows_the_gradient_of_log_probability_and_entropy() -> None:
    policy = SoftmaxPolicy(learning_rate=1.0, entropy=0.5)
    policy.update([Episode(0, (Step(HAND, (HIT, STAND), HIT, 1.0),))])
    policy.entropy = 0.0
    before = dict(policy.table[HAND])
    chance = policy.probabilities(HAND, (HIT, STAND))
    policy.update([Episode(0, (Step(HAND, (HIT, STAND), STAND, -1.0),))])
    advantage = -1.0 - 1.0  # the baseline is the mean return so far
    gradient = {HIT: -chance[HIT], STAND: 1 - chance[STAND]}
    for action in (HIT, STAND):
        change = policy.table[HAND][action] - before[action]
        assert change == pytest.approx(advantage * gradient[action])


def test_the_entropy_bonus_pulls_towards_uniform() -> None:
    policy = SoftmaxPolicy(learning_rate=0.5, entropy=0.0)
    step = Step(HAND, (HIT, STAND), HIT, 1.0)
    policy.update([Episode(0, (step,))] * 3)
    settled = policy.probabilities(HAND, (HIT, STAND))[HIT]
    policy.entropy = 1.0
    policy.update([Episode(0, (step,))])  # no advantage any more: only the bonus acts
    assert 0.5 < policy.probabilities(HAND, (HIT, STAND))[HIT] < settled


def test_greedy_takes_the_preferred_and_sampling_the_probabilities() -> None:
    policy = SoftmaxPolicy(entropy=0.0)
    policy.update([Episode(0, (Step(HAND, (HIT, STAND), STAND, 1.0),))] * 4)
    rng = Random(0)
    assert policy.greedy(HAND, (HIT, STAND)) == STAND
    assert policy.greedy(HAND, (HIT,)) == HIT
    drawn = [policy.sample(HAND, (HIT, STAND), rng) for _ in range(4000)]
    assert sum(drawn) / 4000 == pytest.approx(
        policy.probabilities(HAND, (HIT, STAND))[STAND], abs=0.03
    )


def test_the_return_counts_from_the_step_on() -> None:
    first = Key(12, False, 2)
    policy = SoftmaxPolicy(learning_rate=1.0, entropy=0.0)
    steps = (Step(first, (HIT, STAND), HIT, 3.0), Step(HAND, (HIT, STAND), HIT, -1.0))
    policy.update([Episode(0, steps)])
    assert policy.table[first][HIT] == pytest.approx(2.0 * 0.5)
    assert policy.table[HAND][HIT] == pytest.approx(-1.0 * 0.5)


def test_hands_are_the_same_however_many_play_them() -> None:
    seeds = range(60)
    alone = played(1, blackjack.random_choice, seeds)
    assert played(16, blackjack.random_choice, seeds) == alone
    assert [episode.seed for episode in alone] == list(seeds)


def test_a_failure_ends_the_round_and_leaves_no_task_behind() -> None:
    def fail(key: Key, legal: Any, rng: Random) -> int:
        raise KeyError("no such hand")

    async def use(envs: Any) -> int:
        with pytest.raises(KeyError):
            await blackjack.play_episodes(envs, fail, range(20))
        return len([task for task in asyncio.all_tasks() if "work" in repr(task.get_coro())])

    assert asyncio.run(with_clients(4, use)) == 0


@pytest.mark.extended("trains a policy twice")
@pytest.mark.slow
def test_training_is_reproducible_and_learns_not_to_lose_most_hands() -> None:
    def trained(count: int) -> Any:
        policy = SoftmaxPolicy()
        heard: list[blackjack.CurvePoint] = []

        async def use(envs: Any) -> Any:
            curve = await blackjack.train(envs, policy, 2000, 640, heard.append)
            return curve, await blackjack.evaluate(envs, policy.greedy, 1000)

        curve, result = asyncio.run(with_clients(count, use))
        assert heard == curve
        return [point[:2] for point in curve], policy.table, result

    first, second = trained(8), trained(3)
    assert first == second
    curve, _, result = first
    assert [hands for hands, _ in curve] == [640, 1280, 1920, 2000]
    assert result.mean > -0.25
    assert result.win_rate + result.draw_rate + result.loss_rate == pytest.approx(1)


@pytest.mark.slow
def test_an_evaluation_is_mean_and_standard_error() -> None:
    kept: list[Episode] = []

    async def use(envs: Any) -> blackjack.Evaluation:
        return await blackjack.evaluate(envs, blackjack.random_choice, 400, record=kept.extend)

    result = asyncio.run(with_clients(4, use))
    rewards = [episode.total_reward for episode in kept]
    assert result.hands == len(rewards) == 400
    assert result.mean == pytest.approx(sum(rewards) / 400)
    assert result.stderr == pytest.approx(
        math.sqrt(sum((r - result.mean) ** 2 for r in rewards) / 399 / 400)
    )
    assert abs(result.mean - blackjack.RANDOM_PLAY) < 5 * result.stderr


def test_episodes_are_written_one_a_line() -> None:
    file = io.StringIO()
    steps = (Step(Key(12, True, 1), (0, 1), 0, 0.0), Step(HAND, (0, 1), 1, -1.0))
    blackjack.write_episodes(file, [Episode(7, steps), Episode(8, steps[1:])])
    first, second = map(json.loads, file.getvalue().splitlines())
    assert first == {
        "seed": 7,
        "steps": [
            {
                "observation": {"total": 12, "soft": True, "dealer": 1},
                "action": 0,
                "reward": 0.0,
            },
            {
                "observation": {"total": 16, "soft": False, "dealer": 10},
                "action": 1,
                "reward": -1.0,
            },
        ],
        "return": -1.0,
    }
    assert second["seed"] == 8


def test_the_curve_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    points = [blackjack.CurvePoint(640 * n, -0.4 + n / 100, n) for n in range(1, 20)]
    result = blackjack.Evaluation(-0.06, 0.01, 0.43, 0.08, 0.49, 10_000)
    blackjack.plot_curve(points, result, result, blackjack.OPTIMUM, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
