"""The tasks of a client's server: lists of tasks, and episodes with a task.

Requests go over HTTP, beside the session, with the client's keys and certificates. An environment
or an application in this process is called directly.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from openenv.client.hybrid import PendingValue, resolve
from openenv.client.transports.asgi import request
from openenv.errors import NotSupported, OpenEnvError, outward, server_error, words
from openenv.tasks.api import (
    LIST_ENVIRONMENTS,
    PAGE_SIZE,
    TaskAPIClient,
    TaskCalls,
    build_request,
    check_page,
    page_bounds,
    pick_environment,
    read_response,
)
from openenv.tasks.served import merge_reset_arguments
from openenv.tasks.task import Task

if TYPE_CHECKING:
    from openenv.client.client import EnvClient

__all__ = ["ClientTasks", "TaskPages", "with_task"]


@functools.total_ordering
class PendingCount(PendingValue[int]):
    """A pending number."""

    def __index__(self) -> int:
        return self.result()

    def __eq__(self, other: object) -> bool:
        return self is other or self.result() == other

    def __lt__(self, other: int) -> bool:
        return self.result() < other

    def __hash__(self) -> int:
        return id(self)  # asyncio.gather keeps what it waits for in a dict


class ClientTasks:
    """The methods of `openenv.tasks.TaskAPIClient`, awaited or not, as the client's other calls;
    the attribute `EnvClient.tasks`.

        async with EchoEnv(base_url="http://localhost:8000") as env:
            async for task in env.tasks.iter_tasks("train"): ...

    The methods raise the errors of `TaskAPIClient`.

    Args:
        client: The client.
        env_name: The environment's name on the server. By default the server is asked.
    """

    def __init__(self, client: EnvClient[Any, Any, Any], env_name: str | None = None) -> None:
        self._client = client
        self._env_name = env_name

    def sync(self, env_name: str | None = None) -> TaskCalls:
        """Return the same methods as plain blocking methods.

        Args:
            env_name: The environment's name on the server. By default the server is asked.
        """
        return _SyncTasks(ClientTasks(self._client, env_name or self._env_name))

    def list_splits(self) -> PendingValue[list[dict[str, str]]]:
        """Return the splits, each with its name and type."""
        return self._answer("list_splits")

    def list_tasks(self, split: str) -> PendingValue[list[Any]]:
        """Return every task of a split. For a large split use `iter_tasks`."""
        return self._answer("list_tasks", split)

    def num_tasks(self, split: str) -> PendingCount:
        """Return the number of tasks in a split."""
        return self._client._answer(PendingCount, self.ask("num_tasks", split))

    def get_task(self, split: str, index: int) -> PendingValue[Any]:
        """Return a task.

        Raises:
            IndexError: The split has no task at this index.
        """
        return self._answer("get_task", split, index)

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> PendingValue[list[Any]]:
        """Return the tasks from `start` to before `stop`, as a slice does."""
        return self._answer("get_task_range", split, start, stop)

    def iter_tasks(self, split: str, page_size: int = PAGE_SIZE) -> TaskPages:
        """Iterate over every task of a split, fetching one page at a time.

        Args:
            split: The split.
            page_size: Number of tasks per page.
        """
        return TaskPages(self, split, page_size)

    def _answer(self, method: str, *arguments: Any) -> PendingValue[Any]:
        return self._client._answer(PendingValue, self.ask(method, *arguments))

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the `TaskProvider`, on the loop that the client lives on."""
        client = self._client
        if client._launch is not None and not client._launch.is_running:
            await client._connect_async()
        place = client.base_url, self._env_name
        if client._way_to_tasks is None or client._way_to_tasks[0] != place:
            client._way_to_tasks = place, await _way_to(client, self._env_name)
        return await client._way_to_tasks[1](method, *arguments)


class _SyncTasks(TaskCalls):
    def __init__(self, tasks: ClientTasks) -> None:
        self._tasks = tasks

    def call(self, method: str, *arguments: Any) -> Any:
        return resolve(self._tasks._answer(method, *arguments))


class TaskPages:
    """The tasks of a split, for a ``for`` or an ``async for`` loop."""

    def __init__(self, tasks: ClientTasks, split: str, page_size: int) -> None:
        page_bounds(0, page_size)  # raises for an invalid size
        self._tasks = tasks
        self._split = split
        self._page_size = page_size

    def __iter__(self) -> Iterator[Any]:
        count: int = resolve(self._tasks.num_tasks(self._split))
        for start, stop in page_bounds(count, self._page_size):
            page = resolve(self._tasks.get_task_range(self._split, start, stop))
            yield from check_page(page, start, stop)

    async def __aiter__(self) -> AsyncIterator[Any]:
        count = await self._tasks.num_tasks(self._split)
        for start, stop in page_bounds(count, self._page_size):
            page = await self._tasks.get_task_range(self._split, start, stop)
            for task in check_page(page, start, stop):
                yield task


# ------------------------------------------------------------------ access to the tasks


Ask = Callable[..., Awaitable[Any]]
"""Calls a method of a `TaskProvider`, by its name and arguments."""


async def _way_to(client: EnvClient[Any, Any, Any], env_name: str | None) -> Ask:
    if client._open_transport is None:
        return _over_http(client, env_name)
    transport: Any = client._open_transport()  # it is never connected
    if hasattr(transport, "app"):
        return _of_application(transport.app, transport.headers, env_name)
    await client._connect_async()  # so that closing the client also closes what is opened here
    return _of_environment(transport.manager)


def _over_http(client: EnvClient[Any, Any, Any], env_name: str | None) -> Ask:
    assert client.base_url is not None
    options = client._websocket
    calls = TaskAPIClient(
        client.base_url,
        env_name,
        headers=options.headers,
        api_key=options.api_key,
        ca_file=options.ca_file,
        timeout_s=client._message_timeout,
    )
    return lambda method, *arguments: asyncio.to_thread(calls.call, method, *arguments)


def _of_application(app: Any, headers: Mapping[str, str], env_name: str | None) -> Ask:
    where = "the application in this process"

    async def fetch(method: str, *arguments: Any) -> Any:
        path, body = build_request(method, *arguments)
        status, content = await request(app, path, body, headers)
        return read_response(method, where, status, content)

    async def ask(method: str, *arguments: Any) -> Any:
        nonlocal env_name
        if env_name is None:
            env_name = pick_environment(await fetch(LIST_ENVIRONMENTS, ""), where)
        return await fetch(method, env_name, *arguments)

    return ask


def _of_environment(manager: Any) -> Ask:
    from openenv.execution.task_service import TaskService

    service = TaskService(manager)

    async def ask(method: str, *arguments: Any) -> Any:
        try:
            return from_json(await service.ask(method, *arguments))
        except (NotSupported, IndexError):
            raise
        except OpenEnvError as error:  # as a server would answer
            code = outward(error).code.value
            raise server_error(
                {**error.details(), "code": code, "message": words(error)}
            ) from error

    return ask


# ------------------------------------------------------------------ episodes with a task


def with_task(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a `reset`, with a `Task` converted to its wire form.

    Raises:
        Refused: Another argument contradicts the task.
    """
    task = arguments["task"]
    if not isinstance(task, Task):
        return arguments
    others = {name: value for name, value in arguments.items() if name != "task"}
    known = merge_reset_arguments(task.reset, others, f"task {task.id!r}")
    return known if task.is_reference else {**known, "task": task.as_data()}
