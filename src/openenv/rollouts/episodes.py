"""One attempt at a rollout: reset, act until it is over, score."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from openenv._internal.timeouts import within
from openenv.arrays import as_base64
from openenv.client.client import EnvClient
from openenv.errors import RateLimited, refusal, words
from openenv.protocol.messages import IGNORED_ARGUMENTS, INFO, TRUNCATED
from openenv.reward import REWARD_INFO, RewardSpec, Score
from openenv.rewards.credit import Credit, TokenCredit, terminal
from openenv.rewards.delayed import Trajectory, TrajectoryScorer, score_trajectory
from openenv.rollouts.calls import Caller
from openenv.rollouts.endings import NO_SCORE, NOT_BEGUN, why_unscored
from openenv.rollouts.failures import AttemptFailed, Place, TaskNotTaken
from openenv.rollouts.interfaces import Interface
from openenv.rollouts.jobs import Job
from openenv.rollouts.limits import RolloutLimits
from openenv.rollouts.policies.base import (
    Decision,
    InvalidReply,
    Opening,
    Player,
    Policy,
    PolicyStopped,
    Turn,
)
from openenv.rollouts.records import Failure, Limit, Rollout, StepRecord, Usage
from openenv.tasks.task import Task
from openenv.types import StepResult, is_observation

__all__ = [
    "Scoring",
    "Terms",
    "check_taken",
    "failed",
    "ignored_arguments",
    "plain",
    "play",
    "token_rewards",
    "worth",
]

Client = EnvClient[Any, Any, Any]

NOT_DECLARED = RewardSpec("per_step")
# Fields of an observation that stand beside it in the record of a step.
BESIDE = {"reward", "done", "truncated", "metadata"}
# What protocol version 0 sends as metadata, for want of fields.
OWN_FIELDS = {REWARD_INFO, IGNORED_ARGUMENTS, INFO, TRUNCATED}
WAITS = 8  # in a row, for a key that asks too much
SLACK_S = 5.0  # for which an answer may be late before it is given up here
TICK_S = 0.002  # by which a timer of a loop that counts milliseconds (libuv) may be early
MAX_WHY = 500  # characters
LONG = 200
"""Steps after which an episode may be one that has no end."""


@dataclass
class Scoring:
    """How episodes are scored as a whole.

    Attributes:
        scorer: What scores them; None leaves it to the environment.
        credit: What each step gets, where nobody else says.
        token_credit: What each token gets of the reward of its step.
    """

    scorer: TrajectoryScorer | None = None
    credit: Credit = terminal
    token_credit: TokenCredit | None = None
    caller: Caller = field(default_factory=Caller)


@dataclass
class Terms:
    """What holds of every episode of a run.

    Attributes:
        policy: Who plays.
        limits: What it may take.
        scoring: How it is scored.
        interface: How one acts in the environment, where the policy asks for it.
        takes_seed: The environment takes a seed, as far as is known.
        note_long: Called where an episode that nothing but itself ends has come to `LONG` steps.
    """

    policy: Policy
    limits: RolloutLimits
    scoring: Scoring
    interface: Interface | None = None
    takes_seed: bool = True
    note_long: Callable[[], None] | None = None


async def play(
    client: Client, job: Job, terms: Terms, press: Callable[[str], None]
) -> tuple[Rollout, bool]:
    """Play an episode.

    Args:
        client: A session; whatever it had is abandoned.
        job: What is to be played.
        terms: How.
        press: Called with why, where something asks to be asked less.

    Returns:
        Its record, and whether the policy is going to play another one.

    Raises:
        AttemptFailed: It came to nothing.
    """
    episode = _Episode(client, job, terms, press)
    try:
        await episode.run()
    except asyncio.CancelledError:
        raise
    except Exception as error:
        raise AttemptFailed(error, episode.at, episode.so_far()) from error
    return episode.rollout, not episode.ends_run


class _LimitReached(Exception):
    def __init__(self, limit: Limit) -> None:
        self.limit: Limit = limit
        super().__init__(limit)


class _Episode:
    def __init__(
        self, client: Client, job: Job, terms: Terms, press: Callable[[str], None]
    ) -> None:
        self._client = client
        self._press = press
        self._job = job
        self._terms = terms
        self._limits = terms.limits
        self.at: Place = "reset"
        self.ends_run = False
        self.rollout = Rollout(
            id=job.id,
            task_id=None if job.task is None else job.task.id,
            group=job.group.key,
            sample=job.sample,
            seed=job.seed,
            task=None if job.task is None else job.task.public(),
            failures=list(job.failures),
            started_at=time.time(),
        )
        self._began = time.monotonic()
        self._trajectory: Trajectory[Any, Any] = Trajectory(task=job.task)
        self._results: list[StepResult[Any]] = []
        self._spec: RewardSpec | None = None
        self._refused: list[dict[str, Any]] = []
        self._player: Player | None = None
        # Counted here: setting the field of a model takes ten times as long.
        self._model_calls = self._prompt_tokens = self._completion_tokens = 0
        self._environment_s = self._policy_s = 0.0

    async def run(self) -> None:
        try:
            result = await self._reset()
            self._player = await self._begun()
            while not result.done:
                if self._limits.steps is not None and len(self._results) >= self._limits.steps:
                    raise _LimitReached("steps")
                result = await self._advance(result)
                if len(self._results) == LONG and self._terms.note_long is not None:
                    self._terms.note_long()
            self.rollout.outcome = "truncated" if result.truncated else "done"
        except _LimitReached as reached:
            self.rollout.outcome, self.rollout.limit = "limit", reached.limit
        except PolicyStopped as stopped:
            self.rollout.outcome, self.ends_run = "stopped", stopped.ends_run
        has_begun, self.at = self.at != "reset", "score"
        if has_begun:
            await self._score()
        else:
            self.rollout.unscored = NOT_BEGUN
        self.so_far()

    def so_far(self) -> Rollout:
        """What there is of it by now."""
        rollout = self.rollout
        rollout.refused = self._refused
        rollout.messages = _conversation(self._player)
        rollout.usage = Usage(
            model_calls=self._model_calls,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            environment_seconds=self._environment_s,
            policy_seconds=self._policy_s,
            seconds=time.monotonic() - self._began,
        )
        rollout.ended_at = time.time()
        return rollout

    # ------------------------------------------------------------------ its steps

    @property
    def _left_s(self) -> float | None:
        if self._limits.seconds is None:
            return None
        return self._began + self._limits.seconds - time.monotonic()

    @property
    def _is_over(self) -> bool:
        return (left := self._left_s) is not None and left <= TICK_S

    async def _reset(self) -> StepResult[Any]:
        task, arguments = self._job.task, {}
        if task is not None:
            arguments = reset_arguments(task, self._terms.scoring.scorer is None)
        if self._job.seed is not None and self._terms.takes_seed:
            arguments.setdefault("seed", self._job.seed)
        result = await self._timed(lambda: self._client.reset(**arguments))
        ignored = ignored_arguments(result)
        if "seed" in ignored:
            self._terms.takes_seed = False
        if not self._terms.takes_seed:
            self.rollout.seed = None
        check_taken(ignored - needless(task), f"the task {self._job.group.key!r}")
        self._spec = getattr(self._client, "reward_spec", None)
        self._trajectory.first = result.observation
        self.rollout.first = seen(result.observation)
        self.rollout.metadata = _beside(result)
        self.rollout.episode_id = _episode_id(result)
        return result

    async def _begun(self) -> Player:
        self.at = "policy"
        opening = Opening(
            self.rollout.task, self._job.policy_seed, self._job.id, self._terms.interface
        )
        player = self._terms.policy.begin(opening)
        return await player if inspect.isawaitable(player) else player

    async def _advance(self, result: StepResult[Any]) -> StepResult[Any]:
        """Have the policy act until the environment takes an action; gives what that led to."""
        self._refused = []
        refused: str | None = None
        policy_s = 0.0
        while True:
            self.at = "policy"
            began = time.perf_counter()
            try:
                decision = await self._decided(self._turn(result, refused))
            except InvalidReply as error:
                self._count(error.decision)
                refused = self._note_refused(error.decision, str(error))
                continue
            finally:
                policy_s += time.perf_counter() - began
            self._count(decision)
            self.at = "step"
            began = time.perf_counter()
            try:
                after = await self._timed(lambda: self._stepped(decision.action))  # noqa: B023 - now
            except Exception as error:
                said = refusal(error)
                if said is None or not self._terms.policy.wants_refusals:
                    raise
                refused = self._note_refused(decision, said)
                continue
            self._note(decision, after, time.perf_counter() - began, policy_s)
            if not after.done and self._tokens_left == 0:
                raise _LimitReached("tokens")
            return after

    def _turn(self, result: StepResult[Any], refused: str | None) -> Turn:
        if self._is_over:
            raise _LimitReached("wall_clock")
        tokens = self._tokens_left
        if tokens == 0:
            raise _LimitReached("tokens")
        return Turn(
            result.observation,
            len(self._results),
            self.rollout.task,
            result,
            self._trajectory,
            refused,
            self._left_s,
            tokens,
        )

    @property
    def _tokens_left(self) -> int | None:
        if self._limits.tokens is None:
            return None
        return max(0, self._limits.tokens - self._completion_tokens)

    async def _decided(self, turn: Turn) -> Decision:
        assert self._player is not None
        acting = self._player.act(turn)
        if not inspect.isawaitable(acting):
            return acting
        if turn.seconds_left is None:
            return await acting
        try:
            return await within(turn.seconds_left, _awaited(acting))
        except asyncio.TimeoutError:
            if not self._is_over:  # it is the policy's own
                raise
            raise _LimitReached("wall_clock") from None

    def _stepped(self, action: Any) -> Awaitable[StepResult[Any]]:
        left = self._left_s
        if left is None:
            return self._client.step(action)
        return self._client.step(action, timeout_s=max(0.0, left))

    async def _timed(self, call: Callable[[], Awaitable[Any]]) -> StepResult[Any]:
        """Call the environment, within the limit."""
        began = time.perf_counter()
        try:
            found = await self._unhurried(call)
        except asyncio.TimeoutError:
            if not self._is_over:
                raise
            raise _LimitReached("wall_clock") from None
        finally:
            self._environment_s += time.perf_counter() - began
        if not isinstance(found, StepResult):
            raise TypeError(
                f"the client's _parse_result gives {type(found).__name__}; rollouts need a "
                "StepResult"
            )
        return found

    async def _unhurried(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Call, and where that is too often, wait as long as is asked, several times."""
        waited = 0
        while True:
            left = self._left_s
            try:
                if left is None:
                    return await call()
                return await within(max(0.0, left) + SLACK_S, _awaited(call()))
            except RateLimited as error:  # nothing was carried out
                self._press("RateLimited")
                if waited == WAITS:
                    raise
                if left is not None and error.retry_after_s >= left:
                    await asyncio.sleep(max(0.0, left))
                    raise _LimitReached("wall_clock") from None
                await asyncio.sleep(max(0.0, error.retry_after_s))
                waited += 1

    # ------------------------------------------------------------------ what is kept

    def _count(self, decision: Decision) -> None:
        self._model_calls += decision.model_calls
        self._prompt_tokens += decision.prompt_tokens
        self._completion_tokens += decision.completion_tokens

    def _note_refused(self, decision: Decision, why: str) -> str:
        self._refused.append(
            {"action": plain(decision.action), "why": why, **plain(dict(decision.record))}
        )
        most = self._limits.invalid_actions
        if most is not None and len(self._refused) >= most:
            raise _LimitReached("invalid_actions")
        return why

    def _note(
        self, decision: Decision, result: StepResult[Any], seconds: float, policy_s: float
    ) -> None:
        self._results.append(result)
        self._trajectory.add(decision.action, result.observation, result.reward)
        record = plain(dict(decision.record)) if decision.record else {}
        if decision.completion_tokens:
            record.setdefault("completion_tokens", decision.completion_tokens)
        if self._refused:
            record["refused"], self._refused = self._refused, []
        self._policy_s += policy_s
        self.rollout.steps.append(
            StepRecord(
                action=plain(decision.action),
                observation=seen(result.observation),
                reward=_finite(result.reward),
                done=result.done,
                truncated=result.truncated,
                reward_info=result.reward_info,
                info=None if result.info is None else plain(result.info),
                metadata=_beside(result),
                seconds=seconds,
                policy_seconds=policy_s,
                policy=record or None,
            )
        )

    # ------------------------------------------------------------------ its worth

    async def _score(self) -> None:
        rollout, scoring = self.rollout, self._terms.scoring
        if self._spec is not None:
            rollout.reward_kind, rollout.reward_range = self._spec.kind, self._spec.range
            rollout.reward_unfinished = self._spec.unfinished
        if scoring.scorer is not None:
            score = await scoring.caller(
                score_trajectory, scoring.scorer, self._trajectory, scoring.credit
            )
        else:
            score = worth(
                self._spec or NOT_DECLARED,
                self._results,
                scoring.credit,
                is_over=rollout.outcome in ("done", "truncated"),
            )
        rollout.reward, rollout.components = score.value, dict(score.components)
        rollout.unscored = score.unscored
        if score.value is None and score.unscored is None:
            rollout.unscored = why_unscored(rollout) if scoring.scorer is None else NO_SCORE
        if score.step_rewards is not None and score.value is not None:
            rollout.step_rewards = [float(share) for share in score.step_rewards]
        rollout.token_rewards, rollout.no_token_rewards = token_rewards(
            rollout.steps, rollout.step_rewards, scoring.token_credit
        )


