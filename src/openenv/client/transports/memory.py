"""Frames through memory: the server's own session code, with no socket and no second process."""

from __future__ import annotations

import asyncio
import contextlib
from typing import ClassVar, Generic, TypeVar
from weakref import WeakKeyDictionary

from openenv.client.transports.base import TransportClosed
from openenv.sessions.manager import SessionManager
from openenv.sessions.pump import ChannelClosed, serve

__all__ = ["MemoryTransport"]

T = TypeVar("T")


class _Pipe(Generic[T]):
    """A one-way stream that ends."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[T | None] = asyncio.Queue()
        self._ended = False

    def put(self, item: T) -> bool:
        if not self._ended:
            self._items.put_nowait(item)
        return not self._ended

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._items.put_nowait(None)

    async def get(self) -> T | None:
        item = await self._items.get()
        if item is None:
            self._items.put_nowait(None)
        return item

    def has_item(self) -> bool:
        return not self._items.empty()


class _ServerEnd:
    """What the pump sees."""

    def __init__(self, inbound: _Pipe[str], outbound: _Pipe[str]) -> None:
        self._inbound, self._outbound = inbound, outbound

    async def receive(self) -> str | bytes:
        frame = await self._inbound.get()
        if frame is None:
            raise ChannelClosed
        return frame

    async def send(self, frame: str) -> None:
        if not self._outbound.put(frame):
            raise ChannelClosed

    async def close(self, code: int) -> None:
        self._outbound.end()


class MemoryTransport:
    """A connection to a `SessionManager` in this process.

    The manager belongs to its connections: the last one that ends closes it, and with it the
    thread that its environments may share. A later one opens it again.
    """

    _users: ClassVar[WeakKeyDictionary[SessionManager, int]] = WeakKeyDictionary()
    _endings: ClassVar[WeakKeyDictionary[SessionManager, asyncio.Future[None]]] = (
        WeakKeyDictionary()
    )

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._to_server: _Pipe[str] = _Pipe()
        self._to_client: _Pipe[str] = _Pipe()
        self._serving: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return "an environment in this process"

    async def connect(self) -> None:
        ending = self._endings.pop(self._manager, None)
        if ending is not None and ending.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([ending])
        self._users[self._manager] = self._users.get(self._manager, 0) + 1
        self._serving = asyncio.create_task(self._serve())
        self._serving.add_done_callback(lambda _: self._to_client.end())

    async def _serve(self) -> None:
        try:
            await serve(_ServerEnd(self._to_server, self._to_client), self._manager)
        finally:
            self._users[self._manager] -= 1
            if self._users[self._manager] == 0:
                self._endings[self._manager] = ending = asyncio.ensure_future(
                    self._manager.aclose()
                )
                await asyncio.shield(ending)

    async def send(self, frame: str) -> None:
        if self._serving is None or self._serving.done() or not self._to_server.put(frame):
            raise TransportClosed("the session is closed")

    async def receive(self) -> str | bytes:
        frame = await self._to_client.get()
        if frame is None:
            raise TransportClosed("the session is closed", 1000)
        return frame

    def has_frame(self) -> bool:
        return self._to_client.has_item()

    async def close(self) -> None:
        self._to_server.end()
        if self._serving is not None:
            with contextlib.suppress(ChannelClosed):
                await asyncio.shield(self._serving)

    def abort(self) -> None:
        self._to_server.end()
