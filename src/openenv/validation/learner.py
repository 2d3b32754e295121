"""A small learner: does anything in an environment get better with practice?

It is REINFORCE (Williams 1992) with the advantages of GRPO (Shao et al. 2024, arXiv:2402.03300):
several samples of the same task and seed are a group, and what counts is by how much a sample is
better than its group. The policy is a softmax over the actions that may be taken, linear in hashed
features of the observation (numbers, flags, words, and the observation as a whole, which makes it a
table where situations come again). It knows nothing of the environment but what is on the wire.

What it says: if the rewards of some seeds are higher after learning than before, with a confidence
interval above 0, there is something to be learned. If they are not, that is no proof of the
contrary: this learner is small. A reward that has nothing to do with the actions gives groups with
signal all the same, and no improvement; so both are measured.

An oracle's Python file (`openenv.validation.oracle`) may say what it is tried in:

    LEARNING = {"reset": {"max_moves": 30}, "tasks": ["t1", "t2"], "iterations": 20}

and, by a function ``candidates(view)``, from which actions it chooses. Without, these are the legal
actions that an observation names, or all that the schema has, or some that are drawn from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
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
from openenv.validation.probes import View

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy_module("numpy")

__all__ = [
    "Candidates",
    "Curve",
    "LearningReport",
    "LearningSettings",
    "learn",
    "schema_candidates",
]

Candidates = Callable[[View], Sequence[Action]]
"""From a view to the actions that may be taken."""

INSTALL = "pip install 'openenv[eval]'"

FEATURES = 2**16
LONGEST_LIST = 64
WORDS_OF_A_TEXT = 48
DRAWN_CANDIDATES = 12
CONFIDENCE = 0.95


@dataclass(frozen=True)
class LearningSettings:
    """How much is played, and how it is learned from.

    Attributes:
        reset: Further arguments of every reset.
        tasks: What `task` of a reset is, in turn; None for resets without.
        seeds: Learners, each from another seed, of which the confidence intervals are.
        iterations: Updates of a learner.
        groups: Groups of an update: tasks and seeds.
        samples: Of a group.
        evaluation: Episodes by which a learner is measured, before and after.
        max_steps: Actions of an episode at most.
        rate: The step size.
        entropy: What it is worth at first to stay undecided, in standard deviations of the reward;
            less and less with each update.
        discount: What a reward counts for the actions before it, by step.
        seconds: After so many it ends, with what it has.
    """

    reset: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[Any, ...] | None = None
    seeds: int = 5
    iterations: int = 24
    groups: int = 8
    samples: int = 8
    evaluation: int = 128
    max_steps: int = 40
    rate: float = 0.5
    entropy: float = 0.05
    discount: float = 1.0
    seconds: float = 60.0

    @classmethod
    def of(cls, given: Mapping[str, Any], **others: Any) -> LearningSettings:
        """Read what an oracle's file says.

        Raises:
            ValueError: There is no such setting.
        """
        known = {one.name for one in fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise ValueError(f"LEARNING has {unknown[0]!r}; there are {', '.join(sorted(known))}")
        values = {**others, **given}
        if values.get("tasks") is not None:
            values["tasks"] = tuple(values["tasks"])
        return cls(**values)


@dataclass(frozen=True)
class Curve:
    """How learning went: at each point, over the learners.

    Attributes:
        episodes: How many each had played by then.
        mean: The mean reward of an episode.
        low: Of the confidence interval of that, at 95 %.
        high: Likewise.
    """

    episodes: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class LearningReport:
    """What a learner came to.

    Attributes:
        curve: Rewards while it learned.
        before: What the policy that has learned nothing gets, by learner: it draws from all actions
            alike.
        after: What the learned one gets in the same episodes, none of which it had seen.
        improvement: The mean difference.
        interval: Its confidence interval over the learners, at 95 %, by Student's t.
        p_value: That the improvement is chance: a paired, one-sided t test over the learners.
        groups: How many groups of samples were played.
        groups_with_signal: How many of them had rewards that differ.
        first_groups: Of these, how many before anything was learned.
        first_groups_with_signal: Likewise.
        unscored: Episodes whose reward is not known, which nothing was learned from.
        episodes: Played in all.
        steps: Taken in all.
        seconds: That it took.
        stopped: Why it ended early; None where it did not.
    """

    curve: Curve
    before: tuple[float, ...]
    after: tuple[float, ...]
    improvement: float
    interval: tuple[float, float]
    p_value: float
    groups: int
    groups_with_signal: int
    first_groups: int
    first_groups_with_signal: int
    unscored: int
    episodes: int
    steps: int
    seconds: float
    stopped: str | None = None

    @property
    def is_learnable(self) -> bool:
        """The improvement is above 0, by its confidence interval."""
        return self.interval[0] > 0

    @property
    def share_with_signal(self) -> float:
        """The part of the groups whose samples differ in reward."""
        return self.groups_with_signal / self.groups if self.groups else 0.0


# ------------------------------------------------------------------ features


def schema_candidates(space: ActionSpace, seed: int = 0) -> Candidates:
    """The legal actions that an observation names; else all of the schema, or some of them."""
    generator = random.Random(seed)  # nosec B311  # what is drawn is no secret
    every = space.enumerated()
    if not every:
        drawn = [space.minimal(), *(space.sample(generator) for _ in range(DRAWN_CANDIDATES - 1))]
        every = list({to_json(action): action for action in drawn}.values())
    return lambda view: space.legal(view.observation) or every


def features(observation: Mapping[str, Any]) -> dict[int, float]:
    """Hashed features of an observation, each with its value."""
    found: dict[int, float] = {_hash(b"whole", to_json(_shown(observation))): 1.0, 1: 1.0}
    for name, value in _shown(observation).items():
        _add(found, name, value)
    return found


def _shown(observation: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in observation.items() if name != "metadata"}


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
    """The feature of a value at a place."""
    return _hash(path.encode(), str(value).encode())


def _hash(*parts: bytes) -> int:
    return zlib.crc32(b"\0".join(parts))


class _Softmax:
    """A policy that is linear in features of the observation and the action."""

    def __init__(self) -> None:
        self.weights = np.zeros(FEATURES)
        self._moved = np.zeros(FEATURES)

    def look(self, observation: Mapping[str, Any], actions: Sequence[Action]) -> _Situation:
        """What there is to choose from."""
        seen = features(observation)
        hashes = np.fromiter(seen, dtype=np.uint64)
        values = np.fromiter(seen.values(), dtype=float)
        values /= np.linalg.norm(values)
        keys = np.array([_hash(to_json(action)) for action in actions], dtype=np.uint64)
        mixed = (hashes[None, :] * np.uint64(2654435761)) ^ (keys[:, None] * np.uint64(40503))
        return _Situation((mixed % np.uint64(FEATURES)).astype(np.int64), values)

    def probabilities(self, situation: _Situation) -> np.ndarray:
        logits = self.weights[situation.indices] @ situation.values
        raised = np.exp(logits - logits.max())
        chances: np.ndarray = raised / raised.sum()
        return chances

    def draw(self, situation: _Situation, chance: np.random.Generator) -> int:
        chances = self.probabilities(situation)
        return int(chance.choice(len(chances), p=chances))

    def best(self, situation: _Situation, chance: np.random.Generator) -> int:
        chances = self.probabilities(situation)
        ties = np.flatnonzero(chances >= chances.max() - 1e-12)
        return int(chance.choice(ties))

    def anything(self, situation: _Situation, chance: np.random.Generator) -> int:
        return int(chance.integers(len(situation.indices)))

    def learn(
        self, moves: Sequence[tuple[_Situation, int, float]], rate: float, entropy: float
    ) -> None:
        """Ascend the gradient of the log probabilities, each weighed by its advantage.

        Every weight has a step size of its own, which gets smaller the more it was moved (AdaGrad,
        Duchi et al. 2011): what is seen once counts, and what is seen always does not run away.
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
class _Situation:
    """Features of the actions that may be taken: (actions, features), and a value for each."""

    indices: np.ndarray
    values: np.ndarray


