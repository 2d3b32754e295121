"""The connection of protocol version 1: many sessions over a socket that may break.

Design notes
------------

Requests. Each session serves its requests in order, and sessions run side by side. Up to `AT_ONCE`
requests of a frame are taken at once; then other connections have their turn. A client may request
a lot and read nothing, so the number of requests that are taken before they are answered is
limited: to `UNANSWERED_A_SESSION` for each session, so that a session whose environment hangs
blocks no other, and to `UNANSWERED` further ones. The others are held back with their sessions, and
if there are many, the channel pauses. Unlike in version 0, the connection still listens to a client
that does not read, since acknowledgements arrive that way. If a request of a frame cannot be read,
the others are served.

Answers. An answer is four values (`Answer`: kind, session, number, data) until its frame is
written. All answers of one tick of the event loop leave in one frame, which `flush` writes at the
end of the tick. A frame is written earlier once it holds `ANSWERS_A_FRAME` answers, so that the
client reads the first ones while the next are made, or before it would exceed `FRAME_BYTES` or the
client's limit.

Resuming. The connection outlives its channel. When the channel breaks, sessions and running calls
are kept for `resume_grace_s`, and the resend buffer keeps the frames that the client may not have.
A client that comes back opens another socket, whose connection hands its channel over to this one
(`_hand_over`, `_resume`). A client that never acknowledges anything cannot resume, so little is
kept for it. One that acknowledges too slowly is cut off by a `SlowReaderGuard`. A connection that
broke before a frame arrived may belong to a client whose first frame was on its way. Only the
latest `MOST_UNHEARD` of those are kept.

Everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import deque
from functools import partial
from typing import Any

import msgspec

from openenv._internal.traces import begin_serving, end_serving
from openenv.errors import (
    EnvironmentCrashed,
    InvalidMessageError,
    OpenEnvError,
    ProtocolError,
    RateLimitError,
    SessionClosedError,
    SessionCreationError,
    SessionNotFoundError,
)
from openenv.execution.commands import Step
from openenv.execution.connections.base import (
    COMMANDS,
    REFUSED_FRAMES,
    ServedConnection,
    close_or_leave,
    closed_in_production,
    too_large,
)
from openenv.execution.connections.channel import (
    LOST_CHANNEL,
    NORMAL_CLOSURE,
    PROTOCOL_ERROR,
    SERVICE_RESTART,
    Channel,
    charge,
)
from openenv.execution.connections.json_rpc import JsonRpcCommand
from openenv.execution.manager import SHUTTING_DOWN, Patience, SessionManager
from openenv.execution.principal import Principal
from openenv.execution.session import QueuedCall, Session
from openenv.execution.slow_readers import SlowReaderGuard
from openenv.protocol.messages import ACTION_TYPES, MCPReply, Request
from openenv.protocol.v1.codec import Codec
from openenv.protocol.v1.connection import OVERHEAD_BYTES, ResendBuffer
from openenv.tools.types import JsonRpcResponse

logger = logging.getLogger(__name__)

AT_ONCE = 512  # requests of a frame that are taken before other connections have their turn
# Limits for requests that are taken before they are answered: further ones of all sessions, and
# those of each session. If more than `UNANSWERED` are held back or wait, the channel pauses.
UNANSWERED = 64
UNANSWERED_A_SESSION = 2
ANSWERS_A_FRAME = 64
# If a request of a frame cannot be read, requests are read one by one, up to this many: as many as
# clients put into a frame, and their openings.
READ_ONE_BY_ONE = 128
ANSWER_TO = {
    "step": "observation",
    "reset": "observation",
    "state": "state",
    "restore": "state",
    "snapshot": "snapshot",
    "render": "render",
    "view": "view",
    "mcp": "mcp",
}
# Requests that a key's limits never refuse, since they only release resources.
FREE_OF_CHARGE = frozenset({"close", "ack"})
FRAME_BYTES = 2**18  # maximum size of a frame with several answers
UNACKNOWLEDGED_BYTES = 2**16  # kept for a client that has never acknowledged anything
# The client keeps its frames until they are acknowledged, which is done after this many bytes.
UNTOLD_BYTES = 2**16
MOST_UNHEARD = 1024  # connections kept that broke before a frame arrived
HEAD_BYTES = 128  # maximum size of an answer without its data
CAPABILITIES = ["resume", "queue", "deadlines", "render", "view"]


# The kind of an answer, its session number, its request number, and its encoded data.
Answer = tuple[str, int | None, int | None, bytes]


class SessionSlot(msgspec.Struct, eq=False):
    """A session of the connection, opening or open."""

    is_queued: bool = False
    session: Session | None = None
    opening: asyncio.Task[None] | None = None
    early: deque[Request] | None = None  # requests that arrived before the session was open
    held: deque[Request] | None = None  # requests held back while too many are unanswered
    unanswered: int = 0
    is_given_up: bool = False  # the client has closed it, and receives no more errors


class RequestCallV1(QueuedCall, kw_only=True):
    """A queued request of a client."""

    connection: ServedConnectionV1
    slot: SessionSlot
    request: Request
    span: Any = None

    @property
    def number(self) -> int:
        return self.request.id

    def reply(self, result: Any, error: BaseException | None) -> None:
        if self.span is not None:
            end_serving(self.span, error)
        connection, request = self.connection, self.request
        if connection._is_over:
            return
        slot = self.slot
        if slot.unanswered > UNANSWERED_A_SESSION:
            connection._note_answered(slot)
        else:  # `_note_answered` inlined
            connection._unanswered -= 1
            if slot.unanswered:
                slot.unanswered -= 1
        if error is not None and slot.is_given_up:
            pass
        elif error is not None:
            connection.fail(request, error)
            if isinstance(error, EnvironmentCrashed | SessionClosedError):
                connection.end_session(request.session, self.owner)
        elif len(result) > connection._largest:
            what, cure = ANSWER_TO[request.type], " and max_message_size_mb of the client"
            connection.fail(request, too_large(what, len(result), connection._largest, cure))
        else:
            answer = (ANSWER_TO[request.type], request.session, request.id, result)
            if connection._unsent:
                connection._send(answer)
            else:  # `_send` inlined
                connection._unsent.append(answer)
                connection._unsent_bytes = len(result) + HEAD_BYTES
                connection._loop.call_soon(connection.flush)
        if connection._is_draining:
            connection._go_if_done()
        elif slot.held:
            connection.take_held_of(slot)

    def report_overdue(self, error: OpenEnvError) -> None:
        self.connection.fail(self.request, error)  # the call's own answer follows


class JsonRpcCallV1(RequestCallV1, kw_only=True):
    """A queued JSON-RPC request of a client, whose errors are responses too."""

    json_rpc: JsonRpcCommand

    def reply(self, result: Any, error: BaseException | None) -> None:
        if error is not None:
            reply = self.connection.json_rpc_failure(self.json_rpc, error)
            result = self.connection._encode_data(reply)
        super().reply(result, None)


class ServedConnectionV1(ServedConnection):
    """A client's connection to many sessions, served until the client leaves or is given up.

    If a client loses its socket without leaving, the connection waits for the client, provided that
    it can resume: it must have read the hello. When the connection ends, all its sessions close.

    Args:
        ends: The addresses and ports of the client and of the server.
        largest: Size limit of messages on the channel, if it is below the manager's limit.

    Attributes:
        id: The id of the connection, used to resume it.
    """

    hears_while_clogged = True

    def __init__(
        self,
        manager: SessionManager,
        channel: Channel,
        codec: Codec,
        ends: list[str] | None = None,
        principal: Principal | None = None,
        *,
        largest: int | None = None,
    ) -> None:
        super().__init__(manager, channel, principal)
        self.id = secrets.token_hex(8)
        self._token = secrets.token_urlsafe(24)
        self._bare_channel = channel
        self._codec = codec
        self._encode_data = codec.encode_data
        self._loop = asyncio.get_running_loop()
        self._buffer = ResendBuffer()
        self._largest = manager.limits.max_message_bytes - HEAD_BYTES
        self._frame_bytes = FRAME_BYTES
        self._waiting: deque[Request] | None = None  # requests that wait for their turn
        self._held = 0  # number of requests held back with their sessions
        self._further = 0  # unanswered requests above UNANSWERED_A_SESSION of their sessions
        self._slots: dict[int, SessionSlot] = {}
        self._closings: dict[asyncio.Task[None], Session] = {}
        self._unsent: list[Answer] = []
        self._unsent_bytes = self._unanswered = self._untold_bytes = 0
        self._is_going_on = self._is_acknowledging = False
        self._expiry: asyncio.TimerHandle | None = None
        self._guard: SlowReaderGuard | None = None
        manager.connections[self.id] = self
        hello = {
            "version": 1,
            "connection": self.id,
            "resume_token": self._token,
            "grace_s": manager.limits.resume_grace_s,
            "server": manager.instance,
            "siblings": manager.has_siblings,
            "max_sessions": manager.max_sessions,
            "max_message_bytes": largest or manager.limits.max_message_bytes,
            "capabilities": [*CAPABILITIES, *([ACTION_TYPES] if manager.spec.named_kinds else ())],
            "ends": ends,
        }
        self._notify("hello", hello)

    # ------------------------------------------------------------------ requests

    def receive(self, frame: str | bytes) -> None:
        """Handle the client's next frame."""
        if self._is_over:
            return
        size, counters, buffer = len(frame), self._counters, self._buffer
        counters.frames_in += 1
        counters.bytes_in += size
        try:
            requests = self._codec.decode_requests(frame)
            self._refused = 0
        except OpenEnvError as error:
            requests = self._refuse(frame, error)
            if self._is_over:
                return
        count = len(requests)
        if not buffer.received and count and requests[0].type == "resume":
            self._hand_over(requests[0])
            return
        buffer.received += 1
        self._untold_bytes += size + OVERHEAD_BYTES
        if self._untold_bytes > UNTOLD_BYTES:
            self._untold_bytes = 0
            self._notify("ack", {"received": buffer.received})
        if count and requests[0].ack:
            try:
                buffer.acknowledge(requests[0].ack)
            except ProtocolError as error:
                self._break_off(str(error))
                return
            self._is_acknowledging = True
        if self._limited is not None:
            requests = self._allowed(requests, size, self._limited)
            count = len(requests)
        if count > AT_ONCE or self._waiting or self._channel.is_clogged:
            self._wait(requests)
            return
        for request in requests:
            self._take(request)

    def _refuse(self, frame: str | bytes, error: OpenEnvError) -> list[Request]:
        """Refuse the unreadable requests of a frame, and return the others.

        A client that sends nothing readable is cut off after `REFUSED_FRAMES` frames.
        """
        parts = self._codec.split(frame)
        if 1 < len(parts) <= READ_ONE_BY_ONE:
            readable = [one for part in parts for one in self._readable(part)]
        else:
            self._refuse_all(frame, error)
            readable = []
        if readable:
            self._refused = 0
            return readable
        self._refused += 1
        if self._refused >= REFUSED_FRAMES:
            self._break_off(f"{self._refused} frames after each other could not be read")
        return []

    def _readable(self, frame: bytes) -> list[Request]:
        try:
            return self._codec.decode_requests(frame)
        except OpenEnvError as error:
            self._refuse_all(frame, error)
            return []

    def _refuse_all(self, frame: str | bytes, error: OpenEnvError) -> None:
        data, principal = self._codec.error_data(error), self._limited
        for session, number in self._codec.addresses(frame):
            if principal is not None:
                try:
                    principal.allow(1, 0)  # the bytes were already counted with the frame
                except RateLimitError as limited:
                    error, principal = limited, None
                    data = self._codec.error_data(error)
            self._counters.failed(error)
            self._send(("error", session, number, data))

    def _wait(self, requests: list[Request]) -> None:
        """Make requests wait for their turn, or until the client reads."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.extend(request for request in requests if request.type != "ack")
        self._pause_if_much_waits()
        self.go_on()

    def _hold(self, slot: SessionSlot, request: Request) -> None:
        """Hold a request back until earlier ones of its session are answered."""
        if slot.held is None:
            slot.held = deque()
        slot.held.append(request)
        self._held += 1
        self._pause_if_much_waits()

    def _pause_if_much_waits(self) -> None:
        if not self._is_paused and self._held + len(self._waiting or ()) > UNANSWERED:
            self._is_paused = True
            self._channel.pause()

    def _resume_if_little_waits(self) -> None:
        if self._is_paused and self._held <= UNANSWERED and not self._waiting:
            self._is_paused = False
            self._channel.resume()

    def go_on(self) -> None:
        """Take the requests that wait or are held back, as long as the client reads.

        This happens in the next tick, since the caller may be in the middle of something.
        """
        if (self._waiting or self._held) and not self._is_going_on:
            self._is_going_on = True
            self._loop.call_soon(self._take_waiting)

    def _take_waiting(self) -> None:
        taken = 0
        while self._waiting and not self._channel.is_clogged:
            if taken == AT_ONCE:  # other connections have their turn now
                self._loop.call_soon(self._take_waiting)
                return
            self._take(self._waiting.popleft())
            taken += 1
        self._is_going_on = False
        if self._held:
            for slot in list(self._slots.values()):
                self.take_held_of(slot)
        self._resume_if_little_waits()

    def take_held_of(self, slot: SessionSlot) -> None:
        """Take the held-back requests of a session, as long as there is room."""
        while slot.held and self._has_room(slot) and not self._channel.is_clogged:
            self._held -= 1
            request = slot.held.popleft()
            self._take(request, is_early=True)
        self._resume_if_little_waits()

    def _has_room(self, slot: SessionSlot) -> bool:
        return slot.unanswered < UNANSWERED_A_SESSION or self._further < UNANSWERED

    def _note_taken(self, slot: SessionSlot) -> None:
        self._unanswered += 1
        slot.unanswered += 1
        if slot.unanswered > UNANSWERED_A_SESSION:
            self._further += 1

    def _note_answered(self, slot: SessionSlot) -> None:
        self._unanswered -= 1
        if slot.unanswered:  # 0 if the session is closed
            slot.unanswered -= 1
            if slot.unanswered >= UNANSWERED_A_SESSION:
                self._further -= 1

    def _forget(self, number: int, error: BaseException | None = None) -> None:
        """Free a session's number: unanswered requests no longer count, held requests fail."""
        slot = self._slots.pop(number)
        self._further -= max(0, slot.unanswered - UNANSWERED_A_SESSION)
        slot.unanswered = 0
        held, slot.held = slot.held, None
        self._held -= len(held or ())
        error = error or SessionClosedError("", "the session was closed before the call")
        for request in held or ():
            self.fail(request, error)
        self._resume_if_little_waits()

    def _allowed(self, requests: list[Request], size: int, principal: Principal) -> list[Request]:
        """Return the requests that the principal's limits allow; refuse the others."""
        costly = [request for request in requests if request.type not in FREE_OF_CHARGE]
        try:
            principal.allow(len(costly), size)
        except RateLimitError as error:
            data = self._codec.error_data(error)
            for request in costly:
                self._counters.failed(error)
                self._answer("error", request, data)
            return [request for request in requests if request.type in FREE_OF_CHARGE]
        return requests

    def _take(self, request: Request, *, is_early: bool = False) -> None:
        slot = self._slots.get(request.session)
        session = None if slot is None else slot.session
        if slot is None or session is None or (self._is_draining and not is_early):
            self._take_otherwise(request, slot)
            return
        is_full = slot.unanswered >= UNANSWERED_A_SESSION and self._further >= UNANSWERED
        if not is_early and (is_full or slot.held) and request.type != "close":
            self._hold(slot, request)
            return
        if request.type == "step" and self._is_simulation:  # `_command_of` inlined
            command: Any = Step(request.data, request.arguments)
        else:
            command = self._command_of(request)
            if command is None:
                self._serve_otherwise(request, slot, session)
                return
        self._unanswered += 1  # `_note_taken` inlined
        slot.unanswered += 1
        if slot.unanswered > UNANSWERED_A_SESSION:
            self._further += 1
        call = RequestCallV1(
            session, command, self._encode_data, connection=self, slot=slot, request=request
        )
        if request.trace:
            name, about = f"openenv.{request.type}", session.attributes()
            call.span, call.trace = begin_serving(name, request.trace, about)
        session.serve(call)

    def _take_otherwise(self, request: Request, slot: SessionSlot | None) -> None:
        """Handle a request for a session that is not open, or while the server stops."""
        if request.type == "ack" or self._is_over:  # ended by a request of the same frame
            pass
        elif request.type == "resume":
            self._hand_over(request)
        elif self._is_draining:
            self.fail(request, SessionClosedError("", SHUTTING_DOWN))
        elif request.type == "open":
            self._open(request, slot)
        elif slot is None and request.type == "close":  # not opened, or already closed
            self._answer("closed", request, self._codec.encode_data(None))
        elif slot is None:
            name = str(request.session)
            why = f"this connection has no session {name}; open it first"
            self.fail(request, SessionNotFoundError(name, why))
        elif request.type == "close" and slot.is_queued:
            self._leave_queue(request, slot)
        elif slot.held or not self._has_room(slot):
            self._hold(slot, request)
        else:
            if slot.early is None:
                slot.early = deque()
            slot.early.append(request)
            self._note_taken(slot)

    def _break_off(self, why: str) -> None:
        """End the connection because the client has broken the protocol."""
        self._send(("error", None, None, self._codec.error_data(_breach(why))))
        self.flush()
        self._channel.close(PROTOCOL_ERROR)
        self.end()

    def _open(self, request: Request, slot: SessionSlot | None) -> None:
        if slot is not None:
            self.fail(request, SessionCreationError(f"session {request.session} is open already"))
            return
        slot = self._slots[request.session] = SessionSlot()
        slot.opening = self._loop.create_task(self._open_session(request, slot))

    def _report_queue(self, session: int, position: int, length: int) -> None:
        if session in self._slots:
            self._slots[session].is_queued = True
        self._notify("queued", {"position": position, "length": length}, session)

    def _leave_queue(self, request: Request, slot: SessionSlot) -> None:
        """Close a session that waits for a slot."""
        self._forget(request.session)
        if slot.opening is not None:
            slot.opening.cancel()
        for early in slot.early or ():
            self._unanswered -= 1
            self.fail(early, SessionClosedError("", "the session was closed while it waited"))
        self._answer("closed", request, self._codec.encode_data(None))

    async def _open_session(self, request: Request, slot: SessionSlot) -> None:
        options, patience = request.data, None
        limit: Any = options.get("max_message_bytes")
        wait_s: Any = options.get("queue_timeout_s")
        if type(limit) is int and limit > 0:
            self._largest = min(self._largest, limit - HEAD_BYTES)
            self._frame_bytes = min(self._frame_bytes, limit)
        if type(wait_s) in (int, float) and wait_s > 0:
            client = self.id if self._principal is None else id(self._principal)
            patience = Patience(client, wait_s, partial(self._report_queue, request.session))
        try:
            session = await self._manager.create(
                patience=patience,
                record=options.get("record") is True,
                principal=self._principal,
            )
        except Exception as error:
            if self._slots.get(request.session) is slot:
                self._forget(request.session, error)
            self.fail(request, error)
            for early in slot.early or ():
                self._unanswered -= 1
                data = self._codec.error_data(error)
                self._send(("error", early.session, early.id, data))  # counted above
            return
        finally:
            slot.opening = None
        session.attachments += 1
        slot.session = session
        self._answer("opened", request, self._codec.encode_data({"session_id": session.id}))
        waiting, slot.early = slot.early, None
        for one in waiting or ():
            self._note_answered(slot)
            if self._slots.get(request.session) is slot:
                self._take(one, is_early=True)
            else:  # an earlier one has closed the session
                self._take_otherwise(one, self._slots.get(request.session))
        self.take_held_of(slot)

    def _serve_otherwise(self, request: Request, slot: SessionSlot, session: Session) -> None:
        """Serve a request that is not a command for the environment."""
        if request.type == "close":
            self._forget(request.session)
            if request.data.get("cancel") is True:
                slot.is_given_up = True
                self._cancel_calls_of(session)
            self._begin_to_close(session, request)
        elif request.type == "mcp":
            self._serve_json_rpc(request, slot, session)
        elif request.type == "open":
            self._open(request, slot)
        elif request.type == "resume":
            self._hand_over(request)
        elif request.type in COMMANDS:
            self.fail(request, closed_in_production(request.type))

    def _cancel_calls_of(self, session: Session) -> None:
        for call in session.calls():
            if isinstance(call, RequestCallV1) and call.connection is self:
                call.cancel()

    def _serve_json_rpc(self, request: Request, slot: SessionSlot, session: Session) -> None:
        command = self._json_rpc_command(session, request.data)
        if isinstance(command, JsonRpcResponse):
            self._answer("mcp", request, self._encode_data(MCPReply(command)))
            return
        self._note_taken(slot)
        session.serve(
            JsonRpcCallV1(
                session,
                command.command,
                command.encoder(self._encode_data),
                connection=self,
                slot=slot,
                request=request,
                json_rpc=command,
            )
        )

    def end_session(self, number: int, session: Session) -> None:
        """Close a session whose end the client has learned from an error, and free its number."""
        slot = self._slots.get(number)
        if slot is not None and slot.session is session:
            self._forget(number)
            self._begin_to_close(session, None)

    def _begin_to_close(self, session: Session, request: Request | None) -> None:
        closing = self._loop.create_task(self._close(session, request))
        self._closings[closing] = session
        closing.add_done_callback(self._closings.pop)

    async def _close(self, session: Session, request: Request | None) -> None:
        await close_or_leave(self._manager, session)
        if request is not None:
            self._answer("closed", request, self._codec.encode_data(None))

    # ------------------------------------------------------------------ answers

    def _answer(self, kind: str, request: Request, data: bytes) -> None:
        self._send((kind, request.session, request.id, data))

    def fail(self, request: Request, error: BaseException) -> None:
        """Send the error of a request."""
        self._counters.failed(error)
        self._send(("error", request.session, request.id, self._codec.error_data(error)))

    def _notify(self, kind: str, data: dict[str, Any], session: int | None = None) -> None:
        self._send((kind, session, None, self._encode_data(data)))

    def _send(self, answer: Answer) -> None:
        """Send an answer with the frame of this tick, or earlier if the frame grows too large."""
        if self._is_over:
            return
        unsent, size = self._unsent, len(answer[3]) + HEAD_BYTES
        if unsent and self._unsent_bytes + size > self._frame_bytes:
            self.flush()
        unsent.append(answer)
        self._unsent_bytes += size
        if len(unsent) == 1:
            self._loop.call_soon(self.flush)
        elif len(unsent) >= ANSWERS_A_FRAME:
            self.flush()

    def flush(self) -> None:
        """Send the frame of this tick."""
        if self._is_over or not self._unsent:
            return
        frame = self._codec.frame(self._unsent)
        self._unsent.clear()
        self._unsent_bytes = 0
        counters, buffer = self._counters, self._buffer
        counters.frames_out += 1
        counters.bytes_out += len(frame)
        buffer.keep(frame)
        self._channel.send(frame)
        if buffer.kept_bytes > UNACKNOWLEDGED_BYTES:
            if not self._is_acknowledging:
                buffer.forget()  # the client does not support resuming
                return
            if self._guard is None:
                self._guard = SlowReaderGuard(
                    self.max_unread_bytes, lambda: buffer.kept_bytes, self._cut_off
                )
            self._guard.note(len(frame))

    def _cut_off(self) -> None:
        # Unless the client is gone, or is not listened to: then it cannot acknowledge anything.
        if self._expiry is None and not self._is_paused:
            self.note_cut_off()
            self._break_off("frames that have come are to be acknowledged")

    # ------------------------------------------------------------------ resumption

    def _hand_over(self, request: Request) -> None:
        """Hand the channel over to an earlier connection of the client, and end this connection."""
        data, mine = request.data, self._bare_channel
        earlier: Any = self._manager.connections.get(str(data.get("connection")))
        token, received = data.get("token"), data.get("received")
        try:
            if earlier is None or not earlier._is_of(self._principal, token):
                raise SessionNotFoundError("", GONE)
            if self._buffer.received or type(received) is not int:
                raise ProtocolError("resume is the first frame of a connection, with a number")
            earlier._resume(mine, received)
        except (SessionNotFoundError, ProtocolError) as error:
            self._counters.refused_resumes += 1
            shown = _breach(str(error)) if isinstance(error, ProtocolError) else error
            mine.send(self._codec.error(None, None, shown))
            mine.close(NORMAL_CLOSURE)
        else:
            self._counters.resumes += 1
        self._bare_channel = self._channel = LOST_CHANNEL
        self.end()

    def _is_of(self, principal: Principal | None, token: Any) -> bool:
        is_token = type(token) is str and hmac.compare_digest(token.encode(), self._token.encode())
        return is_token and principal is self._principal

    def _resume(self, channel: Channel, received: int) -> None:
        """Continue on another channel, with a client that has received `received` frames."""
        frames = self._buffer.missing(received)
        self._manager.unheard.pop(self.id, None)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        else:  # this side has not noticed yet that the socket broke
            self._bare_channel.connection = None
            self._bare_channel.abort()
        self._bare_channel, self._channel = channel, charge(channel, self._limited)
        channel.connection = self
        count = self._codec.encode_data({"received": self._buffer.received})
        channel.send(self._codec.answer("resumed", None, None, count))
        for frame in frames:
            channel.send(frame)
        if self._is_paused:
            channel.pause()
        self.go_on()

    # ------------------------------------------------------------------ the end

    def lose(self, *, is_goodbye: bool = True) -> bool:
        """Note that the channel is gone.

        Args:
            is_goodbye: The client has left. Otherwise it may come back on another channel.

        Returns:
            Whether the connection may be resumed. If not, its waiting requests are dropped.
        """
        grace_s, is_unheard = self._manager.limits.resume_grace_s, not self._buffer.received
        has_something = is_unheard or (self._is_acknowledging and self._slots)
        may_come_back = not is_goodbye and has_something and grace_s > 0
        if not may_come_back or self._is_draining or self._manager.closing:
            self.end()
            return False
        if not self._is_over and self._expiry is None:
            self._bare_channel = self._channel = LOST_CHANNEL
            self._expiry = self._loop.call_later(grace_s, self._expire, grace_s)
            # If it broke before the first request, it may never have had a client of ours. There
            # may be any number of such connections, so only the latest are kept.
            if is_unheard:
                unheard = self._manager.unheard
                unheard[self.id] = self
                if len(unheard) > MOST_UNHEARD:
                    next(iter(unheard.values())).end()
        return not self._is_over

    def max_unread_bytes(self) -> int:
        """Return the number of bytes a client may leave unread: the limit times its sessions."""
        return self._manager.limits.max_unread_bytes * max(1, len(self._slots))

    @property
    def detached(self) -> int:
        """The number of sessions that wait for the client to come back."""
        return 0 if self._expiry is None else len(self._slots)

    def _expire(self, grace_s: float) -> None:
        if self._slots:
            logger.info("a client has not come back for %g s; its sessions are closed", grace_s)
        for slot in self._slots.values():
            if slot.session is not None:
                slot.session.closed_by = "lost"
        self.end()

    def drain(self) -> None:
        """Refuse further requests, answer those that were taken, then close the connection."""
        self._manager.refuse_new()
        if not self._is_over and not self._is_draining:
            self._is_draining = True
            self._notify("gone", {"reason": SHUTTING_DOWN})
            self._loop.call_later(self._manager.limits.drain_s, self._go)
            self._go_if_done()

    def _go_if_done(self) -> None:
        if self._unanswered == 0:
            self._go()

    def _go(self) -> None:
        """Close the connection, since the server stops."""
        if not self._is_over:
            self.flush()
            self._channel.close(SERVICE_RESTART)
            self.end()

    def end(self) -> None:
        """End the connection for good: cancel the running requests and close all sessions."""
        if self._is_over:
            return
        self._is_over = True
        self._manager.connections.pop(self.id, None)
        self._manager.unheard.pop(self.id, None)
        self._waiting = None
        if self._guard is not None:
            self._guard.stop()
        if self._expiry is not None:
            self._expiry.cancel()
        slots, self._slots = list(self._slots.values()), {}
        leaving = set(self._closings)
        left = [slot.session for slot in slots if slot.session is not None]
        for session in (*left, *self._closings.values()):
            self._cancel_calls_of(session)
        for slot in slots:
            if slot.opening is not None:
                slot.opening.cancel()
            elif slot.session is not None:
                leaving.add(self._loop.create_task(close_or_leave(self._manager, slot.session)))
        self._manager.keep(self._loop.create_task(self._end(leaving)))

    async def _end(self, leaving: set[asyncio.Task[None]]) -> None:
        if leaving:
            await asyncio.wait(leaving)
        self.ended.set_result(None)


def _breach(why: str) -> InvalidMessageError:
    """Return the error for a client that has broken the protocol."""
    return InvalidMessageError([{"type": "protocol", "loc": [], "msg": why, "input": None}], why)


GONE = (
    "there is nothing to resume: the connection was ended, or its time of grace is over, or the "
    "server has been restarted, or another one answers at its address"
)
