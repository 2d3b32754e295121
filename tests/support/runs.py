"""Rollouts that were never played, for evaluations of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openenv.rollouts.records import Failure, Rollout, RolloutHeader, RolloutUsage, StepRecord

FAILED = object()
"""In place of a reward: every attempt failed."""

HEADER = RolloutHeader(
    environment="dice_env",
    policy="random",
    reward={"kind": "terminal", "range": [0.0, 1.0], "components": []},
    settings={"n": 4, "seed": 0},
)


def rollout(name: str, sample: int = 0, reward: Any = 1.0, **more: Any) -> Rollout:
    """One rollout; a reward of None could not be had."""
    given: dict[str, Any] = {
        "id": f"{name}#{sample}",
        "task_id": name,
        "group": name,
        "sample": sample,
        "seed": 7,
        "steps": [StepRecord(), StepRecord()],
        "usage": RolloutUsage(prompt_tokens=100, completion_tokens=10, seconds=0.5),
    }
    if reward is FAILED:
        failure = Failure(type="ConnectError", message="no server answers", at="reset")
        given.update(outcome="failed", failures=[failure], steps=[])
    elif reward is None:
        given.update(unscored="the judge did not answer")
    else:
        given.update(reward=reward)
    return Rollout(**{**given, **more})


def run_of(rewards: Mapping[str, Sequence[Any]], **more: Any) -> list[Rollout]:
    """The rollouts of a run: of each task, the rewards of its samples."""
    return [
        rollout(task, sample, reward, **more)
        for task, samples in rewards.items()
        for sample, reward in enumerate(samples)
    ]


def header(**changes: Any) -> RolloutHeader:
    """`HEADER`, with changes."""
    return HEADER.model_copy(update=changes)
