"""`/health`, `/schema`, `/metadata`: a server's description of itself."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from openenv._internal.models import wire_schema
from openenv.execution.manager import SessionManager
from openenv.execution.principal import Role, principal_of
from openenv.execution.tools import list_tools
from openenv.protocol.http import HealthResponse, HealthStatus, SchemaResponse
from openenv.server.refusals import error_response
from openenv.types import EnvironmentMetadata


def info_routes(manager: SessionManager) -> APIRouter:
    """Build the routes that describe the server, in both modes."""
    router = APIRouter()
    described: list[EnvironmentMetadata] = []
    tools: list[list[dict[str, Any]] | None] = []

    @router.get("/health", tags=["Health"], response_model=HealthResponse)
    async def health(request: Request, response: Response) -> HealthResponse:
        """Return the server's status: `degraded` if the last environment could not be constructed,
        or if a worker process is missing.

        No environment is constructed to find out, since that could use up what the first session
        needs. If the server has keys, only orchestrators and observers get the reason.
        """
        answer = HealthResponse()
        if manager.closing:
            answer = HealthResponse(status=HealthStatus.UNHEALTHY, message="shutting down")
            response.status_code = 503
        elif (trouble := manager.trouble) is not None:
            # Older launchers look for the word `healthy`, and the server itself is healthy.
            why = f"The server is healthy, but: {trouble}"
            answer = HealthResponse(status=HealthStatus.DEGRADED, message=why)
        principal = principal_of(request.scope)
        if manager.keys is not None and (principal is None or principal.role is Role.AGENT):
            answer.message = None
        return answer

    @router.get("/schema", tags=["Schema"], response_model=SchemaResponse)
    async def schema() -> SchemaResponse:
        """Return the JSON schemas of actions, observations and the state, the tools, and the
        specification of rewards.
        """
        spec, schema_of = manager.spec, partial(wire_schema, mode="serialization")
        if not tools:
            tools.append(await list_tools(manager.spec, manager.throwaway))
        return SchemaResponse(
            action=spec.action_schema(),
            observation=schema_of(spec.observation_cls),
            state=schema_of(spec.state_cls),
            reset_observation=schema_of(spec.reset_observation_cls or spec.observation_cls),
            tools=tools[0],
            reward=None if spec.reward is None else spec.reward.as_data(),
        )

    @router.get("/metadata", tags=["Environment Info"], response_model=EnvironmentMetadata)
    async def metadata() -> EnvironmentMetadata | Response:
        """Return a description of the environment for people."""
        if not described:
            try:
                async with manager.throwaway() as session:
                    described.append(await session.metadata())
            except Exception as error:
                return error_response(error, manager)
        return described[0]

    return router
