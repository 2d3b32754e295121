"""A transport in memory: the server's own session code, without a socket."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from openenv.client.transports.base import InProcessTransport, TransportClosed
from openenv.execution.connections.v0.connection import ServedConnectionV0
from openenv.execution.connections.v1.connection import ServedConnectionV1
from openenv.execution.manager import SessionManager
from openenv.protocol.v1.codec import codec_named, is_binary


class MemoryTransport(InProcessTransport):
    """A connection to a `SessionManager` in this process.

    Both ends are one program, so error messages are complete.

    The manager belongs to its connections: when the last one ends, the manager is closed, with the
    threads that its environments may share. A later connection opens the manager again.
    """

    _users: ClassVar[WeakKeyDictionary[SessionManager, int]] = WeakKeyDictionary()
    _endings: ClassVar[WeakKeyDictionary[SessionManager, asyncio.Future[None]]] = (
        WeakKeyDictionary()
    )

    def __init__(self, manager: SessionManager, subprotocol: str | None = None) -> None:
        super().__init__(subprotocol)
        self.manager = manager
        self._connection: ServedConnectionV0 | ServedConnectionV1 | None = None
        self._is_binary = is_binary(subprotocol)
        self._is_closed = False

    def __str__(self) -> str:
        return "an environment in this process"

    async def connect(self, route: str | None = None) -> None:
        ending = self._endings.pop(self.manager, None)
        if ending is not None and ending.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([ending])
        self._users[self.manager] = self._users.get(self.manager, 0) + 1
        end = _ServerEnd(self)
        if self.subprotocol is None:
            self._connection = ServedConnectionV0(
                self.manager, end, debug=True, names_non_finite=True
            )
        else:
            codec = codec_named(self.subprotocol, debug=True)
            self._connection = ServedConnectionV1(self.manager, end, codec)
        end.connection = self._connection
        self._connection.ended.add_done_callback(lambda _: self._end())

    def _end(self) -> None:
        self._shut()
        self._users[self.manager] -= 1
        if self._users[self.manager] == 0:
            self._endings[self.manager] = asyncio.ensure_future(self.manager.aclose())

    def _shut(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.end(TransportClosed("the session is closed", 1000, by_peer=True))

    def send(self, frame: bytes) -> None:
        if self._connection is None or self._is_closed:
            raise TransportClosed("the session is closed")
        self._connection.receive(frame if self._is_binary else frame.decode())

    async def close(self) -> None:
        self._shut()
        if self._connection is not None:
            self._connection.lose()
            await asyncio.wait([self._connection.ended])
            if (ending := self._endings.get(self.manager)) is not None:
                await asyncio.shield(ending)

    def abort(self) -> None:
        self._shut()
        if self._connection is not None:
            self._connection.lose()


class _ServerEnd:
    """The server's end of a `MemoryTransport`."""

    connection: Any = None
    is_clogged = False

    def __init__(self, client: MemoryTransport) -> None:
        self._client = client

    def send(self, frame: bytes) -> None:
        if not self._client._is_closed:
            # A bytearray, so that arrays that are views of it are writable.
            self._client.put(bytearray(frame))

    def close(self, code: int) -> None:
        self._client._shut()

    def abort(self) -> None:
        self._client._shut()

    def pause(self) -> None:
        """Do nothing: the client waits for answers, and its frames are already in memory."""

    def resume(self) -> None:
        """Do nothing."""
