"""`EnvPool`: sessions from a number of servers that is kept to what is wanted.

    pool = EnvPool(LocalDockerProvider("coding-env:latest"), client=CodingEnv, max_servers=16)
    with pool:
        with pool.lease() as env:
            env.reset()

All of it lives on the loop that the synchronous clients share, so that any thread and any event
loop may use one pool. The servers are watched, replaced where they fail, and more are started or
some ended as sessions are waited for or not: see `openenv.pool.control`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, cast

from typing_extensions import Self

from openenv._internal.bars import bar
from openenv._internal.timing import backoff_s
from openenv.client import background
from openenv.client.client import EnvClient
from openenv.client.connection import connect_transport
from openenv.client.generic import GenericEnvClient
from openenv.client.hybrid import Pending, launch
from openenv.client.internals import internals
from openenv.client.launch import Launch
from openenv.client.session_group import ServerEndpoint
from openenv.client.transports.base import Transport
from openenv.client.transports.websocket import (
    WebSocketOptions,
    WebSocketTransport,
    websocket_url,
)
from openenv.client.vector import SESSIONS_A_CONNECTION, VectorEnv
from openenv.errors import (
    OpenEnvError,
    ProviderError,
    ProviderExited,
    ProviderTimeout,
)
from openenv.pool._members import Given, Member, capacity_of, pack, probing, spread
from openenv.pool.control import LONGEST_RETRY_S, RETRY_S, Load, Scaler, Starts
from openenv.providers._readiness import is_healthy
from openenv.providers.servers import Server, ServerProvider
from openenv.settings import queue_timeout_s as queue_timeout_of_settings

__all__ = ["EnvPool", "PoolStats", "SyncEnvPool"]

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=EnvClient[Any, Any, Any])
T = TypeVar("T")

Source = str | ServerProvider
Progress = Callable[[int, int], object]

TICK_S = 0.25
SECOND_LOOK_S = 0.1
FAILED_CHECKS = 3  # in a row, before a server that says nothing is given up
HOPELESS = 3  # starts in a row that have failed, with no server left, before it is said
OPENED_AT_ONCE = 64


@dataclass(frozen=True)
class PoolStats:
    """How a pool stands.

    Attributes:
        servers: That are ready.
        starting: That are being started.
        resting: That get no new session, and end when theirs have ended.
        slots: Sessions that the ready ones take together.
        leased: Sessions that are leased.
        waiting: Sessions that are waited for.
        started: Servers that were started since the beginning.
        lost: Of those, how many failed.
        failed_starts: How many could not be started.
        leases: Sessions that were leased since the beginning.
    """

    servers: int
    starting: int
    resting: int
    slots: int
    leased: int
    waiting: int
    started: int
    lost: int
    failed_starts: int
    leases: int


class _Lease(Launch):
    """A place on a server of a pool, from a client's first use to its close."""

    def __init__(self, pool: _Pool, wait_s: float, lease_s: float | None) -> None:
        self._pool = pool
        self._wait_s = wait_s
        self._lease_s = lease_s
        self._process = os.getpid()
        self._expiry: asyncio.TimerHandle | None = None
        self.cut: Callable[[str], None] = lambda why: None  # ends what goes on there
        self.member: Member | None = None
        self.latest: Member | None = None  # also once it has been given back
        self.ended: str | None = None  # why it ended before it was given back

    @property
    def is_running(self) -> bool:
        member = self.member
        return member is not None and member.gone is None and self.ended is None

    @property
    def base_url(self) -> str | None:
        return None if self.member is None else self.member.server.url

    async def start(self) -> bool:
        """Have a place; a lost one is replaced by another, for `reset` to begin anew."""
        if self.is_running:
            return False
        await _elsewhere(self._pool.acquire(self), lambda: self._pool.release(self))
        return True

    async def stop(self) -> None:
        if self._process == os.getpid():
            await _elsewhere(self._pool.release(self))

    def exited(self) -> ProviderExited | None:
        member = self.member
        if member is None or member.gone is None:
            return None
        return ProviderExited(f"{member.server.name} is gone: {member.gone}", exit_code=None)

    async def has_another(self) -> bool:
        member = self.latest
        return member is not None and await _elsewhere(self._pool.is_lost(member))

    async def why_gone(self) -> str | None:
        if self.ended is not None:
            return self.ended
        if self.member is not None and self.member.gone is None:
            self._pool.suspect(self.member)  # its connection broke: look sooner
        exited = self.exited()
        return None if exited is None else str(exited)

    def locate(self, error: Any) -> None:
        """Nothing: the pool's servers have no log that is known here."""

    # ------------------------------------------------------------------ on the pool's loop

    def begin(self, member: Member) -> None:
        """Take a place on a server."""
        self.member = self.latest = member
        self.ended = None
        member.leases.add(self)
        member.served += 1
        if self._lease_s is not None:
            self._expiry = asyncio.get_running_loop().call_later(self._lease_s, self._expire)

    def end(self) -> Member | None:
        """Give it back; gives the server that it was on."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        member, self.member = self.member, None
        if member is not None:
            member.leases.discard(self)
        return member

    def _expire(self) -> None:
        self.ended = f"its lease of {self._lease_s:g} s is over"
        self.cut(self.ended)
        self._pool.take_back(self)


def _cutter(client: EnvClient[Any, Any, Any]) -> Callable[[str], None]:
    """What ends the episode of a client, from whichever thread, without keeping it alive."""
    reference = weakref.ref(client)

    def cut(why: str) -> None:
        alive = reference()
        if alive is not None:
            inside = internals(alive)
            with contextlib.suppress(RuntimeError):  # that loop has ended, and the session with it
                inside.loop.call_soon_threadsafe(_end_episode, inside.session, why)

    return cut


def _end_episode(session: Any, why: str) -> None:
    _keep(asyncio.ensure_future(session.end_episode(why)))


_kept: set[asyncio.Task[Any]] = set()


def _keep(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """Keep a task that nobody awaits from being collected."""
    _kept.add(task)
    task.add_done_callback(_kept.discard)
    return task


async def _all_but_the_last(tasks: list[asyncio.Task[None]]) -> None:
    """Wait for all tasks but the last, which goes on for ever, or until one has failed."""
    *wanted, watching = tasks
    try:
        waiting = set(wanted)
        while waiting:
            done, _ = await asyncio.wait(waiting | {watching}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            waiting -= done
    finally:
        watching.cancel()


async def _elsewhere(
    work: Coroutine[Any, Any, T], undo: Callable[[], Coroutine[Any, Any, Any]] | None = None
) -> T:
    """Do something on the pool's loop; where its caller is cancelled, take it back."""
    doing = background.submit(work)
    try:
        return await doing.awaited()
    except asyncio.CancelledError:
        if undo is not None:
            background.submit(undo())
        raise


