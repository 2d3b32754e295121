"""The Task API of servers, over HTTP.

A server says by it which tasks there are; to begin one is `reset(split=..., index=...)`. The routes
are those of OpenEnv 0.10, the client's names those of RFC 013 ("Task Sampling and In-Training
Evaluation").
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pydantic_core import from_json, to_json

from openenv._internal.addresses import over_http
from openenv._internal.net.http import FAILURES, open_answer
from openenv._internal.net.keys import key_for, key_headers
from openenv.errors import (
    REFUSALS,
    ConnectError,
    NotSupported,
    ProtocolError,
    ResponseTimeout,
    server_error,
)
from openenv.tasks.errors import TasksetError

__all__ = ["PAGE_SIZE", "TaskAPIClient", "TaskCalls", "http_url", "only_name", "question", "read"]

PAGE_SIZE = 256
LIST_ENVIRONMENTS = "list_environments"

# Of each method: its route, the names of its arguments, and where in the answer its value is.
ROUTES: dict[str, tuple[str, tuple[str, ...], str | None]] = {
    "list_splits": ("splits", (), None),
    "list_tasks": ("tasks", ("split",), "tasks"),
    "num_tasks": ("num_tasks", ("split",), "num_tasks"),
    "get_task": ("task", ("split", "index"), "task"),
    "get_task_range": ("task_range", ("split", "start", "stop"), "tasks"),
}

Question = tuple[str, bytes | None]
"""The path of a request, and its body; None is a GET."""


def question(method: str, env_name: str, *arguments: Any) -> Question:
    """What to ask a server, to have a method of a `TaskProvider` answered."""
    if method == LIST_ENVIRONMENTS:
        return f"/{LIST_ENVIRONMENTS}", None
    route, names, _ = ROUTES[method]
    given = dict(zip(names, arguments, strict=True))
    body = {name: value for name, value in given.items() if value is not None}
    path = f"/{quote(env_name, safe='')}/{route}"
    return path, to_json(body) if names else None


def read(method: str, where: str, status: int, content: bytes) -> Any:
    """What a server has answered.

    Raises:
        NotSupported: It, or its environment, has no such thing.
        IndexError: There is no such task.
        TasksetError: There is no such environment.
        ConnectError: It does not let this client in.
        ServerError: It answered with another error; a subclass says which.
        ProtocolError: It is no answer to this.
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
        raise NotSupported(f"{where} has no tasks to tell of ({text})", feature=method)
    data = {**body} if isinstance(body, dict) else {}
    if isinstance(detail, list):
        data |= {"code": "VALIDATION_ERROR", "errors": detail}
    raise server_error({**data, "message": f"{method}: {text}"})


def only_name(names: Any, where: str) -> str:
    """The name of a server's environment, of the names that it gives.

    Raises:
        TasksetError: There is not just one.
    """
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        why = f"has the environments {names!r:.200}; say which, by env_name="
        raise TasksetError(where, None, why)
    return names[0]


def http_url(base_url: str) -> str:
    """A server's address, of whichever scheme, as one of HTTP."""
    return over_http(base_url)


