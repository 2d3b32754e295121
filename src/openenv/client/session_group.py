"""The sessions behind a `VectorEnv`: requests and answers by the number of the environment.

`openenv.client.connection` holds the connections and the state that survives their loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

from openenv._internal.timing import raise_first
from openenv._internal.traces import traced, tracer
from openenv.client import background
from openenv.client.connection import (
    BEGINNINGS,
    CONNECTION_LOST,
    READINGS,
    RESET_HINT,
    CallWaiter,
    ConnectionEndpoint,
    Outcome,
    RemoteSession,
    SentRequest,
    SessionConnection,
    open_connection,
)
from openenv.errors import ConnectError, OpenEnvError, ResponseTimeout, SessionLost, server_error
from openenv.protocol.messages import ErrorReply, ObservationReply, Request
from openenv.protocol.v1.messages import Queued

OPENED_AT_ONCE = 64


class ServerEndpoint(ConnectionEndpoint, Protocol):
    """A server for some sessions of a group."""

    async def has_another(self) -> bool:
        """Return whether new endpoints would lead to a different server, now that this is lost."""
        ...


class EndpointProvider(Protocol):
    """Decides which servers the sessions of a group use.

    Attributes:
        opening: Fields of the requests that open the sessions.
    """

    opening: dict[str, Any]

    async def endpoints(
        self, sessions: int, connections: int
    ) -> Sequence[tuple[ServerEndpoint, int]]:
        """Return the endpoints for the next sessions, and how many sessions each gets.

        Args:
            sessions: Number of sessions.
            connections: Number of connections that they share, if one server has them all.
        """
        ...

    def note_queue(self, index: int, queued: Queued) -> None:
        """Record the queue position of an environment that waits for a slot."""
        ...


class Answers(NamedTuple):
    """Requests and their outcomes, by the number of the environment."""

    sent: dict[int, SentRequest]
    outcomes: dict[int, Outcome]

    def give_back(self) -> None:
        """Keep the answers for a caller that repeats the requests: the first caller got none."""
        for sent in self.sent.values():
            if sent.outcome is not None and sent.request.type not in READINGS:
                sent.give_back()

    def take_back(self) -> None:
        """Undo `give_back`: the caller received the answers after all."""
        for sent in self.sent.values():
            sent.take_back()


class _Unreceived(NamedTuple):
    """Answers of `SessionGroup.first` that never reached the caller; the next `first` has them."""

    group: SessionGroup
    answers: Answers

    def give_back(self) -> None:
        self.group.put_back(self.answers)

    def take_back(self) -> None:
        self.group.withdraw(self.answers)


class SessionGroup:
    """Many sessions on few connections, on a single event loop.

    Args:
        provider: Decides which servers the sessions use.
        connections: Number of connections that the sessions share, if one server has them all.

    Attributes:
        provider: See `Args`.
        sessions: The sessions, by the numbers of their environments.
        awaited: Requests whose outcomes no call of `answers` or `first` has returned yet.
        waiter: The `CallWaiter` of such a call.
    """

    def __init__(self, provider: EndpointProvider, connections: int) -> None:
        self.provider = provider
        self.sessions: dict[int, RemoteSession] = {}
        self.awaited: dict[int, SentRequest] = {}
        self.waiter = CallWaiter(self._expire)
        self._count = connections
        self._connections: list[SessionConnection] = []
        self._answered: dict[int, Outcome] = {}  # in the order of arrival
        self._among: Collection[int] | None = None  # sessions whose answers count; None means all
        self._missing = 0
        self._timeout_s = 0.0
        self._tracer = tracer()

    @property
    def is_open(self) -> bool:
        """Whether there is an open connection."""
        return any(not connection.is_closed for connection in self._connections)

    @property
    def version(self) -> int:
        """The protocol version in use, as far as is known; 0 without a connection."""
        return max((connection.version for connection in self._connections), default=0)

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities that the servers of all connections have in common."""
        told = [one.protocol.capabilities for one in self._connections if not one.is_closed]
        return frozenset.intersection(*told) if told else frozenset()

    # ------------------------------------------------------------------ requests

    async def submit(self, requests: dict[int, Request]) -> None:
        """Send requests, many sessions to a frame.

        A request that was made before, and whose answer no caller has received, is not sent again:
        the earlier answer is awaited.

        Raises:
            RuntimeError: A session has a request that is not answered yet.
            EncodingError: A request cannot be written; then no request is sent.
            ConnectError: No server answers.
        """
        if self._tracer is None:
            await self._submit(requests)
            return

        def send(span: str) -> Awaitable[None]:
            for request in requests.values():
                request.trace = span
            return self._submit(requests)

        kinds = {request.type for request in requests.values()}
        name = kinds.pop() if len(kinds) == 1 else "step"
        await traced(self._tracer, f"openenv.{name}", send)

    async def _submit(self, requests: dict[int, Request]) -> None:
        busy = requests.keys() & self.awaited.keys()
        if busy:
            named = _list_some(sorted(busy))
            raise RuntimeError(f"environments {named} have not answered yet; call recv()")
        await self._connect(requests)
        refused: dict[int, OpenEnvError] = {}
        again: list[SentRequest] = []
        batches: dict[SessionConnection, list[Request]] = {}
        for index, request in requests.items():
            session = self.sessions[index]
            found = None
            if session.sent or session.lost is not None or session.last_words is not None:
                found = session.find(request)
            connection = session.connection
            if isinstance(found, SentRequest):
                again.append(found)
            elif found is not None:
                refused[index] = found
            elif connection is None:  # lost while other connections were being opened
                refused[index] = SessionLost(f"{CONNECTION_LOST}; {RESET_HINT}")
            else:
                request.session = session.number
                batches.setdefault(connection, []).append(request)
        # All are written before the first is sent: one that cannot be written must stop them all.
        written = [(one, one.write(batch)) for one, batch in batches.items()]
        for index, error in refused.items():
            session = self.sessions[index]
            self.awaited[index] = SentRequest(requests[index], b"", session, {}, None, error)
            self._note(index, error)
        for sent in again:
            sent.is_asked_again = True
            self.awaited[sent.session.key] = sent
            if sent.outcome is None:
                sent.deliver = self._take_outcome
                if sent.session.connection is not None:
                    sent.session.connection.hurry()
            else:
                self._note(sent.session.key, sent.outcome)
        awaited = self.awaited
        for connection, frames in written:
            for sent in connection.register(frames, self._take_outcome):
                awaited[sent.session.key] = sent
            connection.transmit(frames)

    # ------------------------------------------------------------------ connections

    async def _connect(self, requests: dict[int, Request]) -> None:
        resets = []
        for index, request in requests.items():
            session = self.sessions.get(index)
            if session is None:
                session = self.sessions[index] = self._new_session(index)
            if session.connection is not None:
                continue
            if request.type in BEGINNINGS:
                resets.append(index)
            elif session.lost is None:
                session.lost = "no episode has begun"
        if resets:
            await self._open(sorted(resets))

    def _new_session(self, index: int) -> RemoteSession:
        def note_queue(queued: Queued) -> None:
            self.provider.note_queue(index, queued)

        return RemoteSession(index, on_queue=note_queue, waiter=self.waiter)

    async def _open(self, indices: list[int]) -> None:
        """Open connections for sessions; use another server if one has just been lost."""
        while indices:
            left, groups = iter(indices), []
            for endpoint, share in await self.provider.endpoints(len(indices), self._count):
                groups.append((endpoint, list(islice(left, share))))
            limit = asyncio.Semaphore(OPENED_AT_ONCE)
            refused = await self._try_endpoint(*groups[0], limit)
            others = (self._try_endpoint(one, group, limit) for one, group in groups[1:])
            outcomes = await asyncio.gather(*others, return_exceptions=True)
            raise_first(outcomes)
            indices = sorted(chain(refused, *(one for one in outcomes if isinstance(one, list))))

    async def _try_endpoint(
        self, endpoint: ServerEndpoint, group: list[int], limit: asyncio.Semaphore
    ) -> list[int]:
        """Open connections to a server; return the sessions that must use another server."""
        try:
            await self._open_group(endpoint, group, limit)
        except ConnectError:
            if not await endpoint.has_another():
                raise
            return [i for i in group if self.sessions[i].connection is None]
        return []

    async def _open_group(
        self, endpoint: ServerEndpoint, group: list[int], limit: asyncio.Semaphore
    ) -> None:
        """Open as few connections to a server as the protocol and a gateway allow."""
        async with limit:
            first = await self._open_one(endpoint)
        size = len(group) if first.spread is None else first.spread
        if first.version == 0:
            size = 1
        first.carry({index: self.sessions[index] for index in group[:size]})

        async def open_part(part: list[int]) -> None:
            async with limit:
                connection = await self._open_one(endpoint)
            connection.carry({index: self.sessions[index] for index in part})

        others = (open_part(group[i : i + size]) for i in range(size, len(group), size))
        raise_first(await asyncio.gather(*others, return_exceptions=True))

    async def _open_one(self, endpoint: ServerEndpoint) -> SessionConnection:
        connection = await open_connection(endpoint, self.provider.opening)
        self._connections = [one for one in self._connections if not one.is_closed]
        self._connections.append(connection)
        return connection

    # ------------------------------------------------------------------ answers

    def _take_outcome(self, sent: SentRequest) -> None:
        """Record the outcome of a request; a `SentRequest.deliver`."""
        index = sent.session.key
        if self.awaited.get(index) is sent and sent.outcome is not None:
            self._note(index, sent.outcome)

    def _note(self, index: int, outcome: Outcome) -> None:
        answered = self._answered
        if index in answered:
            return
        answered[index] = outcome
        if self._among is None or index in self._among:
            self._missing -= 1
            if self._missing == 0:
                self.waiter.wake()

    async def answers(self, indices: Sequence[int], timeout_s: float | None) -> Answers:
        """Wait for the answers of certain sessions; other sessions may be at work too."""
        try:
            await self._wait(len(indices), timeout_s, set(indices))
        except asyncio.CancelledError:
            for index in indices:
                self._answered.pop(index, None)
                self.awaited.pop(index).give_up()
            raise
        answers = self._take(indices)
        background.hold(answers)
        return answers

    async def first(self, count: int, timeout_s: float | None) -> Answers:
        """Wait for the first `count` answers.

        Raises:
            RuntimeError: Fewer than `count` sessions are at work.
        """
        if len(self.awaited) < count:
            raise RuntimeError(
                f"{len(self.awaited)} environments are at work, and batch_size is {count}; call "
                "send() first"
            )
        await self._wait(count, timeout_s)
        answers = self._take(list(islice(self._answered, count)))
        background.hold(_Unreceived(self, answers))
        return answers

    async def _wait(
        self, count: int, timeout_s: float | None, among: Collection[int] | None = None
    ) -> None:
        """Wait until `count` sessions in `among` (by default all) have answered."""
        there = self._answered if among is None else self._answered.keys() & among
        self._missing, self._among = count - len(there), among
        if self._missing <= 0:
            return
        self._timeout_s = timeout_s or 0.0
        try:
            # Not `wait_for`, which takes several ticks to be canceled: the next call may begin
            # before it has ended.
            await self.waiter.begin(timeout_s, timeout_s or 0.0)
        finally:
            self.waiter.end()

    def _expire(self) -> None:
        words = f"no answer within {self._timeout_s:g} s"
        for index in list(self.awaited if self._among is None else self._among):
            if index not in self._answered:
                self.awaited[index].give_up()
                self._note(index, ResponseTimeout(words))

    def _take(self, indices: Sequence[int]) -> Answers:
        sent = {i: self.awaited.pop(i) for i in indices}
        outcomes = {i: self._answered.pop(i) for i in indices}
        for index, one in sent.items():
            outcome = outcomes[index]
            if type(outcome) is ObservationReply and one.request.type == "step":
                one.deliver = None
                one.place.pop(one.request.id, None)
                continue
            if outcome is one.outcome:  # otherwise it missed the time limit
                one.session.take(one, renews=False)
            if type(outcome) is ErrorReply:
                error = outcomes[index] = server_error(outcome.data)
                if outcome.is_fatal and one.session.lost is None:
                    one.session.lost = f"the server ended the session ({error})"
        return Answers(sent, outcomes)

    def put_back(self, answers: Answers) -> None:
        """Keep answers for the next call of `first`, since this call's caller got none."""
        self.awaited.update(answers.sent)
        self._answered = answers.outcomes | self._answered

    def withdraw(self, answers: Answers) -> None:
        """Undo `put_back`: the caller received the answers after all."""
        for index in answers.sent:
            self.awaited.pop(index, None)
            self._answered.pop(index, None)

    async def close(self) -> None:
        """Close every connection, with all sessions."""
        connections, self._connections = self._connections, []
        await asyncio.gather(*(one.close("it was closed") for one in connections))
        for session in self.sessions.values():
            session.lost = "it was closed"


def _list_some(indices: Sequence[int]) -> str:
    shown = ", ".join(map(str, indices[:8]))
    return shown if len(indices) <= 8 else f"{shown} and {len(indices) - 8} more"