def token_rewards(
    steps: Sequence[StepRecord], shares: Sequence[float] | None, credit: TokenCredit | None
) -> tuple[list[list[float]] | None, str | None]:
    """What each token gets of the reward of its step.

    Args:
        steps: The steps.
        shares: Of each, its reward; None where nobody knows.
        credit: The credit assignment; None gives tokens nothing.

    Returns:
        The rewards of each step's tokens; or None, and why, where they should have some.
    """
    if credit is None or shares is None:
        return None, None
    if len(shares) != len(steps):
        return None, f"there are rewards of {len(shares)} steps, and {len(steps)} steps"
    counts = [step.tokens for step in steps]
    for number, (count, share) in enumerate(zip(counts, shares, strict=True), 1):
        if count is None:
            return None, f"step {number} does not tell of its tokens (policy.completion_tokens)"
        if not count and share:
            return None, f"step {number} has a reward, and no tokens to give it to"
    known = [count or 0 for count in counts]
    try:
        given = [[float(one) for one in tokens] for tokens in credit(shares, known)]
    except Exception as error:
        why = f"the credit assignment raised {type(error).__name__}: {words(error)}"
        return None, why[:MAX_WHY]
    if [len(tokens) for tokens in given] != known:
        return None, f"the credit assignment gave {[len(one) for one in given]} for {known} tokens"
    return given, None