class TaskCalls(ABC):
    """The methods of a `TaskProvider`, of a server; what they give is as the server tells it."""

    @abstractmethod
    def _ask(self, method: str, *arguments: Any) -> Any:
        """Have a method answered."""

    def list_splits(self) -> list[dict[str, str]]:
        """Name the splits, each with its type.

        Raises:
            NotSupported: The environment has no tasks to tell of.
            ConnectError: No server answers, or it does not let this client in.
            ResponseTimeout: It did not answer in time.
            ServerError: It answered with an error; a subclass says which.
        """
        splits: list[dict[str, str]] = self._ask("list_splits")
        return splits

    def list_tasks(self, split: str) -> list[Any]:
        """Give every task of a split. Of a large one use `iter_tasks`.

        Raises:
            OpenEnvError: As of `list_splits`.
        """
        tasks: list[Any] = self._ask("list_tasks", split)
        return tasks

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split.

        Raises:
            OpenEnvError: As of `list_splits`.
        """
        return int(self._ask("num_tasks", split))

    def get_task(self, split: str, index: int) -> Any:
        """Give one task.

        Raises:
            IndexError: There is none at this index.
            OpenEnvError: As of `list_splits`.
        """
        return self._ask("get_task", split, index)

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[Any]:
        """Give the tasks from `start` to before `stop`, as a slice does.

        Raises:
            OpenEnvError: As of `list_splits`.
        """
        tasks: list[Any] = self._ask("get_task_range", split, start, stop)
        return tasks

    def iter_tasks(self, split: str, page_size: int = PAGE_SIZE) -> Iterator[Any]:
        """Give every task of a split, one after the other, asking for a page at a time.

        Args:
            split: The split.
            page_size: How many tasks a page has.

        Raises:
            ProtocolError: A page is not as long as was asked for.
            OpenEnvError: As of `list_splits`.
        """
        count = self.num_tasks(split)
        for start, stop in pages(count, page_size):
            yield from checked_page(self.get_task_range(split, start, stop), start, stop)


class TaskAPIClient(TaskCalls):
    """Asks a server for its tasks, which are given as it tells them.

        tasks = TaskAPIClient("http://localhost:8000")
        for task in tasks.iter_tasks("train"): ...

    It may be used from several threads. `EnvClient.tasks` is the same for a client that is there
    already; `load_tasks` makes tasks of what is told.

    Args:
        base_url: Where the server is: ``http``, ``https``, ``ws``, ``wss`` or no scheme.
        env_name: The environment's name there; by default the server is asked.
        headers: Sent with every request, for example for a gateway.
        api_key: The server's key; by default that of OPENENV_API_KEY.
        ca_file: Certificates (PEM) by which ``https`` servers are told; by default those of
            OPENENV_CA_FILE, else the system's.
        timeout_s: Seconds to wait for an answer; None for no limit.
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
        url = urlsplit(http_url(base_url))
        user, _, netloc = url.netloc.rpartition("@")
        self._url = url._replace(netloc=netloc).geturl()
        self._headers = dict(headers or {})
        if user:
            name, _, password = user.partition(":")
            words = f"{unquote(name)}:{unquote(password)}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(words).decode()}"
        self._api_key = api_key
        self._ca_file = ca_file
        self._timeout_s = timeout_s
        self._env_name = env_name

    @classmethod
    def from_env_client(cls, env: Any, env_name: str | None = None) -> TaskCalls:
        """Ask the server of a client, as the client reaches it: with its keys and certificates, or
        within this process.

        Args:
            env: An `EnvClient`, or the synchronous face of one.
            env_name: The environment's name there; by default the server is asked.
        """
        client = env.async_client if hasattr(env, "async_client") else env
        found: TaskCalls = client.tasks.sync(env_name)
        return found

    def _ask(self, method: str, *arguments: Any) -> Any:
        if self._env_name is None:
            names = self._fetched(LIST_ENVIRONMENTS, question(LIST_ENVIRONMENTS, ""))
            self._env_name = only_name(names, self._url)
        return self._fetched(method, question(method, self._env_name, *arguments))

    def _fetched(self, method: str, asked: Question) -> Any:
        path, body = asked
        headers = {"Accept": "application/json", **self._headers}
        headers |= key_headers(self._api_key or key_for(self._url), headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        limits: dict[str, Any] = {"timeout_s": self._timeout_s, "ca_file": self._ca_file}
        try:
            # A redirect is an answer, as the key is for the server that was named.
            with open_answer(self._url + path, headers, body, **limits) as answer:
                status, content = answer.status, answer.read()
        except TimeoutError as error:
            raise ResponseTimeout(
                f"{self._url} did not answer {method} within {self._timeout_s} s"
            ) from error
        except FAILURES as error:
            raise ConnectError(f"no server tells its tasks at {self._url}: {error}") from error
        return read(method, self._url, status, content)


def pages(count: int, page_size: int) -> Iterator[tuple[int, int]]:
    """Where the pages of so many tasks begin, and before where they end."""
    if page_size < 1:
        raise ValueError(f"page_size={page_size}; expected a number from 1")
    return ((start, min(start + page_size, count)) for start in range(0, count, page_size))


def checked_page(page: list[Any], start: int, stop: int) -> list[Any]:
    """A page, once it is seen that it has all tasks.

    Raises:
        ProtocolError: It has not.
    """
    if len(page) != stop - start:
        raise ProtocolError(f"of the tasks {start} to {stop - 1} the server gave {len(page)}")
    return page
