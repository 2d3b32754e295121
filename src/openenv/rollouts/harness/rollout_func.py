"""Rollouts for TRL's ``rollout_func``, played by a harness."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from openenv.rollouts.harness.loops import HarnessAdapter
from openenv.rollouts.harness.results import (
    HarnessRolloutResult,
    HarnessRunLimits,
    ModelStep,
    VerifyResult,
)
from openenv.rollouts.harness.sessions import ResourceSession, ResourceSessionFactory

RolloutFunc = Callable[[list[Any], Any], dict[str, list[Any]]]
ModelStepBuilder = Callable[[Any, ResourceSession], ModelStep]


def build_harness_rollout_func(
    *,
    session_factory: ResourceSessionFactory[Any],
    harness_adapter: HarnessAdapter,
    model_step_builder: ModelStepBuilder,
    limits: HarnessRunLimits | None = None,
    reward_key: str = "env_reward",
    concurrency: int = 1,
) -> RolloutFunc:
    """Build a ``rollout_func(prompts, trainer)`` for TRL's GRPOTrainer.

    The function returns columns with an entry for each prompt: ``prompt_ids``, ``completion_ids``,
    ``logprobs``, the reward under `reward_key`, ``verify_metrics``, and ``env_mask``, which is 0
    for tokens that the model did not write (TRL does not train on these). Each session is closed.

    Args:
        session_factory: Begins a session for a prompt.
        harness_adapter: Plays the rollouts.
        model_step_builder: Builds the model step of a session from ``(trainer, session)``.
        limits: Limits that end a rollout.
        reward_key: The column of the reward.
        concurrency: Number of rollouts at once, each in its own thread; the model steps must be
            thread-safe if it is above 1. Default: one after the other.

    Raises:
        ValueError: `concurrency` is below 1.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency={concurrency}: expected at least 1")

    def rollout_func(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        def played(prompt: Any) -> dict[str, Any]:
            session = session_factory.create(prompt)
            rollout, verdict = play_session(
                session, harness_adapter, partial(model_step_builder, trainer), limits
            )
            return {
                "prompt_ids": rollout.prompt_ids,
                "completion_ids": rollout.completion_ids,
                "logprobs": rollout.logprobs,
                "env_mask": rollout.completion_mask,
                reward_key: env_reward(rollout, verdict),
                "verify_metrics": verdict.metrics,
            }

        if concurrency == 1:
            rows = [played(prompt) for prompt in prompts]
        else:
            with ThreadPoolExecutor(concurrency, thread_name_prefix="openenv-rollout") as threads:
                rows = list(threads.map(played, prompts))
        names = ("prompt_ids", "completion_ids", "logprobs", "env_mask", reward_key)
        return {name: [row[name] for row in rows] for name in (*names, "verify_metrics")}

    return rollout_func


def play_session(
    session: ResourceSession,
    adapter: HarnessAdapter,
    build_step: Callable[[ResourceSession], ModelStep] | None,
    limits: HarnessRunLimits | None = None,
) -> tuple[HarnessRolloutResult, VerifyResult]:
    """Let a harness play the episode of a session, verify the episode, and close the session.

    Args:
        session: The session.
        adapter: The harness.
        build_step: Builds the model step that samples the turns; None for a harness that samples
            them itself.
        limits: Limits that end the rollout.
    """
    try:
        if build_step is None:
            rollout = adapter.run_black_box(session, limits)
        else:
            rollout = adapter.run_white_box(build_step(session), session, limits)
        return rollout, session.verify(rollout.messages)
    finally:
        session.close()


def env_reward(rollout: HarnessRolloutResult, verdict: VerifyResult) -> float | None:
    """Return the reward of a rollout: the last tool result's, else the verdict's.

    The reward is None, and TRL leaves the rollout out, if the verdict has no reward and its
    artifact ``unscored`` gives the reason.

    Raises:
        ValueError: There is no reward, it is not finite, or the two rewards differ.
    """
    carried = [_carried(entry.result) for entry in rollout.tool_trace]
    seen = next((reward for reward in reversed(carried) if reward is not None), None)
    rewards = [float(one) for one in (seen, verdict.env_reward) if one is not None]
    if verdict.env_reward is None and verdict.artifacts.get("unscored"):
        return None
    if not rewards:
        raise ValueError("the rollout has no reward: neither a tool result nor verify gave one")
    reward = rewards[0]
    if not math.isfinite(reward):
        raise ValueError(f"the rollout's reward is {reward}, which is no finite number")
    if not math.isclose(reward, rewards[-1], rel_tol=1e-9, abs_tol=1e-6):
        raise ValueError(
            f"verify.env_reward is {rewards[-1]}, but the last reward of the rollout was {reward}: "
            f"verify has to pass on the environment's reward"
        )
    return reward


def _carried(result: Any) -> Any:
    for place in (result.metadata, result.data):
        if isinstance(place, dict) and place.get("reward") is not None:
            return place["reward"]
    return None
