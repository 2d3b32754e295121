"""One client's connection to many sessions, by version 1: each served in order, all side by side.

Answers that are ready in one tick of the event loop leave in one frame.

The conversation outlives its channel. When that breaks, sessions and running calls are kept for a
while, and frames that the client may not have, for another channel to go on with: see `_resume`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import deque
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

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
    TooLargeError,
)
from openenv.execution.connections.conversation import (
    COMMANDS,
    NORMAL_CLOSURE,
    PROTOCOL_ERROR,
    REFUSED_FRAMES,
    SERVICE_RESTART,
    Channel,
    charged,
    close_or_leave,
    closed_in_production,
    commands_in,
    json_rpc,
)
from openenv.execution.connections.dialect import Asked, failed
from openenv.execution.manager import SHUTTING_DOWN, Patience, SessionManager
from openenv.execution.principal import Principal
from openenv.execution.session import QueuedCall, Session
from openenv.execution.slow_readers import SlowReaderGuard
from openenv.protocol.messages import ACTION_TYPES, MCPReply, Request
from openenv.protocol.resend_buffer import OVERHEAD_BYTES, ResendBuffer
from openenv.protocol.v1 import Codec
from openenv.tools.types import JsonRpcResponse

__all__ = ["MultiplexedConversation"]

logger = logging.getLogger(__name__)

AT_ONCE = 512  # requests of a frame that are taken before others have their turn
# Requests that are taken before any is answered, besides those that every session may have; so
# many more are held back before no more are listened to.
UNANSWERED = 64
UNANSWERED_A_SESSION = 2
ANSWERS_A_FRAME = 64  # so that the client reads the first while the next are made
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
# What no limit of a key refuses: it only gives back.
FREE_OF_CHARGE = frozenset({"close", "ack"})
FRAME_BYTES = 2**18  # a frame is not made larger than this by joining answers
UNACKNOWLEDGED_BYTES = 2**16  # kept for a client that has never acknowledged anything
# The client keeps what it has sent until it is told that it has come: after so many bytes.
UNTOLD_BYTES = 2**16
MOST_UNHEARD = 1024  # connections that broke before anything came, and are waited for
HEAD_BYTES = 128  # at most, of what stands before the data of an answer
CAPABILITIES = ["resume", "queue", "deadlines", "render", "view"]


class _Seat:
    """One session of the connection: still opening, or there."""

    __slots__ = ("early", "is_queued", "opening", "session")

    def __init__(self) -> None:
        self.is_queued = False
        self.session: Session | None = None
        self.opening: asyncio.Task[None] | None = None
        self.early: deque[Request] | None = None


class _Asked(QueuedCall, kw_only=True):
    """A request on its way through its session."""

    conversation: MultiplexedConversation
    request: Request
    span: Any = None

    @property
    def number(self) -> int:
        return self.request.id

    def reply(self, result: Any, error: BaseException | None) -> None:
        if self.span is not None:
            end_serving(self.span, error)
        self.conversation.answer(self.request, result, error)
        if isinstance(error, EnvironmentCrashed | SessionClosedError):
            self.conversation.end_session(self.request.session, self.owner)

    def report_overdue(self, error: OpenEnvError) -> None:
        self.conversation.fail(self.request, error)  # its own answer follows


class _AskedByJsonRpc(_Asked, kw_only=True):
    """A request by JSON-RPC, whose errors are responses too."""

    asked: Asked

    def reply(self, result: Any, error: BaseException | None) -> None:
        if error is not None:
            self.conversation.fail_json_rpc(self.request, self.asked, error)
        else:
            self.conversation.answer(self.request, result, None)


class _Nowhere:
    """In place of a channel that broke."""

    conversation: Any = None
    is_clogged = True

    def send(self, frame: bytes) -> None:
        """Nothing: it is kept."""

    def close(self, code: int) -> None:
        """Nothing."""

    def pause(self) -> None:
        """Nothing."""

    def resume(self) -> None:
        """Nothing."""

    def abort(self) -> None:
        """Nothing."""


_NOWHERE: Any = _Nowhere()


class _Outbox:
    """Conversations that have something to send at the end of a tick of the event loop: one
    callback goes round them all.
    """

    def __init__(self) -> None:
        self._conversations: list[MultiplexedConversation] = []

    def add(self, conversation: MultiplexedConversation) -> None:
        """Have a conversation flushed at the end of the tick."""
        if not self._conversations:
            asyncio.get_running_loop().call_soon(self._flush)
        self._conversations.append(conversation)

    def _flush(self) -> None:
        conversations, self._conversations = self._conversations, []
        for conversation in conversations:
            try:
                conversation.flush()
            except Exception:  # noqa: PERF203 - one client's trouble is not the others'
                logger.exception("frames could not be sent")


_outboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Outbox] = WeakKeyDictionary()


class MultiplexedConversation:
    """Serves one client until it leaves; then all its sessions are closed.

    A client that has not left, but lost its connection, is waited for, if it has the means to
    come back: it has read the hello.

    Args:
        manager: Where sessions come from.
        channel: What carries the frames.
        codec: Reads and writes them.
        ends: The addresses and ports of the client and of the server.
        principal: Who the client is, where the server has keys.
        largest: Largest message that the channel takes, where that is less than the limit.

    Attributes:
        id: Identifies it, to resume it.
        hears_while_clogged: True: acknowledgements come. Requests are held back.
        ended: Done when the client is gone and its sessions closed, or left to the manager.
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
        self._taken_bytes = largest or manager.limits.max_message_bytes
        self.id = secrets.token_hex(8)
        self._token = secrets.token_urlsafe(24)
        self._manager = manager
        self._counters = manager.counters
        self._principal = principal
        self._limited = None if principal is None else principal.if_limited()
        self._bare_channel = channel
        self._channel = charged(channel, self._limited)
        self._codec = codec
        self._commands = commands_in(manager.spec.mode)
        self.encode_data = codec.encode_data
        self._loop = asyncio.get_running_loop()
        self._outbox = _outboxes.setdefault(self._loop, _Outbox())
        self._ledger = ResendBuffer()
        self._largest = manager.limits.max_message_bytes - HEAD_BYTES
        self._held: deque[Request] | None = None
        self._seats: dict[int, _Seat] = {}
        self._closings: dict[asyncio.Task[None], Session] = {}
        self._unsent: list[bytes] = []
        self._unanswered = self._untold_bytes = 0
        self._is_paused = self._is_going_on = False
        self._refused = 0  # frames since the last one that could be read
        self._is_over = self._is_draining = self._is_acknowledging = False
        self._expiry: asyncio.TimerHandle | None = None
        self._backlog: SlowReaderGuard | None = None
        self.ended = self._loop.create_future()
        manager.connections[self.id] = self
        self._tell("hello", {**self._hello(), "ends": ends})

    def _hello(self) -> dict[str, Any]:
        manager, limits = self._manager, self._manager.limits
        return {
            "version": 1,
            "connection": self.id,
            "resume_token": self._token,
            "grace_s": limits.resume_grace_s,
            "server": manager.instance,
            "siblings": manager.has_siblings,
            "max_sessions": manager.max_sessions,
            "max_message_bytes": self._taken_bytes,
            "capabilities": [*CAPABILITIES, *([ACTION_TYPES] if manager.spec.named_kinds else ())],
        }

    # ------------------------------------------------------------------ requests

    def receive(self, frame: str | bytes) -> None:
        """Take the client's next frame."""
        if self._is_over:
            return
        size, counters, ledger = len(frame), self._counters, self._ledger
        counters.frames_in += 1
        counters.bytes_in += size
        try:
            requests = self._codec.decode_requests(frame)
            self._refused = 0
        except OpenEnvError as error:
            requests = []
            self._refuse(frame, error)
            if self._is_over:
                return
        count = len(requests)
        if not ledger.received and count and requests[0].type == "resume":
            self._hand_over(requests[0])
            return
        ledger.received += 1
        self._untold_bytes += size + OVERHEAD_BYTES
        if self._untold_bytes > UNTOLD_BYTES:
            self._untold_bytes = 0
            self._tell("ack", {"received": ledger.received})
        if count and requests[0].ack:
            try:
                ledger.acknowledge(requests[0].ack)
            except ProtocolError as error:
                self._break_off(str(error))
                return
            self._is_acknowledging = True
        if self._limited is not None:
            requests = self._allowed(requests, size, self._limited)
            count = len(requests)
        is_much = count > AT_ONCE or (
            self._unanswered + count > UNANSWERED and count > self._room()
        )
        if is_much or self._held or self._channel.is_clogged:
            self._hold(requests)
            return
        for request in requests:
            self._take(request)

    def _refuse(self, frame: str | bytes, error: OpenEnvError) -> None:
        """Tell whoever waits for an answer to a frame that it cannot be read. Its requests count;
        who sends nothing else is cut off.
        """
        data, principal = self._codec.error_data(error), self._limited
        for session, number in self._codec.addresses(frame):
            if principal is not None:
                try:
                    principal.allow(1, 0)  # its bytes are counted with those of any frame
                except RateLimitError as limited:
                    error, principal = limited, None
                    data = self._codec.error_data(error)
            self._counters.failed(error)
            self._send(self._codec.answer("error", session, number, data))
        self._refused += 1
        if self._refused >= REFUSED_FRAMES:
            self._break_off(f"{self._refused} frames after each other could not be read")

    def _room(self) -> int:
        """How many requests may be taken now, if the client reads: one that only asks would
        otherwise fill the server's memory.
        """
        return UNANSWERED + UNANSWERED_A_SESSION * len(self._seats) - self._unanswered

    def _hold(self, requests: list[Request]) -> None:
        if self._held is None:
            self._held = deque()
        self._held.extend(request for request in requests if request.type != "ack")
        if len(self._held) > UNANSWERED and not self._is_paused:
            self._is_paused = True
            self._channel.pause()
        self.go_on()

    def go_on(self) -> None:
        """Take what was held back, as far as there is room for it: in a moment, since whoever says
        that there is may be in the middle of something.
        """
        if self._held and not self._is_going_on:
            self._is_going_on = True
            self._loop.call_soon(self._take_held)

    def _take_held(self) -> None:
        taken = 0
        while self._held and self._room() > 0 and not self._channel.is_clogged:
            if taken == AT_ONCE:  # now it is the turn of others
                self._loop.call_soon(self._take_held)
                return
            self._take(self._held.popleft())
            taken += 1
        self._is_going_on = False
        if self._is_paused and not self._held:
            self._is_paused = False
            self._channel.resume()

    def _allowed(self, requests: list[Request], size: int, principal: Principal) -> list[Request]:
        """What the principal's limits allow."""
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

    def _take(self, request: Request) -> None:
        seat = self._seats.get(request.session)
        if seat is None or seat.session is None or self._is_draining:
            self._take_otherwise(request, seat)
        else:
            self._serve(request, seat, seat.session)

    def _take_otherwise(self, request: Request, seat: _Seat | None) -> None:
        """Take a request to a session that is not there, or not yet, or not for long."""
        if request.type == "ack" or self._is_over:  # by a request of the same frame
            pass
        elif request.type == "resume":
            self._hand_over(request)
        elif self._is_draining:
            self.fail(request, SessionClosedError("", SHUTTING_DOWN))
        elif request.type == "open":
            self._open(request, seat)
        elif seat is None and request.type == "close":  # it could not be opened, or is closed
            self._answer("closed", request, self._codec.encode_data(None))
        elif seat is None:
            name = str(request.session)
            why = f"this connection has no session {name}; open it first"
            self.fail(request, SessionNotFoundError(name, why))
        elif request.type == "close" and seat.is_queued:
            self._leave_queue(request, seat)
        else:
            if seat.early is None:
                seat.early = deque()
            seat.early.append(request)
            self._unanswered += 1

    def _break_off(self, why: str) -> None:
        """End it: the client has broken the protocol."""
        self._send(self._codec.error(None, None, _breach(why)))
        self.flush()
        self._channel.close(PROTOCOL_ERROR)
        self.end()

    def _open(self, request: Request, seat: _Seat | None) -> None:
        if seat is not None:
            self.fail(request, SessionCreationError(f"session {request.session} is open already"))
            return
        seat = self._seats[request.session] = _Seat()
        seat.opening = self._loop.create_task(self._open_seat(request, seat))

    def _patience(self, request: Request) -> Patience | None:
        """How long to wait for a slot, as the client says."""
        wanted: Any = request.data.get("queue_timeout_s")
        if type(wanted) not in (int, float) or not wanted > 0:
            return None
        client = self.id if self._principal is None else id(self._principal)
        return Patience(client, wanted, partial(self._report_queue, request.session))

    def _report_queue(self, session: int, position: int, length: int) -> None:
        if session in self._seats:
            self._seats[session].is_queued = True
        self._tell("queued", {"position": position, "length": length}, session)

    def _leave_queue(self, request: Request, seat: _Seat) -> None:
        """Close a session that has no environment yet."""
        del self._seats[request.session]
        if seat.opening is not None:
            seat.opening.cancel()
        for early in seat.early or ():
            self._unanswered -= 1
            self.fail(early, SessionClosedError("", "the session was closed while it waited"))
        self._answer("closed", request, self._codec.encode_data(None))

    def _note_limit(self, request: Request) -> None:
        limit = request.data.get("max_message_bytes")
        if type(limit) is int and limit > 0:
            self._largest = min(self._largest, limit - HEAD_BYTES)

    async def _open_seat(self, request: Request, seat: _Seat) -> None:
        try:
            self._note_limit(request)
            session = await self._manager.create(
                patience=self._patience(request),
                record=request.data.get("record") is True,
                principal=self._principal,
            )
        except Exception as error:
            self._seats.pop(request.session, None)
            self.fail(request, error)
            for early in seat.early or ():
                self._unanswered -= 1
                self._send(self._codec.error(early.session, early.id, error))  # counted above
            return
        finally:
            seat.opening = None
        session.attachments += 1
        seat.session = session
        data = self._codec.encode_data({"session_id": session.id})
        self._answer("opened", request, data)
        waiting, seat.early = seat.early, None
        for one in waiting or ():
            self._unanswered -= 1
            if self._seats.get(request.session) is seat:
                self._serve(one, seat, session)
            else:  # it was closed by one before
                self._take_otherwise(one, self._seats.get(request.session))

    def _serve(self, request: Request, seat: _Seat, session: Session) -> None:
        command_of = self._commands.get(request.type)
        if command_of is None:
            self._serve_otherwise(request, seat, session)
            return
        self._unanswered += 1
        command, encode = command_of(request), self.encode_data
        work = _Asked(session, command, encode, conversation=self, request=request)
        if request.trace:
            name, about = f"openenv.{request.type}", session.attributes()
            work.span, work.trace = begin_serving(name, request.trace, about)
        session.serve(work)

    def _serve_otherwise(self, request: Request, seat: _Seat, session: Session) -> None:
        """Serve what the environment is not asked."""
        if request.type == "close":
            del self._seats[request.session]
            closing = self._loop.create_task(self._close(request, seat, session))
            self._closings[closing] = session
            closing.add_done_callback(self._closings.pop)
        elif request.type == "mcp":
            self._serve_json_rpc(request, session)
        elif request.type == "open":
            self._open(request, seat)
        elif request.type == "resume":
            self._hand_over(request)
        elif request.type in COMMANDS:
            self.fail(request, closed_in_production(request.type))

    def _serve_json_rpc(self, request: Request, session: Session) -> None:
        asked = json_rpc(self._manager, session, request.data, self._principal)
        if isinstance(asked, JsonRpcResponse):
            self._answer("mcp", request, self.encode_data(MCPReply(asked)))
            return
        self._unanswered += 1
        encode = asked.encoded(self.encode_data)
        session.serve(
            _AskedByJsonRpc(
                session, asked.command, encode, conversation=self, request=request, asked=asked
            )
        )

    def fail_json_rpc(self, request: Request, asked: Asked, error: BaseException) -> None:
        """Send why a request by JSON-RPC failed."""
        self._counters.failed(error)
        response = failed(error, asked.answer.id, debug=self._manager.debug)
        self.answer(request, self.encode_data(MCPReply(response)), None)

    def end_session(self, number: int, session: Session) -> None:
        """Close a session whose client was told that it is over, and may open another under its
        number.
        """
        seat = self._seats.get(number)
        if seat is not None and seat.session is session:
            del self._seats[number]
            closing = self._loop.create_task(close_or_leave(self._manager, session))
            self._closings[closing] = session
            closing.add_done_callback(self._closings.pop)

    async def _close(self, request: Request, seat: _Seat, session: Session) -> None:
        await close_or_leave(self._manager, session)
        self._answer("closed", request, self._codec.encode_data(None))

    def answer(self, request: Request, data: Any, error: BaseException | None) -> None:
        """Send what a request came to."""
        if self._is_over:
            return
        self._unanswered -= 1
        if error is not None:
            self.fail(request, error)
        elif len(data) > self._largest:
            self.fail(request, self._too_large(request, len(data)))
        else:
            kind = ANSWER_TO[request.type]
            self._send(self._codec.answer(kind, request.session, request.id, data))
        if self._is_draining:
            self._go_if_done()
        elif self._held:
            self.go_on()

    def _too_large(self, request: Request, size: int) -> TooLargeError:
        what = ANSWER_TO[request.type]
        cure = "raise OPENENV_MAX_MESSAGE_BYTES of the server and max_message_size_mb of the client"
        return TooLargeError(what, size, self._largest, cure)

    # ------------------------------------------------------------------ answers

    def _answer(self, kind: str, request: Request, data: bytes) -> None:
        self._send(self._codec.answer(kind, request.session, request.id, data))

    def fail(self, request: Request, error: BaseException) -> None:
        """Send why a request failed."""
        self._counters.failed(error)
        self._send(self._codec.error(request.session, request.id, error))

    def _tell(self, kind: str, data: dict[str, Any], session: int | None = None) -> None:
        self._send(self._codec.answer(kind, session, None, self._codec.encode_data(data)))

    def _send(self, message: bytes) -> None:
        if self._is_over:
            return
        unsent = self._unsent
        unsent.append(message)
        if len(unsent) == 1:
            self._outbox.add(self)
        elif len(unsent) >= ANSWERS_A_FRAME or len(message) > FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what there is to send."""
        messages = self._unsent
        if self._is_over or not messages:
            return
        if len(messages) == 1:
            self._send_frame(messages.pop())
            return
        self._unsent = []
        size, first = 0, 0
        for index, message in enumerate(messages):
            if size and size + len(message) > FRAME_BYTES:
                self._send_frame(self._codec.join(messages[first:index]))
                size, first = 0, index
            size += len(message)
        self._send_frame(self._codec.join(messages[first:]))

    def _send_frame(self, frame: bytes) -> None:
        counters, ledger = self._counters, self._ledger
        counters.frames_out += 1
        counters.bytes_out += len(frame)
        ledger.keep(frame)
        self._channel.send(frame)
        if ledger.kept_bytes > UNACKNOWLEDGED_BYTES:
            if self._is_acknowledging:
                self._watch_acknowledgements(len(frame))
            else:
                ledger.forget()  # its client knows nothing of resuming

    def _watch_acknowledgements(self, sent: int) -> None:
        if self._backlog is None:
            limit, ledger = self._manager.limits.max_unread_bytes, self._ledger
            self._backlog = SlowReaderGuard(limit, lambda: ledger.kept_bytes, self._cut_off)
        self._backlog.note(sent)

    def _cut_off(self) -> None:
        # Otherwise nobody is there to acknowledge anything, or is listened to.
        if self._expiry is None and not self._is_paused:
            self.note_cut_off()
            self._break_off("frames that have come are to be acknowledged")

    # ------------------------------------------------------------------ on another channel

    def _hand_over(self, request: Request) -> None:
        """Have the client go on with an earlier conversation, by the channel of this one."""
        data, mine = request.data, self._bare_channel
        earlier: Any = self._manager.connections.get(str(data.get("connection")))
        token, received = data.get("token"), data.get("received")
        try:
            if earlier is None or not earlier._is_of(self._principal, token):
                raise SessionNotFoundError("", GONE)
            if self._ledger.received or type(received) is not int:
                raise ProtocolError("resume is the first frame of a connection, with a number")
            earlier._resume(mine, received)
        except (SessionNotFoundError, ProtocolError) as error:
            self._counters.refused_resumes += 1
            told = _breach(str(error)) if isinstance(error, ProtocolError) else error
            mine.send(self._codec.error(None, None, told))
            mine.close(NORMAL_CLOSURE)
        else:
            self._counters.resumes += 1
        self._bare_channel = self._channel = _NOWHERE
        self.end()

    def _is_of(self, principal: Principal | None, token: Any) -> bool:
        is_token = type(token) is str and hmac.compare_digest(token.encode(), self._token.encode())
        return is_token and principal is self._principal

    def _resume(self, channel: Channel, received: int) -> None:
        """Go on by another channel, with a client that has received so many frames."""
        frames = self._ledger.missing(received)
        self._manager.unheard.pop(self.id, None)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        else:  # a socket that broke without a word to this side
            self._bare_channel.conversation = None
            self._bare_channel.abort()
        self._bare_channel, self._channel = channel, charged(channel, self._limited)
        channel.conversation = self
        count = self._codec.encode_data({"received": self._ledger.received})
        channel.send(self._codec.answer("resumed", None, None, count))
        for frame in frames:
            channel.send(frame)
        if self._is_paused:
            channel.pause()
        self.go_on()

    # ------------------------------------------------------------------ going

    def note_cut_off(self) -> None:
        """Note that the client is cut off, since it does not read."""
        self._counters.slow_readers_cut += 1

    def lose(self, *, is_goodbye: bool = True) -> bool:
        """Note that the channel is gone.

        Args:
            is_goodbye: The client has left. Otherwise it may come back by another channel.

        Returns:
            Whether it may be resumed. If not, what it had asked for is not begun any more.
        """
        grace_s, is_unheard = self._manager.limits.resume_grace_s, not self._ledger.received
        has_something = is_unheard or (self._is_acknowledging and self._seats)
        may_come_back = not is_goodbye and has_something and grace_s > 0
        if not may_come_back or self._is_draining or self._manager.closing:
            self.end()
            return False
        if not self._is_over and self._expiry is None:
            self._bare_channel = self._channel = _NOWHERE
            self._expiry = self._loop.call_later(grace_s, self._expire, grace_s)
            if is_unheard:
                self._wait_unheard()
        return not self._is_over

    def _wait_unheard(self) -> None:
        """Wait for a client whose first request may have been on its way; there may be any number
        of connections that never had a client of ours, so only the latest are waited for.
        """
        unheard = self._manager.unheard
        unheard[self.id] = self
        if len(unheard) > MOST_UNHEARD:
            next(iter(unheard.values())).end()

    @property
    def detached(self) -> int:
        """Its sessions that wait for the client to come back."""
        return 0 if self._expiry is None else len(self._seats)

    def _expire(self, grace_s: float) -> None:
        if self._seats:
            logger.info("a client has not come back for %g s; its sessions are closed", grace_s)
        for seat in self._seats.values():
            if seat.session is not None:
                seat.session.closed_by = "lost"
        self.end()

    def drain(self) -> None:
        """Take no more requests, answer those that have been taken, then say goodbye."""
        self._manager.refuse_new()
        if not self._is_over and not self._is_draining:
            self._is_draining = True
            self._loop.call_later(self._manager.limits.drain_s, self._go)
            self._go_if_done()

    def _go_if_done(self) -> None:
        if self._unanswered == 0:
            self._go()

    def _go(self) -> None:
        """Say goodbye."""
        if not self._is_over:
            self._tell("gone", {"reason": SHUTTING_DOWN})
            self.flush()
            self._channel.close(SERVICE_RESTART)
            self.end()

    def end(self) -> None:
        """Close its sessions: nobody will come back for them."""
        if self._is_over:
            return
        self._is_over = True
        self._manager.connections.pop(self.id, None)
        self._manager.unheard.pop(self.id, None)
        self._held = None
        if self._backlog is not None:
            self._backlog.stop()
        if self._expiry is not None:
            self._expiry.cancel()
        seats, self._seats = list(self._seats.values()), {}
        leaving = set(self._closings)
        left = [seat.session for seat in seats if seat.session is not None]
        for session in (*left, *self._closings.values()):
            for work in session.calls():
                if isinstance(work, _Asked) and work.conversation is self:
                    work.cancel()
        for seat in seats:
            if seat.opening is not None:
                seat.opening.cancel()
            elif seat.session is not None:
                leaving.add(self._loop.create_task(close_or_leave(self._manager, seat.session)))
        self._manager.keep(self._loop.create_task(self._end(leaving)))

    async def _end(self, leaving: set[asyncio.Task[None]]) -> None:
        if leaving:
            await asyncio.wait(leaving)
        self.ended.set_result(None)


def _breach(why: str) -> InvalidMessageError:
    """What a client is told that has broken the protocol."""
    return InvalidMessageError([{"type": "protocol", "loc": [], "msg": why, "input": None}], why)


GONE = (
    "there is nothing to resume: the connection was ended, or its time of grace is over, or the "
    "server has been restarted"
)
