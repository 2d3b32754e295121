"""The episode engine: one episode in an open session, with a clock, waits and a score.

Design notes.

One way into an environment. `LiveEpisode` is the only code of rollouts, evaluation, collecting and
the trainers' integrations that calls a client's `reset` and `step`. Views of other libraries
(`GymnasiumEnv`, `StepEnvSessionAdapter`) drive the client of their user. The layers above decide
what to do next, and when to try again:

    LiveEpisode                        reset, step, deadline, rate limits, worth
      play(session, policy)            a policy decides on each step; a `Rollout` is the record
        RolloutRunner                  many episodes, several attempts, one file
          collect, play_and_evaluate   datasets and evaluations from rollouts
      EpisodeSession                   an agent acts by tools and replies; sessions are replaced
        TokenRollout, BatchPlayer      replies are tokens: Lightning, TRL, Oumi, verl, torchforge
        EnvironmentSession             a harness calls tools
        loops that others own          TRL, SkyRL, NeMo Gym, verifiers, ART, Inspect AI

A harness plays in its own sessions (`ResourceSession`, which users implement, in threads). A
`CollectRunner` is a `RolloutRunner` whose source of episodes is such a harness.

Invariants. A `LiveEpisode` is used from one event loop, the one on which its client lives, and by
one task at a time. A step that was cancelled or that failed leaves the episode in an unknown state:
the holder of the session closes it, and no episode continues in another session. A call that was
refused because of a rate limit has changed nothing, so it is made again here; no other call is.

The clock. A `Deadline` runs from the reset on. Each step tells the environment the time left
(`timeout_s`). If the server does not answer, the call is given up `SLACK_S` after the deadline.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from openenv._internal.timing import within
from openenv.client.client import EnvClient
from openenv.errors import RateLimited
from openenv.protocol.messages import IGNORED_ARGUMENTS
from openenv.reward import RewardSpec, Score
from openenv.rewards.credit import Credit
from openenv.rollouts.failures import TaskNotTaken
from openenv.rollouts.records import Limit
from openenv.tasks.task import Task
from openenv.types import StepResult

Client = EnvClient[Any, Any, Any]
Call = Callable[[], Awaitable[Any]]

MAX_RATE_WAITS = 8  # in a row; the next rate limit counts as a failure
SLACK_S = 5.0  # how late an answer may be before the call is given up here
TICK_S = 0.002  # how early a timer may fire on a loop that counts milliseconds (libuv)


class LimitReached(Exception):
    """A limit has ended the episode; this is an outcome, not a failure."""

    def __init__(self, limit: Limit) -> None:
        self.limit: Limit = limit
        super().__init__(limit)


class Deadline:
    """The moment at which the wall clock of an episode runs out.

    Args:
        seconds: Seconds from now; None for never.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    @property
    def left_s(self) -> float | None:
        """Seconds that are left, negative after the deadline; None if there is no deadline."""
        return None if self._at is None else self._at - time.monotonic()

    @property
    def is_past(self) -> bool:
        """True once the deadline has passed."""
        return (left := self.left_s) is not None and left <= TICK_S


class LiveEpisode:
    """An episode in an open session.

    Args:
        client: The session. `reset` abandons an episode that is running there.
        deadline: The deadline of the episode; None for no deadline.
        on_pressure: Called with the reason each time the server asks for fewer requests.

    Attributes:
        first: The result of the reset; None before the reset.
        environment_s: Seconds spent in calls of the environment.
    """

    def __init__(
        self,
        client: Client,
        deadline: Deadline | None = None,
        on_pressure: Callable[[str], object] | None = None,
    ) -> None:
        self.client = client
        self._on_pressure = on_pressure
        self.deadline = deadline or Deadline()
        self.first: StepResult[Any] | None = None
        self.results: list[StepResult[Any]] = []
        self.environment_s = 0.0

    @property
    def last(self) -> StepResult[Any] | None:
        """The latest result, of a step or the reset; None before the reset."""
        return self.results[-1] if self.results else self.first

    @property
    def is_over(self) -> bool:
        """True once the environment has ended the episode."""
        return (last := self.last) is not None and last.done

    @property
    def spec(self) -> RewardSpec | None:
        """The environment's declaration of rewards, known after the reset; None without a
        declaration.
        """
        return getattr(self.client, "reward_spec", None)

    async def reset(self, arguments: Mapping[str, Any]) -> StepResult[Any]:
        """Begin the episode.

        Raises:
            LimitReached: The deadline has passed.
        """
        self.first = await self._timed(lambda: self.client.reset(**arguments))
        return self.first

    def check_arguments(self, may_ignore: Iterable[str], of: str) -> None:
        """Refuse an episode whose reset ignored arguments that matter.

        Args:
            may_ignore: Arguments of the reset that the environment may ignore.
            of: What was requested, such as ``this episode``, for the error message.

        Raises:
            TaskNotTaken: The environment has ignored any other argument.
        """
        assert self.first is not None
        if lost := ignored_arguments(self.first) - set(may_ignore):
            named = ", ".join(sorted(map(repr, lost)))
            raise TaskNotTaken(f"the environment's reset takes no {named}, of which {of} consists")

    async def step(self, action: Any) -> StepResult[Any]:
        """Carry out an action and return the result.

        Raises:
            LimitReached: The deadline has passed.
            OpenEnvError: The environment has refused the action, or has failed; see
                `openenv.errors.refusal`.
        """
        result = await self._timed(lambda: self._stepped(action))
        self.results.append(result)
        return result

    def score(self, credit: Credit, *, is_over: bool | None = None) -> Score:
        """Return the score of the episode, by the environment's declaration of rewards.

        Args:
            credit: Assigns the episode's reward to steps if nothing else does.
            is_over: True if the episode came to its end. Default: as the environment says.
        """
        spec = self.spec or RewardSpec("per_step")
        is_over = self.is_over if is_over is None else is_over
        return episode_score(spec, self.results, credit, is_over=is_over)

    def _stepped(self, action: Any) -> Awaitable[StepResult[Any]]:
        left = self.deadline.left_s
        if left is None:
            return self.client.step(action)
        return self.client.step(action, timeout_s=max(0.0, left))

    async def _timed(self, call: Call) -> StepResult[Any]:
        """Make a call before the deadline, and add its duration to `environment_s`."""
        began = time.perf_counter()
        try:
            found = await self._unhurried(call)
        except asyncio.TimeoutError:
            if not self.deadline.is_past:
                raise
            raise LimitReached("wall_clock") from None
        finally:
            self.environment_s += time.perf_counter() - began
        if not isinstance(found, StepResult):
            raise TypeError(
                f"the client's _parse_result gives {type(found).__name__}; rollouts need a "
                "StepResult"
            )
        return found

    async def _unhurried(self, call: Call) -> Any:
        """Make a call; if the rate is too high, wait as long as the server asks and repeat it."""
        waits = 0
        while True:
            left = self.deadline.left_s
            try:
                if left is None:
                    return await call()
                return await within(max(0.0, left) + SLACK_S, call())
            except RateLimited as error:  # nothing was carried out
                if self._on_pressure is not None:
                    self._on_pressure("RateLimited")
                if waits == MAX_RATE_WAITS:
                    raise
                if left is not None and error.retry_after_s >= left:
                    await asyncio.sleep(max(0.0, left))
                    raise LimitReached("wall_clock") from None
                await asyncio.sleep(max(0.0, error.retry_after_s))
                waits += 1


