"""Proximal policy optimization on CartPole, over a socket, in NumPy alone.

    python examples/ppo_cartpole/ppo_cartpole.py

A server process, the same as `openenv serve gymnasium:CartPole-v1`, runs the environments. This
process has the policy, and steps all environments together. It trains for 60,000 steps, plays 100
fresh episodes with the most probable actions, and draws the returns to `returns.png`.

The algorithm is that of Schulman et al. 2017, "Proximal Policy Optimization Algorithms"
(arXiv:1707.06347), with the details of Huang et al. 2022, "The 37 Implementation Details of
Proximal Policy Optimization"; the numbers are those of RL Baselines3 Zoo for this task.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# For matrices of this size, NumPy's threads would spend more time waiting than computing.
os.environ["OMP_NUM_THREADS"] = "1"

import gymnasium
import numpy as np
from numpy.typing import NDArray

from openenv.integrations.gymnasium import GymnasiumVectorEnv
from openenv.providers import ProcessProvider

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Layers = list[tuple[Floats, Floats]]
"""The weights and biases of each layer, or their gradients."""

SOLVED = 475.0  # Gymnasium's threshold for CartPole-v1; the maximum is 500
EPISODES_OF_EVALUATION = 100


@dataclass(frozen=True)
class Settings:
    """The settings of PPO."""

    total_steps: int = 60_000
    num_envs: int = 8
    steps_a_rollout: int = 32
    epochs: int = 20
    learning_rate: float = 1e-3  # falls to 0 over the training, as the clip range does
    clip_range: float = 0.2
    discount: float = 0.98
    trace_decay: float = 0.8  # lambda of generalized advantage estimation
    value_weight: float = 0.5
    max_gradient: float = 0.5
    width: int = 64
    seed: int = 1

    @property
    def rollouts(self) -> int:
        """The number of rollouts."""
        return self.total_steps // (self.num_envs * self.steps_a_rollout)


# ------------------------------------------------------------------ a network and its gradient


class Network:
    """A network with two hidden layers of tanh units and a linear output layer.

    Args:
        sizes: The sizes of the input, the hidden layers and the output.
        last_gain: The scale of the last layer's initial weights.
        rng: The generator of the initial weights.
    """

    def __init__(self, sizes: list[int], last_gain: float, rng: np.random.Generator) -> None:
        gains = [np.sqrt(2.0)] * (len(sizes) - 2) + [last_gain]
        self.layers: Layers = [
            (gain * orthogonal(rng, fan_in, fan_out), np.zeros(fan_out))
            for gain, fan_in, fan_out in zip(gains, sizes[:-1], sizes[1:], strict=True)
        ]

    def __call__(self, inputs: Floats) -> Floats:
        """Return the outputs for a batch of inputs."""
        return self.activations(inputs)[-1]

    def activations(self, inputs: Floats) -> list[Floats]:
        """Return the inputs and the activations of every layer."""
        found: list[Floats] = [inputs]
        for depth, (weights, bias) in enumerate(self.layers):
            sums: Floats = found[-1] @ weights + bias
            found.append(sums if depth == len(self.layers) - 1 else np.tanh(sums))
        return found

    def gradients(self, activations: list[Floats], of_outputs: Floats) -> Layers:
        """Backpropagate the gradient of a loss with respect to the outputs."""
        found: Layers = []
        for (weights, _), inputs in zip(
            reversed(self.layers), reversed(activations[:-1]), strict=True
        ):
            found.append((inputs.T @ of_outputs, of_outputs.sum(axis=0)))
            of_outputs = (of_outputs @ weights.T) * (1 - inputs**2)  # unused below the first layer
        return found[::-1]


def orthogonal(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    """Make a random matrix that is orthonormal along its shorter side."""
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    signed: Floats = q * np.sign(np.diag(r))
    return signed if rows >= columns else signed.T


class Adam:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980), after clipping the gradient's norm."""

    def __init__(self, networks: list[Network], max_gradient: float) -> None:
        self._parameters = [array for net in networks for layer in net.layers for array in layer]
        self._means = [np.zeros_like(array) for array in self._parameters]
        self._squares = [np.zeros_like(array) for array in self._parameters]
        self._max_gradient = max_gradient
        self._steps = 0

    def step(self, gradients: list[Layers], learning_rate: float) -> None:
        """Move the parameters against their gradients."""
        flat = [array for layers in gradients for layer in layers for array in layer]
        norm = np.sqrt(sum(float((array**2).sum()) for array in flat))
        scale = min(1.0, self._max_gradient / (norm + 1e-8))
        self._steps += 1
        unbias1, unbias2 = 1 - 0.9**self._steps, 1 - 0.999**self._steps
        for parameter, gradient, mean, square in zip(
            self._parameters, flat, self._means, self._squares, strict=True
        ):
            gradient = gradient * scale
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            parameter -= learning_rate * (mean / unbias1) / (np.sqrt(square / unbias2) + 1e-5)


