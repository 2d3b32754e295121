"""Base classes of servers, and of providers that start any number of servers.

Providers make blocking calls, as the engines' libraries do. The asynchronous methods run these
calls in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from typing_extensions import Self

from openenv._internal.net.keys import forget_key, note_key
from openenv._internal.redaction import register_secret, register_secrets_of
from openenv.errors import NotSupported, ProviderError
from openenv.providers._readiness import wait_until_healthy
from openenv.providers.base import FRESH_KEY, Capabilities, ContainerProvider, FreshKey
from openenv.providers.options import ServerOptions, key_of

READY_TIMEOUT_S = 60.0
EXECUTE_TIMEOUT_S = 60.0
STOPPED_AT_ONCE = 16

MANAGED = Capabilities(
    "process", fresh_keys=True, many=True, detects_exit=True, has_logs=True, can_execute=True
)
"""The capabilities that all our own providers have."""

T = TypeVar("T")
Options = TypeVar("Options", bound=ServerOptions)


@dataclass(frozen=True)
class Executed:
    """The outcome of a command.

    Attributes:
        exit_code: The command's exit code.
        stdout: The standard output.
        stderr: The standard error output.
    """

    exit_code: int
    stdout: str
    stderr: str


class Server(ABC):
    """A server started by a provider. Any thread may call its methods; a `with` block stops it.

    Args:
        url: The base URL.
        name: The engine's name for the server.
        key: Key that the server requires, or None. Clients in this process find it automatically.

    Attributes:
        url: The base URL.
        name: The engine's name for the server.
    """

    def __init__(self, url: str, name: str, key: str | None) -> None:
        self.url = url
        self.name = name
        self._key = key
        self._turn = threading.Lock()
        self._is_stopped = False
        self._owner = os.getpid()
        self._kept_log: str | None = None  # the output of a stopped server
        self._abandon: weakref.finalize[..., Any] | None = None
        note_key(url, key)

    # ------------------------------------------------------------------ implemented by providers

    def check_running(self) -> None:  # noqa: B027 - most engines tell, not all
        """Raise an error if the server is known to have ended.

        Raises:
            ProviderExited: The server has ended by itself; the message has its last lines of
                output.
        """

    def logs(self, lines: int | None = None) -> str:
        """Return the server's output, or only its last `lines` lines.

        Raises:
            NotSupported: The output cannot be read.
        """
        if self._kept_log is not None:
            return last_lines(self._kept_log, lines)
        return self._read_log(lines)

    def _read_log(self, lines: int | None) -> str:
        raise NotSupported(f"{type(self).__name__} has no logs", feature="logs")

    def execute(self, command: Sequence[str], timeout_s: float = EXECUTE_TIMEOUT_S) -> Executed:
        """Run a command where the server runs, and wait for the end.

        Args:
            command: The program and the arguments.
            timeout_s: Maximum duration in seconds.

        Raises:
            NotSupported: The provider cannot run commands.
            ProviderError: The command could not be run, or took longer than `timeout_s` seconds.
        """
        raise NotSupported(f"{type(self).__name__} runs no commands", feature="execute")

    def _clean_up_with(self, *works: Callable[[], object]) -> None:
        """Register functions that run at garbage collection or exit if nobody stops the server."""
        self._abandon = weakref.finalize(self, _abandon, works, os.getpid())

    @abstractmethod
    def _stop(self) -> None:
        """End the server and remove everything created for it; called again after a failure."""

    # ------------------------------------------------------------------ shared by all servers

    @property
    def api_key(self) -> str | None:
        """The key that the server requires, or None."""
        return self._key

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` has succeeded."""
        return self._is_stopped

    def wait_for_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the server answers `/health`.

        Raises:
            ProviderExited: The server ended first; the message has its last lines of output.
            ProviderTimeout: The server did not answer within `timeout_s` seconds.
        """
        wait_until_healthy(self.url, timeout_s, self._check_wanted, self._last_lines)

    def _check_wanted(self) -> None:
        if self._is_stopped:
            raise ProviderError(f"{self.name} has been stopped")
        self.check_running()

    def _last_lines(self, lines: int) -> str:
        try:
            return self.logs(lines)
        except NotSupported:
            return ""

    def stop(self) -> None:
        """Stop the server. Safe to repeat; a failed stop is tried again.

        Raises:
            ProviderError: The server could not be stopped.
        """
        with self._turn:
            if self._is_stopped or self._owner != os.getpid():  # or a forked child's copy
                return
            self._stop()
            if self._abandon is not None:
                self._abandon.detach()
            self._is_stopped = True
            forget_key(self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self.url}>"

    # ------------------------------------------------------------------ asynchronous versions

    async def wait_for_ready_async(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Run `wait_for_ready` without blocking the event loop."""
        await asyncio.to_thread(self.wait_for_ready, timeout_s)

    async def logs_async(self, lines: int | None = None) -> str:
        """Run `logs` without blocking the event loop."""
        return await asyncio.to_thread(self.logs, lines)

    async def execute_async(
        self, command: Sequence[str], timeout_s: float = EXECUTE_TIMEOUT_S
    ) -> Executed:
        """Run `execute` without blocking the event loop."""
        return await asyncio.to_thread(self.execute, command, timeout_s)

    async def stop_async(self) -> None:
        """Run `stop` without blocking the event loop; a cancelled stop still completes."""
        await _to_the_end(self.stop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_async()


def _abandon(works: Sequence[Callable[[], object]], owner: int) -> None:
    if os.getpid() == owner:  # not a forked child's copy
        for work in works:
            with contextlib.suppress(Exception):  # the engine may be gone, and no caller is left
                work()


def last_lines(text: str, lines: int | None) -> str:
    """Return the last `lines` lines of a text; all of the text if `lines` is None."""
    return text if lines is None else "\n".join(text.splitlines()[-lines:])


def _failure_to_stop(server: Server) -> ProviderError | None:
    try:
        server.stop()
    except ProviderError as error:
        return error
    return None


async def _to_the_end(work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
    """Run blocking work in a thread, which cannot be cancelled.

    A cancellation takes effect after the work has ended and `undo`, if any, has undone the result.
    """
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        if undo is not None and doing.exception() is None:
            await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(undo, doing.result()))])
        raise


