"""The JSON request and response of HTTP scorers and command scorers.

Request:

    {"format": "openenv-score", "version": 1,
     "trajectory": {"task": {...} | null, "first": ..., "steps": [{"action", "observation",
                    "reward"}, ...]},
     "messages": [{"role", "content", ...}, ...]}

``task`` has all fields that scoring may use, and ``messages`` is the episode as a conversation.

Response:

    {"reward": 0.75, "components": {"correct": 0.5, "short": 0.25}, "step_rewards": [0.25, 0.5]}
    {"reward": null, "unscored": "the tests did not build"}

Only ``reward`` is required. The components add up to it; ``step_rewards`` has one number per step.
A null reward without ``unscored`` means that there is nothing to score.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError
from pydantic_core import from_json

from openenv._internal.quoting import first_problem
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
    as_score,
    is_coroutine_function,
    make_score,
    on_thread,
    trajectory_to_json,
)

FORMAT, FORMAT_VERSION = "openenv-score", 1


class ScoreResponse(BaseModel):
    """The response of a scorer."""

    model_config = ConfigDict(extra="ignore", strict=True)  # a later version may say more

    reward: FiniteFloat | None
    components: dict[str, FiniteFloat] = {}
    step_rewards: list[FiniteFloat] | None = None
    unscored: str | None = None


class ScoreRequest(BaseModel):
    """The request to score an episode."""

    model_config = ConfigDict(extra="ignore")

    format: str
    version: int
    trajectory: dict[str, Any]


def write_request(
    trajectory: Trajectory[Any, Any], messages: Callable[[Trajectory[Any, Any]], list[Message]]
) -> bytes:
    """Encode the request to score an episode."""
    request = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "trajectory": trajectory_to_json(trajectory),
        "messages": messages(trajectory),
    }
    return json.dumps(request).encode()


def read_response(data: bytes, steps: int) -> Score:
    """Decode a response.

    Args:
        data: The body of the response.
        steps: Number of steps in the episode.

    Raises:
        Unscored: The response gives a reason for no score, or is invalid.
    """
    try:
        answer = ScoreResponse.model_validate(from_json(data, allow_inf_nan=False))
    except ValidationError as error:
        raise Unscored(f"the answer is invalid: {first_problem(error, 'answer')}") from error
    except ValueError as error:
        raise Unscored(f"the answer is not JSON: {error}: {data[:80]!r}") from error
    if answer.unscored:
        raise Unscored(answer.unscored[:500])
    score = make_score(answer.reward, answer.components, answer.step_rewards)
    return as_score(score, steps)


def read_request(data: bytes) -> Trajectory[Any, Any]:
    """Decode a request."""
    request = ScoreRequest.model_validate(from_json(data))
    if request.format != FORMAT or request.version > FORMAT_VERSION:
        raise ValueError(
            f"expected {FORMAT} {FORMAT_VERSION}, got {request.format} {request.version}"
        )
    found = with_fields(request.trajectory)
    steps = [(step["action"], step["observation"]) for step in found["steps"]]
    rewards = [step.get("reward") for step in found["steps"]]
    return Trajectory(steps, first=found.get("first"), rewards=rewards, task=found.get("task"))


async def answer_request(scorer: TrajectoryScorer, data: bytes) -> bytes:
    """Score the episode of a request and return the response.

    A scorer that is not a coroutine function is called on a thread.

    Raises:
        ValueError: The request is invalid.
    """
    trajectory = read_request(data)
    if is_coroutine_function(scorer):
        score = await score_trajectory_async(scorer, trajectory)
    else:
        work = on_thread(score_trajectory, scorer, trajectory)
        found = await asyncio.wrap_future(work)
        score = found if isinstance(found, Score) else await found
    return json.dumps({"reward": score.value, **score.as_info()}).encode()
