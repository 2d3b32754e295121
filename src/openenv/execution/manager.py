"""The sessions of a server: opening, queueing for a free slot, limits, and closing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

from openenv._internal.incidents import describe_error
from openenv.errors import (
    ConcurrencyConfigurationError,
    EnvironmentFactoryError,
    NotSupported,
    OpenEnvError,
    SessionCapacityError,
    SessionCreationError,
    SessionNotFoundError,
)
from openenv.execution.executors import Executors
from openenv.execution.limits import Limits
from openenv.execution.metrics import SessionCounters
from openenv.execution.principal import Keyring, Principal
from openenv.execution.queue import FairQueue
from openenv.execution.recording import Recordings
from openenv.execution.session import Session, SessionInfo, SessionPhase
from openenv.execution.spec import EnvironmentSpec
from openenv.types import omit_example

logger = logging.getLogger(__name__)

DEFAULT_MAX_SESSIONS = 64
DEFAULT_IDLE_TIMEOUT_S = 900.0
CLOSE_GRACE_S = 10.0
# How long a caller waits for a slot that is about to become free. Shorter than the 5 s after which
# HTTP clients commonly give up, so that they still read the refusal.
CLOSING_WAIT_S = 2.0
LATE_S = 1.0  # a call that is past its deadline by more than this is reported
SHUTTING_DOWN = "the server is shutting down"


class ConcurrencyConfig(BaseModel):
    """The maximum number of sessions of a server, and their idle timeout.

    Attributes:
        max_concurrent_envs: Sessions at once, at least 1.
        session_timeout: Seconds without a request after which a session without a live socket
            is closed. None means never; left out, 900.

    Example:
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import ConcurrencyConfig, create_app
        >>> limits = ConcurrencyConfig(max_concurrent_envs=8, session_timeout=300)
        >>> app = create_app(EchoEnvironment, concurrency_config=limits)
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra=omit_example)

    max_concurrent_envs: int = Field(default=1, ge=1)
    session_timeout: float | None = Field(default=None, gt=0)


class ServerCapacityStatus(BaseModel):
    """The number of sessions of a server, against the maximum."""

    active_sessions: int = Field(ge=0)
    max_sessions: int = Field(ge=1)

    @model_validator(mode="after")
    def _within_limits(self) -> ServerCapacityStatus:
        if self.active_sessions > self.max_sessions:
            raise ValueError(
                f"active_sessions ({self.active_sessions}) exceeds max_sessions "
                f"({self.max_sessions})"
            )
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def available_slots(self) -> int:
        """Sessions that may still be opened."""
        return self.max_sessions - self.active_sessions

    @computed_field  # type: ignore[prop-decorator]
    @property
    def is_at_capacity(self) -> bool:
        """No further session may be opened."""
        return self.available_slots == 0

    @classmethod
    def from_counts(cls, active: int, max_sessions: int) -> ServerCapacityStatus:
        """Build a status from two counts."""
        return cls(active_sessions=active, max_sessions=max_sessions)


@dataclass(frozen=True)
class Patience:
    """Options of a wait for a free slot.

    Attributes:
        client: The client that waits; clients take turns.
        timeout_s: Seconds to wait at most.
        report: Called with the position in the queue, from 1, and the queue's length.
    """

    client: Hashable
    timeout_s: float
    report: Callable[[int, int], None] | None = None


class ResumableConnection(Protocol):
    """A client's connection that can continue on another socket."""

    @property
    def detached(self) -> int:
        """The number of sessions that wait for the client to come back."""
        ...

    def drain(self) -> None:
        """End the connection once the running requests are answered."""
        ...

    def end(self) -> None:
        """End the connection now."""
        ...


