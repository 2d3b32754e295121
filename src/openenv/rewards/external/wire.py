"""What an HTTP scorer and a command are asked, and what they answer: JSON, the same for both.

Asked:

    {"format": "openenv-score", "version": 1,
     "trajectory": {"task": {...} | null, "first": ..., "steps": [{"action", "observation",
                    "reward"}, ...]},
     "messages": [{"role", "content", ...}, ...]}

``task`` has all that the task is scored by, and ``messages`` are the episode as a conversation.

Answered:

    {"reward": 0.75, "components": {"correct": 0.5, "short": 0.25}, "step_rewards": [0.25, 0.5]}
    {"reward": null, "unscored": "the tests did not build"}

Only ``reward`` must be there. The components add up to it; of ``step_rewards`` there is one a step.
A reward that is null, with no reason, says that there is nothing to score.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError
from pydantic_core import from_json

from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.delayed import (
    Trajectory,
    TrajectoryScorer,
    score_trajectory,
    score_trajectory_async,
)
from openenv.rewards.external.conversation import Message
from openenv.rewards.external.fields import with_fields
from openenv.rewards.external.scorers import (
    as_data,
    as_score,
    is_coroutine_function,
    on_thread,
    scored_as,
)

__all__ = ["FORMAT", "FORMAT_VERSION", "answered", "asked", "read_answer", "read_question"]

FORMAT, FORMAT_VERSION = "openenv-score", 1


class Answer(BaseModel):
    """What came back."""

    model_config = ConfigDict(extra="ignore", strict=True)  # a later version may say more

    reward: FiniteFloat | None
    components: dict[str, FiniteFloat] = {}
    step_rewards: list[FiniteFloat] | None = None
    unscored: str | None = None


class Question(BaseModel):
    """What is asked."""

    model_config = ConfigDict(extra="ignore")

    format: str
    version: int
    trajectory: dict[str, Any]


def asked(
    trajectory: Trajectory[Any, Any], messages: Callable[[Trajectory[Any, Any]], list[Message]]
) -> bytes:
    """Write down what is asked.

    Raises:
        Unscored: The episode cannot be written as JSON.
    """
    question = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "trajectory": as_data(trajectory),
        "messages": messages(trajectory),
    }
    return json.dumps(question).encode()


def read_answer(data: bytes, steps: int) -> Score:
    """Read what was answered.

    Raises:
        Unscored: It says so; or it is no answer.
    """
    try:
        answer = Answer.model_validate(from_json(data, allow_inf_nan=False))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "answer"
        raise Unscored(f"the answer is none: {where}: {first['msg']}") from error
    except ValueError as error:
        raise Unscored(f"the answer is no JSON: {error}: {data[:80]!r}") from error
    if answer.unscored:
        raise Unscored(answer.unscored[:500])
    score = scored_as(answer.reward, answer.components, answer.step_rewards)
    return as_score(score, steps)


def read_question(data: bytes) -> Trajectory[Any, Any]:
    """Read what is asked.

    Raises:
        ValueError: It is none.
    """
    question = Question.model_validate(from_json(data))
    if question.format != FORMAT or question.version > FORMAT_VERSION:
        raise ValueError(
            f"expected {FORMAT} {FORMAT_VERSION}, got {question.format} {question.version}"
        )
    found = with_fields(question.trajectory)
    steps = [(step["action"], step["observation"]) for step in found["steps"]]
    rewards = [step.get("reward") for step in found["steps"]]
    return Trajectory(steps, first=found.get("first"), rewards=rewards, task=found.get("task"))


async def answered(scorer: TrajectoryScorer, data: bytes) -> bytes:
    """Answer a question by a scorer; one that is no coroutine function is called on a thread.

    Raises:
        ValueError: It is none.
    """
    trajectory = read_question(data)
    if is_coroutine_function(scorer):
        score = await score_trajectory_async(scorer, trajectory)
    else:
        work = on_thread(score_trajectory, scorer, trajectory)
        found = await asyncio.wrap_future(work)
        score = found if isinstance(found, Score) else await found
    return json.dumps({"reward": score.value, **score.as_info()}).encode()
