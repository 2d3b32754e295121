"""Ports of the loopback interface that lead to pods, through the API server of their cluster.

Each connection has its own WebSocket. A message begins with the number of a channel: 0 carries the
data of the pod's port, 1 the reason why the port cannot be reached
(https://kubernetes.io/docs/reference/using-api/api-concepts, ``portforward``). One thread forwards
all connections of a provider.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from openenv._internal.net.proxies import proxy_for
from openenv._internal.redaction import redact
from openenv._internal.timing import new_event_loop
from openenv.errors import ProviderError
from openenv.providers._clusters import WebSocketAddress

logger = logging.getLogger(__name__)

PROTOCOL = "v4.channel.k8s.io"
CHUNK = 2**18
OPEN_TIMEOUT_S = 20.0
DATA, ERROR = 0, 1


class Forwarding:
    """Forwards connections until closed. Any thread may call the methods."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._servers: dict[int, asyncio.Server] = {}
        self._tasks: dict[int, set[asyncio.Task[None]]] = {}
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="openenv-forwarding", daemon=True
        )
        self._thread.start()
        self._finish = weakref.finalize(self, _finish, self._loop, self._thread, os.getpid())

    def listen(self, port: int | None, find: Callable[[], WebSocketAddress]) -> int:
        """Listen at a port of 127.0.0.1, and return the port.

        Args:
            port: The port; None chooses a free port.
            find: Returns where a new connection leads to; may block, and raise `ProviderError`.

        Raises:
            ProviderError: The port is taken.
        """
        opening = asyncio.run_coroutine_threadsafe(self._listen(port or 0, find), self._loop)
        try:
            return opening.result()
        except OSError as error:
            raise ProviderError(f"cannot listen on 127.0.0.1 port {port}: {error}") from None

    def stop(self, port: int) -> None:
        """Stop listening at a port, and cut the connections. A second call does nothing."""
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._stop(port), self._loop).result()

    def close(self) -> None:
        """Stop listening at all ports, and end the thread. A second call does nothing."""
        if self._loop.is_closed():
            return
        for port in list(self._servers):
            self.stop(port)
        self._finish()

    async def _listen(self, port: int, find: Callable[[], WebSocketAddress]) -> int:
        tasks = set[asyncio.Task[None]]()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await _pass_on(reader, writer, find)
            except asyncio.CancelledError:
                pass  # `stop` waits for nothing else
            finally:
                tasks.discard(task)
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", port, limit=CHUNK)
        port = int(server.sockets[0].getsockname()[1])
        self._servers[port], self._tasks[port] = server, tasks
        return port

    async def _stop(self, port: int) -> None:
        server = self._servers.pop(port, None)
        if server is None:
            return
        server.close()
        tasks = self._tasks.pop(port)
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(list(tasks))


def _finish(loop: asyncio.AbstractEventLoop, thread: threading.Thread, owner: int) -> None:
    if os.getpid() != owner:  # a forked child's copy
        return
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join()
        loop.close()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, find: Callable[[], WebSocketAddress]
) -> None:
    from websockets.asyncio.client import connect
    from websockets.exceptions import WebSocketException
    from websockets.typing import Subprotocol

    try:
        door = await asyncio.to_thread(find)
        proxy = None if door.proxy else proxy_for(door.url)
        options: dict[str, Any] = {"ssl": door.tls, "server_hostname": door.server_name}
        async with connect(
            door.url,
            additional_headers=dict(door.headers),
            subprotocols=[Subprotocol(PROTOCOL)],
            compression=None,
            max_size=None,
            open_timeout=OPEN_TIMEOUT_S,
            ping_interval=None,  # which kubelets do not answer
            close_timeout=1.0,
            proxy=door.proxy or (proxy.url if proxy is not None else None),
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
    except (OSError, ValueError, ProviderError, WebSocketException) as error:
        logger.debug("a connection could not be passed on: %s", redact(str(error)))


async def _send(reader: asyncio.StreamReader, socket: Any) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            await socket.send(bytes([DATA]) + data)


async def _receive(socket: Any, writer: asyncio.StreamWriter) -> None:
    opened = set[int]()  # channels whose first message, the port's number, has come
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
