"""One client's connection to one session: frames in, `Session.serve`, frames out, in order.

A conversation is driven by calls, not by tasks of its own, so that a step costs no more than
what it does and a waiting client costs next to nothing. Whatever carries frames (a WebSocket, or
memory) is its `Channel`. It listens while a request is served, so that a caller who goes away is
noticed at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from openenv._internal.incidents import log_incident
from openenv.errors import (
    NotSupported,
    OpenEnvError,
    ProtocolError,
    RateLimitError,
    SessionCreationError,
    TooLargeError,
)
from openenv.execution.commands import (
    Command,
    Encode,
    GetState,
    GetView,
    Render,
    Reset,
    Restore,
    Step,
    TakeSnapshot,
)
from openenv.execution.connections.dialect import (
    Asked,
    asked,
    encode_json_rpc,
    failed,
    parse,
    read_json_rpc,
)
from openenv.execution.manager import SessionManager
from openenv.execution.principal import Principal
from openenv.execution.session import QueuedCall, Session
from openenv.protocol.codecs import JSONCodec
from openenv.protocol.connection import ServerConnection
from openenv.protocol.messages import MCPReply, Request
from openenv.settings import ServerMode
from openenv.tools.types import JsonRpcResponse

__all__ = ["Channel", "Conversation", "JsonRpcConversation"]

logger = logging.getLogger(__name__)

NORMAL_CLOSURE = 1000  # RFC 6455, section 7.4.1
PROTOCOL_ERROR = 1002
INTERNAL_ERROR = 1011
SERVICE_RESTART = 1012
QUEUED_FRAMES = 64
REFUSED_FRAMES = 1000  # after each other, that cannot be read, before a client is cut off
LINGER_S = 5.0


class Channel(Protocol):
    """Carries frames to one client. What is called after the client has gone does nothing.

    Attributes:
        conversation: What gets the frames that come, and is told when the client has gone; None
            lets them drop. It is also told, by `go_on`, when the channel is no longer clogged.
    """

    conversation: Any

    @property
    def is_clogged(self) -> bool:
        """Whether the client does not read what is sent."""
        ...

    def send(self, frame: bytes) -> None:
        """Send a frame, or keep it until it can be sent."""
        ...

    def close(self, code: int) -> None:
        """Close from this side, with a code of RFC 6455, once all frames are sent."""
        ...

    def pause(self) -> None:
        """Stop listening: more has come than can be served."""
        ...

    def resume(self) -> None:
        """Listen again."""
        ...

    def abort(self) -> None:
        """Cut the connection."""
        ...


class Conversation:
    """Serves one client until it leaves.

    It gets a session of its own, which is closed when it leaves; or, with `session_id`, joins one
    that exists, which stays. Whoever says goodbye is answered, by the closing of the channel, once
    the environment is closed; one that takes more than `LINGER_S` seconds to close is left to the
    manager, since a web server that shuts down waits for every client that is served.

    Args:
        manager: Where sessions come from.
        channel: What carries the frames.
        session_id: Of the session to join.
        principal: Who the client is, where the server has keys.
        debug: Errors are told in full.
        names_non_finite: As for `JSONCodec`.

    Attributes:
        hears_while_clogged: False: a client that does not read is not listened to.
        ended: Done when the client is gone and its session closed, or left to the manager.
    """

    hears_while_clogged = False

    __slots__ = (
        "_channel",
        "_commands",
        "_connection",
        "_counters",
        "_frames",
        "_is_draining",
        "_is_over",
        "_is_paused",
        "_is_serving",
        "_largest",
        "_limited",
        "_manager",
        "_opening",
        "_principal",
        "_refused",
        "_session",
        "_session_id",
        "_work",
        "ended",
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
        self._manager = manager
        self._counters = manager.counters
        self._largest = manager.limits.max_message_bytes
        self._principal = principal
        self._limited = None if principal is None else principal.if_limited()
        self._channel = charged(channel, self._limited)
        self._commands = commands_in(manager.spec.mode)
        self._session_id = session_id
        self._connection = ServerConnection(
            JSONCodec(debug=debug, names_non_finite=names_non_finite)
        )
        self._session: Session | None = None
        self._work: QueuedCall | None = None
        self._frames: deque[str | bytes] | None = None
        self._is_paused = self._is_over = self._is_serving = self._is_draining = False
        self._refused = 0  # frames since the last one that could be read
        self.ended = asyncio.get_running_loop().create_future()
        self._opening: asyncio.Task[None] | None = asyncio.ensure_future(self._open())

    # ------------------------------------------------------------------ coming and going

    async def _open(self) -> None:
        try:
            session = await self._joined()
        except asyncio.CancelledError:  # it left before it was in
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
        self._connection.accept()
        self._serve_waiting()

    def _refusal(self, error: OpenEnvError) -> bytes:
        return self._connection.refuse(error)

    async def _joined(self) -> Session:
        if self._session_id is None:
            return await self._manager.create(principal=self._principal)
        session = self._manager.get(self._session_id, principal=self._principal)
        if session.attachments:
            raise SessionCreationError(f"session {self._session_id} already has a socket attached")
        return session

    def drain(self) -> None:
        """Take no more requests, answer the one that is under way, then say goodbye."""
        self._manager.refuse_new()
        if self._is_over or self._is_draining:
            return
        self._is_draining = True
        if self._frames is not None:
            self._frames.clear()
        if self._work is None:
            self._go()
        else:
            asyncio.get_running_loop().call_later(self._manager.limits.drain_s, self._go)

    def _go(self) -> None:
        """Say goodbye from this side."""
        if not self._is_over:
            self._channel.close(SERVICE_RESTART)
            self._lose()

    def note_cut_off(self) -> None:
        """Note that the client is cut off, since it does not read."""
        self._counters.slow_readers_cut += 1

    def go_on(self) -> None:
        """Nothing: what has come is served, at most `QUEUED_FRAMES`, and no more is listened to."""

    def lose(self, *, is_goodbye: bool = True) -> bool:
        """Note that the client is gone. What it had asked for is not begun any more.

        Returns:
            False: version 0 has nothing by which it could come back.
        """
        if not self._is_over:
            self._lose()
        return False

    def _lose(self) -> None:
        self._is_over = True
        self._connection.drop()
        self._frames = None
        if self._work is not None:
            self._work.cancel()
        if self._opening is not None:
            self._opening.cancel()
        elif self._session is not None:
            self._manager.keep(asyncio.ensure_future(self._leave()))
        else:
            self._end()

    def _finish(self, code: int) -> None:
        """End it from this side."""
        self._is_over = True
        self._channel.close(code)
        self._end()

    async def _part(self) -> None:
        """Answer a goodbye."""
        await self._leave()
        self._channel.close(NORMAL_CLOSURE)

    async def _leave(self) -> None:
        session = self._session
        assert session is not None
        if self._session_id is None:
            await close_or_leave(self._manager, session)
        else:
            self._manager.leave(session)
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    # ------------------------------------------------------------------ talking

    def receive(self, frame: str | bytes) -> None:
        """Take the client's next frame."""
        if self._is_over or self._is_draining:
            return
        counters = self._counters
        counters.frames_in += 1
        counters.bytes_in += len(frame)
        if self._session is not None and self._work is None and not self._frames:
            self._serve(frame)
            return
        if self._frames is None:
            self._frames = deque()
        self._frames.append(frame)
        if len(self._frames) >= QUEUED_FRAMES and not self._is_paused:
            self._is_paused = True
            self._channel.pause()

    def _serve_waiting(self) -> None:
        if self._is_serving:  # an answer that came at once: the loop below goes on
            return
        self._is_serving = True
        while self._frames and self._work is None and not self._is_over:
            frame = self._frames.popleft()
            if self._is_paused and len(self._frames) < QUEUED_FRAMES // 2:
                self._is_paused = False
                self._channel.resume()
            self._serve(frame)
        self._is_serving = False

    def _serve(self, frame: str | bytes) -> None:
        connection = self._connection
        try:
            if self._limited is not None:
                self._limited.allow(1, len(frame))
            request = connection.receive(frame)
        except ProtocolError:
            raise
        except OpenEnvError as error:
            self._fail(None, error)
            if not isinstance(error, RateLimitError):
                self._note_refused()
            return
        self._refused = 0
        assert self._session is not None
        command_of = self._commands.get(request.type)
        if command_of is not None:
            command = command_of(request)
            work = _Asked(self._session, command, connection.encode, conversation=self)
            self._work = work
            self._session.serve(work)
        elif request.type == "mcp":
            self._answer_json_rpc(request)
        elif request.type in COMMANDS:
            self._fail(request, closed_in_production(request.type))
        else:
            self._is_over = True
            self._manager.keep(asyncio.ensure_future(self._part()))

    def _note_refused(self) -> None:
        """Note that a frame could not be read; who sends nothing else is cut off."""
        self._refused += 1
        if self._refused >= REFUSED_FRAMES and not self._is_over:
            self._channel.close(PROTOCOL_ERROR)
            self._lose()

    def _answer_json_rpc(self, request: Request) -> None:
        self._serve_json_rpc(request.data, self._connection.encode)

    def _serve_json_rpc(self, data: Any, encode: Encode) -> None:
        assert self._session is not None
        session = self._session
        asked = json_rpc(self._manager, session, data, self._principal)
        if isinstance(asked, JsonRpcResponse):
            self._send(encode(MCPReply(asked)))
            return
        work = _AskedByJsonRpc(
            session,
            asked.command,
            asked.encoded(encode),
            conversation=self,
            asked=asked,
            write=encode,
        )
        self._work = work
        session.serve(work)

    def fail_json_rpc(self, asked: Asked, encode: Encode, error: BaseException) -> None:
        """Send why the request by JSON-RPC that is under way failed."""
        self._counters.failed(error)
        response = failed(error, asked.answer.id, debug=self._manager.debug)
        self.answer(encode(MCPReply(response)), None)

    def answer(self, frame: Any, error: BaseException | None) -> None:
        """Send what the request that is under way has come to."""
        self._work = None
        if self._is_over:
            return
        if error is not None:
            self._fail(None, error)
        elif (size := len(frame)) > self._largest:
            self._fail(None, self._too_large(size))
        else:
            counters = self._counters
            counters.frames_out += 1
            counters.bytes_out += size
            self._channel.send(frame)
        if self._is_draining:
            self._go()
        elif self._frames:
            self._serve_waiting()

    def _too_large(self, size: int) -> TooLargeError:
        cure = "raise OPENENV_MAX_MESSAGE_BYTES of the server"
        return TooLargeError("answer", size, self._largest, cure)

    def _fail(self, request: Request | None, error: BaseException) -> None:
        self._counters.failed(error)
        self._send(self._connection.error(request, error))

    def _send(self, frame: bytes) -> None:
        counters = self._counters
        counters.frames_out += 1
        counters.bytes_out += len(frame)
        self._channel.send(frame)


