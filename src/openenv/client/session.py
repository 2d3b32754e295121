"""The session behind an `EnvClient`: order, time limits and errors of calls.

`openenv.client.connection` holds the connection and the state that survives its loss.

Calls are carried out one at a time, first come, first served. Under version 1 a broken connection
is resumed and the call under way continues: it is carried out exactly once, and its answer is not
lost. An answer that misses its time limit still arrives: repeating the same request waits for it.
The same holds after a cancellation or an interrupt. `SessionLost` is raised if the server has ended
the session, or stays unreachable for as long as it would keep the session.

Under version 0 a lost connection is a lost episode: `step` and `state` raise `SessionLost` until
`reset` begins another episode on another connection. If an answer misses its time limit, or its
caller stops waiting, the connection stays and the late answer is dropped. The client cannot know
whether the step was carried out, so `step` raises `SessionLost` until a `reset` here too.

A connection belongs to the process that opened it. A forked child has a copy of the socket, but
neither writes to it nor closes it properly: for the child, the episode is lost.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from openenv._internal.lazy import asyncio, lazy_module
from openenv._internal.traces import traced, tracer
from openenv.client import background
from openenv.client.connection import (
    ASK_AGAIN_HINT,
    BEGINNINGS,
    CONNECTION_LOST,
    READINGS,
    RESET_HINT,
    RemoteSession,
    SentRequest,
    SessionConnection,
    abandon,
    is_interim,
    name_request,
)
from openenv.errors import OpenEnvError, ResponseTimeout, SessionLost, StepTimeout, server_error
from openenv.protocol.messages import ErrorReply, Reply, Request
from openenv.protocol.v1.messages import Queued

if TYPE_CHECKING:
    from openenv.client import _sharing
    from openenv.client._sharing import SessionEndpoint
else:
    _sharing = lazy_module("openenv.client._sharing")

CLOSED = "the client was closed"
# The server enforces a step's deadline. The client waits this much longer for the server's error.
DEADLINE_SLACK_S = 0.25


class CallOrder:
    """A lock, first come, first served, that is very cheap without contention.

    Attributes:
        is_taken: A call has the lock.
        waiting: Calls that wait for the lock.
    """

    def __init__(self) -> None:
        self.is_taken = False
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Take the lock, after all earlier callers."""
        if not self.is_taken:
            self.is_taken = True
            return
        called = asyncio.get_running_loop().create_future()
        self.waiting.append(called)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():  # the lock was just passed on to this call
                self.leave()
            raise

    def leave(self) -> None:
        """Pass the lock on."""
        while self.waiting:
            called = self.waiting.popleft()
            if not called.done():
                called.set_result(None)
                return
        self.is_taken = False


