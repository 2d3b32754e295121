"""The client's connection engine: a connection that carries sessions.

`ClientSession`, behind `EnvClient`, is one session, usually on a connection that it shares with
other clients of the process (`openenv.client._sharing`). `SessionGroup`, behind `VectorEnv`, has
many sessions on few connections. Both send through a `SessionConnection`, and both receive answers
through `SentRequest.deliver`.

Design notes.

**Who runs what.** All of this runs on the event loop that the connection was opened on, without a
task of its own. The transport calls `on_frame` as a frame arrives, and that call writes the outcome
into the `SentRequest` before it wakes the caller. So no answer is ever read and kept nowhere: if a
caller is canceled as the answer comes, the answer is in `RemoteSession.sent`. Only a broken
connection has a task, which resumes it.

**Exactly once.** `RemoteSession.sent` holds every request whose answer no caller has received. A
repeated request is found there by its content, as it was written when it was sent (the caller may
have changed the array since). Version 1 keeps late answers there. Version 0 numbers nothing, so a
late answer cannot be told from another: it is dropped, and the episode must begin anew.

**A lost session gets a new `sent`.** A call or a receipt that still holds the old dict can put an
answer back there, where no code looks, instead of into the next episode (`SentRequest.place`).

**A broken connection** is resumed as soon as it breaks, whether a call is under way or not, and by
the same rule for one session as for many. Requests made meanwhile are kept in the resend buffer and
go out with the resumption. Each call has its own time limit, and makes the next attempt begin at
once. If the server has ended the sessions, or stays unreachable for as long as it would keep them,
every call ends with `SessionLost`.

**Frames of a tick.** Requests that the sessions of a shared connection make within one tick of the
loop leave in one frame. Each is written at once, so that its caller gets the error if a value
cannot be sent; `flush` joins the written requests.

**Version 0** is `Version0`: the same methods as `Multiplexer`, for one session that cannot be
resumed.

**References.** A connection holds its `RemoteSession`s, and its transport holds the connection.
Neither holds the `ClientSession` or the `VectorEnv`, so that dropping one of these closes the
connection (`abandon`).
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from openenv._internal.lazy import asyncio, lazy_module
from openenv._internal.timing import within
from openenv.client._resuming import CannotResume, greeted, resume
from openenv.client.transports.base import Transport, TransportClosed
from openenv.errors import (
    ErrorCode,
    NotSupported,
    OpenEnvError,
    ProtocolError,
    SessionLost,
    TooLargeError,
    server_error,
)
from openenv.protocol.messages import ErrorReply, Reply, Request
from openenv.protocol.v1.codec import codec_named
from openenv.protocol.v1.connection import Multiplexer
from openenv.protocol.v1.messages import HEARTBEAT_S, Notice, Queued

if TYPE_CHECKING:
    from openenv.protocol.v0 import connection as v0
else:
    v0 = lazy_module("openenv.protocol.v0.connection")  # few servers speak it

Outcome = Reply | OpenEnvError

CONNECTION_LOST = "the connection to the server was lost"
RESET_HINT = "call reset() to begin a new episode"
ASK_AGAIN_HINT = "ask again with the same action to have its answer, or call reset()"
# Close codes of RFC 6455 that mean an accident. With any other code a side closed on purpose.
ACCIDENTS = (None, 1006, 1011, 1013, 1014)
CLOSE_LIMIT_S = 5.0
CLOSE_BROKEN_LIMIT_S = 2.0
REQUESTS_A_FRAME = 64
JOINED_BYTES = 2**16  # maximum size of a frame that joins the requests of several callers
# Requests that begin an episode, and requests that only read.
BEGINNINGS = frozenset({"reset", "restore"})
READINGS = frozenset({"state", "snapshot", "render"})


class ConnectionEndpoint(Protocol):
    """A server that connections are opened to."""

    async def connect(self) -> Transport:
        """Open a transport to the server, starting the server if needed.

        Raises:
            ConnectError: No server answers.
        """
        ...

    def open_transport(self) -> Transport:
        """Return a transport to the running server, not yet connected."""
        ...

    async def why_gone(self) -> str | None:
        """Return why the server cannot be reached any more; None if unknown."""
        ...

    async def leave(self) -> None:
        """Note that a connection to the server has ended for good, with all its sessions."""
        ...


# ------------------------------------------------------------------ requests and sessions


class SentRequest(msgspec.Struct, eq=False):
    """A request that was sent, kept until a caller has received the answer.

    Attributes:
        request: The request.
        frame: The frame that carried the request.
        session: The session of the request.
        place: The dict that keeps the request: `RemoteSession.sent` at the time of sending.
        deliver: Called when the outcome is there; None if no caller waits for it.
        outcome: The answer or the error of the request; None until it is there.
        was_answered: The client received the answer before, but its caller did not.
        is_asked_again: The caller repeats the request. A message that the step is overdue is not
            an answer to a repeated request.
    """

    request: Request
    frame: bytes
    session: RemoteSession
    place: dict[int, SentRequest]
    deliver: Callable[[SentRequest], None] | None
    outcome: Outcome | None = None
    was_answered: bool = False
    is_asked_again: bool = False

    def give_up(self) -> None:
        """Note that no caller waits for the outcome any longer."""
        self.deliver = None
        if self.request.type in READINGS:
            if self.outcome is not None or not self.is_answerable():
                self.place.pop(self.request.id, None)
        elif self.outcome is not None and is_interim(self.outcome):
            self.outcome = None

    def give_back(self) -> None:
        """Keep the answer, which the caller did not get, for a caller that repeats the request."""
        self.place[self.request.id] = self

    def take_back(self) -> None:
        """Discard the kept answer: the caller received it after all."""
        self.place.pop(self.request.id, None)

    def takes(self, error: ErrorReply) -> bool:
        """Return whether an error is an answer to the caller that waits now, if any.

        An overdue message is no answer to a caller that gave the step up before and repeats it.
        """
        return not is_interim(error) or (self.deliver is not None and not self.is_asked_again)

    def is_answerable(self) -> bool:
        """Return whether the outcome is there, or can be recognized by its number when it comes."""
        connection = self.session.connection
        return self.outcome is not None or (connection is not None and connection.version != 0)


def is_interim(outcome: Outcome) -> bool:
    """Return whether an outcome only reports that a step is overdue; the answer will follow."""
    return (
        type(outcome) is ErrorReply
        and outcome.data.get("code") == ErrorCode.STEP_TIMEOUT.value
        and outcome.data.get("is_running") is True
    )


def name_request(request: Request) -> str:
    """Return the name of a request for messages."""
    return "call of a tool" if request.type == "mcp" else request.type


class RemoteSession:
    """A session on the server, as the client knows it, across connections.

    Args:
        key: The number of the environment within its `VectorEnv`.
        lost: Why the episode is lost; None if no episode was lost.
        on_queue: Called with the session's place in the server's queue.
        waiter: The `CallWaiter` of the session's calls; by default a new one.

    Attributes:
        connection: The connection that carries the session; None if there is none.
        number: The session's number on that connection.
        lost: See `Args`. While it is set, only a reset or a restore is carried out.
        episode_began_at: When `reset` was answered, by `time.monotonic`; None if the episode was
            not begun by a `reset` of this session.
        latest: The number of the latest request.
        sent: Requests whose answers no caller has received, by number.
        last_words: The error with which the server ended the session while no call was under way.
        may_reopen: A reset ignores `last_words` and opens the session anew.
        queued: The session's place in the server's queue; None if the session does not wait.
        waiter: The `CallWaiter` of the session's calls.
    """

    __slots__ = (
        "connection",
        "episode_began_at",
        "key",
        "last_words",
        "latest",
        "lost",
        "may_reopen",
        "number",
        "on_queue",
        "queued",
        "sent",
        "waiter",
    )

    def __init__(
        self,
        key: int = 0,
        lost: str | None = None,
        on_queue: Callable[[Queued], None] | None = None,
        waiter: CallWaiter | None = None,
    ) -> None:
        self.key = key
        self.lost = lost
        self.on_queue = on_queue
        self.connection: SessionConnection | None = None
        self.number = 0
        self.latest = 0
        self.episode_began_at: float | None = None
        self.sent: dict[int, SentRequest] = {}
        self.last_words: OpenEnvError | None = None
        self.may_reopen = False
        self.queued: Queued | None = None
        self.waiter = waiter or CallWaiter()

    # ------------------------------------------------------------------ before a request

    def find(self, request: Request) -> SentRequest | OpenEnvError | None:
        """Look for an earlier request or an error before a request is sent.

        Returns:
            The same request, if it was sent and no caller has received its answer; the error that
            refuses the request; or None if the request may be sent.

        Raises:
            EncodingError: The request cannot be written.
        """
        if self.last_words is not None:
            error, self.last_words = self.last_words, None
            if not (request.type in BEGINNINGS and self.may_reopen):
                return error
        if self.sent and self.connection is not None:
            same = self._find_same(request, self.connection.protocol)
            if same is not None:
                return same
        if request.type in BEGINNINGS:
            return None
        if self.lost is not None:
            return SessionLost(f"{self.lost}; {RESET_HINT}")
        unanswered = self.unanswered()
        if request.type == "step" and unanswered:
            first = unanswered[0]
            hint = ASK_AGAIN_HINT if first.is_answerable() else RESET_HINT
            return SessionLost(
                f"a {name_request(first.request)} was not answered before its caller stopped "
                f"waiting, so the state of the episode is unknown; {hint}"
            )
        return None

    def _find_same(self, request: Request, protocol: Multiplexer | Version0) -> SentRequest | None:
        content = protocol.content(request)
        if content is None:
            return None
        for sent in sorted(self.sent.values(), key=lambda one: one.request.id):
            is_current = sent.request.type not in READINGS or sent.request.id == self.latest
            if (
                sent.request.type == request.type
                and is_current
                and sent.is_answerable()
                and protocol.sent_content(sent.frame, sent.request) == content
            ):
                return sent
        return None

    def unanswered(self) -> list[SentRequest]:
        """Return the unanswered requests, earliest first, without those that only read."""
        found = (self.sent[number] for number in sorted(self.sent))
        return [one for one in found if one.request.type not in READINGS]

    # ------------------------------------------------------------------ after a request

    def take(self, sent: SentRequest, *, renews: bool = True) -> Outcome:
        """Return the outcome of a request to the caller, and forget the request.

        Args:
            sent: The request.
            renews: Give the session a new `sent` if an episode begins, so that an answer of the
                last episode that is given back later cannot enter this one. False if a step and
                the reset that follows it are one call: they are given back together.
        """
        outcome = sent.outcome
        assert outcome is not None
        sent.deliver = None
        if type(outcome) is ErrorReply and is_interim(outcome):
            sent.outcome = None
            return outcome
        if sent.place is self.sent:  # otherwise the session was lost meanwhile
            self.sent.pop(sent.request.id, None)
            if sent.request.type in BEGINNINGS and not isinstance(
                outcome, ErrorReply | OpenEnvError
            ):
                self.lost = None
                self.sent.clear()  # requests of the episode before are obsolete
                if renews:
                    sent.place = self.sent = {}
                is_reset = sent.request.type == "reset"
                self.episode_began_at = time.monotonic() if is_reset else None
        return outcome

    @property
    def is_waiting(self) -> bool:
        """Whether a caller waits for an answer that has not come."""
        return any(one.deliver and one.outcome is None for one in self.sent.values())

    def note_queue(self, queued: Queued) -> None:
        """Note where the session waits, and extend the call's time limit: the server is alive."""
        self.queued = queued
        self.waiter.extend()
        if self.on_queue is None:
            return
        try:
            self.on_queue(queued)
        except Exception as error:  # of the caller's function: the caller receives it
            if not self.waiter.fail(error):
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "on_queue has failed, and no call waits", "exception": error}
                )

    def lose(self, why: str | None, error: OpenEnvError | None = None) -> None:
        """Note that the session is gone, and end the calls that wait for answers.

        Args:
            why: The new value of `lost`.
            error: The error that these calls raise; by default a `SessionLost` with this text.
        """
        self.lost = why
        self.episode_began_at = None
        self.connection = None
        self.queued = None
        sent, self.sent = self.sent, {}
        for one in sent.values():
            deliver = one.deliver
            if deliver is not None:
                if one.outcome is None:
                    one.outcome = error or SessionLost(f"{why}; {RESET_HINT}")
                deliver(one)


