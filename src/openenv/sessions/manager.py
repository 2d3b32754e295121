"""All sessions of one server: how many there may be, who they are, when they end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

from openenv.errors import (
    ConcurrencyConfigurationError,
    EnvironmentFactoryError,
    SessionCapacityError,
    SessionCreationError,
    SessionNotFoundError,
)
from openenv.sessions.lane import Lanes
from openenv.sessions.principal import Keyring, Principal
from openenv.sessions.session import Session, SessionInfo, SessionPhase
from openenv.sessions.spec import EnvironmentSpec

__all__ = [
    "DEFAULT_IDLE_TIMEOUT_S",
    "DEFAULT_MAX_SESSIONS",
    "ConcurrencyConfig",
    "ServerCapacityStatus",
    "SessionManager",
]

logger = logging.getLogger(__name__)

DEFAULT_MAX_SESSIONS = 64
DEFAULT_IDLE_TIMEOUT_S = 900.0
CLOSE_GRACE_S = 10.0
# How long a caller waits for a slot that is about to come free. Shorter than the 5 s after which
# HTTP clients commonly give up, so that they still read the refusal.
CLOSING_WAIT_S = 2.0
SHUTTING_DOWN = "the server is shutting down"


class ConcurrencyConfig(BaseModel):
    """How many sessions a server holds and how long idle ones live.

    Attributes:
        max_concurrent_envs: Sessions at once, at least 1.
        session_timeout: Seconds without a request after which a session without a live socket
            is closed. None means never; left out, 900.
    """

    model_config = ConfigDict(extra="forbid")

    max_concurrent_envs: int = Field(default=1, ge=1)
    session_timeout: float | None = Field(default=None, gt=0)


class ServerCapacityStatus(BaseModel):
    """How full a server is."""

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


class SessionManager:
    """Creates, finds and closes sessions.

    Args:
        spec: The environment to serve.
        config: Limits; by default 64 sessions for a class that declares
            ``SUPPORTS_CONCURRENT_SESSIONS = True`` and one for any other, and 900 s of idling.

    Raises:
        ConcurrencyConfigurationError: More than one session was asked of a class that does not
            declare that its instances may live side by side.
    """

    def __init__(self, spec: EnvironmentSpec, config: ConcurrencyConfig | None = None) -> None:
        self.spec = spec
        self.config = config
        self.last_factory_error: EnvironmentFactoryError | None = None
        self.closing = False
        self.keys: Keyring | None = None
        self._owners: dict[str, Principal] = {}  # of sessions, where there are keys
        self._sessions: dict[str, Session] = {}
        self._active = 0  # of them, those that take a slot
        self._provisional: dict[str, None] = {}
        self._cleanups: set[asyncio.Task[Any]] = set()
        self._waiting: list[asyncio.Future[None]] = []
        self._reaper: asyncio.Task[None] | None = None
        self._lanes = Lanes(spec)
        if config is not None and config.max_concurrent_envs > 1:
            self._check_concurrency(config.max_concurrent_envs)

    def _check_concurrency(self, wanted: int) -> None:
        if self.spec.supports_concurrency is None:
            self._probe()
        if self.spec.supports_concurrency is False:
            cls = self.spec.environment_class
            raise ConcurrencyConfigurationError(cls.__name__ if cls else self.spec.name, wanted)

    def _probe(self) -> None:
        """Open and close one session to learn the class, on an event loop of its own."""
        failure: list[Exception] = []

        async def probe() -> None:
            session = Session(self.spec)
            try:
                await session.open()
                await session.close()
            except Exception as error:
                failure.append(error)

        thread = threading.Thread(target=asyncio.run, args=[probe()], name="openenv-probe")
        thread.start()
        thread.join()
        if failure:
            raise failure[0]

    # ------------------------------------------------------------------ what there is

    @property
    def max_sessions(self) -> int:
        """Sessions that may be open at once."""
        if self.config is not None:
            return self.config.max_concurrent_envs
        return DEFAULT_MAX_SESSIONS if self.spec.supports_concurrency else 1

    @property
    def idle_timeout_s(self) -> float | None:
        """Seconds after which an idle session without a socket is closed; None is never."""
        if self.config is not None and "session_timeout" in self.config.model_fields_set:
            return self.config.session_timeout
        return DEFAULT_IDLE_TIMEOUT_S

    def run_on(self, lanes: Lanes) -> None:
        """Have the environments of all sessions live there.

        Raises:
            RuntimeError: There are sessions already.
        """
        if self._sessions:
            raise RuntimeError("sessions are open already; they cannot move")
        self._lanes = lanes

    def start(self) -> None:
        """Make ready what sessions need, where that takes time; called on the event loop."""
        self._lanes.start()

    @property
    def trouble(self) -> str | None:
        """What is wrong with a server that goes on, in words for an operator."""
        error = self.last_factory_error
        if error is not None:
            return f"{error} {type(error.__cause__).__name__}"
        return self._lanes.trouble

    @property
    def active_sessions(self) -> int:
        """Slots that are taken, those of sessions still opening or closing included."""
        return self._active

    def capacity(self) -> ServerCapacityStatus:
        """Say how full the server is."""
        return ServerCapacityStatus.from_counts(
            min(self.active_sessions, self.max_sessions), self.max_sessions
        )

    def info(self, session_id: str) -> SessionInfo | None:
        """Describe one session; None if there is none of this id."""
        session = self._sessions.get(session_id)
        return None if session is None else session.info()

    def get(
        self, session_id: str, *, confirm: bool = True, principal: Principal | None = None
    ) -> Session:
        """Find an open session.

        Args:
            session_id: Its id.
            confirm: Whoever asks means to come back: a provisional session is so no longer.
            principal: Who asks, where the server has keys.

        Raises:
            SessionNotFoundError: There is none of this id, or it is closing, or another's.
        """
        session = self._sessions.get(session_id)
        if session is None or session.phase is not SessionPhase.OPEN:
            raise SessionNotFoundError(session_id)
        if principal is not None and not self._is_of(session_id, principal):
            raise SessionNotFoundError(session_id)
        if confirm:
            self._provisional.pop(session_id, None)
        return session

    def _is_of(self, session_id: str, principal: Principal) -> bool:
        return self._owners.get(session_id) is principal or principal.session_id == session_id

    def issue_agent_key(self, session_id: str) -> str:
        """Make a key by which an agent reaches the tools of one session; it ends with the session.

        Raises:
            RuntimeError: The server has no keys, so it asks for none.
            SessionNotFoundError: There is none of this id, or it is closing.
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
        principal: Principal | None = None,
    ) -> Session:
        """Open a session. Others are not held up while its environment is constructed.

        Where all slots are taken but one is closing, it waits `CLOSING_WAIT_S` for that. Where
        neither the class nor a number is known yet, it waits until the first session is open.

        Args:
            provisional: While it is idle it may be closed to make room for another, until
                `get` has found it once (for callers who may never come back).
            throwaway: It serves one request and takes no slot.
            principal: Who asks, where the server has keys; the session is theirs.

        Raises:
            SessionCapacityError: No slot is free, or the principal has all that it may have.
            SessionCreationError: The server is shutting down.
            EnvironmentFactoryError: The environment's constructor raised.
        """
        if not throwaway and not self.closing:
            if principal is not None and principal.is_full:
                await self._make_room_of(principal)
            await self._make_room()
        if self.closing:
            raise SessionCreationError(SHUTTING_DOWN)
        session = Session(self.spec, lanes=self._lanes, is_throwaway=throwaway)
        if principal is not None and not throwaway:
            self._own(session, principal)
        self._sessions[session.id] = session
        self._active += not throwaway
        try:
            await session.open()
        except asyncio.CancelledError:
            self.keep(asyncio.create_task(self._close(session)))
            raise
        except Exception as error:
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

    def _own(self, session: Session, principal: Principal) -> None:
        principal.check_sessions()  # others may have come meanwhile
        principal.sessions += 1
        self._owners[session.id] = principal

    async def _make_room_of(self, principal: Principal) -> None:
        """Wait while a session of a key that has all it may have is closing, or refuse at once."""
        deadline = time.monotonic() + CLOSING_WAIT_S
        while principal.is_full and not self.closing:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not self._is_emptying_of(principal):
                principal.check_sessions()
            await self._change(remaining)

    async def _make_room(self) -> None:
        """Wait for a slot where one comes free by itself; a server that is full refuses at once."""
        deadline = time.monotonic() + CLOSING_WAIT_S
        while self.active_sessions >= self.max_sessions and not self.closing:
            idle = (s for s in map(self._sessions.get, self._provisional) if s and not s.is_busy)
            if self.config is None and self.spec.environment_class is None:
                await self._change(None)  # the first session, still opening, tells how many may be
            elif self._is_emptying:
                if (remaining := deadline - time.monotonic()) <= 0:
                    raise SessionCapacityError(self.active_sessions, self.max_sessions)
                await self._change(remaining)
            elif (oldest := next(idle, None)) is not None:
                self._end(oldest)
                await asyncio.sleep(0)  # now it is closing
            else:
                raise SessionCapacityError(self.active_sessions, self.max_sessions)

    @property
    def _is_emptying(self) -> bool:
        return any(
            session.phase in (SessionPhase.CLOSING, SessionPhase.CLOSED)
            for session in self._sessions.values()
            if not session.is_throwaway
        )

    def _is_emptying_of(self, principal: Principal) -> bool:
        return any(
            self._owners.get(session.id) is principal
            and session.phase in (SessionPhase.CLOSING, SessionPhase.CLOSED)
            for session in self._sessions.values()
        )

    async def _change(self, timeout_s: float | None) -> None:
        """Wait until a session has opened or gone."""
        changed = asyncio.get_running_loop().create_future()
        self._waiting.append(changed)
        try:
            await asyncio.wait([changed], timeout=timeout_s)
        finally:
            self._waiting.remove(changed)

    def _tell(self) -> None:
        for changed in self._waiting:
            if not changed.done():
                changed.set_result(None)

    @contextlib.asynccontextmanager
    async def throwaway(self) -> AsyncIterator[Session]:
        """Open a session for one request; it takes no slot."""
        session = await self.create(throwaway=True)
        try:
            yield session
        finally:
            await self.close(session.id)

    async def close(self, session_id: str) -> None:
        """Close a session and give its slot back once its environment is closed."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        await asyncio.shield(self._end(session))

    def _end(self, session: Session) -> asyncio.Task[None]:
        self._provisional.pop(session.id, None)
        cleanup = asyncio.create_task(self._close(session))
        self.keep(cleanup)
        return cleanup

    async def _close(self, session: Session) -> None:
        try:
            await session.close()
        finally:
            self._forget(session)

    def _forget(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            self._active -= not session.is_throwaway
        self._provisional.pop(session.id, None)
        if (owner := self._owners.pop(session.id, None)) is not None:
            owner.sessions -= 1
        if self.keys is not None:
            self.keys.end_session(session.id)
        self._tell()

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Hold a task until it ends; shutting down waits for it."""
        self._cleanups.add(task)
        task.add_done_callback(self._cleanups.discard)

    async def aclose(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Close every session, all at once, waiting `grace_s` seconds at most.

        Meanwhile none can be opened; afterwards the manager may be used again, since an
        application may be started and stopped several times.
        """
        self.closing = True
        self._tell()
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        for session in list(self._sessions.values()):
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
        await self._lanes.aclose()
        self.closing = False

    # ------------------------------------------------------------------ idling

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

        A session with a live socket, or with a running request, is never closed.
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
        await asyncio.gather(*(self.close(session.id) for session in idle))
        return [session.id for session in idle]
