"""The connection of protocol version 0: a single session, with answers in the order of requests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from openenv._internal.incidents import log_incident
from openenv.errors import OpenEnvError, ProtocolError, RateLimitError, SessionCreationError
from openenv.execution.commands import Encode, Step
from openenv.execution.connections.base import (
    COMMANDS,
    REFUSED_FRAMES,
    ServedConnection,
    close_or_leave,
    closed_in_production,
    too_large,
)
from openenv.execution.connections.channel import (
    INTERNAL_ERROR,
    NORMAL_CLOSURE,
    PROTOCOL_ERROR,
    SERVICE_RESTART,
    Channel,
)
from openenv.execution.connections.json_rpc import (
    JsonRpcCommand,
    encode_json_rpc,
    json_rpc_error,
    read_json_rpc,
)
from openenv.execution.manager import SessionManager
from openenv.execution.principal import Principal
from openenv.execution.session import QueuedCall, Session
from openenv.protocol.messages import MCPReply
from openenv.protocol.v0.codec import JSONCodec
from openenv.protocol.v0.connection import ServerConnection
from openenv.tools.types import JsonRpcResponse

logger = logging.getLogger(__name__)

QUEUED_FRAMES = 64


class RequestCallV0(QueuedCall, kw_only=True):
    """A queued request of a client."""

    connection: ServedConnectionV0

    def reply(self, result: Any, error: BaseException | None) -> None:
        connection = self.connection
        connection._call = None
        if connection._is_over:
            return
        if error is not None:
            connection._fail(error)
        elif (size := len(result)) > connection._largest:
            connection._fail(too_large("answer", size, connection._largest, ""))
        else:
            counters = connection._counters
            counters.frames_out += 1
            counters.bytes_out += size
            connection._channel.send(result)
        if connection._is_draining:
            connection._go()
        elif connection._frames:
            connection._serve_waiting()

    def report_overdue(self, error: OpenEnvError) -> None:
        raise AssertionError("version 0 carries no deadlines")


class JsonRpcCallV0(RequestCallV0, kw_only=True):
    """A queued JSON-RPC request of a client, whose errors are responses too."""

    json_rpc: JsonRpcCommand
    write: Encode

    def reply(self, result: Any, error: BaseException | None) -> None:
        if error is not None:
            result = self.write(self.connection.json_rpc_failure(self.json_rpc, error))
        super().reply(result, None)


class ServedConnectionV0(ServedConnection):
    """The connection of a client to a single session, served until the client leaves.

    The client gets its own session, which is closed when the client leaves. With `session_id`, it
    joins an existing session, which stays open. A client that sends ``close`` gets its answer, the
    closing of the channel, once the environment is closed. An environment that takes more than
    `LINGER_S` seconds to close is left to the manager.

    The connection does not listen to a client that does not read. At most `QUEUED_FRAMES` requests
    wait while one is served; then the channel pauses.

    Args:
        session_id: The session to join.
        debug: Send the client the text of every exception.
        names_non_finite: Name NaN and infinity in frames; see `JSONCodec`.
    """

    __slots__ = (
        "_call",
        "_frames",
        "_is_serving",
        "_opening",
        "_protocol",
        "_session",
        "_session_id",
    )

    def __init__(
        self,
        manager: SessionManager,
        channel: Channel,
        session_id: str | None = None,
        principal: Principal | None = None,
        *,
        debug: bool = False,
        names_non_finite: bool = False,
    ) -> None:
        super().__init__(manager, channel, principal)
        self._session_id = session_id
        self._protocol = ServerConnection(JSONCodec(debug=debug, names_non_finite=names_non_finite))
        self._session: Session | None = None
        self._call: QueuedCall | None = None
        self._frames: deque[str | bytes] | None = None
        self._is_serving = False
        self._opening: asyncio.Task[None] | None = asyncio.ensure_future(self._open())

    # ------------------------------------------------------------------ opening and closing

    async def _open(self) -> None:
        try:
            session = await self._join()
        except asyncio.CancelledError:  # the client left before the session was open
            self._end()
            return
        except OpenEnvError as error:
            self._counters.failed(error)
            self._send(self._refusal(error))
            self._finish(NORMAL_CLOSURE)
            return
        except Exception as error:
            log_incident(error, "opening a session", log=logger)
            self._finish(INTERNAL_ERROR)
            return
        finally:
            self._opening = None
        self._session = session
        session.attachments += 1
        self._protocol.accept()
        self._serve_waiting()

    def _refusal(self, error: OpenEnvError) -> bytes:
        return self._protocol.refuse(error)

    async def _join(self) -> Session:
        if self._session_id is None:
            return await self._manager.create(principal=self._principal)
        session = self._manager.get(self._session_id, principal=self._principal)
        if session.attachments:
            raise SessionCreationError(f"session {self._session_id} already has a socket attached")
        return session

    def drain(self) -> None:
        """Take no more requests, answer the running request, then close the connection."""
        self._manager.refuse_new()
        if self._is_over or self._is_draining:
            return
        self._is_draining = True
        if self._frames is not None:
            self._frames.clear()
        if self._call is None:
            self._go()
        else:
            asyncio.get_running_loop().call_later(self._manager.limits.drain_s, self._go)

    def _go(self) -> None:
        """Close the connection from this side, since the server stops."""
        if not self._is_over:
            self._channel.close(SERVICE_RESTART)
            self._lose()

    def go_on(self) -> None:
        """Do nothing: frames that have arrived are served, and no more are read."""

    def lose(self, *, is_goodbye: bool = True) -> bool:
        """Note that the client has left, and cancel the running request.

        Returns:
            False: in version 0 a client cannot come back.
        """
        if not self._is_over:
            self._lose()
        return False

    def _lose(self) -> None:
        self._is_over = True
        self._protocol.drop()
        self._frames = None
        if self._call is not None:
            self._call.cancel()
        if self._opening is not None:
            self._opening.cancel()
        elif self._session is not None:
            self._manager.keep(asyncio.ensure_future(self._leave()))
        else:
            self._end()

    def _finish(self, code: int) -> None:
        """End the connection from this side."""
        self._is_over = True
        self._channel.close(code)
        self._end()

    async def _leave(self, *, is_goodbye: bool = False) -> None:
        """Close the session or leave it; then, if the client asked to close, close the channel."""
        session = self._session
        assert session is not None
        if self._session_id is None:
            await close_or_leave(self._manager, session)
        else:
            self._manager.leave(session)
        self._end()
        if is_goodbye:
            self._channel.close(NORMAL_CLOSURE)

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    # ------------------------------------------------------------------ frames

    def receive(self, frame: str | bytes) -> None:
        """Handle the client's next frame."""
        if self._is_over or self._is_draining:
            return
        counters = self._counters
        counters.frames_in += 1
        counters.bytes_in += len(frame)
        if self._session is not None and self._call is None and not self._frames:
            self._serve(frame)
            return
        if self._frames is None:
            self._frames = deque()
        self._frames.append(frame)
        if len(self._frames) >= QUEUED_FRAMES and not self._is_paused:
            self._is_paused = True
            self._channel.pause()

    def _serve_waiting(self) -> None:
        if self._is_serving:  # for an immediate answer, the loop below continues
            return
        self._is_serving = True
        while self._frames and self._call is None and not self._is_over:
            frame = self._frames.popleft()
            if self._is_paused and len(self._frames) < QUEUED_FRAMES // 2:
                self._is_paused = False
                self._channel.resume()
            self._serve(frame)
        self._is_serving = False

    def _serve(self, frame: str | bytes) -> None:
        try:
            if self._limited is not None:
                self._limited.allow(1, len(frame))
            request = self._protocol.receive(frame)
        except ProtocolError:
            raise
        except OpenEnvError as error:
            self._fail(error)
            if not isinstance(error, RateLimitError):
                self._count_refused()
            return
        self._refused = 0
        assert self._session is not None
        if request.type == "step" and self._is_simulation:  # `_command_of` inlined
            command: Any = Step(request.data, request.arguments)
        else:
            command = self._command_of(request)
        if command is not None:
            self._call = call = RequestCallV0(
                self._session, command, self._protocol.encode, connection=self
            )
            self._session.serve(call)
        elif request.type == "mcp":
            self._serve_json_rpc(request.data, self._protocol.encode)
        elif request.type in COMMANDS:
            self._fail(closed_in_production(request.type))
        else:
            self._is_over = True
            self._manager.keep(asyncio.ensure_future(self._leave(is_goodbye=True)))

    def _count_refused(self) -> None:
        """Count an unreadable frame, and cut off a client that sends nothing else."""
        self._refused += 1
        if self._refused >= REFUSED_FRAMES and not self._is_over:
            self._channel.close(PROTOCOL_ERROR)
            self._lose()

    def _serve_json_rpc(self, data: Any, encode: Encode) -> None:
        assert self._session is not None
        session = self._session
        command = self._json_rpc_command(session, data)
        if isinstance(command, JsonRpcResponse):
            self._send(encode(MCPReply(command)))
            return
        self._call = call = JsonRpcCallV0(
            session,
            command.command,
            command.encoder(encode),
            connection=self,
            json_rpc=command,
            write=encode,
        )
        session.serve(call)

    def _fail(self, error: BaseException) -> None:
        self._counters.failed(error)
        self._send(self._protocol.codec.encode_error(error))

    def _send(self, frame: bytes) -> None:
        counters = self._counters
        counters.frames_out += 1
        counters.bytes_out += len(frame)
        self._channel.send(frame)


class JsonRpcConnection(ServedConnectionV0):
    """A connection whose frames are bare JSON-RPC."""

    __slots__ = ()

    def _refusal(self, error: OpenEnvError) -> bytes:
        return encode_json_rpc(json_rpc_error(error, debug=self._manager.debug))

    async def _join(self) -> Session:
        if self._session_id is None:
            return await super()._join()
        # An agent joins a session that another client drives.
        return self._manager.get(self._session_id, principal=self._principal)

    def _serve(self, frame: str | bytes) -> None:
        try:
            if self._limited is not None:
                self._limited.allow(1, len(frame))
        except OpenEnvError as error:
            self._counters.failed(error)
            self._send(encode_json_rpc(json_rpc_error(error)))
            return
        data = read_json_rpc(frame)
        if isinstance(data, JsonRpcResponse):
            self._send(encode_json_rpc(data))
            self._count_refused()
        else:
            self._refused = 0
            self._serve_json_rpc(data, encode_json_rpc)
