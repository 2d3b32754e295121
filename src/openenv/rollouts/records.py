"""The records of rollouts, stored as one line of JSON or one row of a table each.

A file of rollouts is JSON lines. Its first line is a header, and every other line is a `Rollout`:

    {"format": "openenv-rollouts", "version": 1, "environment": ..., "policy": ..., ...}
    {"id": "train/3#0", "task_id": "train/3", "sample": 0, "steps": [...], "reward": 1.0, ...}
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from openenv.reward import RewardKind

FORMAT, FORMAT_VERSION = "openenv-rollouts", 1

# `stopped`: the policy had nothing more to do, as when a person leaves or a script ends.
Outcome = Literal["done", "truncated", "limit", "stopped", "failed"]
Limit = Literal["steps", "wall_clock", "tokens", "invalid_actions"]


class _Record(BaseModel):
    # Fields that a later version adds are kept, and written again.
    model_config = ConfigDict(extra="allow", validate_assignment=False)


class RolloutHeader(_Record):
    """The first line of a file of rollouts: what was played, by whom, and how."""

    format: Literal["openenv-rollouts"] = "openenv-rollouts"
    version: int = FORMAT_VERSION
    environment: str = Field(description="What was played: a target, or an address.")
    policy: str = Field(description="Who played.")
    reward: dict[str, Any] | None = Field(
        default=None, description="What rewards mean: `RewardSpec.as_data`."
    )
    openenv: str = Field(default="", description="The version that wrote it.")
    started_at: float = Field(default=0.0, description="Seconds since the epoch.")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="Samples a task, limits, seeds: what a resume must match."
    )


class StepRecord(_Record):
    """One step: the action, the observation and the reward."""

    action: Any = None
    observation: Any = None
    reward: float | None = None
    done: bool = False
    truncated: bool = False
    reward_info: dict[str, Any] | None = Field(
        default=None, description="See `openenv.reward`: components, or why it was not scored."
    )
    info: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    seconds: float = Field(default=0.0, description="What the environment took.")
    policy_seconds: float = Field(default=0.0, description="What the policy took.")
    policy: dict[str, Any] | None = Field(
        default=None, description="What the policy tells of its choice: text, tokens, logprobs."
    )

    @property
    def tokens(self) -> int | None:
        """Number of tokens that the policy wrote; None if the policy does not report it."""
        known = self.policy or {}
        if isinstance(known.get("completion_token_ids"), list):
            return len(known["completion_token_ids"])
        count = known.get("completion_tokens")
        return count if isinstance(count, int) and not isinstance(count, bool) else None


class RolloutUsage(_Record):
    """The resources that a rollout has used."""

    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    environment_seconds: float = 0.0
    policy_seconds: float = 0.0
    seconds: float = Field(default=0.0, description="Wall clock, of the attempt that counts.")


class Failure(_Record):
    """The failure of one attempt."""

    type: str
    message: str
    at: Literal["open", "reset", "policy", "step", "score", "close"] = "step"
    step: int | None = None
    is_retried: bool = False
    is_by_policy: bool = Field(
        default=False,
        description="The policy raised, or did what the environment refuses; everything else is "
        "the fault of the environment, or of what is between the two.",
    )


class Rollout(_Record):
    """The record of one episode by one policy.

    `reward` is the episode's reward, by the environment's declaration of rewards. If it is None,
    `unscored` gives the reason. Rollouts of one task and one seed form a `group`, as in GRPO.
    """

    id: str = Field(description="Task, epoch and sample: unique in its file.")
    task_id: str | None = None
    group: str = Field(default="", description="The same for samples of one task and seed.")
    sample: int = 0
    seed: int | None = None
    task: dict[str, Any] | None = Field(default=None, description="The task, as agents see it.")
    episode_id: str | None = None
    first: Any = Field(default=None, description="What `reset` showed.")
    metadata: dict[str, Any] | None = Field(
        default=None, description="What `reset` sent along with it."
    )
    steps: list[StepRecord] = Field(default_factory=list)
    messages: list[dict[str, Any]] = Field(
        default_factory=list, description="The conversation, where the policy holds one."
    )
    reward: float | None = None
    reward_kind: RewardKind | None = None
    reward_range: tuple[float, float] | None = Field(
        default=None,
        description="The lowest and the highest reward that the environment declares for this "
        "episode, which another game may have otherwise.",
    )
    reward_unfinished: float | None = Field(
        default=None,
        description="What giving up costs in this episode, beside what it has earned: "
        "`RewardSpec.unfinished`. It is in no reward here.",
    )
    components: dict[str, float] = Field(default_factory=dict)
    unscored: str | None = None
    step_rewards: list[float] | None = Field(
        default=None, description="The share of each step, by the credit assignment."
    )
    token_rewards: list[list[float]] | None = Field(
        default=None, description="Of each step, the share of each of its tokens."
    )
    no_token_rewards: str | None = Field(
        default=None, description="Why tokens have none, though they should."
    )
    outcome: Outcome = "done"
    limit: Limit | None = Field(default=None, description="Which limit ended it.")
    refused: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Actions that were not taken after the last step, and why; others are in the "
        "`policy` of the step that came after them.",
    )
    failures: list[Failure] = Field(
        default_factory=list, description="Of every attempt that failed, the last one's too."
    )
    usage: RolloutUsage = Field(default_factory=RolloutUsage)
    is_kept: bool = Field(
        default=True, description="False where what happened in it was left out on request."
    )
    started_at: float = 0.0
    ended_at: float = 0.0

    @property
    def is_scored(self) -> bool:
        """True if the rollout has not failed and the reward is known."""
        return self.outcome != "failed" and self.reward is not None