@dataclass(frozen=True)
class LaunchRequest:
    """The arguments of `ServerProvider.launch`.

    Attributes:
        image: The image to run; None for the provider's default.
        port: The port on this host; None chooses a free port.
        env_vars: Environment variables of the server.
        options: The provider-specific options.
    """

    image: str | None
    port: int | None
    env_vars: Mapping[str, str]
    options: Mapping[str, Any]


class ServerProvider(ABC):
    """Starts any number of servers, each with its own lifetime.

    A subclass implements `_launch` with blocking calls.

    Class attributes:
        capabilities: Guarantees of the provider, and abilities of its servers.
    """

    capabilities: ClassVar[Capabilities]

    def __init__(self) -> None:
        self._launched: weakref.WeakSet[Server] = weakref.WeakSet()
        self._server: Server | None = None  # the server of the single-server methods
        self._turn = threading.RLock()

    @abstractmethod
    def _launch(self, request: LaunchRequest) -> Server:
        """Start a server; on a failure, leave nothing behind."""

    def launch(
        self,
        image: str | None = None,
        *,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Server:
        """Start a server, which may not answer yet; see `Server.wait_for_ready`.

        Args:
            image: The image to run; by default the provider's own.
            port: The port on this host; None chooses a free port.
            env_vars: Environment variables of the server.
            **options: Provider-specific options of this server. Unknown options raise a TypeError.

        Raises:
            ProviderError: The server could not be started; nothing is left behind.
            TypeError: An option does not exist.
        """
        server = self._launch(LaunchRequest(image, port, env_vars or {}, options))
        self._launched.add(server)
        return server

    async def launch_async(
        self,
        image: str | None = None,
        *,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Server:
        """Run `launch` without blocking the event loop; a cancelled launch leaves nothing."""
        return await _to_the_end(
            lambda: self.launch(image, port=port, env_vars=env_vars, **options),
            lambda server: server.stop(),
        )

    @property
    def servers(self) -> list[Server]:
        """The launched servers that are not stopped."""
        return [server for server in list(self._launched) if not server.is_stopped]

    def close(self) -> None:
        """Stop all servers, and release the resources of the provider itself. Safe to repeat.

        Raises:
            ProviderError: A server could not be stopped; all others are stopped.
        """
        left = self.servers
        if not left:
            return
        with ThreadPoolExecutor(min(len(left), STOPPED_AT_ONCE), "openenv-stop") as pool:
            failures = list(filter(None, pool.map(_failure_to_stop, left)))
        if failures:
            raise failures[0]

    async def close_async(self) -> None:
        """Run `close` without blocking the event loop; a cancelled close still completes."""
        await _to_the_end(self.close)

    # ------------------------------------------------------------------ one server at a time

    def _hold(self, launch: Callable[[], Server]) -> Server:
        """Start the server that the single-server methods use."""
        with self._turn:
            if (running := self._running()) is not None:
                raise ProviderError(
                    f"{running.name} is running already; stop it first, or call launch() for "
                    "several"
                )
            self._server = launch()
            return self._server

    def _running(self) -> Server | None:
        """Return the held server unless it is stopped."""
        return None if self._server is None or self._server.is_stopped else self._server

    def _held(self) -> Server:
        if (running := self._running()) is None:
            raise ProviderError("the server is not running; start it first")
        return running

    def check_running(self) -> None:
        """Raise an error if the held server is known to have ended.

        Raises:
            ProviderExited: The server has ended by itself; the message has its last lines of
                output.
        """
        if self._server is not None:
            self._server.check_running()

    def logs(self, lines: int | None = None) -> str:
        """Return the held server's output, or its last `lines` lines. Works after a stop, too.

        Raises:
            NotSupported: The output cannot be read.
        """
        return "" if self._server is None else self._server.logs(lines)

    @property
    def base_url(self) -> str:
        """The address of the held server.

        Raises:
            ProviderError: The server is not running.
        """
        return self._held().url

    @property
    def api_key(self) -> str | None:
        """The key of the held server; None if no server is held, or no key is required.

        Clients in this process find the key automatically.
        """
        running = self._running()
        return None if running is None else running.api_key


class ImageProvider(ServerProvider, ContainerProvider):
    """Starts servers from images. The older methods, such as `start_container`, hold one server.

    Args:
        image: The default image of `launch`.
        api_key: The key that each server requires, or None.
    """

    def __init__(
        self, image: str | None = None, api_key: str | FreshKey | None = FRESH_KEY
    ) -> None:
        super().__init__()
        self.image = image
        self._wanted_key = api_key

    def _resolve(
        self, request: LaunchRequest, defaults: Options
    ) -> tuple[str, Options, str | None]:
        """Return the image, the options and the key of a launch; register secrets for redaction.

        Raises:
            ProviderError: Neither the launch nor the provider names an image.
            TypeError: An option does not exist.
            ValueError: An option's value is invalid.
        """
        chosen = defaults.changed(request.options)
        register_secrets_of(request.env_vars)
        for value in getattr(chosen, "secrets", {}).values():
            register_secret(value)
        return self._image_of(request), chosen, key_of(self._wanted_key)

    def _image_of(self, request: LaunchRequest) -> str:
        if image := request.image or self.image:
            return image
        raise ProviderError("there is no image to run: launch(image), or pass one to the provider")

    def start_container(
        self,
        image: str | None = None,
        port: int | None = None,
        env_vars: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        return self._hold(lambda: self.launch(image, port=port, env_vars=env_vars, **kwargs)).url

    def wait_for_ready(self, base_url: str | None = None, timeout_s: float = 30.0) -> None:
        self._held().wait_for_ready(timeout_s)

    def stop_container(self) -> None:
        with self._turn:
            if self._server is not None:
                self._server.stop()