# ------------------------------------------------------------------ the agent


def log_softmax(logits: Floats) -> Floats:
    """Compute the logarithms of probabilities, row by row."""
    shifted: Floats = logits - logits.max(axis=1, keepdims=True)
    known: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return known


class Agent:
    """A policy, and an estimate of its returns."""

    def __init__(self, observation: int, actions: int, settings: Settings) -> None:
        rng = np.random.default_rng(settings.seed)
        hidden = [settings.width, settings.width]
        self.policy = Network([observation, *hidden, actions], 0.01, rng)
        self.value = Network([observation, *hidden, 1], 1.0, rng)
        self._optimizer = Adam([self.policy, self.value], settings.max_gradient)
        self._settings = settings
        self.rng = rng

    def act(self, observations: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Draw actions, and return them with the logarithms of their probabilities."""
        known = log_softmax(self.policy(observations))
        noise = self.rng.gumbel(size=known.shape)  # the argmax of the sum is a sample (Gumbel 1954)
        actions = (known + noise).argmax(axis=1)
        return actions, known[np.arange(len(actions)), actions]

    def best(self, observations: Floats) -> NDArray[np.int64]:
        """Return the most probable actions."""
        return np.asarray(self.policy(observations).argmax(axis=1))

    def learn(self, batch: Batch, progress: float) -> None:
        """Update the networks in several epochs over a rollout.

        Args:
            batch: The rollout.
            progress: The completed share of the training, 0 to 1.
        """
        left = 1 - progress
        spread = batch.advantages.std() + 1e-8
        batch.advantages = (batch.advantages - batch.advantages.mean()) / spread
        for _ in range(self._settings.epochs):
            gradients = [
                self._policy_gradients(batch, self._settings.clip_range * left),
                self._value_gradients(batch),
            ]
            self._optimizer.step(gradients, self._settings.learning_rate * left)

    def _policy_gradients(self, batch: Batch, clip_range: float) -> Layers:
        """Compute the gradients of ``-mean(min(ratio * advantage, clip(ratio) * advantage))``."""
        activations = self.policy.activations(batch.observations)
        known = log_softmax(activations[-1])
        rows = np.arange(len(known))
        ratio = np.exp(known[rows, batch.actions] - batch.log_probabilities)
        rises = batch.advantages > 0
        is_clipped = np.where(rises, ratio > 1 + clip_range, ratio < 1 - clip_range)
        of_log = -(ratio * batch.advantages) * ~is_clipped / len(known)
        of_logits = -np.exp(known) * of_log[:, None]
        of_logits[rows, batch.actions] += of_log
        return self.policy.gradients(activations, of_logits)

    def _value_gradients(self, batch: Batch) -> Layers:
        """Compute the gradients of ``value_weight * mean((value - target)^2)``."""
        activations = self.value.activations(batch.observations)
        errors = activations[-1] - batch.targets[:, None]
        weight = 2 * self._settings.value_weight / len(errors)
        return self.value.gradients(activations, weight * errors)


# ------------------------------------------------------------------ rollouts


@dataclass
class Batch:
    """The transitions of a rollout, concatenated over all environments."""

    observations: Floats
    actions: NDArray[np.int64]
    log_probabilities: Floats
    advantages: Floats
    targets: Floats


@dataclass
class Rollout:
    """The data of a rollout; each list has an array over all environments for each step."""

    observations: list[Floats] = field(default_factory=list)
    actions: list[NDArray[np.int64]] = field(default_factory=list)
    log_probabilities: list[Floats] = field(default_factory=list)
    rewards: list[Floats] = field(default_factory=list)
    after: list[Floats] = field(default_factory=list)  # the observation after a step
    terminated: list[Flags] = field(default_factory=list)
    over: list[Flags] = field(default_factory=list)  # terminated or truncated
    counts: list[Flags] = field(default_factory=list)  # False if the step was a reset

    def batch(self, agent: Agent, settings: Settings) -> Batch:
        """Estimate advantages (Schulman et al. 2015, arXiv:1506.02438), and leave resets out.

        After a truncated episode, the return continues with the value of the last observation.
        After a terminated one, nothing follows.
        """
        values = [agent.value(seen)[:, 0] for seen in self.observations]
        following = [agent.value(seen)[:, 0] for seen in self.after]
        advantages = np.zeros((len(values), len(values[0])))
        later = np.zeros(len(values[0]))
        for t in reversed(range(len(values))):
            promised = settings.discount * following[t] * ~self.terminated[t]
            surprise = self.rewards[t] + promised - values[t]
            later = surprise + settings.discount * settings.trace_decay * ~self.over[t] * later
            advantages[t] = later
        kept = np.concatenate(self.counts)
        estimates = np.concatenate(list(advantages))
        return Batch(
            np.concatenate(self.observations)[kept],
            np.concatenate(self.actions)[kept],
            np.concatenate(self.log_probabilities)[kept],
            estimates[kept],
            (estimates + np.concatenate(values))[kept],
        )


@dataclass
class Training:
    """The progress of a training.

    Attributes:
        returns: The time at which each episode ended, in seconds, and the episode's return.
        steps: Steps taken.
    """

    returns: list[tuple[float, float]] = field(default_factory=list)
    steps: int = 0


def rollouts(
    envs: gymnasium.vector.VectorEnv, agent: Agent, settings: Settings, training: Training
) -> Iterator[Rollout]:
    """Play without end, and yield a rollout after every `steps_a_rollout` steps."""
    began = time.perf_counter()
    seen, _ = envs.reset(seed=settings.seed)
    running = np.zeros(envs.num_envs)  # the returns so far
    was_over = np.zeros(envs.num_envs, dtype=bool)
    while True:
        rollout = Rollout()
        for _ in range(settings.steps_a_rollout):
            actions, log_probabilities = agent.act(seen)
            after, rewards, terminated, truncated, _ = envs.step(actions)
            over = terminated | truncated
            rollout.observations.append(seen)
            rollout.actions.append(actions)
            rollout.log_probabilities.append(log_probabilities)
            rollout.rewards.append(rewards)
            rollout.after.append(after)
            rollout.terminated.append(terminated)
            rollout.over.append(over)
            rollout.counts.append(~was_over)  # the step after the end only resets
            running += rewards
            at = time.perf_counter() - began
            training.returns += [(at, float(total)) for total in running[over]]
            running[over] = 0.0
            seen, was_over = after, over
        training.steps += envs.num_envs * settings.steps_a_rollout
        yield rollout


def train(envs: gymnasium.vector.VectorEnv, settings: Settings) -> tuple[Agent, Training]:
    """Train an agent, and print the progress."""
    space, actions = envs.single_observation_space, envs.single_action_space
    assert isinstance(actions, gymnasium.spaces.Discrete) and space.shape is not None
    agent, training = Agent(space.shape[0], int(actions.n), settings), Training()
    latest: deque[float] = deque(maxlen=50)
    known, began, told = 0, time.perf_counter(), 0.0
    playing = rollouts(envs, agent, settings, training)
    for number in range(settings.rollouts):
        batch = next(playing).batch(agent, settings)
        agent.learn(batch, number / settings.rollouts)
        latest.extend(total for _, total in training.returns[known:])
        known = len(training.returns)
        elapsed = time.perf_counter() - began
        if elapsed - told > 2 or number == settings.rollouts - 1:
            told = elapsed
            print(
                f"{elapsed:5.1f} s  {training.steps:7,} steps  {training.steps / elapsed:6,.0f}/s  "
                f"{known:5,} episodes  return of the last {len(latest)}: {np.mean(latest):5.1f}"
            )
    return agent, training


def evaluate(envs: gymnasium.vector.VectorEnv, agent: Agent, episodes: int, seed: int) -> Floats:
    """Play fresh episodes with the most probable actions, and return the episodes' returns.

    Each environment plays the same number, so that long and short episodes have equal weight.
    """
    each = -(-episodes // envs.num_envs)
    seen, _ = envs.reset(seed=seed)
    running, played = np.zeros(envs.num_envs), np.zeros(envs.num_envs, dtype=int)
    found: list[float] = []
    while (played < each).any():
        seen, rewards, terminated, truncated, _ = envs.step(agent.best(seen))
        running += rewards
        over = terminated | truncated
        found += running[over & (played < each)].tolist()
        played += over
        running[over] = 0.0
    return np.array(found)


# ------------------------------------------------------------------ the picture


def draw(training: Training, evaluated: Floats, path: Path) -> None:
    """Draw the return of every episode against the time at which it ended."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    times, returns = (np.array(column) for column in zip(*training.returns, strict=True))
    means = [returns[max(0, i - 49) : i + 1].mean() for i in range(len(returns))]
    figure, axes = pyplot.subplots(figsize=(7, 3.6), dpi=110)
    axes.plot(times, returns, ".", markersize=3, alpha=0.6, color="tab:blue", label="an episode")
    axes.plot(times, means, color="tab:blue", label="mean of the last 50")
    axes.axhline(SOLVED, color="tab:gray", linestyle="--", linewidth=1, label="solved: 475")
    axes.plot(times[-1], evaluated.mean(), "*", markersize=12, color="tab:red", label="evaluated")
    axes.set(xlabel="seconds of training", ylabel="return", ylim=(0, 515), xlim=(0, None))
    axes.set_title(f"PPO on CartPole-v1 over a socket: {training.steps:,} steps")
    axes.legend(loc="lower right", fontsize="small")
    figure.tight_layout()
    figure.savefig(path)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="PPO on CartPole over a socket")
    parser.add_argument("--steps", type=int, default=Settings.total_steps)
    parser.add_argument("--envs", type=int, default=Settings.num_envs)
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--server", help="the address of a running server; default: start one")
    parser.add_argument("--picture", type=Path, default=Path(__file__).with_name("returns.png"))
    return parser.parse_args()


def main() -> None:
    """Train, evaluate, and draw the picture."""
    given = arguments()
    settings = Settings(total_steps=given.steps, num_envs=given.envs, seed=given.seed)
    source = given.server or ProcessProvider("gymnasium:CartPole-v1")
    envs = GymnasiumVectorEnv(source, settings.num_envs)
    try:
        agent, training = train(envs, settings)
        evaluated = evaluate(envs, agent, EPISODES_OF_EVALUATION, seed=1_000_000 + settings.seed)
    finally:
        envs.close()
    verdict = "solved" if evaluated.mean() >= SOLVED else "not solved"
    print(
        f"evaluation: mean return {evaluated.mean():.1f} of {len(evaluated)} fresh episodes, the "
        f"worst {evaluated.min():.0f}: {verdict} (475 is)"
    )
    draw(training, evaluated, given.picture)
    print(f"wrote {given.picture}")


if __name__ == "__main__":
    main()
