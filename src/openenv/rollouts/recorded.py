"""Recordings of servers as rollouts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from openenv.reward import RewardSpec
from openenv.rewards.credit import terminal
from openenv.rollouts.endings import NO_REWARD
from openenv.rollouts.engine import episode_score
from openenv.rollouts.records import Failure, Rollout, RolloutHeader, StepRecord
from openenv.rollouts.replays import RecordedEpisode, RecordedEvent, read, read_header
from openenv.rollouts.replays import RecordingHeader as RecordingHeader
from openenv.types import StepResult

NOT_OVER = "its driver left the episode before the end"


def recorded_rollouts(path: str | os.PathLike[str]) -> tuple[RolloutHeader, Iterator[Rollout]]:
    """Read the episodes of a recording as rollouts.

    A step that was refused or that raised is not recorded as a step, but listed in the rollout's
    ``errors``. An episode with a missing part has the outcome ``failed``. An episode that was not
    done before the next one began has the outcome ``limit``.

    Raises:
        RecordingError: The file is not a recording, or is damaged.
    """
    found = read_header(path)
    header = RolloutHeader(
        environment=found.target or found.environment,
        policy="recorded",
        openenv=found.openenv,
        started_at=found.time,
    )
    episodes = enumerate(read(path), 1)
    return header, (_rollout(found, number, one) for number, one in episodes)


def _rollout(found: RecordingHeader, number: int, episode: RecordedEpisode) -> Rollout:
    steps = [event for event in episode.events if event.kind == "step"]
    taken = [event for event in steps if event.error is None]
    why = _why_failed(episode)
    rollout = Rollout(
        id=f"{found.session_id}/{number}",
        seed=episode.seed if isinstance(episode.seed, int) else None,
        steps=[_step(event) for event in taken],
        unscored=why,
        outcome=_outcome(episode, why),
        failures=[Failure(type="IncompleteEpisode", message=why)] if why else [],
        started_at=episode.events[0].time if episode.events else found.time,
        ended_at=episode.events[-1].time if episode.events else found.time,
    )
    if episode.has_beginning:
        begins = episode.events[0]
        task = begins.arguments.get("task")
        id = task.get("id") if isinstance(task, dict) else task
        rollout.first = begins.observation
        rollout.task = task if isinstance(task, dict) else None
        rollout.task_id = id if isinstance(id, str) else None
    if why is None:
        # A server sends the declaration of rewards with the first observation.
        declared = (episode.events[0].reward_info or {}).get("spec")
        spec = RewardSpec.from_data(declared) if isinstance(declared, dict) else RewardSpec()
        _score(rollout, spec)
    errors = [
        {"step": event.step, "action": event.action, "type": error.type, "code": error.code}
        for event in steps
        if (error := event.error) is not None
    ]
    return rollout.model_copy(update={"errors": errors})


def _score(rollout: Rollout, spec: RewardSpec) -> None:
    results: list[StepResult[Any]] = [
        StepResult(None, step.reward, step.done, reward_info=step.reward_info)
        for step in rollout.steps
    ]
    is_over = rollout.outcome != "limit"
    score = episode_score(spec, results, terminal, is_over=is_over)
    rollout.reward_kind = spec.kind
    rollout.reward, rollout.components = score.value, dict(score.components)
    rollout.unscored = score.unscored
    if score.value is None and score.unscored is None:
        rollout.unscored = NO_REWARD if is_over else NOT_OVER
    if score.step_rewards is not None:
        rollout.step_rewards = list(score.step_rewards)


def _why_failed(episode: RecordedEpisode) -> str | None:
    if not episode.has_beginning:
        return "the recording does not hold the beginning of the episode"
    if episode.events[0].kind != "reset":
        return "the episode begins with a restore: what came before it is not known"
    if episode.lost:
        return f"{episode.lost} events of the episode are missing"
    if episode.is_torn and not episode.is_done:
        return "the recording breaks off within the episode"
    if any(event.unrecorded for event in episode.events):
        return "something of the episode could not be written down"
    return None


def _outcome(episode: RecordedEpisode, why: str | None) -> Any:
    if why:
        return "failed"
    if not episode.is_done:
        return "limit"  # its driver began another episode
    return "truncated" if episode.events[-1].truncated else "done"


def _step(event: RecordedEvent) -> StepRecord:
    return StepRecord(
        action=event.action,
        observation=event.observation,
        reward=None if event.reward is None else float(event.reward),
        done=event.done,
        truncated=event.truncated,
        reward_info=event.reward_info,
        info=event.info,
        metadata=event.metadata or None,
        seconds=event.seconds,
    )
