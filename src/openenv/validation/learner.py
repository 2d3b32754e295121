"""A small learner that shows whether practice improves rewards in an environment.

The learner is REINFORCE (Williams 1992) with the advantages of GRPO (Shao et al. 2024,
arXiv:2402.03300): several samples of the same task and seed are a group, and a sample is weighted
by how much better it is than its group. The policy is a softmax over the possible actions, linear
in hashed features of the observation (numbers, flags, words, and the whole observation, which acts
as a table if situations recur). The learner knows only what is on the wire.

If the rewards over several seeds are higher after learning than before, with a confidence interval
above 0, there is something to learn. The converse does not hold, because the learner is small. A
reward that ignores the actions may give groups with signal, but no improvement, so both are
measured.

An oracle's Python file (`openenv.validation.oracle`) may set what the learner plays:

    LEARNING = {"reset": {"max_moves": 30}, "tasks": ["t1", "t2"], "iterations": 20}

A function ``candidates(view)`` in that file may return the actions that the learner chooses from.
By default these are the legal actions that an observation lists, or else all actions of the schema,
or else some actions drawn from the schema.

Sessions are played concurrently on the event loop; the update runs in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import math
import random
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_core import to_json

from openenv._internal.lazy import lazy_module
from openenv._internal.packages import needs
from openenv.client.generic import GenericEnvClient
from openenv.errors import CapacityError, ExecutionFailed
from openenv.reward import RewardSpec
from openenv.validation.actions import Action, ActionSpace
from openenv.validation.probes import ProbeView

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy_module("numpy")

Candidates = Callable[[ProbeView], Sequence[Action]]
"""A function from a view to the actions that may be taken."""

FEATURES = 2**16
LONGEST_LIST = 64
WORDS_OF_A_TEXT = 48
DRAWN_CANDIDATES = 12
CONFIDENCE = 0.95


@dataclass(frozen=True)
class LearningSettings:
    """Settings of the learner."""

    reset: Mapping[str, Any] = field(default_factory=dict)  # further arguments of every reset
    # Values of the argument `task`, used in turn; None for resets without a task.
    tasks: tuple[Any, ...] | None = None
    # Number of learners with different seeds, over which confidence intervals are computed.
    seeds: int = 5
    iterations: int = 24  # updates per learner
    groups: int = 8  # groups (tasks and seeds) per update
    samples: int = 8  # episodes per group
    evaluation: int = 128  # episodes that measure a learner before training, and again after
    max_steps: int = 40  # maximum number of actions per episode
    rate: float = 0.5  # the step size
    # The initial entropy bonus in standard deviations of the reward, which decays to 0.
    entropy: float = 0.05
    discount: float = 1.0  # the discount factor of rewards per step
    seconds: float = 60.0  # stop after this many seconds and report the results so far

    @classmethod
    def of(cls, given: Mapping[str, Any], **others: Any) -> LearningSettings:
        """Read the settings of an oracle's file.

        Raises:
            ValueError: A setting is unknown.
        """
        known = {one.name for one in fields(cls)}
        if unknown := sorted(given.keys() - known):
            names = ", ".join(sorted(known))
            raise ValueError(f"LEARNING: unknown setting {unknown[0]!r}; expected one of {names}")
        values = {**others, **given}
        if values.get("tasks") is not None:
            values["tasks"] = tuple(values["tasks"])
        return cls(**values)


@dataclass(frozen=True)
class Curve:
    """The learning curve: the mean reward over the learners at each point."""

    episodes: tuple[int, ...]  # episodes that each learner had played in training
    mean: tuple[float, ...]
    low: tuple[float, ...]  # the lower bound of the 95 % confidence interval
    high: tuple[float, ...]


@dataclass(frozen=True)
class LearningReport:
    """The result of the learners."""

    curve: Curve  # rewards while learning
    before: tuple[float, ...]  # mean reward of a uniformly random policy, by learner
    # The trained policy's mean reward in the same episodes, which were not used for training.
    after: tuple[float, ...]
    improvement: float
    # The improvement's 95 % confidence interval over the learners, by Student's t.
    interval: tuple[float, float]
    p_value: float  # from a paired, one-sided t test that the improvement is above 0
    groups: int
    groups_with_signal: int  # number of groups whose rewards differ
    first_groups: int  # number of groups before the first update
    first_groups_with_signal: int  # number of first groups whose rewards differ
    unscored: int  # episodes without a known reward, from which nothing was learned
    episodes: int
    steps: int
    seconds: float
    stopped: str | None = None  # when learning ended early; None if it did not

    @property
    def is_learnable(self) -> bool:
        """True if the confidence interval of the improvement is above 0."""
        return self.interval[0] > 0

    @property
    def share_with_signal(self) -> float:
        """The share of groups in which rewards differ."""
        return self.groups_with_signal / self.groups if self.groups else 0.0


# ------------------------------------------------------------------ features


def schema_candidates(space: ActionSpace, seed: int = 0) -> Candidates:
    """Return the candidates of a schema: listed legal actions, else all actions, else a sample."""
    generator = random.Random(seed)  # nosec B311  # what is drawn is no secret
    every = space.enumerate_actions()
    if not every:
        drawn = [space.sample(generator) for _ in range(DRAWN_CANDIDATES - 1)]
        every = list({to_json(one): one for one in [space.minimal_action(), *drawn]}.values())
    return lambda view: space.legal_actions(view.observation) or every


def features(observation: Mapping[str, Any]) -> dict[int, float]:
    """Return the features of an observation: values by hash."""
    shown = {name: value for name, value in observation.items() if name != "metadata"}
    found: dict[int, float] = {_hash(b"whole", to_json(shown)): 1.0, 1: 1.0}
    for name, value in shown.items():
        _add(found, name, value)
    return found


def _add(found: dict[int, float], path: str, value: Any) -> None:
    if isinstance(value, str):
        words = value.split()[:WORDS_OF_A_TEXT]
        weight = 1.0 / max(1.0, len(words)) ** 0.5
        for word in words:
            found[_named(path, word)] = weight
    elif value is None or isinstance(value, bool | int | float):
        found[_named(path, round(value, 2) if isinstance(value, float) else value)] = 1.0
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            _add(found, f"{path}.{name}", inner)
    elif isinstance(value, list) and len(value) <= LONGEST_LIST:
        for place, inner in enumerate(value):
            _add(found, f"{path}[{place}]", inner)


@functools.lru_cache(maxsize=2**16)
def _named(path: str, value: object) -> int:
    return _hash(path.encode(), str(value).encode())


def _hash(*parts: bytes) -> int:
    return zlib.crc32(b"\0".join(parts))


class _HashedSoftmax:
    """A softmax policy that is linear in hashed features of observation and action."""

    def __init__(self) -> None:
        self.weights = np.zeros(FEATURES)
        self._moved = np.zeros(FEATURES)

    def compute_features(
        self, observation: Mapping[str, Any], actions: Sequence[Action]
    ) -> _ActionFeatures:
        seen = features(observation)
        hashes = np.fromiter(seen, dtype=np.uint64)
        values = np.fromiter(seen.values(), dtype=float)
        values /= np.linalg.norm(values)
        keys = np.array([_hash(to_json(action)) for action in actions], dtype=np.uint64)
        mixed = (hashes[None, :] * np.uint64(2654435761)) ^ (keys[:, None] * np.uint64(40503))
        return _ActionFeatures((mixed % np.uint64(FEATURES)).astype(np.int64), values)

    def probabilities(self, situation: _ActionFeatures) -> np.ndarray:
        logits = self.weights[situation.indices] @ situation.values
        raised = np.exp(logits - logits.max())
        chances: np.ndarray = raised / raised.sum()
        return chances

    def draw(self, situation: _ActionFeatures, chance: np.random.Generator) -> int:
        chances = self.probabilities(situation)
        return int(chance.choice(len(chances), p=chances))

    def best(self, situation: _ActionFeatures, chance: np.random.Generator) -> int:
        chances = self.probabilities(situation)
        ties = np.flatnonzero(chances >= chances.max() - 1e-12)
        return int(chance.choice(ties))

    def draw_uniformly(self, situation: _ActionFeatures, chance: np.random.Generator) -> int:
        return int(chance.integers(len(situation.indices)))

    def learn(self, moves: Sequence[_Move], rate: float, entropy: float) -> None:
        """Ascend the gradient of the log probabilities, weighted by advantage.

        Each weight has its own step size, which shrinks as the weight moves (AdaGrad, Duchi et al.
        2011), so that rare features count and frequent features do not diverge.
        """
        gradient = np.zeros(FEATURES)
        for situation, chosen, advantage in moves:
            chances = self.probabilities(situation)
            weight = -advantage * chances
            weight[chosen] += advantage
            logs = np.log(chances + 1e-12)
            weight -= entropy * chances * (logs - (chances * logs).sum())
            share = weight[:, None] * situation.values[None, :]
            np.add.at(gradient, situation.indices, share)
        gradient /= max(1, len(moves))
        self._moved += gradient**2
        self.weights += rate * gradient / (np.sqrt(self._moved) + 1e-8)


@dataclass(frozen=True)
class _ActionFeatures:
    """The indices of weights by action and feature, and the value of each feature."""

    indices: np.ndarray
    values: np.ndarray


# ------------------------------------------------------------------ playing

_Choose: TypeAlias = "Callable[[_ActionFeatures, np.random.Generator], int]"
_Move = tuple[_ActionFeatures, int, float]  # the possible actions, the chosen index, the advantage


@dataclass
class _LearnerEpisode:
    moves: list[tuple[_ActionFeatures, int]]
    rewards: list[float]
    worth: float | None


async def learn(
    url: str,
    candidates: Candidates,
    settings: LearningSettings | None = None,
    *,
    seed: int = 0,
    tell: Callable[[int, int], object] = lambda done, total: None,
) -> LearningReport:
    """Train small learners in a server's environment, each from scratch.

    Equal seeds give equal results in an environment that honors its seeds. After each update `tell`
    is called with the number of updates done and the total.

    Raises:
        OpenEnvError: The server cannot be reached, or an episode failed.
        MissingPackage: numpy or scipy is not installed.
    """
    with needs("a learner", "pip install 'openenv[eval]'"):
        for package in ("numpy", "scipy.stats"):  # in a thread, as importing takes a second
            await asyncio.to_thread(importlib.import_module, package)
    chosen = settings or LearningSettings()
    began = time.monotonic()
    async with _sessions(url, chosen.groups * chosen.samples) as clients:
        learners = []
        for number in range(chosen.seeds):
            learners.append(_Learner(clients, candidates, chosen, number, seed))
            share = chosen.seconds * (number + 1) / chosen.seeds
            await learners[-1].run(began + share, tell)
    return _report(learners, chosen, time.monotonic() - began)


@contextlib.asynccontextmanager
async def _sessions(url: str, wanted: int) -> AsyncIterator[list[GenericEnvClient]]:
    """Open up to `wanted` sessions, fewer if the server is full."""
    async with contextlib.AsyncExitStack() as stack:
        clients: list[GenericEnvClient] = []
        for _ in range(wanted):
            client = GenericEnvClient(url, queue_timeout_s=0)
            try:
                await stack.enter_async_context(client)
                with contextlib.suppress(ExecutionFailed):  # state may fail before the first reset
                    await client.state()
            except CapacityError:
                if not clients:
                    raise
                break
            clients.append(client)
        yield clients


class _Learner:
    """A policy in training, and the sessions in which it plays."""

    def __init__(
        self,
        clients: Sequence[GenericEnvClient],
        candidates: Candidates,
        settings: LearningSettings,
        number: int,
        seed: int,
    ) -> None:
        self._clients, self._candidates, self._settings = clients, candidates, settings
        self._policy = _HashedSoftmax()
        self._spec: RewardSpec | None = None
        self.episodes = self.steps = self.unscored = 0
        self._done, self._total = number * settings.iterations, settings.seeds * settings.iterations
        # Each learner has its own sequence of seeds, for training and for evaluation.
        self._seeds = random.Random(f"{seed} {number}")  # nosec B311  # no secret
        self.curve: list[float] = []
        self.groups: list[bool] = []
        self.first_groups: list[bool] = []
        self.before = self.after = 0.0
        self.stopped: str | None = None

    def _resets(self, count: int) -> list[dict[str, Any]]:
        settings = self._settings
        resets = []
        for place in range(count):
            reset = {**settings.reset, "seed": self._seeds.randrange(2**31)}
            if settings.tasks:
                reset["task"] = settings.tasks[place % len(settings.tasks)]
            resets.append(reset)
        return resets

    async def run(self, until: float, tell: Callable[[int, int], object]) -> None:
        policy, settings = self._policy, self._settings
        measured = self._resets(settings.evaluation)
        self.before = _mean_worth(await self._play(measured, policy.draw_uniformly))
        for iteration in range(settings.iterations):
            if time.monotonic() >= until and iteration:
                self.stopped = f"after {iteration} of {settings.iterations} updates"
                break
            await self._update(iteration)
            tell(self._done + iteration + 1, self._total)
        self.after = _mean_worth(await self._play(measured, policy.best))

    async def _update(self, iteration: int) -> None:
        settings, policy = self._settings, self._policy
        resets = self._resets(settings.groups)
        each = [reset for reset in resets for _ in range(settings.samples)]
        played = await self._play(each, policy.draw)
        self.curve.append(_mean_worth(played))
        moves: list[_Move] = []
        for start in range(0, len(played), settings.samples):
            group = played[start : start + settings.samples]
            values = [one.worth for one in group if one.worth is not None]
            has_signal = len(values) > 1 and max(values) - min(values) > 1e-12
            self.groups.append(has_signal)
            if iteration == 0:
                self.first_groups.append(has_signal)
            if has_signal:
                moves += self._assign_credit([one for one in group if one.worth is not None])
        if moves:
            entropy = settings.entropy * (1.0 - iteration / settings.iterations)
            await asyncio.to_thread(policy.learn, moves, settings.rate, entropy)

    async def _play(
        self, resets: Sequence[dict[str, Any]], choose: _Choose
    ) -> list[_LearnerEpisode]:
        """Play one episode per session at a time; each episode has its own random generator."""
        seeds = [self._seeds.randrange(2**63) for _ in resets]
        waiting = list(enumerate(zip(resets, seeds, strict=True)))[::-1]
        played: dict[int, _LearnerEpisode] = {}

        async def work(client: GenericEnvClient) -> None:
            while waiting:
                place, (reset, seed) = waiting.pop()
                chance = np.random.default_rng(seed)
                played[place] = await self._episode(client, reset, choose, chance)

        await asyncio.gather(*(work(client) for client in self._clients))
        return [played[place] for place in range(len(resets))]

    async def _episode(
        self,
        client: GenericEnvClient,
        reset: dict[str, Any],
        choose: _Choose,
        chance: np.random.Generator,
    ) -> _LearnerEpisode:
        result = await client.reset(**reset)
        told = (result.reward_info or {}).get("spec")
        if self._spec is None:
            self._spec = RewardSpec.from_data(told) if isinstance(told, dict) else RewardSpec()
        moves: list[tuple[_ActionFeatures, int]] = []
        rewards: list[float | None] = []
        unscored: list[str | None] = []
        while not result.done and len(moves) < self._settings.max_steps:
            actions = self._candidates(ProbeView(result.observation, len(moves), {}, reset))
            if not actions:
                break
            situation = self._policy.compute_features(result.observation, actions)
            chosen = choose(situation, chance)
            result = await client.step(actions[chosen])
            moves.append((situation, chosen))
            rewards.append(None if result.reward is None else float(result.reward))
            unscored.append(result.unscored)
        value = self._spec.total(rewards, unscored)
        self.episodes += 1
        self.steps += len(moves)
        self.unscored += value is None
        return _LearnerEpisode(moves, [reward or 0.0 for reward in rewards], value)

    def _assign_credit(self, group: Sequence[_LearnerEpisode]) -> list[_Move]:
        """Return the moves of a group with advantages: returns standardized over the group."""
        returns = [self._returns(one) for one in group]
        credited: list[_Move] = []
        for step in range(max(map(len, returns))):
            here = [one[step] for one in returns if len(one) > step]
            mean = sum(here) / len(here)
            spread = (sum((value - mean) ** 2 for value in here) / len(here)) ** 0.5
            for one, values in zip(group, returns, strict=True):
                if len(values) > step and spread > 1e-12:
                    situation, chosen = one.moves[step]
                    credited.append((situation, chosen, (values[step] - mean) / spread))
        return credited

    def _returns(self, played: _LearnerEpisode) -> list[float]:
        """Compute the return of each move: discounted later rewards if per step, else the total."""
        if self._spec is not None and self._spec.kind != "per_step":
            return [played.worth or 0.0] * len(played.moves)
        following, returns = 0.0, []
        for reward in reversed(played.rewards):
            following = reward + self._settings.discount * following
            returns.append(following)
        return returns[::-1]


def _mean_worth(played: Sequence[_LearnerEpisode]) -> float:
    known = [one.worth for one in played if one.worth is not None]
    return sum(known) / len(known) if known else math.nan


def _report(
    learners: Sequence[_Learner], settings: LearningSettings, seconds: float
) -> LearningReport:
    differences = [learner.after - learner.before for learner in learners]
    mean, low, high = _interval(differences)
    rows = list(zip(*(learner.curve for learner in learners), strict=False))
    means, lows, highs = zip(*map(_interval, rows), strict=True) if rows else ((), (), ())
    updates = range(1, len(rows) + 1)
    groups = [has for learner in learners for has in learner.groups]
    first = [has for learner in learners for has in learner.first_groups]
    return LearningReport(
        Curve(tuple(settings.groups * settings.samples * i for i in updates), means, lows, highs),
        before=tuple(learner.before for learner in learners),
        after=tuple(learner.after for learner in learners),
        improvement=mean,
        interval=(low, high),
        p_value=_p_value(differences),
        groups=len(groups),
        groups_with_signal=sum(groups),
        first_groups=len(first),
        first_groups_with_signal=sum(first),
        unscored=sum(learner.unscored for learner in learners),
        episodes=sum(learner.episodes for learner in learners),
        steps=sum(learner.steps for learner in learners),
        seconds=seconds,
        stopped=next((learner.stopped for learner in learners if learner.stopped), None),
    )


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and the 95 % confidence interval by Student's t."""
    from scipy import stats

    count, mean = len(values), sum(values) / len(values)
    if count < 2:
        return mean, -math.inf, math.inf
    spread = (sum((value - mean) ** 2 for value in values) / (count - 1)) ** 0.5
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)) * spread / count**0.5
    return mean, mean - half, mean + half


def _p_value(differences: Sequence[float]) -> float:
    """Return the p-value of a one-sided t test that the mean is above 0."""
    from scipy import stats

    if max(differences) - min(differences) < 1e-12:
        return 0.0 if differences[0] > 0 else 1.0
    tested: Any = stats.ttest_1samp(differences, 0.0, alternative="greater")
    return float(tested.pvalue)