class CallWaiter:
    """A future that a call waits for, and a time limit that is cheap to set for every call.

    Most calls end long before their time limits. So the timer is not restarted for each call: a
    timer that fires too early is set again for the rest of the time.

    Args:
        expire: Called when the time is over; by default the call gets `asyncio.TimeoutError`.

    Attributes:
        future: The future that the running call waits for; None if there is none.
    """

    __slots__ = ("_deadline", "_expire", "_patience_s", "_timer", "_timer_at", "future")

    def __init__(self, expire: Callable[[], None] | None = None) -> None:
        self.future: asyncio.Future[None] | None = None
        self._expire = expire
        self._deadline: float | None = None  # by the loop's clock; None means no limit
        self._patience_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0  # uvloop's handles do not give the time of a timer that is due now

    def begin(self, limit_s: float | None, patience_s: float = 0.0) -> asyncio.Future[None]:
        """Return the future for a call to wait for. Call `end` afterward.

        Args:
            limit_s: Seconds until the call expires; None for no limit.
            patience_s: Seconds to wait after each message that the call is queued; at least until
                the next such message is due.
        """
        loop = asyncio.get_running_loop()
        self.future = future = loop.create_future()
        if limit_s is None:
            self._deadline = None
            return future
        self._deadline = deadline = loop.time() + limit_s
        self._patience_s = patience_s
        if self._timer is None or deadline < self._timer_at:
            self._start(loop, deadline)
        return future

    def end(self) -> None:
        """Forget the future: an error in it would keep the call and the client alive."""
        self.future = self._deadline = None

    def wake(self, sent: SentRequest | None = None) -> None:
        """Wake the call; can be a `SentRequest.deliver`."""
        if self.future is not None and not self.future.done():
            self.future.set_result(None)

    def fail(self, error: Exception) -> bool:
        """Make the call raise an error; return whether a call waits."""
        if self.future is None or self.future.done():
            return False
        self.future.set_exception(error)
        return True

    def extend(self) -> None:
        """Restart the time limit with the call's patience, if there is a time limit."""
        if self._deadline is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.time() + max(self._patience_s, 2 * HEARTBEAT_S)

    def _start(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._deadline:
            self._start(loop, self._deadline)
            return
        self._deadline = None
        if self._expire is not None:
            self._expire()
        else:
            self.fail(asyncio.TimeoutError())


# ------------------------------------------------------------------ protocol versions


class Version0:
    """Protocol version 0 for the connection engine: a single session without resumption.

    Answers are matched to requests by order alone, so an unrequested frame would shift all later
    answers by one. Such a frame ends the connection.
    """

    version = 0
    is_owing = False
    is_resumable = False
    capabilities: frozenset[str] = frozenset()
    room: int | None = None
    gone: str | None = None
    largest: int | None = None
    max_sessions: int | None = None
    server = ""
    may_have_siblings = True

    def __init__(self) -> None:
        self._connection = v0.ClientConnection()

    def request(self, requests: Sequence[Request]) -> bytes:
        request = requests[0]
        request.id, frame = self._connection.request(request)
        return frame

    def write(self, requests: Sequence[Request]) -> bytes:
        (request,) = requests
        return self._connection.codec.encode_request(request)

    def note_numbers(self, requests: Sequence[Request]) -> None:
        (request,) = requests
        request.id = self._connection.note(request)

    def keep(self, frame: bytes) -> None:
        """Do nothing: no frame is sent again."""

    def join(self, frames: Sequence[bytes]) -> bytes:
        raise NotImplementedError("a connection of version 0 has one session")

    def content(self, request: Request) -> bytes | None:
        return self._connection.codec.encode_request(request)

    def sent_content(self, frame: bytes, request: Request) -> bytes | None:
        return frame  # requests have no numbers: equal requests have equal frames

    def receive(
        self, frame: str | bytes | bytearray
    ) -> list[tuple[int | None, int | None, Reply | Notice]]:
        [(number, reply)] = self._connection.receive(frame)
        if number is None and not is_fatal(reply):
            raise ProtocolError(f"the server sent a frame that nobody asked for: {reply}")
        return [(0, number, reply)]

    def heed(self, notice: Notice) -> None:
        """Do nothing: version 0 has no notices."""

    def acknowledgement(self) -> bytes:
        raise NotImplementedError("version 0 counts no frames")

    def knows(self, session: int) -> bool:
        return True

    def forget(self, session: int) -> None:
        """Do nothing: the connection ends with the session."""


def is_fatal(reply: Reply | Notice) -> bool:
    """Return whether the server ends the session with this reply."""
    return type(reply) is ErrorReply and reply.is_fatal


# ------------------------------------------------------------------ connections


async def connect_transport(transport: Transport) -> Transport:
    """Connect a transport; abort it if the caller gives up."""
    try:
        await transport.connect()
    except BaseException:
        transport.abort()
        raise
    return transport


async def open_connection(
    endpoint: ConnectionEndpoint, opening: dict[str, Any]
) -> SessionConnection:
    """Open a connection to a server.

    Args:
        endpoint: The server.
        opening: Fields of the requests that open the sessions.

    Raises:
        ConnectError: No server answers.
        NotSupported: The server cannot do what `opening` asks for.
    """
    transport = await endpoint.connect()
    try:
        protocol = await _agree(transport, opening)
    except BaseException as error:
        try:
            if isinstance(error, NotSupported):
                await part(transport)
        finally:
            transport.abort()
            await endpoint.leave()
        raise
    return SessionConnection(endpoint, transport, protocol)


async def _agree(transport: Transport, opening: dict[str, Any]) -> Multiplexer | Version0:
    subprotocol = transport.subprotocol
    if subprotocol is None:
        if opening.get("record"):
            why = "protocol version 0, which the server speaks, cannot ask for a recording"
            raise NotSupported(why, feature="record")
        return Version0()
    hello = await greeted(transport)
    multiplexer = Multiplexer(codec_named(subprotocol), hello, opening, transport.ends)
    multiplexer.route = transport.route
    return multiplexer


class SessionConnection:
    """A connection that carries sessions.

    Args:
        endpoint: The server, used to resume a broken connection.
        transport: The transport, after connecting and the server's hello.
        protocol: The rules of the agreed version.

    Attributes:
        version: The protocol version.
        protocol: See `Args`.
        sessions: The sessions that the connection carries, by number.
        spread: Maximum number of sessions that a gateway wants on the connection; None for any.
        is_closed: The connection has ended for good.
        largest_frame: Size in bytes of the largest frame so far, in either direction.
        loop: The event loop that the connection lives on.
    """

    def __init__(
        self, endpoint: ConnectionEndpoint, transport: Transport, protocol: Multiplexer | Version0
    ) -> None:
        self.endpoint = endpoint
        self.protocol = protocol
        self.version = protocol.version
        self.spread = transport.spread
        self.sessions: dict[int, RemoteSession] = {}
        self.is_closed = False
        self.largest_frame = 0
        self.loop = asyncio.get_running_loop()
        self._name = str(transport)
        self._transport: Transport | None = transport  # None while it is broken
        self._resuming: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._parting: asyncio.Task[None] | None = None
        self._leaving: asyncio.Future[None] | None = None
        self._closings: dict[int, asyncio.Future[None]] = {}  # sessions that wait for their close
        self._ending: TransportClosed | None = None
        self._next = 0  # the number of the next session that `join` adds
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0

    def __str__(self) -> str:
        return self._name

    @property
    def route(self) -> str | None:
        """The server behind a gateway that the connection leads to; None without a gateway."""
        return None if self._transport is None else self._transport.route

    def carry(self, sessions: Mapping[int, RemoteSession]) -> None:
        """Carry sessions, by number, and receive the server's frames from now on.

        Frames that have already arrived are handled at once: a full server of version 0 reports
        that without being asked.
        """
        assert self._transport is not None
        for number, session in sessions.items():
            self._add(number if self.version else 0, session)
        self._next = max(self.sessions) + 1
        self._transport.attach(self)

    def join(self, session: RemoteSession) -> None:
        """Carry another session, under a number that was never used on this connection."""
        self._add(self._next, session)
        self._next += 1

    def _add(self, number: int, session: RemoteSession) -> None:
        session.number = number
        session.connection = self
        session.last_words = None
        session.sent = {}
        self.sessions[number] = session

    @property
    def is_usable(self) -> bool:
        """Whether the connection is intact and can take another session."""
        is_whole = self._transport is not None and not self.is_closed
        return is_whole and bool(self.sessions) and self.protocol.gone is None

    # ------------------------------------------------------------------ requests

    def send(
        self, session: RemoteSession, request: Request, deliver: Callable[[SentRequest], None]
    ) -> SentRequest:
        """Send a request.

        Raises:
            EncodingError: A value in the request cannot be carried.
            TooLargeError: The request is larger than the server accepts.
        """
        request.session = session.number
        if len(self.sessions) > 1 or self._unsent:
            frame = self._post(request)
        else:  # `_post` inlined
            frame, transport = self.protocol.request((request,)), self._transport
            if transport is None:
                self._hurry.set()
            else:
                with contextlib.suppress(TransportClosed):  # `on_closed` will be called
                    transport.send(frame)
            if len(frame) > self.largest_frame:
                self.largest_frame = len(frame)
        place = session.sent
        sent = SentRequest(request, frame, session, place, deliver)
        place[request.id] = sent
        session.latest = request.id
        return sent

    def _post(self, request: Request) -> bytes:
        """Write a request to be sent together with those of other sessions in this tick."""
        protocol, unsent = self.protocol, self._unsent
        frame = protocol.write((request,))
        protocol.note_numbers((request,))
        size = len(frame)
        if unsent and self._unsent_bytes + size > self._joined_bytes():
            self.flush()
        if not unsent:
            self.loop.call_soon(self.flush)
        unsent.append(frame)
        self._unsent_bytes += size
        if len(unsent) == REQUESTS_A_FRAME:
            self.flush()
        return frame

    def _joined_bytes(self) -> int:
        limit = self.protocol.largest
        return JOINED_BYTES if limit is None else min(JOINED_BYTES, limit - REQUESTS_A_FRAME - 1)

    def flush(self) -> None:
        """Send the requests of this tick in one frame."""
        if not self._unsent:
            return
        frame = self.protocol.join(self._unsent)
        self._unsent.clear()
        self._unsent_bytes = 0
        self._send(frame)

    def _send(self, frame: bytes) -> None:
        """Send a frame now, or after a broken connection is resumed."""
        if len(frame) > self.largest_frame:
            self.largest_frame = len(frame)
        if self._transport is None:
            self._hurry.set()
            return
        with contextlib.suppress(TransportClosed):  # `on_closed` will be called
            self._transport.send(frame)

    def write(self, requests: list[Request]) -> list[tuple[list[Request], bytes]]:
        """Write requests of several sessions into as few frames as the server accepts.

        No request is sent yet: one that cannot be written must stop them all.

        Raises:
            EncodingError: A value in a request cannot be carried.
            TooLargeError: A request is larger than the server accepts.
        """
        if self.version == 0:
            return [([request], self.protocol.write((request,))) for request in requests]
        frames: list[tuple[list[Request], bytes]] = []
        for first in range(0, len(requests), REQUESTS_A_FRAME):
            frames += self._write_some(requests[first : first + REQUESTS_A_FRAME])
        return frames

    def _write_some(self, requests: list[Request]) -> list[tuple[list[Request], bytes]]:
        try:
            return [(requests, self.protocol.write(requests))]
        except TooLargeError:
            if len(requests) == 1:
                raise
        half = len(requests) // 2
        return self._write_some(requests[:half]) + self._write_some(requests[half:])

    def register(
        self, frames: list[tuple[list[Request], bytes]], deliver: Callable[[SentRequest], None]
    ) -> list[SentRequest]:
        """Register written frames as sent; `transmit` must follow at once.

        Args:
            frames: The frames, with the requests in each.
            deliver: Called with each request when its outcome is there.
        """
        protocol, sessions = self.protocol, self.sessions
        registered: list[SentRequest] = []
        for requests, frame in frames:
            protocol.note_numbers(requests)
            protocol.keep(frame)
            for request in requests:
                session = sessions[request.session]
                place, session.latest = session.sent, request.id
                place[request.id] = sent = SentRequest(request, frame, session, place, deliver)
                registered.append(sent)
        return registered

    def transmit(self, frames: list[tuple[list[Request], bytes]]) -> None:
        """Send frames now, or after a broken connection is resumed."""
        for _, frame in frames:
            self._send(frame)

    def hurry(self) -> None:
        """Make a broken connection try to resume at once: a call waits for an earlier request."""
        self._hurry.set()

    # ------------------------------------------------------------------ called by the transport

    def on_frame(self, frame: str | bytes | bytearray) -> None:
        """Handle a frame of the server: store each answer with its request, and wake callers."""
        sessions, protocol = self.sessions, self.protocol
        if len(frame) > self.largest_frame:
            self.largest_frame = len(frame)
        try:
            for number, request_id, reply in protocol.receive(frame):
                session = sessions.get(number)  # type: ignore[arg-type]  # None finds none
                if isinstance(reply, Notice):
                    self._heed(number, session, reply)
                    continue
                if session is None:
                    continue
                if type(reply) is ErrorReply and (reply.is_fatal or request_id == 0):
                    self._refuse(session, request_id, reply)
                    continue
                sent = session.sent.get(request_id)  # type: ignore[arg-type]
                if sent is None or (type(reply) is ErrorReply and not sent.takes(reply)):
                    continue
                if sent.deliver is not None:
                    sent.outcome = reply
                    sent.deliver(sent)
                elif sent.request.type in READINGS:
                    sent.place.pop(sent.request.id, None)
                elif self.version:
                    sent.outcome = reply  # a late answer
        except ProtocolError as error:
            self._break_off(error)
            return
        if protocol.is_owing and self._transport is not None:
            with contextlib.suppress(TransportClosed):
                self._transport.send(protocol.acknowledgement())

    def _heed(self, number: int | None, session: RemoteSession | None, notice: Notice) -> None:
        kind = notice.kind
        if kind == "queued":
            if session is not None:
                session.note_queue(Queued.of(notice))
        elif kind == "opened":
            if session is not None:
                session.queued = None
        elif kind == "closed":
            if number is not None:
                self._note_heard(number)
        else:
            self.protocol.heed(notice)

    def _refuse(self, session: RemoteSession, request_id: int | None, reply: ErrorReply) -> None:
        """Handle an error with which the server ends a session or refuses to open one."""
        was_known = self.protocol.knows(session.number)
        self.protocol.forget(session.number)  # the session may be opened again
        if not reply.is_fatal or not was_known:  # the server repeats it for each of its requests
            return
        gone = self.protocol.gone
        if gone is not None and reply.data.get("message") == gone:  # refused: the server stops
            del self.sessions[session.number]
            session.lose(f"{CONNECTION_LOST} ({gone})")
            if not self.sessions:
                self._end(None)
                self._part_soon()
            return
        error = server_error(reply.data)
        waiting = [one for one in session.sent.values() if one.deliver is not None]
        session.sent = {}
        session.queued = None
        if reply.data.get("code") == ErrorCode.SESSION_ERROR.value:  # a refusal ends no episode
            session.lost = f"the server ended the session ({error})"
        if not waiting:
            session.last_words, session.may_reopen = error, self.version != 0
        for one in waiting:
            if one.outcome is None:
                one.outcome = reply
            assert one.deliver is not None
            one.deliver(one)
        if self.version == 0:
            self._end(session.lost)
            self._part_soon()

    def _break_off(self, error: ProtocolError) -> None:
        """End the connection to a server that breaks the protocol."""
        if self.is_closed:
            return
        for session in self.sessions.values():
            if not session.is_waiting:
                session.last_words, session.may_reopen = error, False
        self._end(f"the server broke the protocol ({error})", error)
        self._part_soon()

    def on_closed(self, error: TransportClosed) -> None:
        """Resume the sessions on another transport if the server may still have them."""
        self._ending = error
        for number in list(self._closings):
            self._note_heard(number)
        if self.is_closed:
            return
        protocol = self.protocol
        is_there = any(one.last_words is None for one in self.sessions.values())
        is_there = is_there or bool(self._closings)  # the server must still learn about these
        if not (is_there and protocol.is_resumable and error.code in ACCIDENTS):
            self._end(f"{CONNECTION_LOST} ({error})")
            return
        self._transport = None
        self._hurry.clear()
        self._resuming = self.loop.create_task(self._resume(error, time.monotonic()))

    async def _resume(self, error: TransportClosed, broken_at: float) -> None:
        assert isinstance(self.protocol, Multiplexer)
        try:
            transport = await resume(self.endpoint, self.protocol, broken_at, self._hurry)
        except CannotResume as why:
            self._resuming = None
            self._end(f"{CONNECTION_LOST} ({error}): {why}")
            return
        except Exception as why:
            self._resuming = None
            self._end(f"{CONNECTION_LOST} ({error}): {why!r}")
            raise
        self._resuming = None
        self._ending = None
        self._transport = transport
        transport.attach(self)

    # ------------------------------------------------------------------ the end

    def _end(self, why: str | None, error: OpenEnvError | None = None) -> None:
        """Note that the connection is closed for good and the sessions are lost."""
        if self.is_closed:
            return
        self.is_closed = True
        sessions, self.sessions = self.sessions, {}
        for session in sessions.values():
            if session.connection is self:
                session.lose(why, error)
        self._leaving = _keep(self.endpoint.leave())

    def _part_soon(self) -> None:
        transport = self._transport
        if transport is not None:
            self._parting = self.loop.create_task(part(transport))

    def _note_heard(self, number: int) -> None:
        """Note that the server has closed a session."""
        heard = self._closings.get(number)
        if heard is not None and not heard.done():
            heard.set_result(None)

    async def release(
        self, session: RemoteSession, why: str | None, *, says_goodbye: bool = False
    ) -> None:
        """End a session; if it is the last session, close the connection too.

        Args:
            session: The session. Its calls under way end with `SessionLost`.
            why: The new value of the session's `lost`.
            says_goodbye: Wait, at most 5 s, until the server has closed the session.
        """
        if self.is_closed or (len(self.sessions) == 1 and not self._closings):
            await self.close(why, session if says_goodbye else None)
            return
        number, is_busy = session.number, session.is_waiting
        is_told = self._drop(session, why)
        is_served = False
        try:
            if says_goodbye and is_told and not is_busy and self._transport is not None:
                heard = self._closings[number] = self.loop.create_future()
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(CLOSE_LIMIT_S, heard)
                    is_served = True
            else:
                is_served = True
        finally:
            self._closings.pop(number, None)
            if not self.sessions and not self._closings and not self.is_closed:
                if is_served:
                    await self.close(why)
                else:  # the time limit has passed
                    self._abort(why)

    def _drop(self, session: RemoteSession, why: str | None) -> bool:
        """Stop carrying a session; return whether the server is told to close it."""
        is_known = self.protocol.knows(session.number)
        if is_known:
            data = {"cancel": True} if session.is_waiting else {}
            self._post(Request("close", data, session=session.number))
            self.protocol.forget(session.number)
        del self.sessions[session.number]
        session.lose(why)
        return is_known

    async def close(self, why: str | None, session: RemoteSession | None = None) -> None:
        """Close the connection, within 5 s. Calls under way end with `SessionLost`.

        Args:
            why: The new value of `lost` of the sessions.
            session: The session to close on the server first, waiting for the server's answer. By
                default only the connection is closed, which closes all sessions.
        """
        try:
            await self._close(why, session)
        finally:
            if self._leaving is not None:
                await asyncio.wait([self._leaving])

    async def _close(self, why: str | None, session: RemoteSession | None) -> None:
        if self.is_closed:
            if self._parting is not None:
                await asyncio.wait([self._parting])
            return
        is_busy = any(one.is_waiting for one in self.sessions.values())
        self.flush()
        frame = b""
        if session is not None and self.protocol.knows(session.number):
            frame = self.protocol.request((Request("close", session=session.number),))
        self._end(why)
        resuming, transport = self._resuming, self._transport
        if resuming is not None:
            resuming.cancel()
        if transport is None:
            await self._close_broken()
            return
        heard = None
        if session is not None and frame and not is_busy:
            heard = self._closings[session.number] = self.loop.create_future()
        await part(transport, frame, heard)
        was_heard = self._ending is None or self._ending.by_peer
        if not was_heard and self.protocol.is_resumable and frame:
            await self._close_broken()

    async def _close_broken(self) -> None:
        """Tell the server, if possible, not to keep the sessions for this client."""
        if not isinstance(self.protocol, Multiplexer) or not self.protocol.is_resumable:
            return
        with contextlib.suppress(CannotResume, asyncio.TimeoutError, TransportClosed):
            transport = await within(
                CLOSE_BROKEN_LIMIT_S, resume(self.endpoint, self.protocol, 0.0, self._hurry)
            )
            await part(transport)

    def cut(self, session: RemoteSession, why: str) -> None:
        """End a session without waiting for the server, and abort the connection if it is the last.

        Args:
            session: The session.
            why: The new value of the session's `lost`.
        """
        if len(self.sessions) > 1 or self._closings:
            self._drop(session, why)
            return
        self._abort(why)

    def _abort(self, why: str | None) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
        self._end(why)
        if self._transport is not None:
            self._transport.abort()


async def part(
    transport: Transport, frame: bytes = b"", heard: asyncio.Future[None] | None = None
) -> None:
    """Send a last frame and close a transport; abort it after 5 s.

    Args:
        transport: The transport.
        frame: The last frame.
        heard: Done once the server has answered the frame.
    """

    async def say_goodbye() -> None:
        with contextlib.suppress(TransportClosed):
            if frame:
                transport.send(frame)
        if heard is not None:
            await heard
        await transport.close()

    try:
        with contextlib.suppress(TransportClosed, asyncio.TimeoutError):
            await within(CLOSE_LIMIT_S, say_goodbye())
    finally:
        transport.abort()


_tasks: set[asyncio.Task[Any]] = set()


def _keep(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a task and hold a reference to it, so that it is not garbage collected."""
    task = asyncio.ensure_future(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


def abandon(
    connection: SessionConnection, process: int, session: RemoteSession | None = None, *, warn: bool
) -> None:
    """End a dropped client's session, or a connection with all its sessions; from any thread."""
    if process != os.getpid():
        return  # it is the parent's
    if connection.is_closed or (session is not None and session.connection is not connection):
        return
    if connection.loop.is_running():
        with contextlib.suppress(RuntimeError):  # the loop has ended just now
            connection.loop.call_soon_threadsafe(lambda: _keep(_close_quietly(connection, session)))
    if warn:
        message = f"a client of {connection} was never closed; use `with`, or call close()"
        warnings.warn(message, ResourceWarning, stacklevel=2)


async def _close_quietly(connection: SessionConnection, session: RemoteSession | None) -> None:
    why = "nobody holds the client any more"
    with contextlib.suppress(OSError):
        if session is None:
            await connection.close(why)
        elif session.connection is connection:
            await connection.release(session, why)
