"""Reasoning Gym questions as `openenv.rollouts.harness` sessions, to collect models' answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from openenv.rollouts.harness import ResourceSessionFactory, StepEnvSessionAdapter, ToolResult
from openenv.tools.types import Tool
from openenv.types import StepResult

from .models import ReasoningGymAction

__all__ = ["ReasoningGymSessionFactory"]

SEEDS = 2**31  # the range of seeds for sessions without a seed
ANSWER = Tool(
    name="answer",
    description="Give the final answer to the question.",
    input_schema={
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "The answer alone."}},
        "required": ["answer"],
    },
)


class ReasoningGymSessionFactory(ResourceSessionFactory[StepEnvSessionAdapter]):
    """A factory of sessions in which a model answers one question by the tool ``answer``.

    Args:
        client_factory: Makes a client for each session. The session closes its client.
        dataset_name: The dataset of the questions.
        dataset_config: The dataset's options; by default its own.
    """

    def __init__(
        self,
        client_factory: Callable[[], Any],
        *,
        dataset_name: str,
        dataset_config: dict[str, Any] | None = None,
    ) -> None:
        self._client_factory = client_factory
        self._make_dataset: dict[str, Any] = {
            "dataset_name": dataset_name,
            "dataset_config": dataset_config or {},
            "size": 1,
        }

    def create(
        self, task: Any = None, seed: int | None = None, episode_id: str | None = None
    ) -> StepEnvSessionAdapter:
        """Start a session with the question of a seed, or with a random one."""
        return StepEnvSessionAdapter(
            self._client_factory(),
            task=task,
            seed=random.randrange(SEEDS) if seed is None else seed,  # nosec B311  # no secret
            episode_id=episode_id,
            tool_specs=[ANSWER],
            action_builder=lambda name, given: ReasoningGymAction(answer=str(given["answer"])),
            initial_messages_builder=_messages,
            tool_result_builder=_result,
            reset_kwargs=self._make_dataset,
        )


def _messages(result: StepResult[Any], task: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": result.observation.question}]


def _result(
    name: str, arguments: dict[str, Any], result: StepResult[Any], state: Any
) -> ToolResult:
    data = {
        "answer": arguments.get("answer"),
        "score": result.observation.score,
        "correct_answer": result.observation.correct_answer,
        "reward": result.reward,
        "done": result.done,
    }
    kept = state.model_dump() if hasattr(state, "model_dump") else state
    return ToolResult(
        data=data, done=result.done, metadata={"reward": result.reward, "state": kept}
    )
