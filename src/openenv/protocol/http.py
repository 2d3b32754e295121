"""The bodies of the HTTP routes."""

from __future__ import annotations

from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

SESSION_HEADER = "OpenEnv-Session-Id"
SESSION_COOKIE = "openenv_session_id"

# An extension of the ASGI scope: the caller is this same program, which may see everything.
IN_PROCESS_EXTENSION = "openenv.in_process"


class ResetRequest(BaseModel):
    """Arguments of `reset`; any further key is passed on to the environment."""

    model_config = ConfigDict(extra="allow")

    seed: int | None = Field(default=None, ge=0, description="Makes the episode reproducible.")
    episode_id: str | None = Field(default=None, max_length=255)


class StepRequest(BaseModel):
    """An action and further arguments of `step`."""

    model_config = ConfigDict(extra="allow")

    action: dict[str, Any] = Field(description="The fields of the environment's action model.")
    timeout_s: float | None = Field(default=None, gt=0, description="Seconds the caller waits.")
    request_id: str | None = Field(default=None, max_length=255)


class ResetResponse(BaseModel):
    """The first observation of an episode."""

    model_config = ConfigDict(extra="forbid")

    observation: dict[str, Any]
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] | None = None
    observation_type: str | None = Field(
        default=None, description="The observation's model, where another has the same fields."
    )


class StepResponse(ResetResponse):
    """The result of a step."""


class HealthStatus(str, Enum):
    """The health of a server."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DEGRADED = "degraded"


class _WithoutNulls(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_serializer(mode="wrap")
    def _drop_nulls(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if value is not None}


class HealthResponse(_WithoutNulls):
    """The status of a server, and the reasons if the server is not healthy."""

    status: HealthStatus = HealthStatus.HEALTHY
    message: str | None = None


class SchemaResponse(_WithoutNulls):
    """JSON schemas of the environment's models, the tools that agents have, as MCP writes them, and
    what rewards mean, as `openenv.reward.RewardSpec.as_data` writes it.

    `tools` is left out where they cannot be told without an episode, and `reward` where the
    environment's class declares nothing, or is not known yet.
    """

    action: dict[str, Any]
    observation: dict[str, Any]
    state: dict[str, Any]
    reset_observation: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    reward: dict[str, Any] | None = None


class ListTasksRequest(BaseModel):
    """Ask for every task of a split."""

    model_config = ConfigDict(extra="forbid")

    split: str


class NumTasksRequest(ListTasksRequest):
    """Ask how many tasks a split has."""


class GetTaskRequest(ListTasksRequest):
    """Ask for a task of a split."""

    index: int


class GetTaskRangeRequest(ListTasksRequest):
    """Ask for the tasks of a split from `start` to before `stop`, as a slice does."""

    start: int | None = None
    stop: int | None = None
