"""The client's side of one session: order of calls, time limits, and what a loss means.

Under version 1 a connection that breaks is resumed, by `openenv.client._resuming`, and the call
under way goes on: what it asked for is done exactly once, and its answer is not lost. That happens
also while no call is under way. An answer that did not come in time still comes: asking again,
with the same request, waits for it. So does one that came just as its caller stopped waiting, be
it by a cancellation or by a signal. `SessionLost` is raised where the server has ended the session,
or cannot be reached for as long as it would keep it.

Version 0 has no session identity. When a connection is lost in the middle of an episode, that
episode is gone: `step` and `state` then raise `SessionLost` until `reset` begins a new one, on
a new connection. When an answer did not come in time, or the caller stopped waiting for it, the
connection stays and the late answer is dropped; but whether the step was carried out is not
known, so `step` likewise waits for a `reset`.

Version 0 matches answers to requests by their order alone, so a frame that nobody asked for would
shift every later answer by one. What has come before a request is sent is therefore read first,
and such a frame ends the connection with a `ProtocolError`. One that is still on its way while
the request is sent cannot be told from the answer.

A connection belongs to the process that made it. A forked child has a copy of the socket, but
writes nothing to it and says no goodbye: for it, the episode is lost.

A session that is dropped without `close` closes its connection when it is collected, with a
`ResourceWarning`: otherwise it would keep its slot on the server as long as this process lives.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from openenv._internal.lazy import lazy_module
from openenv._internal.timeouts import within
from openenv._internal.traces import traced, tracer
from openenv.client import background
from openenv.client._resuming import CannotResume, greeted, is_worth_resuming, resume
from openenv.client.transports.base import Transport, TransportClosed
from openenv.errors import (
    ErrorCode,
    NotSupported,
    OpenEnvError,
    ProtocolError,
    ResponseTimeout,
    SessionLost,
    StepTimeout,
    server_error,
)
from openenv.protocol.connection import ClientConnection
from openenv.protocol.messages import ErrorReply, Reply, Request
from openenv.protocol.v1 import (
    HEARTBEAT_S,
    LARGE_BYTES,
    ClientConnection1,
    Codec,
    Multiplexer,
    Queued,
    codec_named,
)

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy_module("asyncio")

__all__ = ["ClientSession"]

T = TypeVar("T")

RESET_HINT = "call reset() to begin a new episode"
ASK_AGAIN_HINT = "ask again with the same action to have its answer, or call reset()"
CLOSED = "the client was closed"
CLOSE_LIMIT_S = 5.0
CLOSE_BROKEN_LIMIT_S = 2.0
# The server keeps the time of a step. It is given so much longer to say that it is over.
DEADLINE_SLACK_S = 0.25
# Requests after which it is known where the episode stands, and those that do not change that.
BEGINNINGS = frozenset({"reset", "restore"})
READINGS = frozenset({"state", "snapshot", "render"})


class _Turn:
    """A lock, first come, first served, that costs next to nothing where nobody waits."""

    def __init__(self) -> None:
        self.is_taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def come(self) -> None:
        """Take it, once it is one's turn."""
        if not self.is_taken:
            self.is_taken = True
            return
        called = asyncio.get_running_loop().create_future()
        self._waiting.append(called)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():  # it was called, and leaves all the same
                self.leave()
            raise

    def leave(self) -> None:
        """Let the next one come."""
        while self._waiting:
            called = self._waiting.popleft()
            if not called.done():
                called.set_result(None)
                return
        self.is_taken = False


async def _nobody_knows() -> str | None:
    return None


class Terms:
    """What a session asks of its server and of its client.

    Args:
        queue_timeout_s: Seconds to wait for a slot; 0 is not at all.
        max_message_bytes: Largest frame that is read; None for no limit.
        on_queue: Told where the session stands while it waits for a slot.
        why_gone: Says why there is no use in reaching the server, where that is known.
        is_recorded: Have the server record the session.
    """

    def __init__(
        self,
        queue_timeout_s: float = 0.0,
        max_message_bytes: int | None = None,
        on_queue: Callable[[Queued], None] | None = None,
        why_gone: Callable[[], Awaitable[str | None]] = _nobody_knows,
        *,
        is_recorded: bool = False,
    ) -> None:
        self.opening: dict[str, Any] = {"queue_timeout_s": queue_timeout_s}
        if max_message_bytes is not None:
            self.opening["max_message_bytes"] = max_message_bytes
        if is_recorded:
            self.opening["record"] = True
        self.is_recorded = is_recorded
        self.why_gone = why_gone
        self._on_queue = on_queue

    def note(self, queued: Queued) -> None:
        """Tell the client where its session stands."""
        if self._on_queue is not None:
            self._on_queue(queued)


