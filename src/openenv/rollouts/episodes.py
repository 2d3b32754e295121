"""One attempt at a rollout: a policy plays an episode, and the episode is recorded."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from openenv._internal.timing import within
from openenv.arrays import as_base64
from openenv.client.client import EnvClient
from openenv.errors import refusal, words
from openenv.protocol.messages import IGNORED_ARGUMENTS, INFO, TRUNCATED
from openenv.reward import REWARD_INFO
from openenv.rewards.credit import Credit, TokenCredit, terminal
from openenv.rewards.delayed import Trajectory, TrajectoryScorer, score_trajectory
from openenv.rollouts.calls import UserCodeCaller
from openenv.rollouts.endings import NO_SCORE, NOT_BEGUN, why_unscored
from openenv.rollouts.engine import (
    Deadline,
    LimitReached,
    LiveEpisode,
    finite_reward,
    ignorable_arguments,
    ignored_arguments,
    reset_arguments,
)
from openenv.rollouts.failures import AttemptFailed, Place
from openenv.rollouts.interfaces import Interface
from openenv.rollouts.jobs import RolloutJob
from openenv.rollouts.limits import RolloutLimits
from openenv.rollouts.policies.base import (
    Decision,
    EpisodeOpening,
    InvalidReply,
    Policy,
    PolicyPlayer,
    PolicyStopped,
    PolicyTurn,
)
from openenv.rollouts.records import Rollout, RolloutUsage, StepRecord
from openenv.types import StepResult, is_observation

Client = EnvClient[Any, Any, Any]

# Fields of an observation that the record of a step stores separately.
BESIDE = {"reward", "done", "truncated", "metadata"}
# Data that protocol version 0 sends as metadata, since it has no fields for it.
OWN_FIELDS = {REWARD_INFO, IGNORED_ARGUMENTS, INFO, TRUNCATED}
MAX_WHY = 500  # characters
LONG = 200
"""Number of steps after which an episode may be one that never ends."""


@dataclass
class RolloutScoring:
    """Rules by which the episodes of a run are scored.

    Attributes:
        scorer: Scores whole episodes; None leaves scoring to the environment.
        credit: Assigns the episode's reward to steps if nothing else does.
        token_credit: Assigns the reward of a step to tokens.
    """

    scorer: TrajectoryScorer | None = None
    credit: Credit = terminal
    token_credit: TokenCredit | None = None
    caller: UserCodeCaller = field(default_factory=UserCodeCaller)


@dataclass
class EpisodeConfig:
    """Settings that are the same for every episode of a run.

    Attributes:
        takes_seed: False once the environment is known to ignore the seed.
        note_long: Called if an episode reaches `LONG` steps.
    """

    policy: Policy
    limits: RolloutLimits
    scoring: RolloutScoring
    interface: Interface | None = None
    takes_seed: bool = True
    note_long: Callable[[], None] | None = None


async def play(
    session: Client, job: RolloutJob, config: EpisodeConfig, press: Callable[[str], None]
) -> tuple[Rollout, bool]:
    """Let a policy play an episode.

    Args:
        session: The session; an episode that is running there is abandoned.
        job: The rollout to play.
        config: Settings of the run.
        press: Called with the reason each time the server asks for fewer requests.

    Returns:
        The record, and whether the policy is going to play further episodes.

    Raises:
        AttemptFailed: The attempt has failed.
    """
    episode = _PolicyEpisode(session, job, config, press)
    try:
        await episode.run()
    except asyncio.CancelledError:
        raise
    except Exception as error:
        raise AttemptFailed(error, episode.at, episode.so_far()) from error
    return episode.rollout, not episode.ends_run


class _PolicyEpisode:
    def __init__(
        self, client: Client, job: RolloutJob, config: EpisodeConfig, press: Callable[[str], None]
    ) -> None:
        self._live = LiveEpisode(client, Deadline(config.limits.seconds), press)
        self._job = job
        self._config = config
        self._limits = config.limits
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
        self._refused: list[dict[str, Any]] = []
        self._player: PolicyPlayer | None = None
        # Counted here, since setting a field of a pydantic model takes ten times as long.
        self._model_calls = self._prompt_tokens = self._completion_tokens = 0
        self._policy_s = 0.0

    async def run(self) -> None:
        try:
            result = await self._reset()
            self.at = "policy"
            task, job, config = self.rollout.task, self._job, self._config
            opening = EpisodeOpening(task, job.policy_seed, job.id, config.interface)
            player = config.policy.begin(opening)
            self._player = await player if inspect.isawaitable(player) else player
            while not result.done:
                if self._limits.steps is not None and len(self._live.results) >= self._limits.steps:
                    raise LimitReached("steps")
                result = await self._advance(result)
                if len(self._live.results) == LONG and self._config.note_long is not None:
                    self._config.note_long()
            self.rollout.outcome = "truncated" if result.truncated else "done"
        except LimitReached as reached:
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
        """Return the record of the episode so far."""
        rollout = self.rollout
        rollout.refused = self._refused
        rollout.messages = _conversation(self._player)
        rollout.usage = RolloutUsage(
            model_calls=self._model_calls,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            environment_seconds=self._live.environment_s,
            policy_seconds=self._policy_s,
            seconds=time.monotonic() - self._began,
        )
        rollout.ended_at = time.time()
        return rollout

    # ------------------------------------------------------------------ steps

    async def _reset(self) -> StepResult[Any]:
        task, arguments = self._job.task, {}
        if task is not None:
            arguments = reset_arguments(task, self._config.scoring.scorer is None)
        if self._job.seed is not None and self._config.takes_seed:
            arguments.setdefault("seed", self._job.seed)
        result = await self._live.reset(arguments)
        if "seed" in ignored_arguments(result):
            self._config.takes_seed = False
        if not self._config.takes_seed:
            self.rollout.seed = None
        self._live.check_arguments(ignorable_arguments(task), f"the task {self._job.group.key!r}")
        self._trajectory.first = result.observation
        self.rollout.first = observation_value(result.observation)
        self.rollout.metadata = _beside(result)
        places = (place for place in (result.metadata, result.info) if place)
        ids = (place.get("episode_id") for place in places)
        self.rollout.episode_id = next((one for one in ids if isinstance(one, str)), None)
        return result

    async def _advance(self, result: StepResult[Any]) -> StepResult[Any]:
        """Let the policy act until the environment accepts an action; return the result."""
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
                after = await self._live.step(decision.action)
            except Exception as error:
                said = refusal(error)
                if said is None or not self._config.policy.wants_refusals:
                    raise
                refused = self._note_refused(decision, said)
                continue
            self._note(decision, after, time.perf_counter() - began, policy_s)
            if not after.done and self._tokens_left == 0:
                raise LimitReached("tokens")
            return after

    def _turn(self, result: StepResult[Any], refused: str | None) -> PolicyTurn:
        if self._live.deadline.is_past:
            raise LimitReached("wall_clock")
        tokens = self._tokens_left
        if tokens == 0:
            raise LimitReached("tokens")
        return PolicyTurn(
            result.observation,
            len(self._live.results),
            self.rollout.task,
            result,
            self._trajectory,
            refused,
            self._live.deadline.left_s,
            tokens,
        )

    @property
    def _tokens_left(self) -> int | None:
        if self._limits.tokens is None:
            return None
        return max(0, self._limits.tokens - self._completion_tokens)

    async def _decided(self, turn: PolicyTurn) -> Decision:
        assert self._player is not None
        acting = self._player.act(turn)
        if not inspect.isawaitable(acting):
            return acting
        if turn.seconds_left is None:
            return await acting
        try:
            return await within(turn.seconds_left, acting)
        except asyncio.TimeoutError:
            if not self._live.deadline.is_past:  # the policy's own timeout
                raise
            raise LimitReached("wall_clock") from None

    # ------------------------------------------------------------------ recording

    def _count(self, decision: Decision) -> None:
        self._model_calls += decision.model_calls
        self._prompt_tokens += decision.prompt_tokens
        self._completion_tokens += decision.completion_tokens

    def _note_refused(self, decision: Decision, why: str) -> str:
        self._refused.append(
            {
                "action": to_json_value(decision.action),
                "why": why,
                **to_json_value(dict(decision.record)),
            }
        )
        most = self._limits.invalid_actions
        if most is not None and len(self._refused) >= most:
            raise LimitReached("invalid_actions")
        return why

    def _note(
        self, decision: Decision, result: StepResult[Any], seconds: float, policy_s: float
    ) -> None:
        self._trajectory.add(decision.action, result.observation, result.reward)
        record = to_json_value(dict(decision.record)) if decision.record else {}
        if decision.completion_tokens:
            record.setdefault("completion_tokens", decision.completion_tokens)
        if self._refused:
            record["refused"], self._refused = self._refused, []
        self._policy_s += policy_s
        self.rollout.steps.append(
            StepRecord(
                action=to_json_value(decision.action),
                observation=observation_value(result.observation),
                reward=finite_reward(result.reward),
                done=result.done,
                truncated=result.truncated,
                reward_info=result.reward_info,
                info=None if result.info is None else to_json_value(result.info),
                metadata=_beside(result),
                seconds=seconds,
                policy_seconds=policy_s,
                policy=record or None,
            )
        )

    # ------------------------------------------------------------------ scoring

    async def _score(self) -> None:
        rollout, scoring = self.rollout, self._config.scoring
        if (spec := self._live.spec) is not None:
            rollout.reward_kind, rollout.reward_range = spec.kind, spec.range
            rollout.reward_unfinished = spec.unfinished
        if scoring.scorer is not None:
            score = await scoring.caller(
                score_trajectory, scoring.scorer, self._trajectory, scoring.credit
            )
        else:
            is_over = rollout.outcome in ("done", "truncated")
            score = self._live.score(scoring.credit, is_over=is_over)
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
    """Assign the reward of each step to the tokens of the step.

    Args:
        steps: The records of the steps.
        shares: The reward of each step; None if unknown.
        credit: The credit assignment; None gives tokens nothing.

    Returns:
        The rewards of each step's tokens, or None; and the reason if they should exist but do not.
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


