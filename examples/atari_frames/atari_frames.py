"""A policy gradient on the frames of Pong, over a socket, in NumPy alone.

    python examples/atari_frames/atari_frames.py

A server process runs several games of the Arcade Learning Environment (Bellemare et al. 2013,
arXiv:1207.4708), like `openenv serve` with the same target. This process receives their frames of
210 by 160 bytes, and learns from the winner of each point, by REINFORCE (Williams 1992) with the
network of A. Karpathy's "Pong from Pixels" (2016): one hidden layer over the difference of two
frames.

The example shows a training loop over frames. This method takes some days of play to win. A few
thousand steps change the policy, but not the score.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass, field

# For matrices of this size, NumPy's threads would spend more time waiting than computing.
os.environ["OMP_NUM_THREADS"] = "1"

import gymnasium
import numpy as np
from numpy.typing import NDArray

from openenv.integrations.gymnasium import GymnasiumVectorEnv
from openenv.providers import ProcessProvider

Floats = NDArray[np.float32]
Frames = NDArray[np.uint8]

# The module that registers the games comes before their name.
TARGET = "gymnasium:ale_py:ALE/Pong-v5?obs_type=grayscale"
MOVES = ("RIGHT", "LEFT")  # they move the paddle up and down
FIELD = slice(34, 194)  # the rows between the score and the lower edge
BACKGROUND = (87, 90)  # the gray levels of the empty field
PIXELS = 80 * 80


def seen_in(frames: Frames) -> Floats:
    """Find the ball and the paddles; return 80 by 80 values of 0 or 1 in one row per game."""
    small = frames[:, FIELD, :][:, ::2, ::2]
    darkest, brightest = BACKGROUND
    there = (small < darkest) | (small > brightest)
    return there.reshape(len(frames), -1).astype(np.float32)


class Policy:
    """A network that computes the probability of the first move from the change of frames."""

    def __init__(self, width: int, rng: np.random.Generator) -> None:
        scale = 1 / np.sqrt(PIXELS), 1 / np.sqrt(width)
        self.hidden: Floats = rng.normal(0, scale[0], (PIXELS, width)).astype(np.float32)
        self.out: Floats = rng.normal(0, scale[1], width).astype(np.float32)
        self._squares = [np.zeros_like(self.hidden), np.zeros_like(self.out)]

    def __call__(self, changes: Floats) -> tuple[Floats, Floats]:
        """Return the probabilities and the hidden units."""
        units: Floats = np.maximum(changes @ self.hidden, 0)
        return 1 / (1 + np.exp(-(units @ self.out))), units

    def learn(self, batch: Batch, learning_rate: float) -> None:
        """Climb the gradient of the advantage-weighted log-probability, by RMSprop."""
        probability, units = self(batch.changes)
        push = (batch.first_moves - probability) * batch.advantages / len(units)
        of_out = units.T @ push
        of_hidden = batch.changes.T @ (np.outer(push, self.out) * (units > 0))
        for parameter, gradient, square in zip(
            (self.hidden, self.out), (of_hidden, of_out), self._squares, strict=True
        ):
            square *= 0.99
            square += 0.01 * gradient**2
            parameter += learning_rate * gradient / (np.sqrt(square) + 1e-5)


@dataclass
class Batch:
    """The steps of a rollout, concatenated over all games."""

    changes: Floats
    first_moves: Floats
    advantages: Floats


@dataclass
class Score:
    """The score of all games.

    Attributes:
        won: Points of the policy.
        lost: Points of its opponent.
        steps: Steps taken.
        bytes: Bytes of frames.
    """

    won: int = 0
    lost: int = 0
    steps: int = 0
    bytes: int = 0
    games: list[float] = field(default_factory=list)


def discounted(rewards: Floats, discount: float) -> Floats:
    """Compute the discounted return of each step up to the next point; axis 0 is time."""
    found = np.zeros_like(rewards)
    later = np.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        later = np.where(rewards[t] != 0, rewards[t], discount * later)
        found[t] = later
    return found


class Player:
    """A player of all games at once that remembers their last frames."""

    def __init__(self, envs: GymnasiumVectorEnv, policy: Policy, rng: np.random.Generator) -> None:
        actions = envs.single_action_space
        assert isinstance(actions, gymnasium.spaces.Discrete)
        names = list(getattr(actions, "names", ()))
        self._moves = np.array([names.index(move) for move in MOVES])
        self._envs, self._policy, self._rng = envs, policy, rng
        self._before = seen_in(envs.reset(seed=0)[0])
        self._change = np.zeros_like(self._before)
        self._running = np.zeros(envs.num_envs)
        self.score = Score()

    def rollout(self, steps: int) -> Batch:
        """Play `steps` steps of every game."""
        changes, firsts, rewards = [], [], []
        for _ in range(steps):
            probability, _ = self._policy(self._change)
            is_first = self._rng.random(len(probability)) < probability
            changes.append(self._change)
            firsts.append(is_first.astype(np.float32))
            rewards.append(self._step(np.where(is_first, *self._moves)))
        led_to = discounted(np.array(rewards), 0.99)
        spread = led_to.std() + 1e-6
        advantages = ((led_to - led_to.mean()) / spread).reshape(-1)
        return Batch(np.concatenate(changes), np.concatenate(firsts), advantages)

    def _step(self, actions: NDArray[np.int64]) -> Floats:
        frames, rewards, terminated, truncated, _ = self._envs.step(actions)
        seen = seen_in(frames)
        self._change, self._before = seen - self._before, seen
        score = self.score
        score.won += int((rewards > 0).sum())
        score.lost += int((rewards < 0).sum())
        score.steps += len(rewards)
        score.bytes += frames.nbytes
        self._running += rewards
        over = terminated | truncated
        score.games += self._running[over].tolist()
        self._running[over] = 0
        return rewards.astype(np.float32)


def main() -> None:
    """Play and learn, and print the progress."""
    parser = argparse.ArgumentParser(description="A policy gradient on frames over a socket")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20_000, help="steps of all games together")
    parser.add_argument("--rollout", type=int, default=128, help="steps of each game per update")
    parser.add_argument("--server", help="the address of a running server; default: start one")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    envs = GymnasiumVectorEnv(given.server or ProcessProvider(TARGET), given.envs)
    try:
        policy = Policy(64, rng)
        player = Player(envs, policy, rng)
        began, score = time.perf_counter(), player.score
        while score.steps < given.steps:
            batch = player.rollout(given.rollout)
            policy.learn(batch, learning_rate=1e-3)
            took = time.perf_counter() - began
            certainty = np.abs(policy(batch.changes)[0] - 0.5).mean() * 2
            print(
                f"{took:5.1f} s  {score.steps:6,} steps  {score.steps / took:5,.0f} frames/s  "
                f"{score.bytes / took / 2**20:4.1f} MiB/s  points {score.won}:{score.lost}  "
                f"certainty {certainty:.2f}"
            )
    finally:
        envs.close()


if __name__ == "__main__":
    main()
