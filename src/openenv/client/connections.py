"""The connections of a `VectorEnv`: requests by the number of the environment, and answers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

from openenv._internal.lazy import lazy_module
from openenv._internal.timeouts import within
from openenv.client import background
from openenv.client._resuming import CannotResume, greeted, is_worth_resuming, resume
from openenv.client.session import READINGS, asked_for, bare
from openenv.client.transports.base import Transport, TransportClosed
from openenv.errors import (
    ConnectError,
    OpenEnvError,
    ProtocolError,
    ResponseTimeout,
    SessionLost,
    TooLargeError,
    server_error,
)
from openenv.protocol.connection import ClientConnection
from openenv.protocol.messages import (
    ErrorReply,
    Notice,
    ObservationReply,
    RenderReply,
    Reply,
    Request,
)
from openenv.protocol.v1 import HEARTBEAT_S, Multiplexer, Queued, codec_named

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy_module("asyncio")

__all__ = ["ConnectionPool"]

CONNECTION_LOST = "the connection to the server was lost"
RESET_HINT = "call reset() to begin new episodes"
NOT_WAITED_FOR = "was not answered before its caller stopped waiting"
CLOSE_LIMIT_S = 5.0
OPENED_AT_ONCE = 64
STEPS_A_FRAME = 64

Outcome = Reply | OpenEnvError


def listed(indices: Sequence[int]) -> str:
    """Name some environments in a message."""
    shown = ", ".join(map(str, indices[:8]))
    return shown if len(indices) <= 8 else f"{shown} and {len(indices) - 8} more"


class _GivenUp:
    """A request that nobody waits for, what it asks for, and what it came to, if that is known."""

    __slots__ = ("asked_for", "outcome", "request")

    def __init__(self, request: Request, asked_for: bytes | None, outcome: Outcome | None) -> None:
        self.request = request
        self.asked_for = asked_for
        self.outcome = outcome


class _AllGivenUp(dict[int, list[_GivenUp]]):
    """What was given up, by environments, the earliest first; `background.hold` puts answers here
    that were on their way to the caller.
    """

    def __init__(self, asked_for: Callable[[int, Request], bytes | None]) -> None:
        super().__init__()
        self._asked_for = asked_for

    def note(self, index: int, request: Request, outcome: Outcome | None) -> _GivenUp:
        """Return what is to be kept of a request."""
        return _GivenUp(request, self._asked_for(index, request), outcome)

    def update(self, answers: Mapping[int, tuple[Request, Outcome]]) -> None:  # type: ignore[override]
        """Keep answers that came before what is here."""
        for index, (request, outcome) in answers.items():
            if request.type not in READINGS and not isinstance(outcome, ResponseTimeout):
                self.setdefault(index, []).insert(0, self.note(index, request, outcome))


class _Unreceived:
    """Puts answers back that `first` has given, should its caller not get them."""

    def __init__(self, trunks: ConnectionPool) -> None:
        self._trunks = trunks

    def update(self, answers: Mapping[int, tuple[Request, Outcome]]) -> None:
        trunks = self._trunks
        trunks._asked.update({index: request for index, (request, _) in answers.items()})
        returned = {index: outcome for index, (_, outcome) in answers.items()}
        trunks._answered = returned | trunks._answered

    def pop(self, index: int, default: Any) -> Any:
        self._trunks._asked.pop(index, None)
        return self._trunks._answered.pop(index, default)


class ConnectionPool:
    """Sends requests to environments by their numbers, and collects the answers.

    It lives on one event loop.

    Args:
        entrance: Where connections come from.
        count: How many connections the sessions share, where they can.
    """

    def __init__(self, entrance: Entrance, count: int) -> None:
        self.entrance = entrance
        self._count = count
        self._queued_at: float | None = None  # when a place in a queue was last reported
        self._trunks: list[_Connection] = []
        self._of: dict[int, _Connection] = {}
        self._asked: dict[int, Request] = {}
        self._answered: dict[int, Outcome] = {}
        self._lost: dict[int, str] = {}
        self._given_up = _AllGivenUp(
            lambda index, request: self._of[index].sent_for(index, request)
        )
        self._waiter: asyncio.Future[None] | None = None
        self._among: Collection[int] | None = None  # whose answers count; None is all
        self._missing = 0

    @property
    def is_open(self) -> bool:
        """There are connections."""
        return any(not trunk.is_closed for trunk in self._trunks)

    @property
    def version(self) -> int:
        """The protocol version that is spoken, as far as is known."""
        return int(any(trunk.is_multiplexed for trunk in self._trunks))

    @property
    def capabilities(self) -> frozenset[str]:
        """What the servers of all connections have said that they can do."""
        told = [trunk.capabilities for trunk in self._trunks if not trunk.is_closed]
        return frozenset.intersection(*told) if told else frozenset()

    async def submit(self, requests: dict[int, Request]) -> None:
        busy = requests.keys() & self._asked.keys()
        if busy:
            named = listed(sorted(busy))
            raise RuntimeError(f"environments {named} have not answered yet; call recv()")
        await self._connect(requests)
        lost = self._lost
        refused: dict[int, OpenEnvError] = {
            i: SessionLost(f"{lost[i]}; {RESET_HINT}")
            for i in lost.keys() & requests.keys()
            if requests[i].type != "reset"
        }
        again = self._asked_again(requests, refused) if self._given_up else {}
        groups: dict[_Connection, dict[int, Request]] = {}
        for index, request in requests.items():
            if index not in refused and index not in again:
                trunk = self._of[index]
                if trunk not in groups:
                    groups[trunk] = {}
                groups[trunk][index] = request
        # All are written before the first is sent: one that cannot be written must stop them all.
        written = [(trunk, group, trunk.written(group)) for trunk, group in groups.items()]
        self._asked |= requests
        for index, error in refused.items():
            self.answer(index, error)
        for index in again:
            self._await_again(index)
        for group in groups.values():
            for index, request in group.items():
                if request.type not in READINGS:
                    self._given_up.pop(index, None)
                lost.pop(index, None)
        for trunk, group, frames in written:
            trunk.send(group, frames)

    def _asked_again(
        self, requests: Mapping[int, Request], refused: dict[int, OpenEnvError]
    ) -> set[int]:
        """Which of the requests were given up, and are made again; notes those that may not be
        made meanwhile.
        """
        again = set()
        for index in self._given_up.keys() & requests.keys() - refused.keys():
            request, given_up = requests[index], self._given_up[index][0]
            earlier = given_up.request
            if (
                request.type == earlier.type
                and given_up.asked_for is not None
                and given_up.asked_for == self._of[index].asks_for(request)
            ):
                again.add(index)
            elif request.type not in READINGS and request.type != "reset":
                refused[index] = SessionLost(
                    f"a {earlier.type} {NOT_WAITED_FOR}, so the state of the episode is unknown; "
                    "ask again with the same action to have its answer, or call reset()"
                )
        return again

    def _await_again(self, index: int) -> None:
        """Wait on for what was given up."""
        given_up = self._given_up[index].pop(0)
        if not self._given_up[index]:
            del self._given_up[index]
        self._asked[index] = given_up.request
        if given_up.outcome is None:
            self._of[index].await_again(index, given_up.request)
        else:
            self.answer(index, given_up.outcome)

    async def _connect(self, requests: dict[int, Request]) -> None:
        lacking = [i for i in requests if i not in self._of or self._of[i].is_closed]
        if not lacking:
            return
        resets = {i for i in lacking if requests[i].type == "reset"}
        for index in set(lacking) - resets:
            was_there = index in self._of
            self._lost.setdefault(index, CONNECTION_LOST if was_there else "no episode has begun")
            self._of.setdefault(index, _NO_TRUNK)
        if resets:
            await self._open(sorted(resets))

    async def _open(self, indices: list[int]) -> None:
        """Open connections for sessions; elsewhere for those whose server has just been lost."""
        while indices:
            left, groups = iter(indices), []
            for gate, share in await self.entrance.gates(len(indices), self._count):
                groups.append((gate, list(islice(left, share))))
            limit = asyncio.Semaphore(OPENED_AT_ONCE)
            refused = await self._tried(*groups[0], limit)
            others = (self._tried(gate, group, limit) for gate, group in groups[1:])
            outcomes = await asyncio.gather(*others, return_exceptions=True)
            _raise_first(outcomes)
            indices = sorted(chain(refused, *(one for one in outcomes if isinstance(one, list))))

    async def _tried(self, gate: Gate, group: list[int], limit: asyncio.Semaphore) -> list[int]:
        """Open connections to one server; gives those that another one is to have."""
        try:
            await self._open_group(gate, group, limit)
        except ConnectError:
            if not await gate.has_another():
                raise
            return [i for i in group if i not in self._of or self._of[i].is_closed]
        return []

    async def _open_group(self, gate: Gate, group: list[int], limit: asyncio.Semaphore) -> None:
        """Open connections for sessions of one server: as few as that has it."""
        async with limit:
            first = await self._opened(gate, group[0])
        size = len(group) if first.spread is None else first.spread
        if not first.is_multiplexed:  # version 0: a connection for each
            size = 1
        self._of |= dict.fromkeys(group[:size], first)

        async def open_one(part: list[int]) -> None:
            async with limit:
                trunk = await self._opened(gate, part[0])
            self._of |= dict.fromkeys(part, trunk)

        others = (open_one(group[i : i + size]) for i in range(size, len(group), size))
        _raise_first(await asyncio.gather(*others, return_exceptions=True))

    async def _opened(self, gate: Gate, index: int) -> _Connection:
        transport = await gate.connect()
        multiplexer = None
        try:
            if transport.subprotocol is not None:
                hello = await greeted(transport)
                codec = codec_named(transport.subprotocol)
                multiplexer = Multiplexer(codec, hello, self.entrance.opening, transport.ends)
                multiplexer.route = transport.route
        except BaseException:
            transport.abort()
            await gate.leave()
            raise
        trunk = _Connection(transport, self, gate, index, multiplexer)
        self._trunks = [t for t in self._trunks if not t.is_closed]
        self._trunks.append(trunk)
        return trunk

    # ------------------------------------------------------------------ answers

    def answer(self, index: int, outcome: Outcome) -> bool:
        """Note what a request came to; say whether anybody waited for it."""
        answered = self._answered
        if index not in self._asked or index in answered:
            return False
        answered[index] = outcome
        if self._waiter is not None and (self._among is None or index in self._among):
            self._missing -= 1
            if self._missing == 0 and not self._waiter.done():
                self._waiter.set_result(None)
        return True

    def answer_late(self, index: int, number: int, outcome: Outcome) -> None:
        """Note what a request came to that was given up."""
        for one in self._given_up.get(index, ()):
            if one.outcome is None and one.request.id == number:
                one.outcome = outcome

    def end_episode(self, index: int, why: str) -> None:
        """Note that a session is gone."""
        self._lost[index] = why
        self._given_up.pop(index, None)

    def lose(self, indices: Sequence[int], why: str) -> None:
        """Note that sessions are gone, and answer what was asked of them."""
        for index in indices:
            self.end_episode(index, why)
            self.answer(index, SessionLost(f"{why}; {RESET_HINT}"))

    async def _wait(
        self, count: int, timeout_s: float | None, among: Collection[int] | None = None
    ) -> None:
        """Wait until `count` have answered, of those whose answers count."""
        there = self._answered if among is None else self._answered.keys() & among
        self._missing, self._among = count - len(there), among
        if self._missing <= 0:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        alarm = None if timeout_s is None else loop.call_later(timeout_s, self._expire, timeout_s)
        try:
            # Not in `wait_for`, which takes several ticks to be cancelled: the next call may come
            # before it has ended.
            await self._waiter
        finally:
            self._waiter = None
            if alarm is not None:
                alarm.cancel()

    def note_queue(self, index: int, queued: Queued) -> None:
        """Note that a session waits for a slot: that is no silence."""
        self._queued_at = asyncio.get_running_loop().time()
        self.entrance.note_queue(index, queued)

    def _expire(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        if self._queued_at is not None and self._waiter is not None:
            left = self._queued_at + max(timeout_s, 2 * HEARTBEAT_S) - loop.time()
            if left > 0:
                alarm = loop.call_later(left, self._expire, timeout_s)
                self._waiter.add_done_callback(lambda _: alarm.cancel())
                return
        words = f"no answer within {timeout_s:g} s"
        awaited = self._asked if self._among is None else self._among
        for index in [i for i in awaited if i not in self._answered]:
            self.answer(index, ResponseTimeout(words))
            self._give_up(index, self._asked[index])

    async def answers(self, indices: Sequence[int], timeout_s: float | None) -> dict[int, Outcome]:
        """Wait for the answers of `indices`, whoever else is at work."""
        try:
            await self._wait(len(indices), timeout_s, set(indices))
        except asyncio.CancelledError:
            for index in indices:
                self._give_up(index, self._asked.pop(index), self._answered.pop(index, None))
            raise
        requests, outcomes = self._taken(indices)
        background.hold(self._given_up, {i: (requests[i], outcomes[i]) for i in indices})
        return outcomes

    def _give_up(self, index: int, request: Request, outcome: Outcome | None = None) -> None:
        """Keep what a request has come to, or will, for whoever asks again."""
        if request.type in READINGS or index in self._lost or isinstance(outcome, ResponseTimeout):
            return  # of what was not answered in time, that is noted already
        if outcome is not None or self._of[index].is_multiplexed:
            self._given_up.setdefault(index, []).append(
                self._given_up.note(index, request, outcome)
            )
        else:  # version 0 has no number by which a late answer could be told
            why = f"a {request.type} {NOT_WAITED_FOR}, so the state of the episode is unknown"
            self.end_episode(index, why)

    def give_back(self, requests: Mapping[int, Request], outcomes: Mapping[int, Outcome]) -> None:
        """Keep what `answers` has given for whoever asks again; the caller did not get it."""
        self._given_up.update({i: (requests[i], outcomes[i]) for i in outcomes})

    def put_back(self, requests: Mapping[int, Request], outcomes: Mapping[int, Outcome]) -> None:
        """Keep what `first` has given for the next one; the caller did not get it."""
        _Unreceived(self).update({i: (requests[i], outcomes[i]) for i in outcomes})

    async def first(
        self, count: int, timeout_s: float | None
    ) -> tuple[list[int], dict[int, Request], dict[int, Outcome]]:
        """Wait for the first `count` answers."""
        if len(self._asked) < count:
            raise RuntimeError(
                f"{len(self._asked)} environments are at work, and batch_size is {count}; call "
                "send() first"
            )
        await self._wait(count, timeout_s)
        which = list(islice(self._answered, count))  # a dict is in the order of arrival
        requests, outcomes = self._taken(which)
        background.hold(_Unreceived(self), {i: (requests[i], outcomes[i]) for i in which})
        return which, requests, outcomes

    def _taken(self, indices: Sequence[int]) -> tuple[dict[int, Request], dict[int, Outcome]]:
        return (
            {i: self._asked.pop(i) for i in indices},
            {i: self._answered.pop(i) for i in indices},
        )

    async def close(self) -> None:
        """Close every connection, and with it its sessions."""
        trunks, self._trunks = self._trunks, []
        await asyncio.gather(*(trunk.close() for trunk in trunks))
        self.lose(list(self._of), "it was closed")


class Gate(Protocol):
    """A server, and how it is reached."""

    async def connect(self) -> Transport:
        """Connect, to a server that is started if need be."""
        ...

    def open_transport(self) -> Transport:
        """Make a transport to the server that runs, not yet connected."""
        ...

    async def why_gone(self) -> str | None:
        """Say why there is no use in reaching the server, where that is known."""
        ...

    async def has_another(self) -> bool:
        """Whether other gates would now lead to another server: this one is lost."""
        ...

    async def leave(self) -> None:
        """A connection of it has ended for good, and with it its sessions."""
        ...


class Entrance(Protocol):
    """Where the connections of some environments come from.

    Attributes:
        opening: What is asked of the server with each session.
    """

    opening: dict[str, Any]

    async def gates(self, sessions: int, connections: int) -> Sequence[tuple[Gate, int]]:
        """Where the next sessions are to go, and how many to each gate.

        Args:
            sessions: How many there are.
            connections: By how many connections, where one server has them all.
        """
        ...

    def note_queue(self, index: int, queued: Queued) -> None:
        """Note where an environment stands that waits for a slot."""
        ...


class _Connection:
    """One connection: of many sessions under version 1, of one under version 0."""

    def __init__(
        self,
        transport: Transport,
        trunks: ConnectionPool,
        gate: Gate,
        index: int,
        multiplexer: Multiplexer | None,
    ) -> None:
        self._transport = transport
        self._gate = gate
        self._trunks = trunks
        self._index = index
        self._last_asked: dict[int, int] = {}
        self._frames: dict[int, dict[int, list[bytes]]] = {}  # by environments and requests
        self._single = ClientConnection()
        self._multiplexer = multiplexer
        self.is_closed = False
        self._refusal: OpenEnvError | None = None  # version 0: it came before anything was asked
        self._listening = asyncio.ensure_future(self._listen())

    @property
    def is_multiplexed(self) -> bool:
        return self._multiplexer is not None

    @property
    def spread(self) -> int | None:
        """How many sessions a gateway wants on a connection at most."""
        return self._transport.spread

    @property
    def capabilities(self) -> frozenset[str]:
        told = () if self._multiplexer is None else self._multiplexer.hello.capabilities
        return frozenset(told)

    def asks_for(self, request: Request) -> bytes | None:
        """What a request asks for, as `sent_for` gives it."""
        alone = bare(request)
        if self._multiplexer is None:
            return self._single.codec.encode_request(alone)
        codec = self._multiplexer.codec
        return asked_for(codec, codec.encode_requests([alone]))

    def sent_for(self, index: int, request: Request) -> bytes | None:
        """What a request has asked for when it was sent; None if it is not one of the latest two of
        its environment.
        """
        for frame in self._frames.get(index, {}).get(request.id, ()):
            if self._multiplexer is None:
                return frame
            found = asked_for(self._multiplexer.codec, frame, index, request.id)
            if found is not None:
                return found
        return None

    def _note_sent(self, group: dict[int, Request], frames: list[bytes]) -> None:
        """Keep what was sent, for a caller that gives up; and what was sent just before, since a
        step may be followed by the reset that belongs to it.
        """
        for index, request in group.items():
            kept = self._frames.setdefault(index, {})
            kept[request.id] = frames
            if len(kept) > 2:
                del kept[next(iter(kept))]

    def await_again(self, index: int, request: Request) -> None:
        """Take an earlier request for the latest one."""
        if self._multiplexer is not None:
            self._last_asked[index] = request.id

    def written(self, group: dict[int, Request]) -> list[bytes]:
        """Write requests, those of many sessions in one frame."""
        if self._multiplexer is None:
            return [self._single.codec.encode_request(request) for request in group.values()]
        for index, request in group.items():
            request.session = index
        requests = list(group.values())
        frames: list[bytes] = []
        for first in range(0, len(requests), STEPS_A_FRAME):
            frames += _written(self._multiplexer, requests[first : first + STEPS_A_FRAME])
        return frames

    def send(self, group: dict[int, Request], frames: list[bytes]) -> None:
        """Send requests that were written."""
        if self.is_closed:  # while others were still being opened
            for index in group:
                error = self._refusal or SessionLost(f"{CONNECTION_LOST}; {RESET_HINT}")
                self._trunks.answer(index, error)
            return
        try:
            if self._multiplexer is None:
                for request in group.values():
                    request.id = self._single.note(request)
                self._last_asked = {i: request.id for i, request in group.items()}
            else:
                self._multiplexer.note(list(group.values()))
                self._last_asked |= {index: request.id for index, request in group.items()}
                for frame in frames:
                    self._multiplexer.sent(frame)
            self._note_sent(group, frames)
            for frame in frames:
                self._transport.send(frame)
        except TransportClosed:
            pass  # the server's last words may be waiting: `_listen` reads them, and then goes on
        except ProtocolError as error:
            self._end(f"{CONNECTION_LOST} ({error})")

    async def _listen(self) -> None:
        try:
            while True:
                await self._listen_until_it_breaks()
        except TransportClosed as error:
            why = f"{CONNECTION_LOST} ({error})"
        except ProtocolError as error:
            why = str(error)
        self._end(why)
        await self._gate.leave()

    async def _listen_until_it_breaks(self) -> None:
        multiplexer = self._multiplexer
        try:
            while True:
                self._take(await self._transport.receive())
                if multiplexer is not None and multiplexer.is_owing:
                    self._transport.send(multiplexer.acknowledgement())
        except TransportClosed as error:
            await self._go_on(error)

    async def _go_on(self, error: TransportClosed) -> None:
        multiplexer, gate = self._multiplexer, self._gate
        if multiplexer is None or not is_worth_resuming(multiplexer, error):
            raise error
        try:
            self._transport = await resume(
                gate.open_transport, multiplexer, time.monotonic(), gate.why_gone
            )
        except CannotResume as why:
            raise TransportClosed(f"{error}; {why}") from why

    def _take(self, frame: Any) -> None:
        if self._multiplexer is None:
            for ticket, answer in self._single.receive(frame):
                if ticket == self._last_asked.get(self._index) or _is_fatal(answer):
                    self._trunks.answer(self._index, self._outcome(self._index, answer))
            return
        last_asked, note = self._last_asked, self._trunks.answer
        for session, number, reply in self._multiplexer.receive(frame):
            if type(reply) is Notice:
                self._heed(session, reply)
            elif session is None:
                pass
            elif number == last_asked.get(session) and type(reply) is ObservationReply:
                if not note(session, reply):
                    self._trunks.answer_late(session, last_asked[session], reply)
            elif type(reply) is ErrorReply and (number == 0 or reply.is_fatal):
                if number == 0:  # it was not opened, and may be asked for again
                    self._multiplexer.forget(session)
                if reply.is_fatal:
                    self._trunks.answer(session, self._outcome(session, reply))
            elif number is None:
                pass
            elif number == last_asked.get(session):
                self._answer(session, number, reply)
            else:
                self._trunks.answer_late(session, number, self._outcome(session, reply))

    def _heed(self, session: int | None, notice: Notice) -> None:
        assert self._multiplexer is not None
        if notice.kind == "queued" and session is not None:
            self._trunks.note_queue(session, Queued.of(notice))
        else:
            self._multiplexer.heed(notice)

    def _answer(self, index: int, number: int, reply: Reply | Notice) -> None:
        outcome = self._outcome(index, reply)
        if not self._trunks.answer(index, outcome):
            self._trunks.answer_late(index, number, outcome)

    def _outcome(self, index: int, reply: Reply | Notice) -> Outcome:
        if isinstance(reply, ErrorReply):
            error = server_error(reply.data)
            if reply.is_fatal:
                self._trunks.end_episode(index, f"the server ended the session ({error})")
                if self._multiplexer is not None:
                    self._multiplexer.forget(index)
                else:
                    self.is_closed, self._refusal = True, error
                    self._transport.abort()
            return error
        if isinstance(reply, ObservationReply | RenderReply):
            return reply
        return ProtocolError(f"the server answered with {type(reply).__name__}")

    def _end(self, why: str) -> None:
        if not self.is_closed:
            self.is_closed = True
            mine = [i for i, trunk in self._trunks._of.items() if trunk is self]
            self._trunks.lose(mine, why)

    async def close(self) -> None:
        """Close the connection, and with it its sessions."""
        self.is_closed = True
        self._listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listening
        try:
            with contextlib.suppress(TransportClosed, asyncio.TimeoutError):
                await within(CLOSE_LIMIT_S, self._transport.close())
        finally:
            self._transport.abort()
            await self._gate.leave()


def _raise_first(outcomes: Sequence[Any]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def _written(multiplexer: Multiplexer, requests: list[Request]) -> list[bytes]:
    """Write requests into as few frames as the server takes them in."""
    try:
        return [multiplexer.write(requests)]
    except TooLargeError:
        if len(requests) == 1:
            raise
    half = len(requests) // 2
    return _written(multiplexer, requests[:half]) + _written(multiplexer, requests[half:])


def _is_fatal(reply: Reply | Notice) -> bool:
    return type(reply) is ErrorReply and reply.is_fatal


class _NoConnection:
    """In place of a connection that there never was."""

    is_closed = True
    is_multiplexed = False

    def sent_for(self, index: int, request: Request) -> bytes | None:
        """Nothing was sent."""
        return None


_NO_TRUNK: Any = _NoConnection()
