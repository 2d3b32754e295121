"""Ports on the loopback interface that forward to servers elsewhere.

A `Relay` listens on a port and hands each connection to a `Serve` function. `through` makes one
from a `Reach`, which connects to the server; `to_pod` makes one for a pod. Relays may share a
`RelayThread`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from openenv._internal.net.proxies import proxy_for
from openenv._internal.redaction import redact
from openenv._internal.timing import new_event_loop
from openenv.errors import ProviderError
from openenv.providers._inside import BACKLOG, NEEDED, REACHED, REFUSED

if TYPE_CHECKING:
    from openenv.providers._clusters import WebSocketAddress

logger = logging.getLogger(__name__)

CHUNK = 2**18
TUNNEL_S = 10.0
# Kubernetes' port forwarding: https://kubernetes.io/docs/reference/using-api/api-concepts
PROTOCOL = "v4.channel.k8s.io"
OPEN_TIMEOUT_S = 20.0
DATA, ERROR = 0, 1  # channels

T = TypeVar("T")

Onward = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]

Reach = Callable[[asyncio.StreamReader], AbstractAsyncContextManager[tuple[Onward, bytes]]]
"""Connects to the server for one client connection, and yields data already read from the client.

Raises OSError if the server cannot be reached.
"""


def to_host(host: str, port: int) -> Reach:
    """Return a `Reach` that connects to an address."""

    @asynccontextmanager
    async def reach(_: asyncio.StreamReader) -> AsyncIterator[tuple[Onward, bytes]]:
        onward = await asyncio.open_connection(host, port, limit=CHUNK)
        with _closing(onward[1]):
            yield onward, b""

    return reach


@contextlib.contextmanager
def _closing(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Close the writer at the end; drop unsent data if the relay was closed."""
    try:
        yield
    except asyncio.CancelledError:
        writer.transport.abort()
        raise
    finally:
        writer.close()


async def in_time(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """Await a coroutine; raise OSError if it takes longer than `timeout_s` seconds."""
    try:
        return await asyncio.wait_for(work, timeout_s)
    except asyncio.TimeoutError:
        raise OSError(f"it took longer than {timeout_s:g} s") from None


class Tunnel:
    """A `Reach` for the server in a container without a network.

    The container opens connections to a socket of this machine in advance; they wait there until
    needed. See `openenv.providers._inside`.

    Args:
        path: Path of the socket. Every program that can open it can pose as the server.

    Raises:
        ProviderError: The socket cannot be created, for example because the path is too long.
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
        self.close = self._listener.close

    @asynccontextmanager
    async def __call__(self, _: asyncio.StreamReader) -> AsyncIterator[tuple[Onward, bytes]]:
        onward = await in_time(self._taken(), TUNNEL_S)
        with _closing(onward[1]):
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


class RelayThread:
    """An event loop in a thread of its own, for many relays. Any thread may call the methods."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="openenv-relay", daemon=True
        )
        self._thread.start()
        self._owner = os.getpid()
        self.close = weakref.finalize(self, _end, self._loop, self._thread, self._owner)
        self.close.atexit = False  # the thread is a daemon

    @property
    def is_running(self) -> bool:
        """Whether the thread runs in this process; False in a forked child."""
        return self.close.alive and self._owner == os.getpid()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread, and return the result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, owner: int) -> None:
    if os.getpid() != owner:  # a forked child's copy
        return
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join()
        loop.close()


class Relay:
    """Forwards connections in both directions until closed.

    Args:
        port: Port on 127.0.0.1; None chooses a free port.
        serve: Forwards one connection; called in the relay's thread.
        thread: Thread that runs the relay; by default a new one.

    Attributes:
        port: The port that the relay listens on.

    Raises:
        ProviderError: The relay cannot listen on the port.
    """

    def __init__(self, port: int | None, serve: Serve, thread: RelayThread | None = None) -> None:
        self._serve = serve
        self._passing: set[asyncio.Future[None]] = set()
        self._thread = thread or RelayThread()
        self._has_own_thread = thread is None
        try:
            self._server = self._thread.run(self._listen(port or 0))
        except OSError as error:
            if self._has_own_thread:
                self._thread.close()
            raise ProviderError(f"cannot listen on 127.0.0.1 port {port}: {error}") from None
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _listen(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._begin, "127.0.0.1", port, limit=CHUNK)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passing = asyncio.ensure_future(self._pass_on(reader, writer))
        self._passing.add(passing)  # the event loop itself holds no strong reference
        passing.add_done_callback(self._passing.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with _closing(writer), contextlib.suppress(OSError, EOFError):
            await self._serve(reader, writer)

    def close(self) -> None:
        """Stop listening, and cut all connections. A second call does nothing."""
        if self._thread.is_running:
            self._thread.run(self._stop())
            if self._has_own_thread:
                self._thread.close()

    async def _stop(self) -> None:
        self._server.close()
        while self._passing:  # a connection may just have begun
            for passing in self._passing:
                passing.cancel()
            await asyncio.gather(*self._passing, return_exceptions=True)


def through(reach: Reach) -> Serve:
    """Return a `Serve` that connects to the server through a `Reach`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with reach(reader) as ((onward_reader, onward_writer), read):
            onward_writer.write(read)
            await asyncio.gather(_pump(reader, onward_writer), _pump(onward_reader, writer))

    return serve


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy data until the reader ends, then end the writer."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()


def to_pod(find: Callable[[], WebSocketAddress]) -> Serve:
    """Return a `Serve` that leads to a pod's port, through the API server of the pod's cluster.

    Each connection has its own WebSocket. A message begins with a channel number: channel 0 carries
    the port's data, channel 1 the reason why the port cannot be reached.

    Args:
        find: Returns the address for a new connection. May block, and raise `ProviderError`.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException
        from websockets.typing import Subprotocol

        try:
            address = await asyncio.to_thread(find)
            proxy = None if address.proxy else proxy_for(address.url)
            options: dict[str, Any] = {"ssl": address.tls, "server_hostname": address.server_name}
            async with connect(
                address.url,
                additional_headers=dict(address.headers),
                subprotocols=[Subprotocol(PROTOCOL)],
                compression=None,
                max_size=None,
                open_timeout=OPEN_TIMEOUT_S,
                ping_interval=None,  # kubelets do not answer pings
                close_timeout=1.0,
                proxy=address.proxy or (proxy.url if proxy is not None else None),
                **{name: value for name, value in options.items() if value is not None},
            ) as socket:
                there = asyncio.ensure_future(_send(reader, socket))
                back = asyncio.ensure_future(_receive(socket, writer))
                try:
                    # The protocol cannot end one direction alone.
                    await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    there.cancel()
                    back.cancel()
                    await asyncio.gather(there, back, return_exceptions=True)
                    try:
                        await socket.close()
                    finally:  # the relay may be closed meanwhile
                        socket.transport.abort()
        except (OSError, ValueError, ProviderError, WebSocketException) as error:
            logger.debug("a connection could not be passed on: %s", redact(str(error)))

    return serve


async def _send(reader: asyncio.StreamReader, socket: Any) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            await socket.send(bytes([DATA]) + data)


async def _receive(socket: Any, writer: asyncio.StreamWriter) -> None:
    opened = set[int]()  # channels whose first message, the port's number, was received
    async for message in socket:
        data = message if isinstance(message, bytes) else message.encode()
        channel = data[0]
        if channel not in opened:
            opened.add(channel)
        elif channel == ERROR:
            logger.debug("a pod's port: %s", redact(data[1:].decode(errors="replace")))
            return
        elif channel == DATA:
            writer.write(data[1:])
            await writer.drain()
