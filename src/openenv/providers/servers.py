"""Servers that a provider has started: as many as it is asked for, each with a life of its own.

An engine is asked by blocking calls, as its libraries are. What awaits is the same in a thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, TypeVar

from typing_extensions import Self

from openenv._internal.net.keys import forget_key, note_key
from openenv.errors import NotSupported, ProviderError
from openenv.providers._readiness import wait_until_healthy
from openenv.providers.base import Capabilities, ContainerProvider

__all__ = ["Executed", "ImageProvider", "Server", "ServerProvider", "to_its_end"]

READY_TIMEOUT_S = 60.0
EXECUTE_TIMEOUT_S = 60.0
STOPPED_AT_ONCE = 16

T = TypeVar("T")


@dataclass(frozen=True)
class Executed:
    """What became of a command.

    Attributes:
        exit_code: Its own.
        stdout: What it printed.
        stderr: Likewise.
    """

    exit_code: int
    stdout: str
    stderr: str


class Server(ABC):
    """A server that a provider has started. Any thread may call its methods; a `with` stops it.

    Args:
        url: Its base URL.
        name: What its engine calls it.
        key: The key that it wants; None is none. Clients in this process find it by themselves.

    Attributes:
        url: Its base URL.
        name: What its engine calls it.
    """

    def __init__(self, url: str, name: str, key: str | None) -> None:
        self.url = url
        self.name = name
        self._key = key
        self._turn = threading.Lock()
        self._is_stopped = False
        self._owner = os.getpid()
        note_key(url, key)

    # ------------------------------------------------------------------ what an engine implements

    def check_running(self) -> None:  # noqa: B027 - most engines tell, not all
        """Raise what has ended it, where that is known.

        Raises:
            ProviderExited: It has ended by itself; its last lines are in the message.
        """

    def logs(self, lines: int | None = None) -> str:
        """What it has printed: all of it, or the last `lines`.

        Raises:
            NotSupported: That cannot be known.
        """
        raise NotSupported(f"{type(self).__name__} has no logs", feature="logs")

    def execute(self, command: Sequence[str], timeout_s: float = EXECUTE_TIMEOUT_S) -> Executed:
        """Run a command where the server runs, and wait for its end.

        Args:
            command: The program and its arguments.
            timeout_s: Seconds that it may take.

        Raises:
            NotSupported: That is not possible.
            ProviderError: It could not be run, or took longer.
        """
        raise NotSupported(f"{type(self).__name__} runs no commands", feature="execute")

    @abstractmethod
    def _stop(self) -> None:
        """End it, and take away all that was made for it. It is called again if it raises."""

    # ------------------------------------------------------------------ what stands on that

    @property
    def api_key(self) -> str | None:
        """The key that it wants; None where it wants none."""
        return self._key

    @property
    def is_stopped(self) -> bool:
        """`stop` has been called, and has succeeded."""
        return self._is_stopped

    def wait_for_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until it answers `/health`.

        Raises:
            ProviderExited: It ended first; its last lines are in the message.
            ProviderTimeout: It took longer.
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
        """End it. Safe to repeat; one that has failed is tried again.

        Raises:
            ProviderError: It could not be ended.
        """
        with self._turn:
            if self._is_stopped or self._owner != os.getpid():  # or a forked child's copy
                return
            self._stop()
            self._is_stopped = True
            forget_key(self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self.url}>"

    # ------------------------------------------------------------------ awaited

    async def wait_for_ready_async(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Do as `wait_for_ready`, without holding up the loop."""
        await asyncio.to_thread(self.wait_for_ready, timeout_s)

    async def logs_async(self, lines: int | None = None) -> str:
        """Do as `logs`."""
        return await asyncio.to_thread(self.logs, lines)

    async def execute_async(
        self, command: Sequence[str], timeout_s: float = EXECUTE_TIMEOUT_S
    ) -> Executed:
        """Do as `execute`."""
        return await asyncio.to_thread(self.execute, command, timeout_s)

    async def stop_async(self) -> None:
        """Do as `stop`; it goes on to its end when it is cancelled."""
        await to_its_end(self.stop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop_async()


def _stopped(server: Server) -> ProviderError | None:
    """Stop a server; gives why it could not be stopped."""
    try:
        server.stop()
    except ProviderError as error:
        return error
    return None


async def to_its_end(work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
    """Do blocking work in a thread, which cannot be cancelled.

    Cancelled, this waits for its end all the same, and takes back what came of it.
    """
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        if undo is not None and doing.exception() is None:
            result = doing.result()
            await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(undo, result))])
        raise