class _MemberEndpoint:
    """One server of a pool, for some environments of a `VectorEnv`."""

    def __init__(self, provider: _PoolEndpoints, member: Member, leases: list[_Lease]) -> None:
        self._provider = provider
        self._member = member
        self._leases = leases
        self._open = 0
        self._transports: list[
            tuple[asyncio.AbstractEventLoop, weakref.ref[WebSocketTransport]]
        ] = []
        leases[0].cut = self._cut

    def _cut(self, why: str) -> None:
        for loop, reference in self._transports:
            transport = reference()
            if transport is not None:
                with contextlib.suppress(RuntimeError):  # that loop has ended
                    loop.call_soon_threadsafe(transport.abort)

    async def connect(self) -> Transport:
        try:
            transport = await connect_transport(self.open_transport())
        except BaseException:
            if not self._open:
                await _elsewhere(self._provider.pool.release_all(self._leases))
            raise
        self._open += 1
        return transport

    def open_transport(self) -> Transport:
        url = websocket_url(self._member.server.url)
        transport = WebSocketTransport(url, self._provider.options)
        self._transports.append((asyncio.get_running_loop(), weakref.ref(transport)))
        return transport

    async def why_gone(self) -> str | None:
        return await self._leases[0].why_gone()

    async def has_another(self) -> bool:
        return await _elsewhere(self._provider.pool.is_lost(self._member))

    async def leave(self) -> None:
        self._open -= 1
        if self._open <= 0:
            await _elsewhere(self._provider.pool.release_all(self._leases))


class _PoolEndpoints:
    """The servers of a pool, for the environments of a `VectorEnv`."""

    def __init__(self, pool: _Pool, plain: Any, options: WebSocketOptions, wait_s: float) -> None:
        self.pool = pool
        self.options = options
        self.opening: dict[str, Any] = plain.opening
        self.note_queue = plain.note_queue
        self._wait_s = wait_s

    async def endpoints(self, sessions: int, connections: int) -> list[tuple[ServerEndpoint, int]]:
        leases = [_Lease(self.pool, self._wait_s, None) for _ in range(sessions)]
        await _elsewhere(self.pool.acquire_all(leases), lambda: self.pool.release_all(leases))
        groups: dict[Member, list[_Lease]] = {}
        for lease in leases:
            assert lease.latest is not None
            groups.setdefault(lease.latest, []).append(lease)
        found: list[tuple[ServerEndpoint, int]] = []
        for member, held in groups.items():
            share = SESSIONS_A_CONNECTION if member.version else 1
            for i in range(0, len(held), share):
                part = held[i : i + share]
                found.append((_MemberEndpoint(self, member, part), len(part)))
        return found


