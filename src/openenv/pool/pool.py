"""`EnvPool`: sessions on a number of servers that follows demand.

    pool = EnvPool(LocalDockerProvider("coding-env:latest"), client=CodingEnv, max_servers=16)
    with pool:
        with pool.lease() as env:
            env.reset()

A pool runs on the event loop that the synchronous clients share, so any thread and any event loop
can use it. It monitors the servers, replaces failed servers, and starts and ends servers as
`openenv.pool.control` decides.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, TypeVar, cast

from typing_extensions import Self, Unpack

from openenv._internal.bars import bar
from openenv._internal.timing import backoff_s
from openenv.client import background
from openenv.client.client import EnvClient
from openenv.client.connection import connect_transport
from openenv.client.generic import GenericEnvClient
from openenv.client.hybrid import Pending, launch
from openenv.client.internals import internals
from openenv.client.launch import Launch
from openenv.client.options import VectorOptions
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
from openenv.pool._members import Chooser, GivenServer, Member, capacity_of, pack, spread
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
FAILED_CHECKS = 3  # after this many failed checks in a row, a silent server is given up
HOPELESS = 3  # after this many failed starts in a row, and no server, clients get an error
OPENED_AT_ONCE = 64


@dataclass(frozen=True)
class PoolStats:
    """The state of a pool.

    Attributes:
        servers: Number of ready servers.
        starting: Number of servers that are being started.
        resting: Number of servers that get no new session, and end with their last one.
        slots: Number of sessions that the ready servers can hold.
        leased: Number of leased sessions.
        waiting: Number of sessions that clients wait for.
        started: Number of servers started so far.
        lost: Number of servers that failed so far.
        failed_starts: Number of starts that failed so far.
        leases: Number of sessions leased so far.
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


class _PoolLease(Launch):
    """A session on a server of a pool, from a client's first use until its close."""

    def __init__(self, pool: _PoolController, wait_s: float, lease_s: float | None) -> None:
        self._pool = pool
        self._lease_s = lease_s
        self._process = os.getpid()
        self._expiry: asyncio.TimerHandle | None = None
        self.wait_s = wait_s
        self.cut: Callable[[str], None] = lambda why: None  # ends the client's episode
        self.granted: asyncio.Future[None] | None = None  # while the lease waits for a server
        self.member: Member | None = None
        self.latest: Member | None = None  # `member`, kept after the lease was returned
        self.ended: str | None = None  # why the lease ended early, before the client returned it

    @property
    def is_running(self) -> bool:
        member = self.member
        return member is not None and member.gone is None and self.ended is None

    @property
    def base_url(self) -> str | None:
        return None if self.member is None else self.member.server.url

    async def start(self) -> bool:
        """Get a session, or replace a lost session, so that `reset` can start over."""
        if self.is_running:
            return False
        await _on_pool_loop(self._pool.acquire(self), lambda: self._pool.release_all([self]))
        return True

    async def stop(self) -> None:
        if self._process == os.getpid():
            await _on_pool_loop(self._pool.release_all([self]))

    def exited(self) -> ProviderExited | None:
        member = self.member
        if member is None or member.gone is None:
            return None
        return ProviderExited(f"{member.server.name} is gone: {member.gone}", exit_code=None)

    async def has_another(self) -> bool:
        member = self.latest
        return member is not None and await _on_pool_loop(self._pool.is_lost(member))

    async def why_gone(self) -> str | None:
        if self.ended is not None:
            return self.ended
        if self.member is not None and self.member.gone is None:
            self._pool.suspect(self.member)  # the connection broke: check sooner
        exited = self.exited()
        return None if exited is None else str(exited)

    def locate(self, error: Any) -> None:
        """Do nothing: the logs of the pool's servers are not known here."""

    # ------------------------------------------------------------------ on the pool's loop

    def begin(self, member: Member) -> None:
        """Take a session on a server."""
        self.member = self.latest = member
        self.ended = None
        member.leases.add(self)
        member.served += 1
        if self._lease_s is not None:
            self._expiry = asyncio.get_running_loop().call_later(self._lease_s, self._expire)

    def end(self) -> Member | None:
        """Give up the session, and return its server; None if there is no session."""
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
    """Return a function that ends a client's episode from any thread, by a weak reference."""
    reference = weakref.ref(client)

    def cut(why: str) -> None:
        alive = reference()
        if alive is not None:
            inside = internals(alive)
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the session
                inside.loop.call_soon_threadsafe(_end_episode, inside.session, why)

    return cut