# ------------------------------------------------------------------ playing

_Choose: TypeAlias = "Callable[[_Situation, np.random.Generator], int]"


@dataclass
class _Job:
    """An episode to be played. What it draws is its own, whichever others are played meanwhile."""

    reset: dict[str, Any]
    choose: _Choose
    seed: int


@dataclass
class _Played:
    """An episode that was played."""

    moves: list[tuple[_Situation, int]]
    rewards: list[float]
    worth: float | None


class _Table:
    """Sessions of a server, and who plays in them."""

    def __init__(
        self,
        clients: list[GenericEnvClient],
        policy: _Softmax,
        candidates: Candidates,
        settings: LearningSettings,
    ) -> None:
        self._clients = clients
        self.policy = policy
        self._candidates = candidates
        self._settings = settings
        self._spec: RewardSpec | None = None
        self.episodes = self.steps = self.unscored = 0

    async def play(self, jobs: Sequence[_Job]) -> list[_Played]:
        """Play episodes, as many at once as there are sessions."""
        waiting = list(enumerate(jobs))[::-1]
        played: dict[int, _Played] = {}

        async def work(client: GenericEnvClient) -> None:
            while waiting:
                place, job = waiting.pop()
                played[place] = await self._episode(client, job)

        await asyncio.gather(*(work(client) for client in self._clients))
        return [played[place] for place in range(len(jobs))]

    async def _episode(self, client: GenericEnvClient, job: _Job) -> _Played:
        result = await client.reset(**job.reset)
        told = (result.reward_info or {}).get("spec")
        if self._spec is None:
            self._spec = RewardSpec.from_data(told) if isinstance(told, dict) else RewardSpec()
        chance = np.random.default_rng(job.seed)
        moves: list[tuple[_Situation, int]] = []
        rewards: list[float | None] = []
        unscored: list[str | None] = []
        while not result.done and len(moves) < self._settings.max_steps:
            actions = self._candidates(View(result.observation, len(moves), {}, job.reset))
            if not actions:
                break
            situation = self.policy.look(result.observation, actions)
            chosen = job.choose(situation, chance)
            result = await client.step(actions[chosen])
            moves.append((situation, chosen))
            rewards.append(None if result.reward is None else float(result.reward))
            unscored.append(result.unscored)
        value = self._spec.total(rewards, unscored)
        self.episodes += 1
        self.steps += len(moves)
        self.unscored += value is None
        return _Played(moves, [reward or 0.0 for reward in rewards], value)

    @property
    def is_per_step(self) -> bool:
        """The rewards of steps add up, so that what came before an action is none of its doing."""
        return self._spec is None or self._spec.kind == "per_step"