def _leased(member: Member) -> int:
    return len(member.leases)


class _Waiter:
    """Somebody who waits for a place."""

    def __init__(self, lease: _Lease, future: asyncio.Future[None]) -> None:
        self.lease = lease
        self.future = future


class _Pool:
    """What an `EnvPool` is, on the shared loop."""

    def __init__(
        self,
        sources: Sequence[Source],
        scaler: Scaler,
        *,
        launch_options: Mapping[str, Any],
        sessions_per_server: int | None,
        leases_per_server: int | None,
        choose: Callable[[list[Member]], Member],
        check_every_s: float,
        ready_timeout_s: float,
        latency_s: float,
        api_key: str | None,
    ) -> None:
        self.providers = [one for one in sources if not isinstance(one, str)]
        self._urls = [one for one in sources if isinstance(one, str)]
        self._scaler = scaler
        self._launch_options = launch_options
        self._sessions_per_server = sessions_per_server
        self._leases_per_server = leases_per_server
        self._choose = choose
        self._check_every_s = check_every_s
        self._ready_timeout_s = ready_timeout_s
        self._latency_s = latency_s
        self._given_key = api_key
        self._probing = probing(ready_timeout_s)
        self.members: list[Member] = []
        self._waiting: deque[_Waiter] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._joining: set[asyncio.Task[None]] = set()  # of servers that others look after
        self._failed_ends: list[ProviderError] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._checks: dict[Member, asyncio.Task[None]] = {}
        self._starts = Starts()
        self._is_misused = False  # a start cannot succeed: there is no such option
        self._error: BaseException | None = None  # of the last start that failed
        self._control: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None
        self.is_closed = False
        self.started = self.lost = self.failed_starts = self.leases = 0

    # ------------------------------------------------------------------ its life

    async def open(self, progress: Progress | None) -> None:
        """Have as many servers ready as there always are.

        Raises:
            ProviderError: They could not be started; nothing is left.
        """
        if self.is_closed:
            raise ProviderError("the pool has been closed")
        if self._control is None:
            self._threads = concurrent.futures.ThreadPoolExecutor(32, "openenv-pool")
            self._control = _keep(asyncio.ensure_future(self._run()))
        wanted = self._scaler.lowest + len(self._urls)
        try:
            while (ready := len(self.members)) < wanted:
                if progress is not None:
                    progress(ready, wanted)
                if self._is_hopeless():
                    raise self._why_hopeless()
                await self._next_change()
            if progress is not None:
                progress(wanted, wanted)
        except BaseException:
            await asyncio.shield(self.close())
            raise

    async def _next_change(self) -> None:
        self._changed.clear()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), TICK_S)

    async def close(self) -> None:
        """End every server that it has started."""
        self.is_closed = True
        if self._control is not None:
            self._control.cancel()
        for waiter in self._waiting:
            if not waiter.future.done():
                waiter.future.set_exception(ProviderError("the pool has been closed"))
        self._waiting.clear()
        for task in [*self._starting, *self._joining, *self._checks.values()]:
            task.cancel()
        for member in list(self.members):
            self._lose(member, "the pool has been closed", is_failure=False)
        pending = [*self._starting, *self._ending]
        if pending:
            await asyncio.gather(*pending, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        if self._failed_ends:
            raise self._failed_ends[0]

    def stats(self) -> PoolStats:
        """How it stands."""
        ready = [one for one in self.members if not one.is_resting]
        return PoolStats(
            servers=len(ready),
            starting=len(self._starting),
            resting=len(self.members) - len(ready),
            slots=sum(one.window.size for one in ready),
            leased=sum(len(one.leases) for one in self.members),
            waiting=len(self._waiting),
            started=self.started,
            lost=self.lost,
            failed_starts=self.failed_starts,
            leases=self.leases,
        )

    # ------------------------------------------------------------------ leases

    async def acquire(self, lease: _Lease) -> None:
        """Wait for a place; first come, first served.

        Raises:
            ProviderTimeout: None came in time.
            ProviderError: None will come.
        """
        if self.is_closed:
            raise ProviderError("the pool has been closed")
        lease.end()
        if self._control is None:
            await self.open(None)
        future = asyncio.get_running_loop().create_future()
        waiter = _Waiter(lease, future)
        self._waiting.append(waiter)
        self._serve()
        self._changed.set()
        try:
            await asyncio.wait_for(future, lease._wait_s)
        except asyncio.TimeoutError:
            if lease.member is None:
                raise self._too_late(lease._wait_s) from None
        except BaseException:
            self.take_back(lease)
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def _too_late(self, waited_s: float) -> ProviderTimeout:
        now = self.stats()
        why = f"; the last one could not be started: {self._error}" if self._error else ""
        return ProviderTimeout(
            f"no session was free within {waited_s:g} s: {now.leased} of {now.slots} are leased on "
            f"{now.servers} servers (at most {self._scaler.highest + len(self._urls)}), and "
            f"{now.waiting} wait{why}"
        )

    async def acquire_all(self, leases: Sequence[_Lease]) -> None:
        """Wait for so many places; where one cannot be had, none is taken.

        Raises:
            ProviderTimeout: Not all came in time.
            ProviderError: They will not come.
        """
        acquiring = [asyncio.ensure_future(self.acquire(lease)) for lease in leases]
        acquiring.append(asyncio.ensure_future(self.watch_for(len(leases))))
        try:
            await _all_but_the_last(acquiring)
        except BaseException:
            for task in acquiring:
                task.cancel()
            await asyncio.gather(*acquiring, return_exceptions=True)
            await self.release_all(leases)
            raise

    async def release_all(self, leases: Sequence[_Lease]) -> None:
        """Give places back."""
        for lease in leases:
            self.take_back(lease)

    async def watch_for(self, n: int) -> None:
        """Raise once it is known that `n` sessions can never be had at once.

        Raises:
            ProviderError: There are as many servers as there may be, and they take fewer.
        """
        while True:
            now = self.stats()
            at_most = self._scaler.highest + len(self._urls)
            if now.servers >= at_most and now.slots < n:
                raise ProviderError(
                    f"{n} sessions were asked for, and the pool's {now.servers} servers, which are "
                    f"as many as it may have, take {now.slots} together; raise max_servers or "
                    "sessions_per_server"
                )
            await asyncio.sleep(TICK_S)

    async def release(self, lease: _Lease) -> None:
        """Give a place back; a lease that has none is nothing."""
        self.take_back(lease)

    def take_back(self, lease: _Lease) -> None:
        """Give a place to who waits next."""
        member = lease.end()
        if member is None:
            return
        self._put_to_rest(member)
        self._serve()
        self._changed.set()

    def _serve(self) -> None:
        """Give places to those who wait, in order."""
        while self._waiting:
            free = [one for one in self.members if one.room]
            if not free:
                return
            waiter = self._waiting.popleft()
            if waiter.future.done():
                continue
            member = self._choose(free)
            waiter.lease.begin(member)
            self.leases += 1
            if self._leases_per_server is not None and member.served >= self._leases_per_server:
                member.is_resting = member.is_spent = True
            waiter.future.set_result(None)

    # ------------------------------------------------------------------ servers

    async def _run(self) -> None:
        """Look after all of it, until it is closed."""
        for number, url in enumerate(self._urls):
            self._begin(self._join_given(url, -1 - number), self._joining)
        while True:
            try:
                self._look()
            except Exception:  # a pool that nobody looks after would wait for ever
                logger.exception("the pool could not be looked after just now")
            await self._next_change()

    def _look(self) -> None:
        now = time.monotonic()
        for member in self.members:
            if member not in self._checks and now >= member.check_at:
                task = _keep(asyncio.ensure_future(self._check(member)))
                self._checks[member] = task
                task.add_done_callback(partial(self._has_checked, member))
        self._scale(now)
        if self._waiting and self._is_hopeless():
            error = self._why_hopeless()
            for waiter in self._waiting:
                if not waiter.future.done():
                    waiter.future.set_exception(error)
            self._waiting.clear()
            self._starts.failures = 0

    def _has_checked(self, member: Member, _: object) -> None:
        self._checks.pop(member, None)

    def _scale(self, now: float) -> None:
        if not self.providers:
            return
        own = [one for one in self.members if one.source >= 0 and not one.is_resting]
        spent = sum(one.source >= 0 and one.is_spent for one in self.members)
        load = Load(
            leased=sum(len(one.leases) for one in own),
            waiting=len(self._waiting),
            servers=len(own),
            slots=sum(one.window.size for one in own),
            starting=len(self._starting),
        )
        wanted = min(self._scaler.wanted(load, now), self._scaler.highest - spent)
        there = load.servers + load.starting
        if wanted > there:
            there += self._recall(wanted - there)
        for _ in range(min(wanted - there, self._starts.allowed(len(self._starting), now))):
            number = self._next_source()
            self._begin(self._start(self.providers[number], number), self._starting)
        # Those with the least to do get nothing new, and end when what they have has ended.
        for member in sorted(own, key=_leased)[: max(there - wanted, 0)]:
            member.is_resting = True
            self._put_to_rest(member)

    def _recall(self, count: int) -> int:
        """Have servers go on that were put to rest for want of use; gives how many there were."""
        resting = [one for one in self.members if one.is_resting and not one.is_spent]
        recalled = sorted(resting, key=_leased, reverse=True)[:count]
        for member in recalled:
            member.is_resting = False
        if recalled:
            self._serve()
        return len(recalled)

    def _next_source(self) -> int:
        counts = [0] * len(self.providers)
        for member in self.members:
            if member.source >= 0:
                counts[member.source] += 1
        return (counts.index(min(counts)) + self.started + len(self._starting)) % len(counts)

    def _begin(self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]]) -> None:
        task = asyncio.ensure_future(work)
        among.add(task)
        task.add_done_callback(among.discard)
        task.add_done_callback(lambda _: self._changed.set())

    async def _start(self, provider: ServerProvider, number: int) -> None:
        began = time.monotonic()
        try:
            server = await provider.launch_async(**self._launch_options)
            try:
                await server.wait_for_ready_async(self._ready_timeout_s)
                member = await self._met(server, number)
            except BaseException:
                await asyncio.shield(server.stop_async())
                raise
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._note_failed_start(error)
            return
        now = time.monotonic()
        self._starts.succeeded(now - began, now)
        self._error = None
        self.started += 1
        self._join(member)

    def _note_failed_start(self, error: Exception) -> None:
        self.failed_starts += 1
        self._error = error
        self._starts.failed(time.monotonic())
        self._is_misused = not isinstance(error, OpenEnvError)
        logger.warning("a server of the pool could not be started: %s", error)

    async def _met(self, server: Server, source: int) -> Member:
        """A server as a member, once it has said what it takes."""
        told, version = await capacity_of(server, self._probing)
        limits = [one for one in (told, self._sessions_per_server) if one is not None]
        return Member(server, min(limits, default=1), source, version)

    async def _join_given(self, url: str, number: int) -> None:
        """Have a server that others have started take part, as soon as it answers."""
        server, failures = Given(url, self._given_key), 0
        while (member := await self._met_if_there(server, number)) is None:
            failures += 1
            await asyncio.sleep(backoff_s(failures, RETRY_S, LONGEST_RETRY_S))
        self._join(member)

    async def _met_if_there(self, server: Server, number: int) -> Member | None:
        try:
            return await self._met(server, number)
        except (OpenEnvError, OSError) as error:
            self._error = error
            logger.warning("%s does not answer: %s", server.url, error)
            return None

    def _join(self, member: Member) -> None:
        # From here on it is a server; counted as one that starts, too, it would be one too many.
        self._starting.discard(cast("asyncio.Task[None]", asyncio.current_task()))
        member.check_at = time.monotonic() + self._check_every_s
        self.members.append(member)
        self._serve()
        self._changed.set()

    # ------------------------------------------------------------------ how they are

    def suspect(self, member: Member) -> None:
        """Look after a server now: a connection to it has broken. From any thread."""

        def now() -> None:
            member.check_at = 0.0
            self._changed.set()

        with contextlib.suppress(RuntimeError):  # the program is about to end
            background.background_loop().call_soon_threadsafe(now)

    async def is_lost(self, member: Member) -> bool:
        """Look now whether a server is there, which somebody could not reach."""
        for _ in range(FAILED_CHECKS):
            if member.gone is None:
                await self._check(member)
            if member.gone is not None or not member.failures:
                break
            await asyncio.sleep(SECOND_LOOK_S)
        return member.gone is not None

    async def _check(self, member: Member) -> None:
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        try:
            await loop.run_in_executor(self._threads, member.server.check_running)
            healthy = await loop.run_in_executor(
                self._threads, is_healthy, member.server.url, max(self._check_every_s, 1.0)
            )
        except ProviderError as error:
            self._lose(member, str(error))
            return
        finally:
            member.check_at = time.monotonic() + self._check_every_s
        if healthy:
            now = time.monotonic()
            member.note(now - began, self._latency_s, now)
            self._serve()
            return
        member.failures += 1
        member.check_at = time.monotonic() + min(self._check_every_s, 1.0)
        if member.failures >= FAILED_CHECKS:
            self._lose(member, f"it does not answer at {member.server.url}/health")

    def _lose(self, member: Member, why: str, *, is_failure: bool = True) -> None:
        """Give a server up, with all that is leased on it."""
        if member not in self.members:
            return
        member.gone = why
        self.members.remove(member)
        if is_failure:
            self.lost += 1
            logger.warning(
                "%s of the pool is lost, with %d sessions: %s",
                member.server.name,
                len(member.leases),
                why,
            )
        for lease in list(member.leases):  # a connection to it may not break for a minute
            lease.cut(f"{member.server.name} is gone: {why}")
        self._end(member)
        if member.source < 0 and not self.is_closed:  # it may come back
            self._begin(self._join_given(member.server.url, member.source), self._joining)
        self._changed.set()

    def _put_to_rest(self, member: Member) -> None:
        """End a server that shall get nothing more, and has nothing more."""
        if member.is_resting and not member.leases and member in self.members:
            self.members.remove(member)
            member.gone = "the pool had no more use for it"
            self._end(member)

    def _end(self, member: Member) -> None:
        task = _keep(asyncio.ensure_future(self._stop(member.server)))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _stop(self, server: Server) -> None:
        try:
            await server.stop_async()
        except ProviderError as error:
            logger.warning("%s of the pool could not be ended: %s", server.name, error)
            if self.is_closed:
                self._failed_ends.append(error)

    def _is_hopeless(self) -> bool:
        return (
            (self._starts.failures >= HOPELESS or self._is_misused)
            and not self.members
            and not self._urls
            and not self._starting
        )

    def _why_hopeless(self) -> ProviderError:
        if self._error is not None and not isinstance(self._error, OpenEnvError):
            return cast(ProviderError, self._error)
        return ProviderError(f"no server of the pool could be started: {self._error}")