def _end_episode(session: Any, why: str) -> None:
    _keep(asyncio.ensure_future(session.end_episode(why)))


_kept: set[asyncio.Task[Any]] = set()


def _keep(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """Keep a strong reference to a task that nothing awaits."""
    _kept.add(task)
    task.add_done_callback(_kept.discard)
    return task


async def _all_unless(
    watch: Coroutine[Any, Any, None], works: Iterable[Coroutine[Any, Any, None]]
) -> None:
    """Run all of `works`. If any of them, or the endless `watch`, fails, cancel all."""
    tasks = [asyncio.ensure_future(work) for work in works]
    watching = asyncio.ensure_future(watch)
    waiting = set(tasks)
    try:
        while waiting:
            done, _ = await asyncio.wait({*waiting, watching}, return_when="FIRST_COMPLETED")
            for task in done:
                task.result()
            waiting -= done
    finally:
        for task in (*tasks, watching):
            task.cancel()
        await asyncio.gather(*tasks, watching, return_exceptions=True)


async def _on_pool_loop(
    work: Coroutine[Any, Any, T], undo: Callable[[], Coroutine[Any, Any, Any]] | None = None
) -> T:
    """Await `work` on the pool's loop; call `undo` if the caller is cancelled."""
    doing = background.submit(work)
    try:
        return await doing.awaited()
    except asyncio.CancelledError:
        if undo is not None:
            background.submit(undo())
        raise


class _MemberEndpoint:
    """A server of a pool, as an endpoint of some environments of a `VectorEnv`."""

    def __init__(self, provider: _PoolEndpoints, member: Member, leases: list[_PoolLease]) -> None:
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
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(transport.abort)

    async def connect(self) -> Transport:
        try:
            transport = await connect_transport(self.open_transport())
        except BaseException:
            if not self._open:
                await _on_pool_loop(self._provider.pool.release_all(self._leases))
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
        return await _on_pool_loop(self._provider.pool.is_lost(self._member))

    async def leave(self) -> None:
        self._open -= 1
        if self._open <= 0:
            await _on_pool_loop(self._provider.pool.release_all(self._leases))


class _PoolEndpoints:
    """The endpoints that a pool provides to the environments of a `VectorEnv`."""

    def __init__(
        self, pool: _PoolController, plain: Any, options: WebSocketOptions, wait_s: float
    ) -> None:
        self.pool = pool
        self.options = options
        self.opening: dict[str, Any] = plain.opening
        self.note_queue = plain.note_queue
        self._wait_s = wait_s

    async def endpoints(self, sessions: int, connections: int) -> list[tuple[ServerEndpoint, int]]:
        leases = [_PoolLease(self.pool, self._wait_s, None) for _ in range(sessions)]
        await _on_pool_loop(self.pool.acquire_all(leases), lambda: self.pool.release_all(leases))
        groups: dict[Member, list[_PoolLease]] = {}
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


@dataclass(eq=False)
class _PoolController:
    """The leases and servers of an `EnvPool`, on the shared event loop; options as in `EnvPool`."""

    sources: Sequence[Source]
    scaler: Scaler
    launch_options: Mapping[str, Any]
    sessions_per_server: int | None
    leases_per_server: int | None
    choose: Chooser
    check_every_s: float
    ready_timeout_s: float
    latency_s: float
    api_key: str | None
    members: list[Member] = field(default_factory=list)
    is_closed: bool = False
    started: int = 0
    lost: int = 0
    failed_starts: int = 0
    leases: int = 0
    _error: BaseException | None = None  # the error of the last failed start
    _is_misused: bool = False  # whether no start can succeed, since an option is unknown
    _control: asyncio.Task[None] | None = None
    _threads: concurrent.futures.ThreadPoolExecutor | None = None

    def __post_init__(self) -> None:
        self.providers = [one for one in self.sources if not isinstance(one, str)]
        self._urls = [one for one in self.sources if isinstance(one, str)]
        self._at_most = self.scaler.highest + len(self._urls)
        self._waiting: deque[_PoolLease] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._joining: set[asyncio.Task[None]] = set()  # adds servers that were given by address
        self._ending: set[asyncio.Task[None]] = set()
        self._failed_ends: list[ProviderError] = []
        self._checks: dict[Member, asyncio.Task[None]] = {}
        self._starts = Starts()
        self._changed = asyncio.Event()

    # ------------------------------------------------------------------ life cycle

    async def open(self, progress: Progress | None) -> None:
        """Wait until the minimum number of servers is ready.

        Raises:
            ProviderError: The servers could not be started; nothing is left running.
        """
        if self.is_closed:
            raise ProviderError("the pool has been closed")
        if self._control is None:
            self._threads = concurrent.futures.ThreadPoolExecutor(32, "openenv-pool")
            self._control = _keep(asyncio.ensure_future(self._run()))
        wanted = self.scaler.lowest + len(self._urls)
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
        """End every server that the pool has started; a pool that was never used stays usable."""
        if self._control is None:
            return
        self.is_closed = True
        self._control.cancel()
        self._refuse_waiting(ProviderError("the pool has been closed"))
        for task in [*self._starting, *self._joining, *self._checks.values()]:
            task.cancel()
        for member in list(self.members):
            self._lose(member, "the pool has been closed", is_failure=False)
        await asyncio.gather(*self._starting, *self._ending, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        if self._failed_ends:
            raise self._failed_ends[0]

    def _refuse_waiting(self, error: ProviderError) -> None:
        for lease in self._waiting:
            if lease.granted is not None and not lease.granted.done():
                lease.granted.set_exception(error)
        self._waiting.clear()

    def stats(self) -> PoolStats:
        ready = [one for one in self.members if not one.is_resting]
        return PoolStats(
            servers=len(ready),
            starting=len(self._starting),
            resting=len(self.members) - len(ready),
            slots=sum(one.window.size for one in ready),
            leased=sum(map(_leased, self.members)),
            waiting=len(self._waiting),
            started=self.started,
            lost=self.lost,
            failed_starts=self.failed_starts,
            leases=self.leases,
        )

    # ------------------------------------------------------------------ leases

    async def acquire(self, lease: _PoolLease) -> None:
        """Wait for a session; first come, first served.

        Raises:
            ProviderTimeout: No session became free within the lease's `wait_s` seconds.
            ProviderError: No session will become free.
        """
        if self.is_closed:
            raise ProviderError("the pool has been closed")
        lease.end()
        if self._control is None:
            await self.open(None)
        lease.granted = asyncio.get_running_loop().create_future()
        self._waiting.append(lease)
        self._serve()
        self._changed.set()
        try:
            await asyncio.wait_for(lease.granted, lease.wait_s)
        except asyncio.TimeoutError:
            if lease.member is None:
                raise self._too_late(lease.wait_s) from None
        except BaseException:
            self.take_back(lease)
            raise
        finally:
            if lease in self._waiting:
                self._waiting.remove(lease)

    def _too_late(self, waited_s: float) -> ProviderTimeout:
        now = self.stats()
        why = f"; the last one could not be started: {self._error}" if self._error else ""
        return ProviderTimeout(
            f"no session was free within {waited_s:g} s: {now.leased} of {now.slots} are leased on "
            f"{now.servers} servers (at most {self._at_most}), and {now.waiting} wait{why}"
        )

    async def acquire_all(self, leases: Sequence[_PoolLease]) -> None:
        """Wait for several sessions; take all of them or none.

        Raises:
            ProviderTimeout: Not all sessions became free in time.
            ProviderError: The pool can never hold all of them at once.
        """
        try:
            await _all_unless(self.watch_for(len(leases)), map(self.acquire, leases))
        except BaseException:
            await self.release_all(leases)
            raise

    async def release_all(self, leases: Sequence[_PoolLease]) -> None:
        """Return sessions. Leases without a session are ignored."""
        for lease in leases:
            self.take_back(lease)

    async def watch_for(self, n: int) -> None:
        """Raise an error once `n` sessions can never be leased together.

        Raises:
            ProviderError: The pool has all its servers, and they hold fewer than `n` sessions.
        """
        while True:
            now = self.stats()
            if now.servers >= self._at_most and now.slots < n:
                raise ProviderError(
                    f"{n} sessions were asked for, and the pool's {now.servers} servers, which are "
                    f"as many as it may have, take {now.slots} together; raise max_servers or "
                    "sessions_per_server"
                )
            await asyncio.sleep(TICK_S)

    def take_back(self, lease: _PoolLease) -> None:
        """End a lease, and give its session to the next waiting lease."""
        member = lease.end()
        if member is None:
            return
        self._end_if_unused(member)
        self._serve()
        self._changed.set()

    def _serve(self) -> None:
        """Give free sessions to the waiting leases, in the order of requests."""
        while self._waiting:
            free = [one for one in self.members if one.room]
            if not free:
                return
            lease = self._waiting.popleft()
            if lease.granted is None or lease.granted.done():
                continue
            member = self.choose(free)
            lease.begin(member)
            self.leases += 1
            if self.leases_per_server is not None and member.served >= self.leases_per_server:
                member.is_resting = member.is_spent = True
            lease.granted.set_result(None)

    # ------------------------------------------------------------------ servers

    async def _run(self) -> None:
        """Check and scale the servers until the pool is closed."""
        for number, url in enumerate(self._urls):
            self._begin(self._join_given(url, -1 - number), self._joining)
        while True:
            try:
                self._look()
            except Exception:  # without this loop, clients would wait forever
                logger.exception("the pool could not check and scale its servers just now")
            await self._next_change()

    def _look(self) -> None:
        now = time.monotonic()
        for member in self.members:
            if member not in self._checks and now >= member.check_at:
                task = _keep(asyncio.ensure_future(self._check(member)))
                self._checks[member] = task
                task.add_done_callback(partial(self._checks.pop, member))
        self._scale(now)
        if self._waiting and self._is_hopeless():
            self._refuse_waiting(self._why_hopeless())
            self._starts.failures = 0

    def _scale(self, now: float) -> None:
        if not self.providers:
            return
        own = [one for one in self.members if one.source >= 0 and not one.is_resting]
        spent = sum(one.source >= 0 and one.is_spent for one in self.members)
        load = Load(
            leased=sum(map(_leased, own)),
            waiting=len(self._waiting),
            servers=len(own),
            slots=sum(one.window.size for one in own),
            starting=len(self._starting),
        )
        wanted = min(self.scaler.wanted(load, now), self.scaler.highest - spent)
        there = load.servers + load.starting
        if wanted > there:
            there += self._recall(wanted - there)
        for _ in range(min(wanted - there, self._starts.allowed(len(self._starting), now))):
            number = self._next_source()
            self._begin(self._start(self.providers[number], number), self._starting)
        # Servers with the fewest leases get no new ones, and end with their last lease.
        for member in sorted(own, key=_leased)[: max(there - wanted, 0)]:
            member.is_resting = True
            self._end_if_unused(member)

    def _recall(self, count: int) -> int:
        """Let up to `count` resting servers take sessions again; return how many there were."""
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
            server = await provider.launch_async(**self.launch_options)
            try:
                await server.wait_for_ready_async(self.ready_timeout_s)
                member = await self._met(server, number)
            except BaseException:
                await asyncio.shield(server.stop_async())
                raise
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.failed_starts += 1
            self._error = error
            self._starts.failed(time.monotonic())
            self._is_misused = not isinstance(error, OpenEnvError)
            logger.warning("a server of the pool could not be started: %s", error)
            return
        now = time.monotonic()
        self._starts.succeeded(now - began, now)
        self._error = None
        self.started += 1
        self._join(member)

    async def _met(self, server: Server, source: int) -> Member:
        """Ask a server for its capacity, and return the server as a member."""
        told, version = await capacity_of(server, self.ready_timeout_s)
        limits = [one for one in (told, self.sessions_per_server) if one is not None]
        return Member(server, min(limits, default=1), source, version)

    async def _join_given(self, url: str, number: int) -> None:
        """Add a server that was given by its address, once it answers."""
        server, failures = GivenServer(url, self.api_key), 0
        while True:
            try:
                member = await self._met(server, number)
                break
            except (OpenEnvError, OSError) as error:
                self._error = error
                logger.warning("%s does not answer: %s", server.url, error)
            failures += 1
            await asyncio.sleep(backoff_s(failures, RETRY_S, LONGEST_RETRY_S))
        self._join(member)

    def _join(self, member: Member) -> None:
        # The server has started, so stop counting it as starting.
        self._starting.discard(cast("asyncio.Task[None]", asyncio.current_task()))
        member.check_at = time.monotonic() + self.check_every_s
        self.members.append(member)
        self._serve()
        self._changed.set()

    # ------------------------------------------------------------------ checks

    def suspect(self, member: Member) -> None:
        """Check a server now, because a connection broke. Callable from any thread."""

        def now() -> None:
            member.check_at = 0.0
            self._changed.set()

        with contextlib.suppress(RuntimeError):  # the program is about to end
            background.background_loop().call_soon_threadsafe(now)

    async def is_lost(self, member: Member) -> bool:
        """Check a server that a client could not reach, and return whether the server is lost."""
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
                self._threads, is_healthy, member.server.url, max(self.check_every_s, 1.0)
            )
        except ProviderError as error:
            self._lose(member, str(error))
            return
        finally:
            member.check_at = time.monotonic() + self.check_every_s
        if healthy:
            now = time.monotonic()
            member.note(now - began, self.latency_s, now)
            self._serve()
            return
        member.failures += 1
        member.check_at = time.monotonic() + min(self.check_every_s, 1.0)
        if member.failures >= FAILED_CHECKS:
            self._lose(member, f"it does not answer at {member.server.url}/health")

    def _lose(self, member: Member, why: str, *, is_failure: bool = True) -> None:
        """Give up a server, and end its leases."""
        if member not in self.members:
            return
        member.gone = why
        self.members.remove(member)
        if is_failure:
            self.lost += 1
            told = "%s of the pool is lost, with %d sessions: %s"
            logger.warning(told, member.server.name, _leased(member), why)
        for lease in list(member.leases):  # a connection to the server may take a minute to break
            lease.cut(f"{member.server.name} is gone: {why}")
        self._begin(self._stop(member.server), self._ending)
        if member.source < 0 and not self.is_closed:  # the server may come back
            self._begin(self._join_given(member.server.url, member.source), self._joining)
        self._changed.set()

    def _end_if_unused(self, member: Member) -> None:
        """End a resting server that has no leases."""
        if member.is_resting and not member.leases and member in self.members:
            self.members.remove(member)
            member.gone = "the pool had no more use for it"
            self._begin(self._stop(member.server), self._ending)

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
    """Sessions on many servers of any provider, which start and end with demand.

        provider = LocalDockerProvider("coding-env:latest")
        async with EnvPool(provider, client=CodingEnv, min_servers=4, max_servers=64) as pool:
            envs = await pool.lease_many(512)
            ...

    A lease is a client. A client gets its session on first use, in the order of requests, and
    returns the session when it is closed. If its server is lost, the client raises `SessionLost`,
    and its `reset` starts over on another server.

    Args:
        sources: A provider, the address of a server that runs elsewhere, or a sequence of either.
        client: The client class.
        image: The image for the provider, if the provider was created without one.
        launch_options: Options of `ServerProvider.launch`, such as ``env_vars``.
        min_servers: Minimum number of ready servers.
        max_servers: Maximum number of servers; by default `min_servers`, and at least one. Servers
            given by address do not count.
        sessions_per_server: Maximum number of sessions on a server. By default the number that the
            server reports, which is 1 for protocol version 0.
        leases_per_server: Replace a server after this many leases; 1 gives each lease a fresh
            server. None never replaces a server.
        spare: Number of sessions to keep free.
        placement: ``spread`` new sessions over the servers, or ``pack`` few servers full.
        lease_s: End a lease after this many seconds; None for no limit.
        wait_s: Maximum seconds to wait for a session; by default OPENENV_QUEUE_TIMEOUT_S, else 150.
        check_every_s: Seconds between two checks of a server.
        ready_timeout_s: Maximum seconds for a server to get ready.
        latency_s: Give a server fewer sessions if ``/health`` takes longer than this many seconds.
        idle_s: End unneeded servers after this many seconds, half of them each time.
        progress: True for a progress bar, or a function that is called with the number of ready
            servers and the number of wanted servers.
        api_key: Key of the servers given by address; by default OPENENV_API_KEY.
        **client_options: Options of each client, such as `message_timeout_s`.

    Raises:
        ValueError: A number or the placement is invalid, or there is no source.

    Example:
        >>> from echo_env import EchoAction, EchoEnv
        >>> from openenv import EnvPool, ProcessProvider
        >>> with EnvPool(ProcessProvider("echo_env"), EchoEnv, max_servers=2) as pool:
        ...     with pool.lease() as env:
        ...         result = env.reset()
        ...         env.step(EchoAction(message="hello")).observation.echoed_message
        'hello'
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
        listed: list[Source] = [cast(Source, sources)] if one else list(sources)  # type: ignore[arg-type]
        if not listed:
            raise ValueError("a pool needs a provider, or the address of a server")
        own = any(not isinstance(source, str) for source in listed)
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
        self._client = client
        self._client_options = client_options
        self._lease_s = lease_s
        self._wait_s = queue_timeout_of_settings() if wait_s is None else wait_s
        self._progress = progress
        self._process = os.getpid()
        self._controller = _PoolController(
            listed,
            Scaler(
                lowest,
                highest,
                spare=spare,
                sessions_per_server=sessions_per_server or 1,
                idle_s=idle_s,
            ),
            {**(launch_options or {}), **({} if image is None else {"image": image})},
            sessions_per_server,
            leases_per_server,
            _PLACEMENTS[placement],
            check_every_s,
            ready_timeout_s,
            latency_s,
            api_key,
        )

    @property
    def _pool(self) -> _PoolController:
        if self._process != os.getpid():
            raise ProviderError("this process was forked, and the pool is its parent's")
        return self._controller

    # ------------------------------------------------------------------ life cycle

    def start(self) -> Pending[Self]:
        """Start `min_servers` now instead of on first use.

        Raises:
            ProviderError: The servers could not be started; nothing is left running.
        """
        return cast("Pending[Self]", self._answer(self._start()))

    def close(self) -> Pending[None]:
        """End all leases and every server that the pool has started. Idempotent.

        Raises:
            ProviderError: A server could not be ended; all others were.
        """
        return cast("Pending[None]", self._answer(self._close()))

    async def _start(self) -> Self:
        with _progress_of(self._progress, "servers") as progress:
            await self._pool.open(progress)
        return self

    async def _close(self) -> None:
        if self._process == os.getpid():
            await asyncio.shield(_keep(asyncio.ensure_future(self._controller.close())))

    def _answer(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        answer: Any = launch(coroutine, None, block=False)
        is_source = asyncio.iscoroutine(answer) or isinstance(answer, concurrent.futures.Future)
        return Pending(cast("Any", answer)) if is_source else answer

    def sync(self) -> SyncEnvPool[C]:
        """Return the same pool with blocking methods."""
        return SyncEnvPool(self)

    def __enter__(self) -> SyncEnvPool[C]:
        return SyncEnvPool(self).start()

    def __exit__(self, *exc_info: object) -> None:
        background.run(self._close())

    async def __aenter__(self) -> Self:
        await _on_pool_loop(self._start(), self._close)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.shield(asyncio.ensure_future(_on_pool_loop(self._close())))

    # ------------------------------------------------------------------ leases

    def lease(self, *, lease_s: float | None = None, wait_s: float | None = None) -> C:
        """Return a client that has a session from its first use until `close`.

        Args:
            lease_s: End the lease after this many seconds; by default the pool's.
            wait_s: Maximum seconds to wait for a session; by default the pool's.

        Its first call raises:
            ProviderTimeout: No session became free within `wait_s` seconds.
            ProviderError: There is no server, and none can be started.
        """
        place = _PoolLease(
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
        """Return `n` connected clients; if that fails, raise and keep none.

        Args:
            n: The number of clients.
            lease_s: End each lease after this many seconds; by default the pool's.
            wait_s: Maximum seconds to wait for the sessions; by default the pool's.
            progress: True for a progress bar, or a function that is called with the number of
                clients so far and the number of all clients. By default a bar if the pool shows
                one.

        Raises:
            ProviderTimeout: Not all sessions became free in time.
            ProviderError: There is no server, and none can be started.
        """
        return cast(
            "Pending[list[C]]", self._answer(self._lease_many(n, lease_s, wait_s, progress))
        )

    async def _lease_many(
        self, n: int, lease_s: float | None, wait_s: float | None, progress: Progress | bool | None
    ) -> list[C]:
        clients = [self.lease(lease_s=lease_s, wait_s=wait_s) for _ in range(n)]
        limit, there = asyncio.Semaphore(OPENED_AT_ONCE), 0

        async def connect(client: C, tell: Progress | None) -> None:
            nonlocal there
            await cast(Launch, internals(client).launch).start()
            async with limit:
                await internals(client).connect()
            there += 1
            if tell is not None:
                tell(there, n)

        shown = self._progress is True if progress is None else progress
        with _progress_of(shown, "sessions") as tell:
            try:
                await _all_unless(self._pool.watch_for(n), (connect(one, tell) for one in clients))
            except BaseException:
                await asyncio.gather(*(internals(one).close() for one in clients))
                raise
        return clients

    def vector(
        self, num_envs: int, *, wait_s: float | None = None, **options: Unpack[VectorOptions]
    ) -> VectorEnv:
        """Return environments that are stepped together, on as many servers as necessary.

        The environments have sessions from the first reset until the close. If a server is lost,
        calls of its environments raise an error, and their next reset gets other sessions.

        Args:
            num_envs: The number of environments.
            wait_s: Maximum seconds to wait for sessions; by default the pool's.
            **options: Options of `VectorEnv`, such as `autoreset_mode`.
        """
        options.setdefault("client", self._client)
        envs = VectorEnv("http://pool.invalid", num_envs, **options)
        wait = self._wait_s if wait_s is None else wait_s
        envs.connect_by(lambda plain, options: _PoolEndpoints(self._pool, plain, options, wait))
        return envs

    def stats(self) -> PoolStats:
        """Return the state of the pool, from any thread."""

        async def read() -> PoolStats:
            return self._pool.stats()

        if background.running_loop() is background.background_loop():
            return self._pool.stats()
        return background.submit(read()).result()


class SyncEnvPool(Generic[C]):
    """An `EnvPool` with blocking methods; the target of ``with``."""

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
        return background.run(self._pool._lease_many(n, lease_s, wait_s, progress))

    def vector(
        self, num_envs: int, *, wait_s: float | None = None, **options: Unpack[VectorOptions]
    ) -> VectorEnv:
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

    def __exit__(self, *exc_info: object) -> None:
        self.close()


_PLACEMENTS = {"spread": spread, "pack": pack}


def _drop(lease: _PoolLease) -> None:
    """Return the session of a client that was garbage-collected. Callable from any thread."""
    if lease.member is not None and lease._process == os.getpid():
        with contextlib.suppress(RuntimeError):  # the program is about to end
            background.background_loop().call_soon_threadsafe(lease._pool.take_back, lease)


@contextlib.contextmanager
def _progress_of(progress: Progress | bool, what: str) -> Any:
    """Yield the function that is called with the progress, or None."""
    if progress is not True:
        yield progress or None
        return
    with bar(what) as tell:
        yield lambda done, total: tell(done, total, f"{done:,} of {total:,}")