def _conversation(player: PolicyPlayer | None) -> list[dict[str, Any]]:
    held = getattr(player, "messages", None)
    if not isinstance(held, list | tuple):
        return []
    found = to_json_value(list(held))
    return found if all(isinstance(message, dict) for message in found) else []


# ------------------------------------------------------------------ values


def to_json_value(value: Any) -> Any:
    """Convert a value to JSON types: arrays and bytes become base64; NaN becomes null in files."""
    if isinstance(value, BaseModel):
        fields = value.model_dump(mode="json", fallback=_fallback)
        if not fields.get("metadata", True):  # the empty metadata of an action
            del fields["metadata"]
        return fields
    return to_jsonable_python(value, bytes_mode="base64", fallback=_fallback)


def observation_value(observation: Any) -> Any:
    """Convert an observation to JSON types, without the fields that a step's record stores."""
    if isinstance(observation, BaseModel) and is_observation(type(observation)):
        return observation.model_dump(mode="json", exclude=BESIDE, fallback=_fallback)
    found = to_json_value(observation)
    if isinstance(found, dict) and isinstance(found.get("metadata"), dict):
        del found["metadata"]  # the client sends it both inside the observation and beside it
    return found


def _beside(result: StepResult[Any]) -> dict[str, Any] | None:
    """Return the metadata sent with an observation, without entries that have their own fields."""
    if not result.metadata:
        return None
    kept = {name: v for name, v in result.metadata.items() if name not in OWN_FIELDS}
    return to_json_value(kept) or None


def _fallback(value: Any) -> Any:
    if type(value).__module__ == "numpy" and hasattr(value, "ndim"):
        return as_base64(value) if value.ndim else value.item()
    if isinstance(value, Mapping):
        return dict(value)
    attributes = getattr(value, "__dict__", None)  # an action that is not a model
    return dict(attributes) if attributes else repr(value)
