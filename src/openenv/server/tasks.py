"""The Task API: the routes that list an environment's tasks.

There are six routes: one returns the environment's name, and five are below that name. They list
the tasks that the server was given (`create_app(..., tasks=...)`), or else the environment's own;
see `openenv.tasks.TaskProvider`. The data that tasks are scored by are never sent.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from pydantic_core import to_json
from starlette.routing import Match, Mount
from starlette.types import Scope

from openenv._internal.net.responses import JSON
from openenv.errors import NotSupported
from openenv.execution.manager import SessionManager
from openenv.execution.task_service import TaskService
from openenv.protocol.http import (
    GetTaskRangeRequest,
    GetTaskRequest,
    ListTasksRequest,
    NumTasksRequest,
)
from openenv.server.http import BodyRoute
from openenv.server.loading import TargetError
from openenv.server.refusals import error_response
from openenv.server.workers import managers_of
from openenv.tasks.served import ServedTasks

TAG = "Task API"


class TaskRoute(BodyRoute):
    """A route below the environment's name, which yields to other routes of the application.

    Attributes:
        environment_name: The environment's name.
    """

    environment_name = ""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the request, unless another route of the application matches it."""
        match, child = super().matches(scope)
        name: str = child.get("path_params", {}).get("env_name", "")
        is_own = name.lower() == self.environment_name.lower()
        if match is Match.NONE or not _is_elsewhere(scope, is_own):
            return match, child
        return Match.NONE, {}


def _is_elsewhere(scope: Scope, is_own: bool) -> bool:
    """Return whether another route of the application handles a request.

    An application that is mounted at a path above takes every request there. It gets those below
    another environment's name; those below this environment's name stay here.
    """
    for route in scope["app"].router.routes:
        if isinstance(route, TaskRoute) or (is_own and isinstance(route, Mount)):
            continue
        match, _ = route.matches(scope)
        if match is Match.FULL or (match is Match.PARTIAL and not is_own):
            return True
    return False


def task_routes(manager: SessionManager) -> APIRouter:
    """Build the routes of tasks. Production mode omits these."""
    router = APIRouter(route_class=TaskRoute)
    own, service = manager.spec.name, TaskService(manager)

    async def answer(
        env_name: str, head: bytes, tail: bytes, method: str, *arguments: Any
    ) -> Response:
        if env_name.lower() != own.lower():
            return _detail(404, f"unknown environment '{env_name}'")
        try:
            return Response(head + await service.ask(method, *arguments) + tail, media_type=JSON)
        except IndexError:
            return _detail(400, "Invalid task index")
        except NotSupported as error:
            return _detail(501, str(error))
        except Exception as error:
            return error_response(error, manager)

    @router.get("/list_environments", tags=[TAG], response_model=list[str])
    async def list_environments() -> list[str]:
        """Return the environment's name; the routes of its tasks are below this name."""
        return [own]

    @router.get("/{env_name}/splits", tags=[TAG], response_model=list[dict[str, Any]])
    async def list_splits(env_name: str) -> Response:
        """List the splits with their types."""
        return await answer(env_name, b"", b"", "list_splits")

    @router.post("/{env_name}/tasks", tags=[TAG], response_model=dict[str, Any])
    async def list_tasks(env_name: str, body: ListTasksRequest) -> Response:
        """Return every task of a split."""
        tail = b',"env_name":' + to_json(own) + b"}"
        return await answer(env_name, b'{"tasks":', tail, "list_tasks", body.split)

    @router.post("/{env_name}/num_tasks", tags=[TAG], response_model=dict[str, int])
    async def num_tasks(env_name: str, body: NumTasksRequest) -> Response:
        """Count the tasks of a split."""
        return await answer(env_name, b'{"num_tasks":', b"}", "num_tasks", body.split)

    @router.post("/{env_name}/task", tags=[TAG], response_model=dict[str, Any])
    async def get_task(env_name: str, body: GetTaskRequest) -> Response:
        """Return a task of a split."""
        return await answer(env_name, b'{"task":', b"}", "get_task", body.split, body.index)

    @router.post("/{env_name}/task_range", tags=[TAG], response_model=dict[str, Any])
    async def get_task_range(env_name: str, body: GetTaskRangeRequest) -> Response:
        """Return the tasks of a split from `start` up to but excluding `stop`, as a slice does."""
        bounds = (body.split, body.start, body.stop)
        return await answer(env_name, b'{"tasks":', b"}", "get_task_range", *bounds)

    for route in router.routes:
        assert isinstance(route, TaskRoute)
        route.environment_name = own
    return router


def give_tasks(app: Any, target: str, tasks: ServedTasks) -> None:
    """Make the environment of `app`, which `target` names, serve these tasks.

    Raises:
        TargetError: `app` serves no environment, or several.
    """
    managers = managers_of(app)
    if len(managers) != 1:
        raise TargetError(
            f"{target} serves {len(managers)} environments that tasks could be for; expected one, "
            "made by create_app"
        )
    managers[0].spec.tasks = tasks


def _detail(status: int, text: str) -> JSONResponse:
    return JSONResponse({"detail": text}, status)
