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
        """Say how the server is: `degraded` when the last environment could not be made, or a
        worker process is missing.

        It makes none to find out: that may take what the first session needs. Where the server
        has keys, only an orchestrator and an observer are told why.
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
        """Give the JSON schemas of the action, the observations and the state, the tools, and what
        rewards mean.
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
        """Describe the environment to people."""
        if not described:
            try:
                async with manager.throwaway() as session:
                    described.append(await session.metadata())
            except Exception as error:
                return error_response(error, manager)
        return described[0]

    return router