class SessionManager:
    """Creates, finds and closes sessions.

    Args:
        spec: The environment to serve.
        config: The number of sessions, and the idle timeout; by default 64 sessions for a class
            that declares ``SUPPORTS_CONCURRENT_SESSIONS = True``, otherwise 1, and 900 s.
        limits: Further limits; by default those of the environment variables.
        debug: Send clients the text of every exception.

    Attributes:
        active_sessions: Number of slots in use, including sessions that open or close.
        instance: The id of this server process.
        has_siblings: Other processes serve the same address.
        knows_its_web_server: The web server and the manager have agreed on limits.
        connections: Clients' connections that can be resumed, by id.
        unheard: Connections that broke before a message arrived on them, the oldest first.
        counters: The counters of events.
        closing: The manager is shutting down, so no session can be opened.
        executors: Finds the executor of each session.
        home_loop: The event loop that the sessions live on; None until it is known.

    Raises:
        ConcurrencyConfigurationError: More than one session is configured for a class that does
            not declare that several instances may exist at once.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        config: ConcurrencyConfig | None = None,
        limits: Limits | None = None,
        *,
        debug: bool = False,
    ) -> None:
        self.spec = spec
        self.config = config
        self.debug = debug
        self.limits = limits or Limits.of_settings()
        self.instance = uuid.uuid4().hex
        self.has_siblings = self.knows_its_web_server = False
        self.connections: dict[str, ResumableConnection] = {}
        self.unheard: dict[str, ResumableConnection] = {}
        self.counters = SessionCounters()
        self.last_factory_error: EnvironmentFactoryError | None = None
        self.closing = False
        self.home_loop: asyncio.AbstractEventLoop | None = None
        self.keys: Keyring | None = None
        self._owners: dict[str, Principal] = {}  # by session, if there are keys
        self._sessions: dict[str, Session] = {}
        self.active_sessions = 0
        self._provisional: dict[str, None] = {}
        self._cleanups: set[asyncio.Task[Any]] = set()
        self._waiting: list[asyncio.Future[None]] = []
        self._queue = FairQueue()
        self._ending: set[Session] = set()  # the sessions that are being closed
        self._overdue: set[str] = set()
        self._has_warned_of_full = False
        self._reaper: asyncio.Task[None] | None = None
        self.executors = Executors(spec)
        self._recordings: Recordings | None = None
        if config is not None and config.max_concurrent_envs > 1:
            if spec.supports_concurrency is None:
                self._probe()
            if spec.supports_concurrency is False:
                raise ConcurrencyConfigurationError(spec.class_name, config.max_concurrent_envs)

    def _probe(self) -> None:
        """Open and close a session to learn the class, on a separate event loop."""

        async def probe() -> None:
            session = Session(self.spec)
            await session.open()
            await session.close()

        with ThreadPoolExecutor(1, "openenv-probe") as thread:
            thread.submit(asyncio.run, probe()).result()

    # ------------------------------------------------------------------ state and options

    @property
    def max_sessions(self) -> int:
        """The maximum number of open sessions."""
        if self.config is not None:
            return self.config.max_concurrent_envs
        return DEFAULT_MAX_SESSIONS if self.spec.supports_concurrency else 1

    @property
    def idle_timeout_s(self) -> float | None:
        """Seconds after which an idle session without a socket is closed; None for never."""
        if self.config is not None and "session_timeout" in self.config.model_fields_set:
            return self.config.session_timeout
        return DEFAULT_IDLE_TIMEOUT_S

    def run_on(self, executors: Executors) -> None:
        """Use other executors for the environments of all sessions.

        Raises:
            RuntimeError: There are open sessions already.
        """
        if self._sessions:
            raise RuntimeError("sessions are open already; they cannot move")
        self.executors = executors

    def record_to(self, recordings: Recordings | None) -> None:
        """Record the sessions that are opened from now on; None turns recording off."""
        self._recordings = recordings

    def record(self, session: Session) -> None:
        """Record a session from now on.

        Raises:
            NotSupported: The server has no directory for recordings.
        """
        if self._recordings is None:
            raise NotSupported(
                "this server has no place for recordings; start it with --record DIRECTORY, "
                "OPENENV_RECORD or create_app(..., record=DIRECTORY)",
                feature="recording",
            )
        if session.recorder is None:
            session.recorder = self._recordings.open(session.id)

    def start(self) -> None:
        """Start what takes time and sessions need; called on the event loop."""
        self.executors.start()

    @property
    def trouble(self) -> str | None:
        """Problems of a server that still runs, for an operator; None if there are none."""
        error = self.last_factory_error
        if error is not None:
            return describe_error(error, debug=self.debug)
        troubles = []
        if self._overdue:
            troubles.append(f"{len(self._overdue)} slots are held by calls that do not come back")
        late = [one for one in self._sessions.values() if one.overdue_s > LATE_S]
        if late := [one for one in late if one.id not in self._overdue]:
            troubles.append(f"{len(late)} calls run past their deadline")
        if (executors := self.executors.trouble) is not None:
            troubles.append(executors)
        return "; ".join(troubles) or None

    def sessions(self) -> list[Session]:
        """Return all sessions, including those that open or close."""
        return list(self._sessions.values())

    def capacity(self) -> ServerCapacityStatus:
        """Return how full the server is."""
        return ServerCapacityStatus.from_counts(
            min(self.active_sessions, self.max_sessions), self.max_sessions
        )

    def info(self, session_id: str) -> SessionInfo | None:
        """Return a description of a session; None for an unknown id."""
        session = self._sessions.get(session_id)
        return None if session is None else session.info()

    def get(
        self, session_id: str, *, confirm: bool = True, principal: Principal | None = None
    ) -> Session:
        """Find an open session.

        Args:
            confirm: The caller will come back: a provisional session becomes a lasting one.

        Raises:
            SessionNotFoundError: The id is unknown, or the session is closing or another's.
        """
        session = self._sessions.get(session_id)
        if session is None or session.phase is not SessionPhase.OPEN:
            raise SessionNotFoundError(session_id)
        if principal is not None and not self.is_of(session_id, principal):
            raise SessionNotFoundError(session_id)
        if confirm:
            self._provisional.pop(session_id, None)
        return session

    def leave(self, session: Session) -> None:
        """Note that a socket has left a session that it had joined.

        An idle session without a socket may be closed to make room for another session, since no
        client may be left to close it.
        """
        session.attachments -= 1
        if not session.attachments and session.id in self._sessions:
            self._provisional[session.id] = None

    def is_of(self, session_id: str, principal: Principal) -> bool:
        """Return whether a session belongs to a principal, or is the session of an agent's key."""
        return self._owners.get(session_id) is principal or principal.session_id == session_id

    def issue_agent_key(self, session_id: str) -> str:
        """Return a new key for the tools of a session; the key ends with the session.

        Raises:
            RuntimeError: The server has no keys.
            SessionNotFoundError: The id is unknown, or the session is closing.
        """
        if self.keys is None:
            raise RuntimeError("this server has no keys, so everybody may reach everything")
        return self.keys.issue(self.get(session_id).id)

    # ------------------------------------------------------------------ creating and closing

    async def create(
        self,
        *,
        provisional: bool = False,
        throwaway: bool = False,
        patience: Patience | None = None,
        record: bool = False,
        principal: Principal | None = None,
    ) -> Session:
        """Open a session. Other sessions are not delayed while the environment is constructed.

        If all slots are taken but a session is closing, wait `CLOSING_WAIT_S` for its slot. If
        neither the class nor a number of slots is known yet, wait until the first session is open.

        Args:
            provisional: The session may be closed while idle to make room for another, until `get`
                has found it once (for callers who may never come back).
            throwaway: The session serves one request, takes no slot and is not recorded.
            patience: How long to wait for a slot; by default do not wait.
            record: Record the session even if not all sessions are recorded.
            principal: The caller, if the server has keys; the session will belong to it.

        Raises:
            NotSupported: The session should be recorded, but the server has no directory for that.
            SessionCapacityError: No slot is free or became free in time, or the principal has its
                maximum number of sessions.
            SessionCreationError: The server is shutting down.
            EnvironmentFactoryError: The environment's constructor raised.
        """
        if not throwaway and not self.closing:
            if principal is not None and principal.is_full:
                await self._make_room_of(principal)
            with contextlib.nullcontext() if principal is None else principal.waiting():
                if patience is None or patience.timeout_s <= 0:
                    await self._make_room()
                    self.active_sessions += 1
                elif not self._queue and self.active_sessions < self.max_sessions:
                    self.active_sessions += 1
                else:
                    await self._wait_for_slot(patience)
            if self.closing:
                self.active_sessions -= 1
                self._tell()
        if self.closing:
            raise SessionCreationError(SHUTTING_DOWN)
        session = Session(
            self.spec,
            executors=self.executors,
            is_throwaway=throwaway,
            owner=self,
            counters=self.counters,
        )
        recordings = self._recordings
        try:
            if record or (recordings and recordings.options.every_session and not throwaway):
                self.record(session)
            if principal is not None:
                principal.check_sessions()  # it may have opened others meanwhile
                principal.sessions += 1
                self._owners[session.id] = principal
        except OpenEnvError:
            self.active_sessions -= not throwaway
            self._tell()
            raise
        self.counters.opened += 1
        self._sessions[session.id] = session
        try:
            await session.open()
        except asyncio.CancelledError:
            session.closed_by = "abandoned"
            self.keep(asyncio.create_task(self._close(session)))
            raise
        except Exception as error:
            session.closed_by = "failed"
            self._forget(session)
            if isinstance(error, EnvironmentFactoryError):
                self.last_factory_error = error
            raise
        if session.phase is not SessionPhase.OPEN:  # closed while it opened
            raise SessionCreationError(SHUTTING_DOWN)
        self.last_factory_error = None
        self._tell()
        if provisional:
            self._provisional[session.id] = None
        self._start_reaper()
        return session

    async def _wait_for_slot(self, patience: Patience) -> None:
        if len(self._queue) >= self.limits.max_queue:
            raise self._is_full(f", and {len(self._queue)} wait already")
        place = self._queue.join(patience.client, patience.report)
        self._serve_queue()
        if not place.granted.done() and not self._is_emptying:
            self._warn_of_full()
        timeout_s = min(patience.timeout_s, self.limits.max_queue_s)
        began = time.monotonic()
        try:
            await asyncio.wait([place.granted], timeout=timeout_s)
        except asyncio.CancelledError:
            if place.granted.done() and place.granted.exception() is None:
                self.active_sessions -= 1
                self._tell()
            raise
        finally:
            self._queue.leave(place)
            self.counters.queue_wait.observe([time.monotonic() - began])
        if not place.granted.done():
            self.counters.queue_timeouts += 1
            raise self._is_full(f", and none came free in {timeout_s:g} s")
        place.granted.result()

    def _warn_of_full(self) -> None:
        """Log once how many sessions the server allows, why, and how to allow more."""
        if self._has_warned_of_full:
            return
        self._has_warned_of_full = True
        name = self.spec.class_name
        if self.spec.supports_concurrency is False:
            why = (
                f"{name} does not declare SUPPORTS_CONCURRENT_SESSIONS = True. If its instances "
                "share nothing, declare it, and pass create_app(..., max_concurrent_envs=N)"
            )
        elif self.config is None:
            why = "that is the default; pass create_app(..., max_concurrent_envs=N) for more"
        else:
            why = f"max_concurrent_envs={self.max_sessions} says so; raise it for more"
        slots = (
            "the only slot is" if self.max_sessions == 1 else f"all {self.max_sessions} slots are"
        )
        logger.warning("%s taken, so others wait or are refused: %s", slots, why)

    def _is_full(self, why: str) -> SessionCapacityError:
        self._warn_of_full()
        full = SessionCapacityError(self.active_sessions, self.max_sessions)
        head, _, tail = str(full).partition(". ")
        return SessionCapacityError(self.active_sessions, self.max_sessions, f"{head}{why}. {tail}")

    def _serve_queue(self) -> None:
        """Give free slots to the next clients in the queue."""
        while self._queue and not self.closing:
            if self.active_sessions < self.max_sessions:
                self.active_sessions += 1
                self._queue.next().granted.set_result(None)
            elif (idle := self._idle_provisional()) is not None and not self._is_emptying:
                idle.closed_by = "evicted"
                self.begin_to_close(idle)
                return
            else:
                return

    def _idle_provisional(self) -> Session | None:
        """Return the oldest session that may be closed to make room."""
        known = map(self._sessions.get, self._provisional)
        return next((s for s in known if s is not None and not s.is_busy), None)

    async def _make_room_of(self, principal: Principal) -> None:
        """Wait for a closing session of a key that is at its limit, or raise at once."""
        deadline = time.monotonic() + CLOSING_WAIT_S
        while principal.is_full and not self.closing:
            remaining = deadline - time.monotonic()
            is_emptying = any(self._owners.get(one.id) is principal for one in self._ending)
            if remaining <= 0 or not is_emptying:
                principal.check_sessions()
            await self._change(remaining)

    async def _make_room(self) -> None:
        """Wait briefly for a slot that is about to become free, or raise at once.

        Sessions in the queue come first: while there are any, other callers are refused.
        """
        deadline = time.monotonic() + CLOSING_WAIT_S
        while (self._queue or self.active_sessions >= self.max_sessions) and not self.closing:
            if self.config is None and self.spec.environment_class is None:
                await self._change(None)  # the first session, still opening, reveals the limit
            elif self._queue:
                raise self._is_full(f", and {len(self._queue)} wait for one")
            elif self._is_emptying:
                if (remaining := deadline - time.monotonic()) <= 0:
                    self._warn_of_full()
                    raise SessionCapacityError(self.active_sessions, self.max_sessions)
                await self._change(remaining)
            elif (oldest := self._idle_provisional()) is not None:
                oldest.closed_by = "evicted"
                self.begin_to_close(oldest)
                await asyncio.sleep(0)  # lets the closing begin
            else:
                self._warn_of_full()
                raise SessionCapacityError(self.active_sessions, self.max_sessions)

    @property
    def _is_emptying(self) -> bool:
        """Whether a slot will become free by itself."""
        return any(not session.is_throwaway for session in self._ending)

    async def _change(self, timeout_s: float | None) -> None:
        """Wait until a session has opened or ended."""
        changed = asyncio.get_running_loop().create_future()
        self._waiting.append(changed)
        try:
            await asyncio.wait([changed], timeout=timeout_s)
        finally:
            self._waiting.remove(changed)

    def _tell(self) -> None:
        self._serve_queue()
        for changed in self._waiting:
            if not changed.done():
                changed.set_result(None)

    @contextlib.asynccontextmanager
    async def throwaway(self, principal: Principal | None = None) -> AsyncIterator[Session]:
        """Open a session for a single request. The session takes no slot, but counts toward the
        principal's limit.
        """
        session = await self.create(throwaway=True, principal=principal)
        try:
            yield session
        finally:
            await self.close(session.id)

    async def close(self, session_id: str) -> None:
        """Close a session. Its slot is free again once the environment is closed."""
        session = self._sessions.get(session_id)
        if session is not None:
            await asyncio.shield(self.begin_to_close(session))

    def begin_to_close(self, session: Session) -> asyncio.Task[None]:
        """Close a session, without waiting for the running call."""
        self._provisional.pop(session.id, None)
        cleanup = asyncio.create_task(self._close(session))
        self.keep(cleanup)
        return cleanup

    async def _close(self, session: Session) -> None:
        closing, patience_s = session.stop(), self.limits.close_s or None
        self._ending.add(session)
        try:
            while not (await asyncio.wait([closing], timeout=patience_s))[0]:
                if session.id not in self._overdue:
                    seconds = self.limits.close_s
                    logger.warning("session %s has not closed within %g s", session.id, seconds)
                    self._overdue.add(session.id)
                session.abort()
        finally:
            self._forget(session)
        if session.recorder is not None:
            await session.recorder.written()

    def _forget(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            self.active_sessions -= not session.is_throwaway
            self.counters.closed[session.closed_by] += 1
        self._provisional.pop(session.id, None)
        self._ending.discard(session)
        self._overdue.discard(session.id)
        if (owner := self._owners.pop(session.id, None)) is not None:
            owner.sessions -= 1
        if self.keys is not None:
            self.keys.end_session(session.id)
        self._tell()

    def adopt(self, session: Session, of: Session) -> bool:
        """Take over an environment that a session gave up because a call does not return.

        The environment takes a slot until the call returns, and counts for the session's key. The
        manager refuses (returns False) if as many environments as there are slots are already in
        this state, or as many of this key as the key may have sessions.
        """
        if self.closing or len(self._overdue) >= self.max_sessions:
            return False
        if (principal := self._owners.get(of.id)) is not None:
            most = principal.limits.max_sessions
            of_the_key = sum(self._owners.get(key) is principal for key in self._overdue)
            if most is not None and of_the_key >= most:
                return False
            principal.sessions += 1
            self._owners[session.id] = principal
        self.counters.opened += 1
        self._overdue.add(session.id)
        self._sessions[session.id] = session
        self.active_sessions += 1
        self.begin_to_close(session)
        return True

    @property
    def overdue(self) -> int:
        """The number of calls that are past their deadline."""
        return sum(session.is_overdue for session in self._sessions.values())

    @property
    def queue_length(self) -> int:
        """The number of sessions that wait for a slot."""
        return len(self._queue)

    @property
    def detached(self) -> int:
        """The number of sessions that wait for their client to come back."""
        return sum(connection.detached for connection in self.connections.values())

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Keep a reference to a task until it ends; shutting down waits for it."""
        self._cleanups.add(task)
        task.add_done_callback(self._cleanups.discard)

    def refuse_new(self) -> None:
        """Open no more sessions, since the server is shutting down; refuse the queue too."""
        self.closing = True
        self._queue.stop()
        for place in self._queue.order():
            if not place.granted.done():
                place.granted.set_exception(SessionCreationError(SHUTTING_DOWN))

    async def aclose(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Close every session, all at once, waiting at most `grace_s` seconds.

        No session can be opened meanwhile. The manager can be used again afterward, since an
        application may be started and stopped several times.
        """
        self.refuse_new()
        self._tell()
        for connection in list(self.connections.values()):
            connection.end()
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        for session in self.sessions():
            if session.phase is SessionPhase.OPEN:
                session.closed_by = "shutdown"
            self.keep(asyncio.create_task(self._close(session)))
        if self._cleanups:
            _, late = await asyncio.wait(set(self._cleanups), timeout=grace_s)
            for task in late:
                task.cancel()
        if self._sessions:
            logger.error(
                "%d sessions did not close within %g s and were left: %s",
                len(self._sessions),
                grace_s,
                ", ".join(self._sessions),
            )
        await self.executors.aclose()
        if self._recordings is not None:
            await self._recordings.aclose()
        self.closing = False

    def abandon(self) -> None:
        """Give up every session, since the event loop has ended without a shutdown.

        Called before the manager uses another loop.
        """
        if self._sessions:
            logger.warning(
                "%d sessions are given up: the event loop that they lived on has ended without a "
                "shutdown. If the application is mounted in another, run its lifespan there",
                len(self._sessions),
            )
        self._queue, self._reaper = FairQueue(), None
        for kept in (self._waiting, self._cleanups, self.connections, self.unheard):
            kept.clear()
        for session in self.sessions():
            session.closed_by = "abandoned"
            session.abandon()
            self._forget(session)
        with contextlib.suppress(RuntimeError):  # raised for an ended loop; workers start anew
            self.executors.stop()

    # ------------------------------------------------------------------ idle sessions

    def _start_reaper(self) -> None:
        reaper, here = self._reaper, asyncio.get_running_loop()
        if reaper is not None and not reaper.done() and reaper.get_loop() is here:
            return
        if self.idle_timeout_s is not None:
            self._reaper = asyncio.create_task(self._reap_forever(self.idle_timeout_s))

    async def _reap_forever(self, timeout_s: float) -> None:
        while self._sessions:
            await asyncio.sleep(min(timeout_s / 4, 60.0))
            self.keep(asyncio.create_task(self.reap(timeout_s)))

    async def reap(self, timeout_s: float) -> list[str]:
        """Close sessions without a socket that idled longer than `timeout_s`; return their ids.

        A session with a live socket or a running request is never closed.
        """
        now = time.monotonic()
        idle = [
            session
            for session in self._sessions.values()
            if session.phase is SessionPhase.OPEN
            and not session.attachments
            and not session.is_busy
            and now - session.last_activity > timeout_s
        ]
        for session in idle:
            logger.info("closing session %s: idle for over %g s", session.id, timeout_s)
            session.closed_by = "idle"
        await asyncio.gather(*(self.close(session.id) for session in idle))
        return [session.id for session in idle]