class ServerProvider(ABC):
    """Starts as many servers as it is asked for.

    It implements `_launch`, by blocking calls; each `Server` that comes of it has a life of its
    own.

    Class attributes:
        capabilities: What it guarantees, and what can be asked of it.
    """

    capabilities: ClassVar[Capabilities]

    def __init__(self) -> None:
        self._launched: weakref.WeakSet[Server] = weakref.WeakSet()
        self._server: Server | None = None  # the one that the older methods hold
        self._turn = threading.RLock()

    @abstractmethod
    def _launch(
        self,
        image: str | None,
        port: int | None,
        env_vars: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> Server:
        """Start a server; what was made is taken away again if it raises."""

    def launch(
        self,
        image: str | None = None,
        *,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Server:
        """Start a server. It need not answer yet: see `Server.wait_for_ready`.

        Args:
            image: What it runs; by default what the provider was made for.
            port: The port on this host; None chooses a free one.
            env_vars: Environment variables of the server.
            **options: The provider's own, for this server; unknown ones are refused.

        Raises:
            ProviderError: It could not be started; nothing is left behind.
            TypeError: There is no such option.
        """
        server = self._launch(image, port, env_vars or {}, options)
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
        """Do as `launch`, without holding up the loop. Cancelled, it leaves nothing behind."""
        return await to_its_end(
            lambda: self.launch(image, port=port, env_vars=env_vars, **options),
            lambda server: server.stop(),
        )

    @property
    def servers(self) -> list[Server]:
        """Those that it has launched and nobody has stopped."""
        return [server for server in list(self._launched) if not server.is_stopped]

    def close(self) -> None:
        """Stop every server that is left, and release what the provider holds. Safe to repeat.

        Raises:
            ProviderError: One could not be stopped; the others are.
        """
        left = self.servers
        if not left:
            return
        with ThreadPoolExecutor(min(len(left), STOPPED_AT_ONCE), "openenv-stop") as pool:
            failures = [failed for failed in pool.map(_stopped, left) if failed is not None]
        if failures:
            raise failures[0]

    async def close_async(self) -> None:
        """Do as `close`; it goes on to its end when it is cancelled."""
        await to_its_end(self.close)

    # ------------------------------------------------------------------ one server at a time

    def _hold(self, launch: Callable[[], Server]) -> Server:
        """Start the server that the older methods hold."""
        with self._turn:
            if self._server is not None and not self._server.is_stopped:
                raise ProviderError(
                    f"{self._server.name} is running already; stop it first, or call launch() for "
                    "several"
                )
            self._server = launch()
            return self._server

    def _held(self) -> Server:
        if self._server is None or self._server.is_stopped:
            raise ProviderError("the server is not running; start it first")
        return self._server

    def check_running(self) -> None:
        """Raise what has ended the server that is held, where that is known.

        Raises:
            ProviderExited: It has ended by itself; its last lines are in the message.
        """
        if self._server is not None:
            self._server.check_running()

    def logs(self, lines: int | None = None) -> str:
        """What the server has printed: all of it, or the last `lines`; also after it has stopped.

        Raises:
            NotSupported: That cannot be known.
        """
        return "" if self._server is None else self._server.logs(lines)

    @property
    def base_url(self) -> str:
        """The address of the server that is held.

        Raises:
            ProviderError: It is not running.
        """
        return self._held().url

    @property
    def api_key(self) -> str | None:
        """The key of the server that is held; None where there is none, or it wants none.

        Clients in this process find it by themselves.
        """
        is_there = self._server is not None and not self._server.is_stopped
        return self._server.api_key if is_there and self._server is not None else None


class ImageProvider(ServerProvider, ContainerProvider):
    """Starts servers from images. The older methods, `start_container` and so on, hold one."""

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