async def learn(
    url: str,
    candidates: Candidates,
    settings: LearningSettings | None = None,
    *,
    seed: int = 0,
    tell: Callable[[int, int], object] = lambda done, total: None,
) -> LearningReport:
    """Let a small learner practise in a server's environment, several times from the beginning.

    Args:
        url: Where the server is.
        candidates: What it chooses from.
        settings: How much it plays.
        seed: Of everything that is drawn: in an environment that keeps to its seeds, all is the
            same again by the same one.
        tell: Told of each update: how many are done, of how many.

    Raises:
        OpenEnvError: The server cannot be reached, or an episode failed.
        MissingPackage: numpy and scipy are not installed.
    """
    await asyncio.to_thread(_load_packages)  # which takes a second
    chosen = settings or LearningSettings()
    began = time.monotonic()
    async with _sessions(url, chosen.groups * chosen.samples) as clients:
        learners = []
        for number in range(chosen.seeds):
            policy = _Softmax()
            table = _Table(clients, policy, candidates, chosen)
            learner = _Learner(table, chosen, number, seed)
            share = chosen.seconds * (number + 1) / chosen.seeds
            await learner.run(began + share, tell)
            learners.append(learner)
    return _report(learners, time.monotonic() - began)


def _load_packages() -> None:
    with needs("a learner", INSTALL):
        import numpy  # noqa: F401
        import scipy.stats  # noqa: F401


@contextlib.asynccontextmanager
async def _sessions(url: str, wanted: int) -> AsyncIterator[list[GenericEnvClient]]:
    """So many sessions, or as many of them as the server holds."""
    async with contextlib.AsyncExitStack() as stack:
        clients: list[GenericEnvClient] = []
        for _ in range(wanted):
            client = GenericEnvClient(url, queue_timeout_s=0)
            try:
                await stack.enter_async_context(client)
                with contextlib.suppress(ExecutionFailed):  # there may be none before a reset
                    await client.state()
            except CapacityError:
                if not clients:
                    raise
                break
            clients.append(client)
        yield clients