def _conversation(player: Player | None) -> list[dict[str, Any]]:
    """The messages of a policy that holds a conversation."""
    held = getattr(player, "messages", None)
    if not isinstance(held, list | tuple):
        return []
    found = plain(list(held))
    return found if all(isinstance(message, dict) for message in found) else []


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


def _episode_id(result: StepResult[Any]) -> str | None:
    for place in (result.metadata, result.info):
        if place and isinstance(place.get("episode_id"), str):
            return str(place["episode_id"])
    return None


def worth(
    spec: RewardSpec, results: Sequence[StepResult[Any]], credit: Credit, *, is_over: bool
) -> Score:
    """What an episode is worth by what its environment says, and the share of each step.

    Args:
        spec: What the rewards mean.
        results: Of the steps.
        credit: What each step gets of a reward that is told for the whole.
        is_over: It came to its end: of one that did not, a terminal reward is not known yet.
    """
    rewards = [_finite(one.reward) for one in results]
    unscored = [_unscored(one) for one in results]
    if spec.kind == "terminal" and not is_over:
        return Score()
    value = spec.total(rewards, unscored)
    if value is None:
        return Score(unscored=next((why for why in reversed(unscored) if why), None))
    return Score(
        value, _components(spec, results, value), step_rewards=_shares(spec, results, value, credit)
    )


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
    """Those of the episode; none where only some of its rewards have some."""
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


