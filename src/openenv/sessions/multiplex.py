"""One client's connection to many sessions, by version 1: each served in order, all side by side.

Answers that are ready in one tick of the event loop leave in one frame.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from openenv.errors import (
    OpenEnvError,
    RateLimitError,
    SessionCreationError,
    SessionNotFoundError,
)
from openenv.protocol.messages import MCPReply, Request
from openenv.protocol.v1 import Codec
from openenv.sessions.conversation import (
    Channel,
    ChargedChannel,
    answer_json_rpc,
    close_or_leave,
    command_of,
)
from openenv.sessions.manager import SessionManager
from openenv.sessions.principal import Principal
from openenv.sessions.session import Session, Work

__all__ = ["MultiplexedConversation"]

logger = logging.getLogger(__name__)

# Requests that are under way or wait, of all sessions together, before no more are listened to.
UNANSWERED = 8192
ANSWERS_A_FRAME = 64  # so that the client reads the first while the next are made
# What no limit of a key refuses, so that client and server agree on which sessions there are.
FREE_OF_CHARGE = frozenset({"open", "close"})
FRAME_BYTES = 2**18  # a frame is not made larger than this by joining answers


class _Seat:
    """One session of the connection: still opening, or there."""

    __slots__ = ("early", "opening", "session")

    def __init__(self) -> None:
        self.session: Session | None = None
        self.opening: asyncio.Task[None] | None = None
        self.early: deque[Request] | None = None


class _Asked(Work, kw_only=True):
    """A request on its way through its session."""

    conversation: MultiplexedConversation
    request: Request

    def answered(self, result: Any, error: BaseException | None) -> None:
        self.conversation.answer(self.request, result, error)


class MultiplexedConversation:
    """Serves one client until it leaves; then all its sessions are closed.

    Args:
        manager: Where sessions come from.
        channel: What carries the frames.
        codec: Reads and writes them.
        principal: Who the client is, where the server has keys.

    Attributes:
        ended: Done when the client is gone and its sessions closed, or left to the manager.
    """

    def __init__(
        self,
        manager: SessionManager,
        channel: Channel,
        codec: Codec,
        principal: Principal | None = None,
    ) -> None:
        self._manager = manager
        self._principal = principal
        self._limited = None if principal is None else principal.if_limited()
        self._channel = channel if self._limited is None else ChargedChannel(channel, self._limited)
        self._codec = codec
        self.encode_data = codec.encode_data
        self._loop = asyncio.get_running_loop()
        self._seats: dict[int, _Seat] = {}
        self._closings: set[asyncio.Task[None]] = set()
        self._unsent: list[bytes] = []
        self._unanswered = 0
        self._is_paused = self._is_over = False
        self.ended = self._loop.create_future()
        data = {"version": 1, "max_sessions": manager.max_sessions}
        self._send(codec.answer("hello", None, None, codec.encode_data(data)))

    # ------------------------------------------------------------------ requests

    def receive(self, frame: str | bytes) -> None:
        """Take the client's next frame."""
        if self._is_over:
            return
        try:
            requests = self._codec.decode_requests(frame)
        except OpenEnvError as error:
            for session, number in self._codec.addresses(frame):
                self._send(self._codec.error(session, number, error))
            return
        if self._limited is not None:
            requests = self._allowed(requests, len(frame), self._limited)
        for request in requests:
            self._take(request)
        if self._unanswered >= UNANSWERED and not self._is_paused:
            self._is_paused = True
            self._channel.pause()

    def _allowed(self, requests: list[Request], size: int, principal: Principal) -> list[Request]:
        """What the principal's limits allow."""
        costly = [request for request in requests if request.type not in FREE_OF_CHARGE]
        try:
            principal.allow(len(costly), size)
        except RateLimitError as error:
            for request in costly:
                self._fail(request, error)
            return [request for request in requests if request.type in FREE_OF_CHARGE]
        return requests

    def _take(self, request: Request) -> None:
        seat = self._seats.get(request.session)
        if request.type == "open":
            self._open(request, seat)
        elif seat is None:
            name = str(request.session)
            why = f"this connection has no session {name}; open it first"
            self._fail(request, SessionNotFoundError(name, why))
        elif seat.session is not None:
            self._serve(request, seat, seat.session)
        else:
            if seat.early is None:
                seat.early = deque()
            seat.early.append(request)
            self._unanswered += 1

    def _open(self, request: Request, seat: _Seat | None) -> None:
        if seat is not None:
            self._fail(request, SessionCreationError(f"session {request.session} is open already"))
            return
        seat = self._seats[request.session] = _Seat()
        seat.opening = self._loop.create_task(self._open_seat(request, seat))

    async def _open_seat(self, request: Request, seat: _Seat) -> None:
        try:
            session = await self._manager.create(principal=self._principal)
        except Exception as error:
            if not isinstance(error, OpenEnvError):
                logger.exception("no session could be opened")
            self._seats.pop(request.session, None)
            self._fail(request, error)
            for early in seat.early or ():
                self._unanswered -= 1
                self._fail(early, error)
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
            self._serve(one, seat, session)

    def _serve(self, request: Request, seat: _Seat, session: Session) -> None:
        if request.type == "close":
            del self._seats[request.session]
            closing = self._loop.create_task(self._close(request, seat, session))
            self._closings.add(closing)
            closing.add_done_callback(self._closings.discard)
        elif request.type == "mcp":
            reply = MCPReply(answer_json_rpc(session, request.data))
            self._answer("mcp", request, self._codec.encode_data(reply))
        else:
            self._unanswered += 1
            work = _Asked(
                session,
                command_of(request),
                self.encode_data,
                conversation=self,
                request=request,
            )
            session.serve(work)

    async def _close(self, request: Request, seat: _Seat, session: Session) -> None:
        await close_or_leave(self._manager, session)
        self._answer("closed", request, self._codec.encode_data(None))

    def answer(self, request: Request, data: Any, error: BaseException | None) -> None:
        """Send what a request came to."""
        self._unanswered -= 1
        if self._is_paused and self._unanswered < UNANSWERED // 2:
            self._is_paused = False
            self._channel.resume()
        if error is not None:
            self._fail(request, error)
        else:
            self._answer("state" if request.type == "state" else "observation", request, data)

    # ------------------------------------------------------------------ answers

    def _answer(self, kind: str, request: Request, data: bytes) -> None:
        self._send(self._codec.answer(kind, request.session, request.id, data))

    def _fail(self, request: Request, error: BaseException) -> None:
        self._send(self._codec.error(request.session, request.id, error))

    def _send(self, message: bytes) -> None:
        if self._is_over:
            return
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(message)
        if len(self._unsent) >= ANSWERS_A_FRAME:
            self._flush()

    def _flush(self) -> None:
        if self._is_over:
            return
        messages, self._unsent = self._unsent, []
        size, first = 0, 0
        for index, message in enumerate(messages):
            size += len(message)
            if size >= FRAME_BYTES:
                self._channel.send(self._codec.join(messages[first : index + 1]))
                size, first = 0, index + 1
        if first < len(messages):
            self._channel.send(self._codec.join(messages[first:]))

    # ------------------------------------------------------------------ going

    def lose(self) -> None:
        """Note that the client is gone. What it had asked for is not begun any more."""
        if self._is_over:
            return
        self._is_over = True
        seats, self._seats = list(self._seats.values()), {}
        leaving = set(self._closings)
        for seat in seats:
            for work in seat.session.works() if seat.session is not None else ():
                if isinstance(work, _Asked) and work.conversation is self:
                    work.cancel()
            if seat.opening is not None:
                seat.opening.cancel()
            elif seat.session is not None:
                leaving.add(self._loop.create_task(close_or_leave(self._manager, seat.session)))
        self._manager.keep(self._loop.create_task(self._end(leaving)))

    async def _end(self, leaving: set[asyncio.Task[None]]) -> None:
        if leaving:
            await asyncio.wait(leaving)
        self.ended.set_result(None)
