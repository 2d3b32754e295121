"""Ports of the loopback interface that lead to servers elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from openenv._internal.timing import new_event_loop
from openenv.errors import ProviderError
from openenv.providers._inside import BACKLOG, NEEDED, REACHED, REFUSED

CHUNK = 2**18
TUNNEL_S = 10.0

T = TypeVar("T")

Onward = tuple[asyncio.StreamReader, asyncio.StreamWriter]

Reach = Callable[[asyncio.StreamReader], AbstractAsyncContextManager[tuple[Onward, bytes]]]
"""Connects to the server for one client connection, and returns the data read from the client.

Raises OSError if the server cannot be reached.
"""


def to_host(host: str, port: int) -> Reach:
    """Return a `Reach` of a server at an address."""

    @asynccontextmanager
    async def reach(_: asyncio.StreamReader) -> AsyncIterator[tuple[Onward, bytes]]:
        onward = await asyncio.open_connection(host, port, limit=CHUNK)
        with contextlib.closing(onward[1]):
            yield onward, b""

    return reach


async def in_time(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """Await work, and raise OSError if it takes longer."""
    try:
        return await asyncio.wait_for(work, timeout_s)
    except asyncio.TimeoutError:
        raise OSError(f"it took longer than {timeout_s:g} s") from None


class Tunnel:
    """A `Reach` of the server in a container without a network.

    The container opens connections to a socket of this machine in advance, which wait there; see
    `openenv.providers._inside`.

    Args:
        path: The path of the socket. Every program that can open it can pose as the server.

    Raises:
        ProviderError: The path is too long.
    """

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(path))
        except OSError as error:
            self._listener.close()
            raise ProviderError(f"cannot listen at {path}: {error}") from None
        path.chmod(0o666)
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)

    @asynccontextmanager
    async def __call__(self, _: asyncio.StreamReader) -> AsyncIterator[tuple[Onward, bytes]]:
        onward = await in_time(self._taken(), TUNNEL_S)
        with contextlib.closing(onward[1]):
            yield onward, b""

    async def _taken(self) -> Onward:
        loop = asyncio.get_running_loop()
        while True:
            waiting, _ = await loop.sock_accept(self._listener)
            reader, writer = await asyncio.open_unix_connection(sock=waiting, limit=CHUNK)
            try:
                writer.write(NEEDED)
                answer = await reader.read(1)
            except BaseException as error:
                writer.close()
                if not isinstance(error, OSError):
                    raise
                continue
            if answer == REACHED:
                return reader, writer
            writer.close()
            if answer == REFUSED:
                raise ConnectionRefusedError("the server does not listen")

    def close(self) -> None:
        """Accept no more connections. Safe to repeat."""
        self._listener.close()


class Relay:
    """Forwards connections in both directions until closed.

    Args:
        port: The port on 127.0.0.1; None chooses a free port.
        reach: Connects to the server for each connection, in the relay's own thread.

    Attributes:
        port: The port.

    Raises:
        ProviderError: The port is taken.
    """

    def __init__(self, port: int | None, reach: Reach) -> None:
        self._reach = reach
        self._passing: set[asyncio.Future[None]] = set()
        self._loop = new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="openenv-relay", daemon=True
        )
        self._thread.start()
        try:
            listening = asyncio.run_coroutine_threadsafe(self._listen(port or 0), self._loop)
            self._server = listening.result()
        except OSError as error:
            self._end()
            raise ProviderError(f"cannot listen on 127.0.0.1 port {port}: {error}") from None
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _listen(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._begin, "127.0.0.1", port, limit=CHUNK)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passing = asyncio.ensure_future(self._pass_on(reader, writer))
        self._passing.add(passing)  # the event loop itself holds no strong reference
        passing.add_done_callback(self._passing.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError):
            async with self._reach(reader) as ((onward_reader, onward_writer), read):
                onward_writer.write(read)
                there, back = _pump(reader, onward_writer), _pump(onward_reader, writer)
                await asyncio.gather(there, back)

    def close(self) -> None:
        """Stop listening, and cut all connections. A second call does nothing."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._server.close)
            self._end()

    def _end(self) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # another may just have begun
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy data until the end, and then end the writer."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()