def _finite(reward: Any) -> float | None:
    return None if reward is None or not math.isfinite(reward) else float(reward)


def _unscored(result: StepResult[Any]) -> str | None:
    if result.reward is not None and not math.isfinite(result.reward):
        return f"the reward is {result.reward}"
    return result.unscored


# ------------------------------------------------------------------ values


def reset_arguments(task: Task, is_scored_there: bool) -> dict[str, Any]:
    """What the environment's `reset` is called with for a task.

    They are its `reset`. One that has files, a state, or what it is scored by, is given as a whole
    beside, as `task`, where the environment has to know.
    """
    arguments = dict(task.reset)
    if task.files or task.state or (task.criteria and is_scored_there):
        arguments["task"] = task.model_dump(mode="json", exclude_defaults=True)
    return arguments


def needless(task: Task | None) -> set[str]:
    """Which arguments an environment may ignore: a seed; and a task whose world is not in it."""
    has_world = task is not None and (task.files or task.state)
    return {"seed"} if has_world else {"seed", "task"}


def ignored_arguments(first: StepResult[Any]) -> set[str]:
    """Which arguments of a reset had no meaning to the environment."""
    return set((first.metadata or {}).get(IGNORED_ARGUMENTS, ()))


def check_taken(lost: set[str], of: str) -> None:
    """Refuse an episode that is not the one that was asked for.

    Args:
        lost: The arguments of its reset that were ignored, and may not be.
        of: What consists of them.

    Raises:
        TaskNotTaken: There are any.
    """
    if lost:
        named = ", ".join(sorted(map(repr, lost)))
        raise TaskNotTaken(f"the environment's reset takes no {named}, of which {of} consists")