class _Asked(QueuedCall, kw_only=True):
    """A request on its way through its session."""

    conversation: Conversation

    def reply(self, result: Any, error: BaseException | None) -> None:
        self.conversation.answer(result, error)

    def report_overdue(self, error: OpenEnvError) -> None:
        raise AssertionError("version 0 carries no deadlines")


class _AskedByJsonRpc(_Asked, kw_only=True):
    """A request by JSON-RPC, whose errors are responses too."""

    asked: Asked
    write: Encode

    def reply(self, result: Any, error: BaseException | None) -> None:
        if error is not None:
            self.conversation.fail_json_rpc(self.asked, self.write, error)
        else:
            self.conversation.answer(result, None)


class JsonRpcConversation(Conversation):
    """A conversation whose frames are JSON-RPC, without a frame of ours around them."""

    __slots__ = ()

    def _refusal(self, error: OpenEnvError) -> bytes:
        return encode_json_rpc(failed(error, debug=self._manager.debug))

    async def _joined(self) -> Session:
        if self._session_id is None:
            return await super()._joined()
        # An agent comes to a session that somebody else drives.
        return self._manager.get(self._session_id, principal=self._principal)

    def _serve(self, frame: str | bytes) -> None:
        try:
            if self._limited is not None:
                self._limited.allow(1, len(frame))
        except OpenEnvError as error:
            self._counters.failed(error)
            self._send(encode_json_rpc(failed(error)))
            return
        data = read_json_rpc(frame)
        if isinstance(data, JsonRpcResponse):
            self._send(encode_json_rpc(data))
            self._note_refused()
        else:
            self._refused = 0
            self._serve_json_rpc(data, encode_json_rpc)


