"""Collected episodes: the lines of ``results.jsonl``, played by a harness or a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pydantic_core import to_jsonable_python

from openenv.rollouts.collect.interfaces import call_of
from openenv.rollouts.harness.results import HarnessRolloutResult, VerifyResult
from openenv.rollouts.harness.rollout_func import env_reward
from openenv.rollouts.interfaces import Interface
from openenv.rollouts.policies.views import view, visible_fields
from openenv.rollouts.records import Rollout

OVER = "the episode is over"


@dataclass
class EpisodeRecord:
    """A collected episode; every field has JSON types.

    Attributes:
        episode_id: Id, unique in its file.
        messages: The conversation in the format of OpenAI's API; every tool call is answered.
        reward: The episode's reward. Unscored episodes are not recorded.
        done: True if the episode came to its end.
        tool_trace: The calls, each as ``{"tool_name", "arguments", "result"}``.
        metrics: Numbers of the rollout, such as ``turns`` and ``tool_calls``.
        verify_metrics: Numbers of the verdict; for an environment, the components of its reward.
        artifacts: Everything else in the verdict.
        task: The task; None if there is none.
        extra: Notes of the collector.
    """

    episode_id: str
    messages: list[dict[str, Any]]
    reward: float
    done: bool
    tool_trace: list[dict[str, Any]]
    metrics: dict[str, Any]
    verify_metrics: dict[str, Any]
    artifacts: dict[str, Any]
    task: Any = None
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_rollout(
        cls,
        episode_id: str,
        rollout: HarnessRolloutResult,
        verify: VerifyResult,
        task: Any = None,
        extra: dict[str, Any] | None = None,
    ) -> EpisodeRecord:
        """Build the record of a harness rollout and its verdict.

        Raises:
            ValueError: The rollout has no reward, or two that differ; see
                `openenv.rollouts.harness.build_harness_rollout_func`.
        """
        reward = env_reward(rollout, verify)
        if reward is None:
            raise ValueError(f"the rollout has no reward: {verify.artifacts.get('unscored')}")
        return cls(
            episode_id=episode_id,
            messages=_plain(rollout.messages),
            reward=reward,
            done=rollout.done or verify.done,
            tool_trace=[_plain(asdict(entry)) for entry in rollout.tool_trace],
            metrics=_plain(rollout.metrics),
            verify_metrics=_plain(verify.metrics),
            artifacts=_plain(verify.artifacts),
            task=_plain(task),
            extra=_plain(extra or {}),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the record as a dictionary, as it is written to the file."""
        return asdict(self)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> EpisodeRecord:
        """Build a record from a parsed line; unknown fields of later versions are dropped.

        Raises:
            ValueError: A field is missing or has the wrong type.
        """
        known = {one.name: found[one.name] for one in fields(cls) if one.name in found}
        missing = [name for name in ("episode_id", "messages", "reward") if name not in known]
        if missing:
            raise ValueError(f"it has no {', '.join(missing)}")
        kinds: dict[str, Any] = {"episode_id": str, "messages": list, "reward": (int, float)}
        for name, kind in kinds.items():
            if not isinstance(known[name], kind) or isinstance(known[name], bool):
                raise ValueError(f"its {name} is {known[name]!r:.100}")
        objects: dict[str, Any] = {n: {} for n in ("metrics", "verify_metrics", "artifacts")}
        return cls(**{"done": True, "tool_trace": [], **objects, **known})


def episode_id_of(rollout_id: str) -> str:
    """Return the episode's id: the rollout's id, without ``#0`` for the first sample."""
    return rollout_id.removesuffix("#0")


def make_record(rollout: Rollout, interface: Interface | None, episode_id: str) -> EpisodeRecord:
    """Build the record of a scored rollout.

    Raises:
        ValueError: The rollout has no reward.
    """
    if not rollout.is_scored or rollout.reward is None:
        raise ValueError(f"rollout {rollout.id!r} has no reward: {rollout.unscored}")
    steps = rollout.steps
    refused = len(rollout.refused)
    refused += sum(len((step.policy or {}).get("refused", ())) for step in steps)
    noted = {
        "rollout_id": rollout.id,
        "group": rollout.group,
        "sample": rollout.sample,
        "seed": rollout.seed,
        "outcome": rollout.outcome,
        "limit": rollout.limit,
    }
    return EpisodeRecord(
        episode_id=episode_id,
        messages=complete_conversation(rollout, interface),
        reward=rollout.reward,
        done=rollout.outcome in ("done", "truncated"),
        tool_trace=_trace(rollout, interface),
        metrics={
            "turns": rollout.usage.model_calls or len(steps),
            "tool_calls": len(steps),
            "refused": refused,
            "prompt_tokens": rollout.usage.prompt_tokens,
            "completion_tokens": rollout.usage.completion_tokens,
        },
        verify_metrics=dict(rollout.components),
        artifacts={},
        task=rollout.task if rollout.task is not None else rollout.task_id,
        extra={name: value for name, value in noted.items() if value is not None},
    )


def complete_conversation(rollout: Rollout, interface: Interface | None) -> list[dict[str, Any]]:
    """Return the conversation of a rollout with an answer to every call. A policy is not shown the
    result of its last action, so that call has no answer yet.
    """
    messages = [dict(message) for message in rollout.messages]
    open_calls = _unanswered(messages)
    last = rollout.steps[-1].observation if rollout.steps else None
    for number, call in enumerate(open_calls):
        is_known = number == 0 and interface is not None and last is not None
        said = view(last, interface.visible) if is_known and interface is not None else OVER
        messages.append({"role": "tool", "tool_call_id": call.get("id"), "content": said})
    return messages


def _unanswered(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    told = [i for i, one in enumerate(messages) if one.get("role") == "assistant"]
    if not told:
        return []
    done = {one.get("tool_call_id") for one in messages[told[-1] :]}
    calls = messages[told[-1]].get("tool_calls") or ()
    return [call for call in calls if call.get("id") not in done]


def _trace(rollout: Rollout, interface: Interface | None) -> list[dict[str, Any]]:
    found = []
    visible = None if interface is None else interface.visible
    for step in rollout.steps:
        name, arguments = call_of(step.action, interface)
        data, metadata = visible_fields(step.observation, visible), {"reward": step.reward}
        result = {"data": data, "done": step.done, "metadata": metadata, "error": None}
        found.append({"tool_name": name, "arguments": arguments, "result": result})
    return found


def _plain(value: Any) -> Any:
    return to_jsonable_python(value, bytes_mode="base64", fallback=str, inf_nan_mode="strings")
