"""A learner for blackjack, small enough to read, for `openenv demo`.

The game is OpenSpiel's: one deck, hit or stand, the dealer draws to 17.
`examples/blackjack_optimum.py` computes the reward of the best player. The learner plays through
`EnvClient`s like any trainer, many sessions at a time.

The policy is a table: for each hand a preference for each action, and a softmax over them. It is
trained by REINFORCE with a baseline (Williams 1992; Sutton and Barto 2018, section 13.4) and an
entropy bonus that keeps it exploring.

Every hand has a seed, which fixes the cards and the player's own randomness, and the policy changes
only between batches. So a run is reproducible for any scheduling of the sessions.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TextIO

if TYPE_CHECKING:
    from pathlib import Path

    from .client import OpenSpielEnv
    from .models import OpenSpielAction

__all__ = [
    "OPTIMUM",
    "RANDOM_PLAY",
    "Choose",
    "CurvePoint",
    "Episode",
    "Evaluation",
    "Key",
    "SoftmaxPolicy",
    "Step",
    "evaluate",
    "hand_key",
    "play_episode",
    "play_episodes",
    "plot_curve",
    "random_choice",
    "train",
    "write_episodes",
]

OPTIMUM = -0.042462
"""The exact expected reward per hand of the best player (`examples/blackjack_optimum.py`).

The best table over `hand_key`, which ignores single cards, earns -0.042806.
"""

RANDOM_PLAY = -0.392658
"""The exact expected reward per hand of a player who hits or stands with equal probability."""

TRAINING_SEEDS = 0
EVALUATION_SEEDS = 1_000_000_000


class Key(NamedTuple):
    """The features of a hand by which the table distinguishes hands."""

    total: int
    """Best total of the player's cards, 4 to 21."""
    soft: bool
    """Whether an ace counts eleven in the total."""
    dealer: int
    """Rank of the dealer's face-up card: 1 for an ace, 10 for a ten or a face."""


Choose = Callable[[Key, Sequence[int], Random], int]
"""Chooses one of the legal actions; all its randomness comes from the generator."""


class Step(NamedTuple):
    """A decision: the hand, the legal actions, the chosen one and its reward."""

    key: Key
    legal: tuple[int, ...]
    action: int
    reward: float


class Episode(NamedTuple):
    """A hand, from the deal to the end."""

    seed: int
    steps: tuple[Step, ...]

    @property
    def total_reward(self) -> float:
        """The undiscounted return: +1 for a win, 0 for a draw, -1 for a loss."""
        return sum(step.reward for step in self.steps)


class CurvePoint(NamedTuple):
    """A batch on the learning curve."""

    hands: int
    """Hands played since training began, including this batch."""
    mean_reward: float
    """Mean return of this batch, with the policy of that time."""
    seconds: float
    """Seconds since training began."""


class Evaluation(NamedTuple):
    """A player's mean reward per hand, and the rates of results, which add up to 1."""

    mean: float
    stderr: float
    """Standard error of the mean."""
    win_rate: float
    draw_rate: float
    loss_rate: float
    hands: int


# ------------------------------------------------------------------ observations

_TOTAL = slice(3, 33)  # a thermometer: one more 1 than the player's best total
_UP_CARD = (33, 85)  # one of 52
_HELD = slice(85, 137)  # the player's cards, some of 52
_SIZE = 189


def hand_key(info_state: Sequence[float]) -> Key:
    """Read a hand from OpenSpiel's observation tensor of blackjack (189 numbers).

    Cards are numbered by suit and then by rank, with the ace first.

    Raises:
        ValueError: The tensor belongs to another game, or to OpenSpiel before 1.6.
    """
    if len(info_state) != _SIZE:
        raise ValueError(
            f"an observation of blackjack has {_SIZE} numbers, not {len(info_state)}; "
            "reset(game_name='blackjack') plays it, and the server needs open_spiel>=1.6"
        )
    total = int(sum(info_state[_TOTAL])) - 1
    ranks = [card % 13 + 1 for card, held in enumerate(info_state[_HELD]) if held]
    hard = sum(min(rank, 10) for rank in ranks)
    up_card = info_state.index(1.0, *_UP_CARD) - _UP_CARD[0]
    return Key(total, total > hard, min(up_card % 13 + 1, 10))


# ------------------------------------------------------------------ the policy