class _IdleWatch:
    """Has a session resumed whose connection breaks while no call is under way."""

    def __init__(self, session: ClientSession, transport: Transport) -> None:
        self._session = weakref.ref(session)
        self._transport = weakref.ref(transport)

    def __call__(self) -> None:
        session, transport = self._session(), self._transport()
        if session is not None and transport is not None:
            session.resume_idle(transport)


def may_resume(connection: ClientConnection | ClientConnection1, error: TransportClosed) -> bool:
    """Whether there is any use in trying to resume what `error` has broken."""
    return isinstance(connection, ClientConnection1) and is_worth_resuming(
        connection.multiplexer, error
    )


def _is_interim(reply: Reply) -> bool:
    """It says that a step is overdue, whose own answer is still to come."""
    return (
        type(reply) is ErrorReply
        and reply.data.get("code") == ErrorCode.STEP_TIMEOUT.value
        and reply.data.get("is_running") is True
    )


def named(request: Request) -> str:
    """What a request is called in messages."""
    return "call of a tool" if request.type == "mcp" else request.type


def bare(request: Request) -> Request:
    """What is asked for, without what differs from one time to the next."""
    kept = {k: v for k, v in request.arguments.items() if k != "timeout_s"}
    return Request(request.type, request.data, kept)


def asked_for(codec: Codec, frame: bytes, session: int = 0, number: int = 0) -> bytes | None:
    """Write what the request of this number in a frame asks for, without what differs from one time
    to the next; None where it is not in there, or cannot be read. The caller may have changed since
    what it was written from, such as an array that is used for each action.
    """
    try:
        requests = codec.decode_requests(frame if codec.is_binary else frame.decode())
    except OpenEnvError:  # the server will say why
        return None
    for request in requests:
        is_it = request.session == session and request.id == number
        if is_it and request.type != "open":
            return codec.encode_requests([bare(request)])
    return None


class _Asked:
    """A request that was sent.

    Attributes:
        frame: As which.
        reply: Its answer, if that has come and the caller did not take it.
        was_answered: The caller's client has had the answer before.
    """

    __slots__ = ("frame", "reply", "request", "was_answered")

    def __init__(self, request: Request, frame: bytes) -> None:
        self.request = request
        self.frame = frame
        self.reply: Reply | None = None
        self.was_answered = False