class ClientSession:
    """Sends a session's requests in order, over a connection that is opened when needed.

    Args:
        endpoint: The server.
        opening: Fields of the request that opens the session.
        timeout_s: Seconds to wait for an answer; None for no limit.
        on_queue: Called with the session's place in the server's queue.
        lost: Why the episode is lost; None if no episode was lost.

    Attributes:
        has_owner: A parent client will close this session, so dropping it gives no warning.
        closes: How often the session was closed. A call that began before a close ends with it.
        is_repeated: This client received the latest answer before, but its caller did not.
        process: Id of the process that the session belongs to.
        remote: The session as the connection engine knows it.
        version: The protocol version in use; 0 before there is a connection.
        capabilities: Capabilities that the server announced; empty before there is a connection.
        room: Number of sessions that the server holds; None if unknown.
    """

    def __init__(
        self,
        endpoint: SessionEndpoint,
        opening: dict[str, Any],
        timeout_s: float | None,
        on_queue: Callable[[Queued], None] | None = None,
        *,
        lost: str | None = None,
    ) -> None:
        self.has_owner = False
        self.closes = 0
        self.is_repeated = False
        self.process = os.getpid()
        self.remote = RemoteSession(lost=lost, on_queue=on_queue)
        self.version = 0
        self.capabilities: frozenset[str] = frozenset()
        self.room: int | None = None
        self._endpoint = endpoint
        self._opening = opening
        self._timeout_s = timeout_s
        self._on_queue = on_queue
        self._abandonment: weakref.finalize[..., ClientSession] | None = None
        self._order = CallOrder()
        self._tracer = tracer()

    def for_another_loop(self, because: str | None = None) -> ClientSession:
        """Return the same session without the connection, for use on another event loop.

        Args:
            because: Why the connection is lost, if this session was not closed.
        """
        is_unused = self._abandonment is None and not (self.closes or self._order.is_taken)
        if is_unused and not self.is_inherited:
            return self  # never used, so it belongs to no loop
        if self._abandonment is not None:
            self._abandonment.detach()
        lost = because if because and self.is_connected else self.remote.lost
        other = ClientSession(
            self._endpoint, self._opening, self._timeout_s, self._on_queue, lost=lost
        )
        other.has_owner = self.has_owner
        return other

    @property
    def is_inherited(self) -> bool:
        """Whether the session belongs to another process, of which this process is a fork."""
        return self.process != os.getpid()

    @property
    def is_connected(self) -> bool:
        """Whether a connection is open, as far as is known, or may still be resumed."""
        return self.remote.connection is not None

    @property
    def has_begun(self) -> bool:
        """Whether the session is connected, or was connected and is lost."""
        return self.is_connected or self.remote.lost is not None

    @property
    def route(self) -> str | None:
        """The server behind a gateway that has the session; None without a gateway."""
        connection = self.remote.connection
        return None if connection is None else connection.route

    async def connect(self, began: int | None = None) -> None:
        """Open the connection, if there is none.

        Args:
            began: The value of `closes` when the call began; by default the current value.

        Raises:
            ConnectError: No server answers.
            SessionLost: The session was closed meanwhile.
        """
        began = self.closes if began is None else began
        await self._order.enter()
        try:
            await self._connected(began)
        finally:
            self._order.leave()

    async def request(
        self,
        request: Request,
        timeout_s: float | None = None,
        began: int | None = None,
        *,
        is_traced: bool = False,
    ) -> Reply:
        """Send a request and wait for the answer.

        If the same request was sent before and its answer reached no caller, wait for that answer
        instead.

        Args:
            request: The request.
            timeout_s: Seconds to wait; by default the session's `timeout_s`.
            began: The value of `closes` when the call began; by default the current value.
            is_traced: The caller has already opened a span for the call.

        Raises:
            ServerError: The server answered with an error.
            SessionLost: The episode is gone, or its state is unknown.
            ResponseTimeout: No answer came in time.
            ConnectError: There was no connection, and none could be opened.
        """
        began = self.closes if began is None else began
        if self._tracer is not None and not is_traced:
            return await self._request_traced(request, timeout_s, began)
        order, remote = self._order, self.remote
        waiter = remote.waiter
        if order.is_taken:
            await order.enter()
        else:
            order.is_taken = True
        try:
            self.is_repeated = False
            may_repeat = request.type in BEGINNINGS and remote.connection is not None
            while True:
                sent = None
                if remote.sent or remote.lost is not None or remote.last_words is not None:
                    sent = self._find(request)
                if sent is None:
                    connection = remote.connection
                    if connection is None:
                        connection = await self._connected(began)
                        # The connection may have been open before, and be about to break.
                        may_repeat = request.type in BEGINNINGS and len(connection.sessions) > 1
                    if connection.is_closed:  # the server refused the session at once
                        self._find(request)  # raises what the server said
                        raise SessionLost(f"{remote.lost or CONNECTION_LOST}; {RESET_HINT}")
                    sent = connection.send(remote, request, waiter.wake)
                if sent.outcome is None:
                    limit_s = self._timeout_s
                    if timeout_s is not None:
                        # Under version 1 the server enforces a step's deadline.
                        is_kept_there = self.version != 0 and not sent.is_asked_again
                        limit_s = timeout_s + (DEADLINE_SLACK_S if is_kept_there else 0.0)
                    try:
                        await waiter.begin(limit_s, self._timeout_s or 0.0)
                    except BaseException as error:
                        sent.give_up()
                        if isinstance(error, asyncio.TimeoutError):
                            raise self._describe_timeout(request, timeout_s) from error
                        raise
                    finally:
                        waiter.end()
                outcome = remote.take(sent)
                # An idle connection may have been dead for long. A reset loses nothing by a retry.
                if not (may_repeat and type(outcome) is SessionLost and began == self.closes):
                    break
                may_repeat = False
            if type(outcome) is ErrorReply and (outcome.is_fatal or is_interim(outcome)):
                if outcome.is_fatal and remote.connection is not None:
                    await remote.connection.release(remote, remote.lost)  # the server has ended it
            elif isinstance(outcome, OpenEnvError):
                raise outcome
            elif request.type not in READINGS:
                self.is_repeated, sent.was_answered = sent.was_answered, True
                receipt = background.current_receipt.get()
                if receipt is not None:
                    receipt.hold(sent)
        finally:
            if order.waiting:
                order.leave()
            else:
                order.is_taken = False
        if type(outcome) is ErrorReply:
            raise server_error(outcome.data)
        return outcome

    async def _request_traced(self, request: Request, timeout_s: float | None, began: int) -> Reply:
        def send(span: str) -> Awaitable[Reply]:
            request.trace = span
            return self.request(request, timeout_s, began, is_traced=True)

        return await traced(self._tracer, f"openenv.{request.type}", send)

    def _find(self, request: Request) -> SentRequest | None:
        """Return the same request as sent before, if its answer can still be received.

        Raises:
            OpenEnvError: The request is not allowed now.
        """
        found = self.remote.find(request)
        if isinstance(found, OpenEnvError):
            raise found
        if found is not None:
            found.deliver, found.is_asked_again = self.remote.waiter.wake, True
            if found.outcome is None and self.remote.connection is not None:
                self.remote.connection.hurry()
        return found

    def _describe_timeout(self, request: Request, timeout_s: float | None) -> ResponseTimeout:
        if timeout_s is not None:
            hint = ASK_AGAIN_HINT if self.version else RESET_HINT
            why = f"the step took longer than its {timeout_s:g} s, and may still be running; {hint}"
            return StepTimeout(timeout_s, is_running=True, message=why)
        return ResponseTimeout(
            f"no answer to a {name_request(request)} within {self._timeout_s:g} s. The server may "
            "still be working on it: raise message_timeout_s if it needs longer."
        )

    # ------------------------------------------------------------------ connections

    async def _connected(self, began: int) -> SessionConnection:
        """Return the connection, opening one if there is none.

        Raises:
            ConnectError: No server answers.
            SessionLost: The session was closed meanwhile.
        """
        if self.remote.connection is not None:
            return self.remote.connection
        self._check_not_closed(began)
        connection = await _sharing.open_session(self._endpoint, self._opening, self.remote)
        try:
            self._check_not_closed(began)
        except SessionLost:
            await connection.release(self.remote, CLOSED)
            raise
        self.version = connection.version
        self.capabilities = connection.protocol.capabilities
        self.room = connection.protocol.room
        if self._abandonment is not None:
            self._abandonment.detach()
        self._abandonment = weakref.finalize(
            self, abandon, connection, self.process, self.remote, warn=not self.has_owner
        )
        self._abandonment.atexit = False
        return connection

    def _check_not_closed(self, began: int) -> None:
        if began != self.closes:
            raise SessionLost(f"{CLOSED}; {RESET_HINT}")

    def unanswered(self) -> str | None:
        """Name an unanswered call that the caller can repeat; None if there is none."""
        waiting = (one for one in self.remote.unanswered() if one.is_answerable())
        return next((name_request(one.request) for one in waiting), None)

    def lose_episode(self, why: str) -> None:
        """Make calls raise `SessionLost` until the next `reset`; a connection stays open."""
        self.remote.lost = self.remote.lost or why
        self.remote.sent = {}
        self.remote.episode_began_at = None

    def accept_loss(self) -> None:
        """Clear the lost state, for a client that connects again on purpose."""
        self.remote.lost = None

    async def settle(self) -> None:
        """Wait until all earlier calls have ended."""
        await self._order.enter()
        self._order.leave()

    async def end_episode(self, why: str) -> None:
        """Give up the session and its environment; the next reset gets a fresh environment."""
        self.remote.lost = why
        if self.remote.connection is not None:
            await self.remote.connection.release(self.remote, why)

    async def close(self) -> None:
        """Close the session, waiting at most 5 s for the server. Safe to repeat.

        Calls that are under way end with `SessionLost`.
        """
        self.closes += 1
        connection = self.remote.connection
        if connection is not None:
            await connection.release(self.remote, CLOSED, says_goodbye=True)

    def cut(self) -> None:
        """Close the session without waiting for the server."""
        self.closes += 1
        if self.remote.connection is not None:
            self.remote.connection.cut(self.remote, CLOSED)