# ------------------------------------------------------------------ arguments of a reset


def reset_arguments(task: Task, is_scored_there: bool) -> dict[str, Any]:
    """Return the arguments with which an environment is reset for a task.

    These are the task's `reset`. If the environment needs the task's files, its state or the
    criteria that it scores by, the whole task is added as the argument `task`.
    """
    arguments = dict(task.reset)
    if task.files or task.state or (task.criteria and is_scored_there):
        arguments["task"] = task.model_dump(mode="json", exclude_defaults=True)
    return arguments


def ignorable_arguments(task: Task | None) -> set[str]:
    """Return the arguments that an environment may ignore: the seed, and a task without files and
    state.
    """
    has_world = task is not None and (task.files or task.state)
    return {"seed"} if has_world else {"seed", "task"}


def ignored_arguments(first: StepResult[Any]) -> set[str]:
    """Return the arguments of a reset that the environment did not use."""
    return set((first.metadata or {}).get(IGNORED_ARGUMENTS, ()))


# ------------------------------------------------------------------ scores


def episode_score(
    spec: RewardSpec, results: Sequence[StepResult[Any]], credit: Credit, *, is_over: bool
) -> Score:
    """Return the score of an episode from the environment's rewards, with the share of each step.

    Args:
        spec: The environment's declaration of rewards.
        results: The results of the steps.
        credit: Assigns the episode's reward to steps if nothing else does.
        is_over: True if the episode came to its end; before that, a terminal reward is unknown.
    """
    rewards = [finite_reward(one.reward) for one in results]
    unscored = [
        one.unscored
        if one.reward is None or math.isfinite(one.reward)
        else f"the reward is {one.reward}"
        for one in results
    ]
    if spec.kind == "terminal" and not is_over:
        return Score()
    value = spec.total(rewards, unscored)
    if value is None:
        return Score(unscored=next((why for why in reversed(unscored) if why), None))
    return Score(
        value, _components(spec, results, value), step_rewards=_shares(spec, results, value, credit)
    )


def finite_reward(reward: Any) -> float | None:
    """Return a reward as a float; None for a missing, infinite or NaN reward."""
    return None if reward is None or not math.isfinite(reward) else float(reward)


def _shares(
    spec: RewardSpec, results: Sequence[StepResult[Any]], value: float, credit: Credit
) -> list[float] | None:
    told = results[-1].step_rewards
    if told is not None and len(told) == len(results):
        return told
    if spec.kind == "terminal":
        return list(credit(value, len(results)))
    if spec.kind == "per_step":
        return [float(one.reward or 0.0) for one in results]
    shares, before = [], 0.0
    for one in results:
        now = before if one.reward is None else float(one.reward)
        shares.append(now - before)
        before = now
    return shares


def _components(
    spec: RewardSpec, results: Sequence[StepResult[Any]], value: float
) -> dict[str, float]:
    """Return the components of the episode's reward; none if only some rewards have any."""
    if spec.kind != "per_step":
        last: StepResult[Any] = next(one for one in reversed(results) if one.reward is not None)
        return last.components
    parts: dict[str, list[float]] = {}
    for one in results:
        if one.reward and not one.components:
            return {}
        for name, part in one.components.items():
            parts.setdefault(name, []).append(part)
    sums = {name: math.fsum(found) for name, found in parts.items()}
    return sums if math.isclose(math.fsum(sums.values()), value, rel_tol=1e-6, abs_tol=1e-6) else {}