class SoftmaxPolicy:
    """A table of preferences, one for each hand and action, and a softmax over them.

    For a hand that was never seen, `sample` chooses uniformly and `greedy` the first action.

    Args:
        learning_rate: Step size of the preferences.
        value_rate: Minimum step size of the baseline, which is the running mean of the returns
            after a hand. The n-th return counts 1/n, but never less than this.
        entropy: Initial weight of the entropy bonus, which fades as 1 / sqrt(batches).
    """

    def __init__(
        self, *, learning_rate: float = 0.2, value_rate: float = 0.01, entropy: float = 0.1
    ) -> None:
        self.learning_rate = learning_rate
        self.value_rate = value_rate
        self.entropy = entropy
        self._preferences: defaultdict[Key, defaultdict[int, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        self._values: defaultdict[Key, float] = defaultdict(float)
        self._visits: defaultdict[Key, int] = defaultdict(int)
        self._batches = 0

    @property
    def table(self) -> Mapping[Key, Mapping[int, float]]:
        """The preferences (logits) of every hand seen so far, by action."""
        return self._preferences

    def probabilities(self, key: Key, legal: Sequence[int]) -> list[float]:
        """Return the probability of each legal action, in their order."""
        row = self._preferences.get(key)
        if row is None:
            return [1.0 / len(legal)] * len(legal)
        highest = max(row[action] for action in legal)
        weights = [math.exp(row[action] - highest) for action in legal]
        total = sum(weights)
        return [weight / total for weight in weights]

    def sample(self, key: Key, legal: Sequence[int], rng: Random) -> int:
        """Draw an action from the policy."""
        point = rng.random()
        for action, probability in zip(legal, self.probabilities(key, legal), strict=True):
            point -= probability
            if point < 0:
                return action
        return legal[-1]

    def greedy(self, key: Key, legal: Sequence[int], rng: Random | None = None) -> int:
        """Return the most preferred action; the first of several."""
        row = self._preferences.get(key)
        return legal[0] if row is None else max(legal, key=lambda action: row.get(action, 0.0))

    def update(self, episodes: Iterable[Episode]) -> None:
        """Improve the policy by one batch of episodes that it played."""
        self._batches += 1
        bonus = self.entropy / math.sqrt(self._batches)
        steps = [pair for episode in episodes for pair in _yield_returns(episode)]
        # These are computed before any preference changes, because the batch was played with them.
        chances = [self.probabilities(step.key, step.legal) for step, _ in steps]
        for (step, to_come), before in zip(steps, chances, strict=True):
            self._learn(step, to_come, before, bonus)

    def _learn(self, step: Step, to_come: float, chances: Sequence[float], bonus: float) -> None:
        """Follow the gradient of ``advantage * log pi(action) + bonus * entropy``."""
        key, row = step.key, self._preferences[step.key]
        advantage = to_come - self._values[key]
        entropy = -sum(chance * math.log(chance) for chance in chances if chance)
        for action, chance in zip(step.legal, chances, strict=True):
            gradient = advantage * ((action == step.action) - chance)
            if chance:
                gradient -= bonus * chance * (math.log(chance) + entropy)
            row[action] += self.learning_rate * gradient
        self._visits[key] += 1
        self._values[key] += advantage * max(1.0 / self._visits[key], self.value_rate)


def _yield_returns(episode: Episode) -> Iterator[tuple[Step, float]]:
    """Yield each step with the reward from it to the end of the episode."""
    to_come = episode.total_reward
    for step in episode.steps:
        yield step, to_come
        to_come -= step.reward


def random_choice(key: Key, legal: Sequence[int], rng: Random) -> int:
    """Choose uniformly at random, as the baseline of training."""
    return rng.choice(legal)


# ------------------------------------------------------------------ playing


@cache
def _make_action(action_id: int) -> OpenSpielAction:
    from .models import OpenSpielAction

    return OpenSpielAction(action_id=action_id, game_name="blackjack")


async def play_episode(env: OpenSpielEnv, choose: Choose, seed: int) -> Episode:
    """Play one hand.

    Args:
        env: A connected client of a server that plays blackjack.
        choose: The player.
        seed: Fixes the cards and the player's randomness, independently of each other.
    """
    # The server deals from Random(seed), so the player needs another generator.
    rng = Random(f"player {seed}")  # nosec B311  # a game
    result = await env.reset(seed=seed)
    steps = []
    while not result.done:
        key = hand_key(result.observation.info_state)
        legal = tuple(result.observation.legal_actions)
        action = choose(key, legal, rng)
        result = await env.step(_make_action(action))
        steps.append(Step(key, legal, action, float(result.reward or 0.0)))
    return Episode(seed, tuple(steps))


async def play_episodes(
    envs: Sequence[OpenSpielEnv], choose: Choose, seeds: Sequence[int]
) -> list[Episode]:
    """Play one hand for each seed on all clients at once, and return them in the seeds' order.

    A client that has finished a hand takes the next one. The first failure stops all clients.
    """
    queue = iter(enumerate(seeds))
    played: dict[int, Episode] = {}

    async def work(env: OpenSpielEnv) -> None:
        for index, seed in queue:
            played[index] = await play_episode(env, choose, seed)

    workers = [asyncio.create_task(work(env)) for env in envs]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [played[index] for index in range(len(seeds))]


async def train(
    envs: Sequence[OpenSpielEnv],
    policy: SoftmaxPolicy,
    hands: int = 40_000,
    batch: int = 640,
    on_progress: Callable[[CurvePoint], None] | None = None,
    *,
    seed0: int = TRAINING_SEEDS,
    record: Callable[[Sequence[Episode]], None] | None = None,
) -> list[CurvePoint]:
    """Train `policy` by playing, with an update after each batch.

    Args:
        envs: Connected clients, each of which plays one hand at a time.
        policy: The policy, which is updated in place.
        hands: Hands to play; the last batch may be smaller.
        batch: Hands between two updates.
        on_progress: Called after each update.
        seed0: Seed of the first hand; hand n has ``seed0 + n``.
        record: Called with the episodes of each batch.

    Returns:
        The learning curve, with one point per batch.
    """
    began, curve = time.perf_counter(), []
    for first in range(0, hands, batch):
        last = min(first + batch, hands)
        episodes = await play_episodes(envs, policy.sample, range(seed0 + first, seed0 + last))
        policy.update(episodes)
        mean = sum(episode.total_reward for episode in episodes) / len(episodes)
        curve.append(CurvePoint(last, mean, time.perf_counter() - began))
        if record:
            record(episodes)
        if on_progress:
            on_progress(curve[-1])
    return curve


async def evaluate(
    envs: Sequence[OpenSpielEnv],
    choose: Choose,
    hands: int = 10_000,
    seed0: int = EVALUATION_SEEDS,
    *,
    record: Callable[[Sequence[Episode]], None] | None = None,
) -> Evaluation:
    """Measure a player over hands that training has not seen.

    Args:
        envs: Connected clients.
        choose: The player, for example ``policy.greedy``.
        hands: Hands to play; at 10,000 the standard error is about 0.0095.
        seed0: Seed of the first hand; two players measured with the same one get the same deals.
        record: Called with all episodes.
    """
    episodes = await play_episodes(envs, choose, range(seed0, seed0 + hands))
    if record:
        record(episodes)
    rewards = [episode.total_reward for episode in episodes]
    mean = sum(rewards) / hands
    variance = sum((reward - mean) ** 2 for reward in rewards) / max(hands - 1, 1)
    return Evaluation(
        mean=mean,
        stderr=math.sqrt(variance / hands),
        win_rate=sum(reward > 0 for reward in rewards) / hands,
        draw_rate=sum(reward == 0 for reward in rewards) / hands,
        loss_rate=sum(reward < 0 for reward in rewards) / hands,
        hands=hands,
    )


# ------------------------------------------------------------------ output


def write_episodes(file: TextIO, episodes: Iterable[Episode]) -> None:
    """Write episodes as JSON lines, one each.

    ``{"seed": 7, "steps": [{"observation": {"total": 14, "soft": false, "dealer": 10},
    "action": 0, "reward": 0.0}, ...], "return": -1.0}``
    """
    for episode in episodes:
        steps = [
            {"observation": step.key._asdict(), "action": step.action, "reward": step.reward}
            for step in episode.steps
        ]
        line = {"seed": episode.seed, "steps": steps, "return": episode.total_reward}
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def plot_curve(
    points: Sequence[CurvePoint],
    baseline: Evaluation,
    evaluation: Evaluation,
    optimum: float,
    path: Path | str,
) -> None:
    """Draw the learning curve to a file. The suffix (.png, .svg, .pdf) determines the format.

    Args:
        points: The curve that `train` returned.
        baseline: The result of the untrained player.
        evaluation: The result of the trained player.
        optimum: The reward of the best player, such as `OPTIMUM`.
        path: The file, which is replaced.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    hands = [point.hands for point in points]
    axes.plot(hands, [p.mean_reward for p in points], color="0.75", lw=1, label="one batch")
    axes.plot(hands, _smooth(points), color="C0", lw=2, label="mean of eight batches")
    axes.axhline(optimum, color="C2", ls="--", lw=1.2, label=f"best player {optimum:+.4f}")
    axes.axhline(baseline.mean, color="C3", ls=":", lw=1.2, label=f"random {baseline.mean:+.4f}")
    axes.errorbar(
        hands[-1:],
        [evaluation.mean],
        yerr=[1.96 * evaluation.stderr],
        color="black",
        fmt="o",
        capsize=3,
        label=f"trained, greedy {evaluation.mean:+.4f} (95 %, {evaluation.hands:,} hands)",
    )
    axes.set(title="Learning blackjack", xlabel="hands played", ylabel="mean reward a hand")
    axes.grid(alpha=0.25)
    axes.legend(loc="center right", fontsize="small")
    figure.savefig(path, dpi=150)


def _smooth(points: Sequence[CurvePoint], width: int = 8) -> list[float]:
    """Return the running mean over up to `width` batches."""
    means = [point.mean_reward for point in points]
    windows = [means[max(0, end - width) : end] for end in range(1, len(means) + 1)]
    return [sum(window) / len(window) for window in windows]