class _Learner:
    """One policy, from its beginning."""

    def __init__(self, table: _Table, settings: LearningSettings, number: int, seed: int) -> None:
        self.table, self._settings = table, settings
        self._done, self._total = number * settings.iterations, settings.seeds * settings.iterations
        # Those of learning, of measuring, and of other learners are apart.
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
        policy, settings = self.table.policy, self._settings
        measured = self._resets(settings.evaluation)
        self.before = await self._mean(measured, policy.anything)
        for iteration in range(settings.iterations):
            if time.monotonic() >= until and iteration:
                self.stopped = f"after {iteration} of {settings.iterations} updates"
                break
            await self._update(iteration)
            tell(self._done + iteration + 1, self._total)
        self.after = await self._mean(measured, policy.best)

    def _job(self, reset: dict[str, Any], choose: _Choose) -> _Job:
        return _Job(reset, choose, self._seeds.randrange(2**63))

    async def _mean(self, resets: Sequence[dict[str, Any]], choose: _Choose) -> float:
        played = await self.table.play([self._job(reset, choose) for reset in resets])
        known = [one.worth for one in played if one.worth is not None]
        return sum(known) / len(known) if known else float("nan")

    async def _update(self, iteration: int) -> None:
        settings, policy = self._settings, self.table.policy
        resets = self._resets(settings.groups)
        jobs = [self._job(reset, policy.draw) for reset in resets for _ in range(settings.samples)]
        played = await self.table.play(jobs)
        known = [one.worth for one in played if one.worth is not None]
        self.curve.append(sum(known) / len(known) if known else float("nan"))
        moves: list[tuple[_Situation, int, float]] = []
        for start in range(0, len(played), settings.samples):
            group = [
                one for one in played[start : start + settings.samples] if one.worth is not None
            ]
            values = [one.worth for one in group if one.worth is not None]
            has_signal = len(values) > 1 and max(values) - min(values) > 1e-12
            self.groups.append(has_signal)
            if iteration == 0:
                self.first_groups.append(has_signal)
            if has_signal:
                moves += self._credited(group)
        if moves:
            to_come = 1.0 - iteration / settings.iterations
            entropy = settings.entropy * to_come
            await asyncio.to_thread(policy.learn, moves, settings.rate, entropy)

    def _credited(self, group: Sequence[_Played]) -> list[tuple[_Situation, int, float]]:
        """The moves of a group, each with how much better what followed was than in the others."""
        returns = [self._returns(one) for one in group]
        longest = max(map(len, returns))
        credited: list[tuple[_Situation, int, float]] = []
        for step in range(longest):
            here = [one[step] for one in returns if len(one) > step]
            mean = sum(here) / len(here)
            spread = (sum((value - mean) ** 2 for value in here) / len(here)) ** 0.5
            for one, values in zip(group, returns, strict=True):
                if len(values) > step and spread > 1e-12:
                    situation, chosen = one.moves[step]
                    credited.append((situation, chosen, (values[step] - mean) / spread))
        return credited

    def _returns(self, played: _Played) -> list[float]:
        """What followed each move: of rewards that add up, those from there on."""
        if not self.table.is_per_step:
            return [played.worth or 0.0] * len(played.moves)
        following, returns = 0.0, []
        for reward in reversed(played.rewards):
            following = reward + self._settings.discount * following
            returns.append(following)
        return returns[::-1]


def _report(learners: Sequence[_Learner], seconds: float) -> LearningReport:
    before = tuple(learner.before for learner in learners)
    after = tuple(learner.after for learner in learners)
    differences = [b - a for a, b in zip(before, after, strict=True)]
    mean, low, high = _interval(differences)
    settings = learners[0]._settings
    count = min(len(learner.curve) for learner in learners)
    a_point = settings.groups * settings.samples
    points = [_interval([learner.curve[i] for learner in learners]) for i in range(count)]
    groups = [has for learner in learners for has in learner.groups]
    first = [has for learner in learners for has in learner.first_groups]
    return LearningReport(
        curve=Curve(
            tuple(a_point * (i + 1) for i in range(count)),
            tuple(point[0] for point in points),
            tuple(point[1] for point in points),
            tuple(point[2] for point in points),
        ),
        before=before,
        after=after,
        improvement=mean,
        interval=(low, high),
        p_value=_p_value(differences),
        groups=len(groups),
        groups_with_signal=sum(groups),
        first_groups=len(first),
        first_groups_with_signal=sum(first),
        unscored=sum(learner.table.unscored for learner in learners),
        episodes=sum(learner.table.episodes for learner in learners),
        steps=sum(learner.table.steps for learner in learners),
        seconds=seconds,
        stopped=next((learner.stopped for learner in learners if learner.stopped), None),
    )


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean, and its confidence interval by Student's t."""
    from scipy import stats

    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return mean, float("-inf"), float("inf")
    spread = (sum((value - mean) ** 2 for value in values) / (count - 1)) ** 0.5
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)) * spread / count**0.5
    return mean, mean - half, mean + half


def _p_value(differences: Sequence[float]) -> float:
    """That the mean is above 0 by chance: a one-sided t test."""
    from scipy import stats

    if max(differences) - min(differences) < 1e-12:
        return 0.0 if differences[0] > 0 else 1.0
    tested: Any = stats.ttest_1samp(differences, 0.0, alternative="greater")
    return float(tested.pvalue)
