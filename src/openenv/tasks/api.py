"""The client side of the servers' Task API, over HTTP.

A server lists its tasks with this API; `reset(split=..., index=...)` starts one of them. The routes
are those of OpenEnv 0.10; the names in the client are those of RFC 013 ("Task Sampling and
In-Training Evaluation").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from pydantic_core import from_json, to_json

from openenv._internal.addresses import over_http
from openenv._internal.net.http import FAILURES, open_answer
from openenv._internal.net.keys import key_for, key_headers, split_credentials
from openenv.errors import (
    REFUSALS,
    ConnectError,
    NotSupported,
    ProtocolError,
    ResponseTimeout,
    server_error,
)
from openenv.tasks.task import TasksetError

PAGE_SIZE = 256
LIST_ENVIRONMENTS = "list_environments"

# The route of each method, the names of its arguments, and the key of the result in the response.
ROUTES: dict[str, tuple[str, tuple[str, ...], str | None]] = {
    "list_splits": ("splits", (), None),
    "list_tasks": ("tasks", ("split",), "tasks"),
    "num_tasks": ("num_tasks", ("split",), "num_tasks"),
    "get_task": ("task", ("split", "index"), "task"),
    "get_task_range": ("task_range", ("split", "start", "stop"), "tasks"),
}

TaskRequest = tuple[str, bytes | None]
"""The path and the body of a request. A request with the body None is a GET."""


def build_request(method: str, env_name: str, *arguments: Any) -> TaskRequest:
    """Build the request for a method of a `TaskProvider`."""
    if method == LIST_ENVIRONMENTS:
        return f"/{LIST_ENVIRONMENTS}", None
    route, names, _ = ROUTES[method]
    given = dict(zip(names, arguments, strict=True))
    body = {name: value for name, value in given.items() if value is not None}
    path = f"/{quote(env_name, safe='')}/{route}"
    return path, to_json(body) if names else None


def read_response(method: str, where: str, status: int, content: bytes) -> Any:
    """Return the result of a method from a server's response.

    Raises:
        NotSupported: The server or its environment does not have this method.
        IndexError: The split has no such task.
        TasksetError: The server has no such environment.
        ConnectError: The server refuses this client.
        ServerError: The server answered with another error, possibly as a subclass of this error.
        ProtocolError: The response does not match the request.
    """
    if status == 200:
        place = None if method == LIST_ENVIRONMENTS else ROUTES[method][2]
        try:
            return from_json(content) if place is None else from_json(content)[place]
        except (ValueError, TypeError, KeyError):
            raise ProtocolError(f"{where} answered {method} with {content[:200]!r}") from None
    try:
        body: Any = from_json(content)
    except ValueError:
        body = None
    detail = body.get("detail") if isinstance(body, dict) else None
    text = detail if isinstance(detail, str) else f"it answered with status {status}"
    if status in REFUSALS:
        raise REFUSALS[status](f"{where}: {text}")
    if status == 400:
        raise IndexError(f"{where}: {text}")
    if status == 501:
        raise NotSupported(f"{where}: {text}", feature=method)
    if status in (404, 405):
        if text.startswith("unknown environment"):
            raise TasksetError(where, None, text)
        raise NotSupported(f"{where} lists no tasks ({text})", feature=method)
    data = {**body} if isinstance(body, dict) else {}
    if isinstance(detail, list):
        data |= {"code": "VALIDATION_ERROR", "errors": detail}
    raise server_error({**data, "message": f"{method}: {text}"})


def pick_environment(names: Any, where: str) -> str:
    """Return the name of a server's only environment.

    Raises:
        TasksetError: The server has several environments, or none.
    """
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        why = f"has the environments {names!r:.200}; pass env_name="
        raise TasksetError(where, None, why)
    return names[0]


class TaskCalls(ABC):
    """Blocking calls of a server's `TaskProvider`, which return tasks as JSON data.

    Raises:
        NotSupported: The environment has no tasks.
        ConnectError: No server answers, or the server refuses this client.
        ResponseTimeout: The server did not answer in time.
        ServerError: The server answered with an error, possibly as a subclass of this error.
    """

    @abstractmethod
    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method on the server and return the result."""

    def list_splits(self) -> list[dict[str, str]]:
        """Return the splits, each with a type."""
        splits: list[dict[str, str]] = self.call("list_splits")
        return splits

    def list_tasks(self, split: str) -> list[Any]:
        """Return every task of a split. For a large split, use `iter_tasks`."""
        tasks: list[Any] = self.call("list_tasks", split)
        return tasks

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split."""
        return int(self.call("num_tasks", split))

    def get_task(self, split: str, index: int) -> Any:
        """Return the task at an index of a split.

        Raises:
            IndexError: The split has no task at this index.
        """
        return self.call("get_task", split, index)

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[Any]:
        """Return the tasks from `start` up to but not including `stop`, like a slice."""
        tasks: list[Any] = self.call("get_task_range", split, start, stop)
        return tasks

    def iter_tasks(self, split: str, page_size: int = PAGE_SIZE) -> Iterator[Any]:
        """Iterate over the tasks of a split, requesting `page_size` tasks at a time.

        Raises:
            ValueError: `page_size` is less than 1.
            ProtocolError: A page does not have the requested length.
        """
        count = self.num_tasks(split)
        for start, stop in page_bounds(count, page_size):
            yield from check_page(self.get_task_range(split, start, stop), start, stop)


class TaskAPIClient(TaskCalls):
    """A blocking client of a server's Task API, which returns tasks as JSON data.

        tasks = TaskAPIClient("http://localhost:8000")
        for task in tasks.iter_tasks("train"): ...

    Several threads may share a client. `EnvClient.tasks` has the same methods on an existing
    client; `load_tasks` returns `Task` objects.

    Args:
        base_url: The server's address: ``http``, ``https``, ``ws``, ``wss`` or no scheme.
        env_name: The environment's name on the server; by default the server's only environment.
        headers: Headers to send with every request, for example for a gateway.
        api_key: The server's key; by default OPENENV_API_KEY.
        ca_file: File of CA certificates (PEM) that verify ``https`` servers. Default: the file that
            OPENENV_CA_FILE names, or else the system's certificates.
        timeout_s: Time limit in seconds for a response; None for no limit. Default: 60.
    """

    def __init__(
        self,
        base_url: str,
        env_name: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        api_key: str | None = None,
        ca_file: str | None = None,
        timeout_s: float | None = 60.0,
    ) -> None:
        self._url, credentials = split_credentials(over_http(base_url))
        self._headers = dict(headers or {})
        if credentials is not None:
            self._headers["Authorization"] = credentials
        self._api_key = api_key
        self._ca_file = ca_file
        self._timeout_s = timeout_s
        self._env_name = env_name

    @classmethod
    def from_env_client(cls, env: Any, env_name: str | None = None) -> TaskCalls:
        """Make a client with the keys and the transport of an `EnvClient`.

        Args:
            env: An `EnvClient`, or its synchronous counterpart.
            env_name: The environment's name on the server; by default the server's only
                environment.
        """
        client = env.async_client if hasattr(env, "async_client") else env
        found: TaskCalls = client.tasks.sync(env_name)
        return found

    def call(self, method: str, *arguments: Any) -> Any:
        if self._env_name is None:
            names = self._fetch(LIST_ENVIRONMENTS, build_request(LIST_ENVIRONMENTS, ""))
            self._env_name = pick_environment(names, self._url)
        return self._fetch(method, build_request(method, self._env_name, *arguments))

    def _fetch(self, method: str, asked: TaskRequest) -> Any:
        path, body = asked
        headers = {"Accept": "application/json", **self._headers}
        headers |= key_headers(self._api_key or key_for(self._url), headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        limits: dict[str, Any] = {"timeout_s": self._timeout_s, "ca_file": self._ca_file}
        try:
            # Redirects are not followed, because the key is only for this server.
            with open_answer(self._url + path, headers, body, **limits) as answer:
                status, content = answer.status, answer.read()
        except TimeoutError as error:
            raise ResponseTimeout(
                f"{self._url} did not answer {method} within {self._timeout_s} s"
            ) from error
        except FAILURES as error:
            raise ConnectError(f"cannot list the tasks of {self._url}: {error}") from error
        return read_response(method, self._url, status, content)


def page_bounds(count: int, page_size: int) -> Iterator[tuple[int, int]]:
    """Return the start and stop of each page.

    Raises:
        ValueError: `page_size` is less than 1.
    """
    if page_size < 1:
        raise ValueError(f"page_size={page_size}; expected a number from 1")
    return ((start, min(start + page_size, count)) for start in range(0, count, page_size))


def check_page(page: list[Any], start: int, stop: int) -> list[Any]:
    """Return the page if it has the requested length.

    Raises:
        ProtocolError: The page has another length.
    """
    if len(page) != stop - start:
        raise ProtocolError(
            f"the server returned {len(page)} tasks for the range {start} to {stop - 1}"
        )
    return page