class ChargedChannel:
    """A channel whose client, a principal that has limits, pays for what it is sent."""

    conversation: Any = None  # the bare channel has it

    def __init__(self, channel: Channel, principal: Principal) -> None:
        self._channel, self._principal = channel, principal
        self.close, self.pause, self.resume = channel.close, channel.pause, channel.resume
        self.abort = channel.abort

    @property
    def is_clogged(self) -> bool:
        return self._channel.is_clogged

    def send(self, frame: bytes) -> None:
        self._principal.charge(len(frame))
        self._channel.send(frame)


def charged(channel: Channel, limited: Principal | None) -> Channel:
    """The channel of a client: one that is charged for, where the client has limits."""
    return channel if limited is None else ChargedChannel(channel, limited)


def commands_in(mode: ServerMode) -> Mapping[str, Callable[[Request], Command]]:
    """What requests may ask for: in production nobody controls the world, but by its tools."""
    return COMMANDS if mode is ServerMode.SIMULATION else {}


def closed_in_production(request_type: str) -> NotSupported:
    """Why a request is refused that a server in simulation mode would serve."""
    return NotSupported(
        f"this server runs in production mode, where time flows and nobody can {request_type}; "
        "what an agent can do there are the environment's tools, by MCP at /mcp",
        feature=request_type,
    )


def json_rpc(
    manager: SessionManager, session: Session, data: dict[str, Any], principal: Principal | None
) -> Asked | JsonRpcResponse:
    """What a frame with JSON-RPC asks of a session, or the response to it."""
    request = parse(data)
    if isinstance(request, JsonRpcResponse):
        return request
    return asked(manager, session, request, principal)


async def close_or_leave(manager: SessionManager, session: Session) -> None:
    """Close the session of a client that has gone, or leave it to the manager after `LINGER_S`."""
    session.attachments -= 1
    closing = asyncio.ensure_future(manager.close(session.id))
    await asyncio.wait({closing}, timeout=LINGER_S)


# What requests ask for: the command of each, by its type.
COMMANDS: dict[str, Callable[[Request], Command]] = {
    "step": lambda request: Step(request.data, request.arguments),
    "reset": lambda request: Reset(request.data),
    "state": lambda request: GetState(),
    "snapshot": lambda request: TakeSnapshot(),
    "restore": lambda request: Restore(request.data),
    "render": lambda request: Render(),
    "view": lambda request: GetView(request.data.get("message")),
}