class EnvPool(Generic[C]):
    """Sessions from many servers, on whatever provider, as they are wanted.

        provider = LocalDockerProvider("coding-env:latest")
        async with EnvPool(provider, client=CodingEnv, min_servers=4, max_servers=64) as pool:
            envs = await pool.lease_many(512)
            ...

    A lease is a client: it gets its place on first use, in the order in which places are asked
    for, and gives it back when it is closed. One whose server is lost says so, by `SessionLost`,
    and its `reset` begins anew on another server.

    Args:
        sources: A provider, the address of a server that others look after, or several of either.
        client: The client class.
        image: What the provider runs, where it was not made for it.
        launch_options: Of `ServerProvider.launch`, such as ``env_vars``.
        min_servers: Servers that are always ready.
        max_servers: Servers that there are at most; by default as many as `min_servers`, and one
            at least. Given addresses do not count.
        sessions_per_server: Sessions that a server gets at most; by default what it says that it
            takes, which is 1 for a server of protocol version 0.
        leases_per_server: Leases after which a server is replaced: 1 for a fresh one each time.
            None replaces none.
        spare: Sessions that are kept free for whoever comes next.
        placement: ``spread`` new sessions over the servers, or ``pack`` few of them full.
        lease_s: Seconds after which a lease ends; None for no limit.
        wait_s: Seconds to wait for a place; by default OPENENV_QUEUE_TIMEOUT_S, else 150.
        check_every_s: Seconds between two looks at each server.
        ready_timeout_s: Seconds that a server may take to get ready.
        latency_s: A server that takes longer to answer ``/health`` gets fewer sessions.
        idle_s: Seconds after which servers that nobody needs are ended, half of them each time.
        progress: True for a bar; or called with how many servers are ready, and of how many.
        api_key: The key of given servers; by default that of OPENENV_API_KEY.
        **client_options: Of each client, such as `message_timeout_s`.

    Raises:
        ValueError: A number means nothing, or there is no source.
    """

    def __init__(
        self,
        sources: Source | Sequence[Source],
        client: type[C] = GenericEnvClient,  # type: ignore[assignment]
        *,
        image: str | None = None,
        launch_options: Mapping[str, Any] | None = None,
        min_servers: int = 1,
        max_servers: int | None = None,
        sessions_per_server: int | None = None,
        leases_per_server: int | None = None,
        spare: int = 0,
        placement: Literal["spread", "pack"] = "spread",
        lease_s: float | None = None,
        wait_s: float | None = None,
        check_every_s: float = 2.0,
        ready_timeout_s: float = 120.0,
        latency_s: float = 0.5,
        idle_s: float = 60.0,
        progress: Progress | bool = False,
        api_key: str | None = None,
        **client_options: Any,
    ) -> None:
        one = isinstance(sources, str) or not isinstance(sources, Sequence)
        self._sources: list[Source] = [cast(Source, sources)] if one else list(sources)  # type: ignore[arg-type]
        if not self._sources:
            raise ValueError("a pool needs a provider, or the address of a server")
        own = any(not isinstance(source, str) for source in self._sources)
        lowest = min_servers if own else 0
        highest = (max_servers or max(lowest, 1)) if own else 0
        for name, value in (
            ("max_servers", max_servers),
            ("sessions_per_server", sessions_per_server),
            ("leases_per_server", leases_per_server),
        ):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value!r}; it must be at least 1")
        if min_servers < 0 or spare < 0:
            raise ValueError("min_servers and spare must be at least 0")
        if highest < lowest:
            raise ValueError(f"max_servers is {max_servers}, which is below min_servers, {lowest}")
        if placement not in _PLACEMENTS:
            raise ValueError(f"placement is {placement!r}; expected 'spread' or 'pack'")
        options = dict(launch_options or {})
        if image is not None:
            options["image"] = image
        self._client = client
        self._client_options = client_options
        self._lease_s = lease_s
        self._wait_s = queue_timeout_of_settings() if wait_s is None else wait_s
        self._progress = progress

        def make() -> _Pool:
            scaler = Scaler(
                lowest,
                highest,
                spare=spare,
                sessions_per_server=sessions_per_server or 1,
                idle_s=idle_s,
            )
            return _Pool(
                self._sources,
                scaler,
                launch_options=options,
                sessions_per_server=sessions_per_server,
                leases_per_server=leases_per_server,
                choose=_PLACEMENTS[placement],
                check_every_s=check_every_s,
                ready_timeout_s=ready_timeout_s,
                latency_s=latency_s,
                api_key=api_key,
            )

        self._make = make
        self._own: _Pool | None = None
        self._process = os.getpid()
        self._turn = threading.Lock()

    @property
    def _pool(self) -> _Pool:
        with self._turn:
            if self._process != os.getpid():
                raise ProviderError("this process was forked, and the pool is its parent's")
            if self._own is None:
                self._own = self._make()
            return self._own

    # ------------------------------------------------------------------ its life

    def start(self) -> Pending[Self]:
        """Have `min_servers` ready; otherwise that happens on first use.

        Raises:
            ProviderError: They could not be started; nothing is left.
        """
        return cast("Pending[Self]", self._answer(self._start()))

    def close(self) -> Pending[None]:
        """End all leases, and every server that was started. Safe to repeat.

        Raises:
            ProviderError: A server could not be ended; the others are.
        """
        return cast("Pending[None]", self._answer(self._close()))

    async def _start(self) -> Self:
        with _shown(self._progress, "servers") as progress:
            await self._pool.open(progress)
        return self

    async def _close(self) -> None:
        if self._own is not None and self._process == os.getpid():
            await asyncio.shield(_keep(asyncio.ensure_future(self._own.close())))

    def _answer(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        answer = launch(coroutine, None, block=False)
        source: Any = answer
        is_source = asyncio.iscoroutine(answer) or isinstance(answer, concurrent.futures.Future)
        return Pending(source) if is_source else answer

    def sync(self) -> SyncEnvPool[C]:
        """The same pool with plain blocking methods."""
        return SyncEnvPool(self)

    def __enter__(self) -> SyncEnvPool[C]:
        background.run(self._start())
        return SyncEnvPool(self)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        background.run(self._close())

    async def __aenter__(self) -> Self:
        await _elsewhere(self._start(), self._close)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.shield(asyncio.ensure_future(_elsewhere(self._close())))

    # ------------------------------------------------------------------ leases

    def lease(self, *, lease_s: float | None = None, wait_s: float | None = None) -> C:
        """A client with a place in the pool, from its first use to its `close`.

        Args:
            lease_s: Seconds after which it ends; by default the pool's.
            wait_s: Seconds to wait for a place; by default the pool's.

        Its first call raises:
            ProviderTimeout: No place was free in time.
            ProviderError: There is no server, and none can be started.
        """
        place = _Lease(
            self._pool,
            self._wait_s if wait_s is None else wait_s,
            self._lease_s if lease_s is None else lease_s,
        )
        client = self._client._launched(place, **self._client_options)
        place.cut = _cutter(client)
        weakref.finalize(client, _drop, place).atexit = False
        return client

    def lease_many(
        self,
        n: int,
        *,
        lease_s: float | None = None,
        wait_s: float | None = None,
        progress: Progress | bool | None = None,
    ) -> Pending[list[C]]:
        """So many clients, connected; where one cannot be had, none is left.

        Args:
            n: How many.
            lease_s: Seconds after which each ends; by default the pool's.
            wait_s: Seconds to wait for all; by default the pool's.
            progress: True for a bar; or called with how many there are, and of how many. By
                default what the pool does.

        Raises:
            ProviderTimeout: Not all were free in time.
            ProviderError: There is no server, and none can be started.
        """
        shown = self._progress is True if progress is None else progress
        return cast("Pending[list[C]]", self._answer(self._lease_many(n, lease_s, wait_s, shown)))

    async def _lease_many(
        self, n: int, lease_s: float | None, wait_s: float | None, shown: Progress | bool
    ) -> list[C]:
        clients = [self.lease(lease_s=lease_s, wait_s=wait_s) for _ in range(n)]
        limit, there = asyncio.Semaphore(OPENED_AT_ONCE), 0

        async def connect(client: C, progress: Progress | None) -> None:
            nonlocal there
            lease = cast(Launch, internals(client).launch)
            await lease.start()
            async with limit:
                await internals(client).connect()
            there += 1
            if progress is not None:
                progress(there, n)

        with _shown(shown, "sessions") as progress:
            connecting = [asyncio.ensure_future(connect(one, progress)) for one in clients]
            connecting.append(asyncio.ensure_future(self._pool.watch_for(n)))
            try:
                await _all_but_the_last(connecting)
            except BaseException:
                for task in connecting:
                    task.cancel()
                await asyncio.gather(*connecting, return_exceptions=True)
                await asyncio.gather(*(internals(one).close() for one in clients))
                raise
        return clients

    def vector(self, num_envs: int, *, wait_s: float | None = None, **options: Any) -> VectorEnv:
        """Many environments, on as many of the servers as it takes, stepped together.

        It has its places from its first reset to its close. Of environments whose server is lost
        the calls raise, and the next reset of them has others.

        Args:
            num_envs: How many.
            wait_s: Seconds to wait for places; by default the pool's.
            **options: Of `VectorEnv`, such as `autoreset_mode`.
        """
        given = {"client": self._client, **options}
        envs = VectorEnv("http://pool.invalid", num_envs, **given)
        wait = self._wait_s if wait_s is None else wait_s
        envs.connect_by(lambda plain, options: _PoolEndpoints(self._pool, plain, options, wait))
        return envs

    def stats(self) -> PoolStats:
        """How it stands, from any thread."""

        async def read() -> PoolStats:
            return self._pool.stats()

        if background.running_loop() is background.background_loop():
            return self._pool.stats()
        return background.submit(read()).result()


class SyncEnvPool(Generic[C]):
    """An `EnvPool` with plain blocking methods; what ``with`` gives."""

    def __init__(self, pool: EnvPool[C]) -> None:
        self._pool = pool

    def start(self) -> Self:
        """See `EnvPool.start`."""
        background.run(self._pool._start())
        return self

    def lease(self, *, lease_s: float | None = None, wait_s: float | None = None) -> C:
        """See `EnvPool.lease`."""
        return self._pool.lease(lease_s=lease_s, wait_s=wait_s)

    def lease_many(
        self,
        n: int,
        *,
        lease_s: float | None = None,
        wait_s: float | None = None,
        progress: Progress | bool | None = None,
    ) -> list[C]:
        """See `EnvPool.lease_many`."""
        shown = self._pool._progress is True if progress is None else progress
        return background.run(self._pool._lease_many(n, lease_s, wait_s, shown))

    def vector(self, num_envs: int, *, wait_s: float | None = None, **options: Any) -> VectorEnv:
        """See `EnvPool.vector`."""
        return self._pool.vector(num_envs, wait_s=wait_s, **options)

    def stats(self) -> PoolStats:
        """See `EnvPool.stats`."""
        return self._pool.stats()

    def close(self) -> None:
        """See `EnvPool.close`."""
        background.run(self._pool._close())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


_PLACEMENTS = {"spread": spread, "pack": pack}


def _drop(lease: _Lease) -> None:
    """Give back the place of a client that nobody holds any more, from whichever thread."""
    if lease.member is not None and lease._process == os.getpid():
        with contextlib.suppress(RuntimeError):  # the program is about to end
            background.background_loop().call_soon_threadsafe(lease._pool.take_back, lease)


@contextlib.contextmanager
def _shown(progress: Progress | bool, what: str) -> Any:
    """What is told how far it has come; None for nobody."""
    if progress is not True:
        yield progress or None
        return
    with bar(what) as tell:
        yield lambda done, total: tell(done, total, f"{done:,} of {total:,}")