class ClientSession:
    """Sends requests one at a time over a transport that it opens when needed.

    Args:
        open_transport: Makes a transport, not yet connected.
        timeout_s: Seconds to wait for an answer; None for no limit.
        lost: Why there is no episode to go on with; None where that is no loss.
        terms: What is asked of the server, and of the client's owner.

    Attributes:
        has_owner: Somebody else will close it at the latest, so dropping it is no mistake.
        closes: How often it has been closed. A call that began before a close ends with it.
        is_repeated: The latest answer had been given to this client before; its caller did not
            get it, and asked again.
        episode_began_at: When `reset` was answered, by `time.monotonic`; None if the episode was
            not begun by a `reset` of this session.
    """

    def __init__(
        self,
        open_transport: Callable[[], Transport],
        timeout_s: float | None,
        *,
        lost: str | None = None,
        terms: Terms | None = None,
    ) -> None:
        self.has_owner = False
        self.closes = 0
        self.is_repeated = False
        self.episode_began_at: float | None = None
        self._process = os.getpid()
        self._open_transport = open_transport
        self._timeout_s = timeout_s
        self._terms = terms or Terms()
        self._transport: Transport | None = None
        self._broken_at: float | None = None  # when the connection broke that may be resumed
        self._resuming: asyncio.Task[None] | None = None  # of that, while no call is under way
        self._abandonment: weakref.finalize[..., ClientSession] | None = None
        self._connection: ClientConnection | ClientConnection1 = ClientConnection()
        self._turn = _Turn()
        self._tracer = tracer()
        self._lost = lost
        self._unanswered: dict[int, _Asked] = {}  # by their tickets: no caller has the answers

    def for_another_loop(self, because: str | None = None) -> ClientSession:
        """The same session, without its connection, for use on another event loop.

        Args:
            because: What became of the connection, where this one was not closed.
        """
        if self._abandonment is not None:
            self._abandonment.detach()
        lost = because if because and self.is_connected else self._lost
        other = ClientSession(self._open_transport, self._timeout_s, lost=lost, terms=self._terms)
        other.has_owner = self.has_owner
        return other

    @property
    def is_inherited(self) -> bool:
        """It was made in another process, of which this one is a fork."""
        return self._process != os.getpid()

    @property
    def version(self) -> int:
        """The protocol version that is spoken."""
        return self._connection.version

    @property
    def capabilities(self) -> Collection[str]:
        """What the server has said that it can do; nothing before there is a connection."""
        connection = self._connection
        if isinstance(connection, ClientConnection1):
            return connection.multiplexer.hello.capabilities
        return ()  # version 0 says nothing

    @property
    def room(self) -> int | None:
        """How many sessions the server holds; None if that is unknown."""
        connection = self._connection
        if not isinstance(connection, ClientConnection1):
            return None
        multiplexer = connection.multiplexer
        is_one_of_several = multiplexer.hello.siblings or multiplexer.route is not None
        return None if is_one_of_several else multiplexer.hello.max_sessions

    @property
    def is_connected(self) -> bool:
        """A connection is open, as far as is known, or may be resumed."""
        return self._transport is not None or self._broken_at is not None

    @property
    def has_begun(self) -> bool:
        """It is connected, or was, and whatever it had is lost."""
        return self.is_connected or self._lost is not None

    @property
    def route(self) -> str | None:
        """Which server of a gateway's it is on; None without one."""
        return None if self._transport is None else self._transport.route

    async def connect(self, began: int | None = None) -> None:
        """Open the connection, if there is none.

        Args:
            began: What `closes` was when the call began; by default it begins now.

        Raises:
            ConnectError: No server answers.
            SessionLost: The session was closed meanwhile.
        """
        began = self.closes if began is None else began
        await self._turn.come()
        try:
            await self._connected(began)
        finally:
            self._turn.leave()

    async def request(
        self,
        request: Request,
        timeout_s: float | None = None,
        began: int | None = None,
        is_traced: bool = False,
    ) -> Reply:
        """Send a request and wait for its answer.

        Args:
            request: What to send.
            timeout_s: Seconds to wait; by default those of the session.
            began: What `closes` was when the call began; by default it begins now.
            is_traced: A span of the caller's tells of it already.

        Raises:
            ServerError: The server answered with an error.
            SessionLost: The episode is gone, or its state is unknown.
            ResponseTimeout: No answer came in time.
            ConnectError: There was no connection, and none could be made.
        """
        began = self.closes if began is None else began
        if self._tracer is not None and not is_traced:
            return await self._traced(request, timeout_s, began)
        turn = self._turn
        if turn.is_taken:
            if self._resuming is not None:  # this call does it, within its own time
                self._resuming.cancel()
            await turn.come()
        else:
            turn.is_taken = True
        self.is_repeated = False
        try:
            ticket = self._asked_before(request) if self._unanswered else None
            if ticket is not None:
                reply = await self._ask_again(ticket, timeout_s, began)
            elif request.type in BEGINNINGS:
                reply = await self._reset(request, timeout_s, began)
            else:
                if self._lost is not None or self._unanswered:
                    self._check(request)
                reply = await self._exchange(request, timeout_s, began)
        finally:
            turn.leave()
        if type(reply) is ErrorReply:
            raise server_error(reply.data)
        return reply

    async def _traced(self, request: Request, timeout_s: float | None, began: int) -> Reply:
        def send(span: str) -> Awaitable[Reply]:
            request.trace = span
            return self.request(request, timeout_s, began, is_traced=True)

        return await traced(self._tracer, f"openenv.{request.type}", send)

    async def _reset(self, request: Request, timeout_s: float | None, began: int) -> Reply:
        was_connected = self.is_connected
        try:
            return await self._exchange(request, timeout_s, began)
        except SessionLost:
            # An idle connection may have died long ago. A reset loses nothing by it.
            if not was_connected or began != self.closes:
                raise
        return await self._exchange(request, timeout_s, began)

    def _check(self, request: Request) -> None:
        if self._lost is not None:
            raise SessionLost(f"{self._lost}; {RESET_HINT}")
        if request.type == "step" and self._unanswered:
            asked = next(iter(self._unanswered.values()))
            hint = ASK_AGAIN_HINT if self._may_be_answered(asked) else RESET_HINT
            raise SessionLost(
                f"a {named(asked.request)} was not answered before its caller stopped waiting, "
                f"so the state of the episode is unknown; {hint}"
            )

    def _check_not_closed(self, began: int) -> None:
        if began != self.closes:
            raise SessionLost(f"{CLOSED}; {RESET_HINT}")

    # ------------------------------------------------------------------ one request

    async def _exchange(self, request: Request, timeout_s: float | None, began: int) -> Reply:
        try:
            transport = self._transport
            if transport is None:
                transport = await self._connected(began)
            limit = self._limit(request, timeout_s)
            if transport.has_frame():
                last_words = await self._read_ahead(transport)
                if last_words is not None:
                    return await self._heeded(last_words)
            ticket, frame = self._connection.request(request)
            if request.type not in READINGS:
                self._unanswered[ticket] = _Asked(request, frame)
            with contextlib.suppress(TransportClosed):  # the server's last words may be waiting
                transport.send(frame)
            reply = await self._receive(transport, ticket, limit)
        except TransportClosed as error:
            raise self._loss(error) from error
        except asyncio.TimeoutError as error:
            raise self._too_late(request, timeout_s) from error
        except ProtocolError:
            await self._close_transport("the server broke the protocol")
            raise
        if type(reply) is ErrorReply and (reply.is_fatal or _is_interim(reply)):
            return await self._heeded(reply)
        if request.type not in READINGS:
            self._answered(ticket, reply)
        return reply

    def _answered(self, ticket: int, reply: Reply) -> None:
        """Note that a request is answered, and where the answer is kept if nobody takes it."""
        asked = self._unanswered.pop(ticket)
        if asked.request.type in BEGINNINGS and type(reply) is not ErrorReply:
            self._lost = None
            self._unanswered = {}  # what was asked of the episode before is over
            begins = asked.request.type == "reset"
            self.episode_began_at = time.monotonic() if begins else None
        self.is_repeated, asked.was_answered = asked.was_answered, True
        asked.reply = reply
        background.hold(self._unanswered, {ticket: asked})

    def _limit(self, request: Request, timeout_s: float | None) -> float | None:
        """How long to wait here. Under version 1 the server keeps the time of a step."""
        if timeout_s is None:
            return self._timeout_s
        is_told = request.type == "step" and self.version == 1
        return timeout_s + DEADLINE_SLACK_S if is_told else timeout_s

    def _loss(self, error: TransportClosed) -> SessionLost:
        if self._transport is not None:  # otherwise it was closed here, and `_lost` says so
            self._drop(f"the connection to the server was lost ({error})")
        return SessionLost(f"{self._lost}; {RESET_HINT}")

    def _too_late(self, request: Request, timeout_s: float | None) -> ResponseTimeout:
        if timeout_s is not None:
            hint = RESET_HINT if self.version == 0 else ASK_AGAIN_HINT
            why = f"the step took longer than its {timeout_s:g} s, and may still be running; {hint}"
            return StepTimeout(timeout_s, is_running=True, message=why)
        return ResponseTimeout(
            f"no answer to a {named(request)} within {self._timeout_s:g} s. The server may still "
            "be working on it: raise message_timeout_s if it needs longer."
        )

    async def _heeded(self, reply: Reply) -> Reply:
        """Close the connection after an error with which the server ends the session."""
        if type(reply) is ErrorReply and reply.is_fatal:
            refused = reply.data.get("code") != ErrorCode.SESSION_ERROR.value
            # A refusal ends nothing: the next call asks again.
            ended = self._lost if refused else "the server ended the session"
            await self._close_transport(ended)
        return reply

    async def _receive(self, transport: Transport, ticket: int, limit: float | None) -> Reply:
        """Wait for the answer of this ticket, on another socket should this one break.

        Raises:
            TransportClosed: It broke, and cannot be resumed.
            asyncio.TimeoutError: No answer came in time.
        """
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            connection = self._connection
            try:
                frame = await transport.receive(limit)
            except TransportClosed as error:
                if transport is not self._transport or not may_resume(connection, error):
                    raise
                transport = await within(limit, self._go_on(error))
            else:
                queued, found = connection.queued, None
                answers = connection.receive(frame)
                if len(frame) >= LARGE_BYTES:
                    self._acknowledge(transport)
                for owner, reply in answers:
                    if owner == ticket or _is_fatal(reply):
                        found = found or reply
                    else:
                        self._keep(owner, reply)
                if found is not None:
                    return found
                if connection.queued is not queued and connection.queued is not None:
                    self._terms.note(connection.queued)
                    deadline = None if limit is None else time.monotonic() + self._patience(limit)
            if deadline is not None:  # a late answer to another call, or another socket
                limit = max(0.0, deadline - time.monotonic())

    def _patience(self, limit: float) -> float:
        """How long to wait for an answer once a place in the queue has been reported: at least
        until that would have been reported again.
        """
        return max(limit, self._timeout_s or 0.0, 2 * HEARTBEAT_S)

    def _acknowledge(self, transport: Transport) -> None:
        frame = self._connection.acknowledgement()
        if frame is not None:
            with contextlib.suppress(TransportClosed):
                transport.send(frame)

    async def _read_ahead(self, transport: Transport) -> Reply | None:
        """Keep or drop late answers; return a fatal error. Any other frame would shift answers."""
        while transport.has_frame():
            for owner, reply in self._connection.receive(await transport.receive()):
                if _is_fatal(reply):
                    return reply
                if owner is None:
                    raise ProtocolError(f"the server sent a frame that nobody asked for: {reply}")
                self._keep(owner, reply)
        return None

    def _keep(self, owner: int | None, reply: Reply) -> None:
        """Keep a late answer for whoever asks again; under version 0 nobody can."""
        if owner in self._unanswered and self.version != 0 and not _is_interim(reply):
            self._unanswered[owner].reply = reply

    # ------------------------------------------------------------------ asking again

    def _asked_before(self, request: Request) -> int | None:
        """The ticket of the same request, whose caller has not had the answer."""
        written = self._written(request)
        for ticket, asked in self._unanswered.items():
            is_there = request.type == asked.request.type and self._may_be_answered(asked)
            if is_there and written is not None and written == self._asked_for(ticket, asked):
                return ticket
        return None

    def _may_be_answered(self, asked: _Asked) -> bool:
        """Its answer is there, or has a number by which it will be told: version 0 has none."""
        return asked.reply is not None or self.version != 0

    def _written(self, request: Request) -> bytes | None:
        """What is asked for, as `_asked_for` gives it."""
        connection, alone = self._connection, bare(request)
        if isinstance(connection, ClientConnection1):
            codec = connection.multiplexer.codec
            return asked_for(codec, codec.encode_requests([alone]))
        return connection.codec.encode_request(alone)

    def _asked_for(self, ticket: int, asked: _Asked) -> bytes | None:
        connection = self._connection
        if isinstance(connection, ClientConnection1):
            return asked_for(connection.multiplexer.codec, asked.frame, number=ticket)
        return asked.frame  # version 0 numbers nothing: the same request is the same frame

    async def _ask_again(self, ticket: int, timeout_s: float | None, began: int) -> Reply:
        """Wait on for the answer of a request that was not answered."""
        asked = self._unanswered[ticket]
        reply = asked.reply
        try:
            if reply is None:
                transport = self._transport or await self._connected(began)
                fatal = await self._read_ahead(transport) if transport.has_frame() else None
                reply = fatal or asked.reply
                limit = self._timeout_s if timeout_s is None else timeout_s
                deadline = None if limit is None else time.monotonic() + limit
                while reply is None or _is_interim(reply):
                    left = None if deadline is None else max(0.0, deadline - time.monotonic())
                    reply = await self._receive(self._transport or transport, ticket, left)
        except TransportClosed as error:
            raise self._loss(error) from error
        except asyncio.TimeoutError as error:
            raise self._too_late(asked.request, timeout_s) from error
        except ProtocolError:
            await self._close_transport("the server broke the protocol")
            raise
        if _is_fatal(reply):
            return await self._heeded(reply)
        self._answered(ticket, reply)
        return reply

    # ------------------------------------------------------------------ connections

    async def _go_on(self, error: TransportClosed) -> Transport:
        """Resume the session on another socket.

        Raises:
            TransportClosed: It cannot be; the session is lost.
        """
        connection = self._connection
        assert isinstance(connection, ClientConnection1)
        self._break()
        assert self._broken_at is not None
        try:
            transport = await resume(
                self._open_transport, connection.multiplexer, self._broken_at, self._terms.why_gone
            )
        except CannotResume as why:
            if self._broken_at is not None:
                self._broken_at = None
                self._drop(f"the connection to the server was lost ({error}): {why}")
            raise TransportClosed(str(why)) from why
        if self._broken_at is None:  # it was closed meanwhile
            await _part(transport)
            raise TransportClosed(CLOSED)
        self._broken_at = None
        self._adopt(transport)
        return transport

    def _break(self) -> None:
        """Note that the connection is broken, and may be resumed."""
        if self._abandonment is not None:
            self._abandonment.detach()
        self._transport = None
        if self._broken_at is None:
            self._broken_at = time.monotonic()

    def _adopt(self, transport: Transport) -> None:
        """Use a connection from now on."""
        self._transport = transport
        loop = asyncio.get_running_loop()
        self._abandonment = weakref.finalize(
            self, _abandon, transport, loop, os.getpid(), warn=not self.has_owner
        )
        self._abandonment.atexit = False
        if self.version == 1:
            transport.watch(_IdleWatch(self, transport))

    def resume_idle(self, transport: Transport) -> None:
        """Resume a connection that broke, if no call is under way to do it."""
        if not self._turn.is_taken and self._transport is transport:
            self._turn.is_taken = True
            self._resuming = asyncio.ensure_future(self._resume_idle(transport))
            # Not in the coroutine: a task that is cancelled at once never begins.
            self._resuming.add_done_callback(self._has_resumed)

    def _has_resumed(self, _: asyncio.Task[None]) -> None:
        self._resuming = None
        self._turn.leave()

    async def _resume_idle(self, transport: Transport) -> None:
        try:
            last_words = await self._read_ahead(transport)
            if last_words is not None:
                await self._heeded(last_words)
                return
            await transport.receive(0.0)
        except TransportClosed as error:
            with contextlib.suppress(TransportClosed):  # the next call finds out, and says so
                if may_resume(self._connection, error):
                    await self._go_on(error)
        except ProtocolError as error:
            await self._close_transport(f"the server broke the protocol ({error})")
        except asyncio.TimeoutError:
            pass  # it is there after all

    async def _connected(self, began: int) -> Transport:
        if self._transport is None:
            self._check_not_closed(began)
            if self._broken_at is not None:
                return await within(
                    self._timeout_s, self._go_on(TransportClosed("it broke a while ago"))
                )
            transport = self._open_transport()
            try:
                await transport.connect()
                connection = await self._begun(transport)
                self._check_not_closed(began)
            except BaseException as error:
                if isinstance(error, SessionLost | NotSupported):
                    await _part(transport)
                transport.abort()
                raise
            self._connection = connection
            self._unanswered = {}
            self._adopt(transport)
        return self._transport  # type: ignore[return-value]

    async def _begun(self, transport: Transport) -> ClientConnection | ClientConnection1:
        subprotocol = transport.subprotocol
        if subprotocol is None:
            if self._terms.is_recorded:
                why = "protocol version 0, which the server speaks, cannot ask for a recording"
                raise NotSupported(why, feature="record")
            return ClientConnection()
        hello = await greeted(transport)
        codec = codec_named(subprotocol)
        multiplexer = Multiplexer(codec, hello, self._terms.opening, transport.ends)
        multiplexer.route = transport.route
        return ClientConnection1(multiplexer)

    def _drop(self, reason: str | None) -> Transport | None:
        transport, self._transport = self._transport, None
        self._broken_at = None
        self._lost = reason
        self._unanswered = {}
        self.episode_began_at = None
        self._connection.drop()
        if self._abandonment is not None:
            self._abandonment.detach()
        return transport

    async def _close_transport(self, reason: str | None) -> None:
        transport = self._drop(reason)
        if transport is not None:
            await _part(transport)

    @property
    def unanswered(self) -> str | None:
        """What is called a request whose answer nobody has, and that may be asked again, if any."""
        waiting = (one for one in self._unanswered.values() if self._may_be_answered(one))
        return next((named(one.request) for one in waiting), None)

    def lose_episode(self, why: str) -> None:
        """Have `SessionLost` raised until the next `reset`; a connection stays."""
        self._lost, self._unanswered = self._lost or why, {}
        self.episode_began_at = None

    def accept_loss(self) -> None:
        """Go on without the episode that was lost: whoever connects anew knows that it is gone."""
        self._lost = None

    async def settled(self) -> None:
        """Wait until all calls that were made before are answered."""
        await self._turn.come()
        self._turn.leave()

    async def end_episode(self, why: str) -> None:
        """Give up the connection, and with it the environment; a reset gets a fresh one."""
        await self._close_transport(why)

    async def close(self) -> None:
        """Say goodbye and close the connection, in 5 s at most. Safe to repeat.

        Calls that are under way end with `SessionLost`.
        """
        self.closes += 1
        if self._resuming is not None:
            self._resuming.cancel()
        if self._broken_at is not None:
            await self._close_broken()
            return
        if self._transport is None:
            return
        connection, transport = self._connection, self._drop(CLOSED)
        assert transport is not None
        _, frame = connection.request(Request("close"))
        # A call that is under way reads itself what comes, until the connection is closed.
        await _part(transport, frame, None if self._turn.is_taken else connection)
        if transport.is_broken and may_resume(connection, TransportClosed("it broke")):
            await self._close_broken()

    def cut(self) -> None:
        """Close the connection, if there is one, without a goodbye."""
        self.closes += 1
        if self._transport is not None:
            self._transport.abort()
            self._drop(CLOSED)

    async def _close_broken(self) -> None:
        """Tell a server that it need not wait for this client to come back, if it can be told."""
        connection = self._connection
        assert isinstance(connection, ClientConnection1)
        self._drop(CLOSED)
        with contextlib.suppress(CannotResume, asyncio.TimeoutError, TransportClosed):
            transport = await within(
                CLOSE_BROKEN_LIMIT_S,
                resume(self._open_transport, connection.multiplexer, 0.0, self._terms.why_gone),
            )
            await _part(transport)