def plain(value: Any) -> Any:
    """A value as JSON has it: arrays and bytes as base64; a NaN stays, and is null in a file."""
    if isinstance(value, BaseModel):
        fields = value.model_dump(mode="json", fallback=_fallback)
        if not fields.get("metadata", True):  # of an action
            del fields["metadata"]
        return fields
    return to_jsonable_python(value, bytes_mode="base64", fallback=_fallback)


def seen(observation: Any) -> Any:
    """An observation as JSON has it, without what the record of its step holds itself."""
    if isinstance(observation, BaseModel) and is_observation(type(observation)):
        return observation.model_dump(mode="json", exclude=BESIDE, fallback=_fallback)
    found = plain(observation)
    if isinstance(found, dict) and isinstance(found.get("metadata"), dict):
        del found["metadata"]  # it is sent both in the observation and beside it
    return found


def _beside(result: StepResult[Any]) -> dict[str, Any] | None:
    """What was sent beside an observation, without what has a field of its own."""
    if not result.metadata:
        return None
    kept = {name: v for name, v in result.metadata.items() if name not in OWN_FIELDS}
    return plain(kept) or None


def _fallback(value: Any) -> Any:
    if type(value).__module__ == "numpy" and hasattr(value, "ndim"):
        return as_base64(value) if value.ndim else value.item()
    if isinstance(value, Mapping):
        return dict(value)
    attributes = getattr(value, "__dict__", None)  # an action that is no model
    return dict(attributes) if attributes else repr(value)


def failed(job: Job, failures: list[Failure], rollout: Rollout) -> Rollout:
    """The record of a rollout of which no attempt came to anything."""
    rollout.outcome, rollout.reward, rollout.failures = "failed", None, failures
    rollout.unscored = failures[-1].message
    return rollout
