"""Frames through memory: the server's own session code, with no socket and no second process."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Generic, TypeVar

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
    """A connection to a `SessionManager` in this process."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._to_server: _Pipe[str] = _Pipe()
        self._to_client: _Pipe[str] = _Pipe()
        self._serving: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return "an environment in this process"

    async def connect(self) -> None:
        end = _ServerEnd(self._to_server, self._to_client)
        self._serving = asyncio.create_task(serve(end, self._manager))
        self._serving.add_done_callback(lambda _: self._to_client.end())

    async def send(self, frame: str) -> None:
        if self._serving is None or self._serving.done() or not self._to_server.put(frame):
            raise TransportClosed("the session is closed")

    async def receive(self) -> str | bytes:
        frame = await self._to_client.get()
        if frame is None:
            raise TransportClosed("the session is closed", 1000)
        return frame

    async def close(self) -> None:
        self._to_server.end()
        if self._serving is not None:
            with contextlib.suppress(ChannelClosed):
                await asyncio.shield(self._serving)