async def _part(
    transport: Transport,
    frame: bytes = b"",
    connection: ClientConnection | ClientConnection1 | None = None,
) -> None:
    """Close a connection, with a last frame, and wait until `connection` knows that it was heard;
    one that takes longer than 5 s is cut.
    """

    async def goodbye() -> None:
        with contextlib.suppress(TransportClosed, ProtocolError):
            if frame:
                transport.send(frame)
            while connection is not None and not connection.is_over:
                connection.receive(await transport.receive())
        await transport.close()

    try:
        with contextlib.suppress(TransportClosed, asyncio.TimeoutError):
            await within(CLOSE_LIMIT_S, goodbye())
    finally:
        transport.abort()


def _is_fatal(reply: Reply) -> bool:
    return isinstance(reply, ErrorReply) and reply.is_fatal


_closing: set[asyncio.Task[None]] = set()


def _abandon(
    transport: Transport, loop: asyncio.AbstractEventLoop, process: int, *, warn: bool
) -> None:
    """Close the connection of a session that nobody holds any more, from whichever thread."""
    if process != os.getpid():
        return  # it is the parent's
    if loop.is_running():
        with contextlib.suppress(RuntimeError):  # it ended just now
            loop.call_soon_threadsafe(_close_in_background, transport)
    if warn:
        message = f"a client of {transport} was never closed; use `with`, or call close()"
        warnings.warn(message, ResourceWarning, stacklevel=2)


def _close_in_background(transport: Transport) -> None:
    task = asyncio.ensure_future(_close_quietly(transport))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


async def _close_quietly(transport: Transport) -> None:
    with contextlib.suppress(OSError):
        await _part(transport)
