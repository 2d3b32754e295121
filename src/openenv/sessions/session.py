"""One session: one environment, one caller of it, and everything that is done around a call.

`Session` is the only code that calls an environment's `reset`, `step`, `state` and `close`.
Every transport ends in `Session.handle`.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from pydantic import BaseModel

from openenv.errors import EnvironmentFactoryError, OpenEnvError, SessionClosedError
from openenv.protocol.messages import StateReply, Transition
from openenv.sessions.lane import Lane, LoopLane, ThreadLane, WorkerThread
from openenv.sessions.spec import CallPlan, EnvironmentSpec, Method, factory_name, normalise
from openenv.types import EnvironmentMetadata

__all__ = ["Call", "GetState", "Reset", "Session", "SessionInfo", "Step"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Reset:
    """Begin an episode with these arguments."""

    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Step:
    """Carry out an action (still data, or already a model) with these further arguments."""

    action: Any
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class GetState:
    """Read the state."""


@dataclass(slots=True)
class Call:
    """Call any other public method of the environment, such as `get_metadata`."""

    method: str
    arguments: tuple[Any, ...] = ()


Command = Reset | Step | GetState | Call


class SessionPhase(Enum):
    """Where a session stands; it only ever moves down this list."""

    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class SessionInfo(BaseModel):
    """What an operator may see of a session; times are seconds since the epoch."""

    session_id: str
    created_at: float
    last_activity_at: float
    step_count: int = 0
    environment_type: str


class Session:
    """An environment instance with an identity, an order of calls and a place to run.

    Args:
        spec: What to make and how to call it.
        shared_worker: Gives the thread that all instances share, where the class asks for one.
            It may be offered one, which it takes if there is none yet.
        is_throwaway: It serves one request and takes no slot.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        *,
        shared_worker: Callable[[WorkerThread | None], WorkerThread] | None = None,
        is_throwaway: bool = False,
    ) -> None:
        self.id = str(uuid.uuid4())
        self.is_throwaway = is_throwaway
        self.spec = spec
        self.phase = SessionPhase.OPENING
        self.created_at = time.time()
        self._born = self.last_activity = time.monotonic()
        self.step_count = 0
        self.attachments = 0
        self.close_error: Exception | None = None
        self._shared_worker = shared_worker
        self._environment: Any = None
        self._plan: CallPlan | None = None
        self._lane: Lane | None = None
        self._turn = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._busy = 0

    # ------------------------------------------------------------------ life

    async def open(self) -> None:
        """Construct the environment.

        Raises:
            EnvironmentFactoryError: The factory raised; the cause is chained.
            SessionClosedError: The session was closed before its turn came.
        """
        async with self._turn:
            if self.phase is not SessionPhase.OPENING:
                raise SessionClosedError(self.id)
            await self._construct()
            self.last_activity = time.monotonic()  # it may have taken longer than one may idle
            if self.phase is SessionPhase.OPENING:
                self.phase = SessionPhase.OPEN

    async def _construct(self) -> None:
        lane = self._choose_lane()
        try:
            self._environment = await lane.run(self.spec.factory)
            self._plan = self.spec.adopt(self._environment)
        except BaseException as error:
            lane.release()
            if not isinstance(error, Exception):
                raise
            name = factory_name(self.spec.factory)
            logger.error("environment factory %r failed", name, exc_info=error)
            raise EnvironmentFactoryError(name) from error
        self._lane = self._reconsidered(lane, self._plan)

    def _choose_lane(self) -> Lane:
        plan = self.spec.plan
        if plan is not None and plan.is_async:
            return LoopLane()
        if self.spec.needs_one_thread and self._shared_worker is not None:
            return ThreadLane(self._shared_worker(None), shared=True)
        return ThreadLane(WorkerThread(f"openenv-{self.id[:8]}"))

    def _reconsidered(self, lane: Lane, plan: CallPlan) -> Lane:
        """Find the lane again, now that the class is known: the factory may not have said it."""
        if not isinstance(lane, ThreadLane):
            return lane
        if plan.is_async:
            lane.release()
            return LoopLane()
        if self.spec.needs_one_thread and self._shared_worker is not None:
            lane.shared = self._shared_worker(lane.worker) is lane.worker
        return lane

    async def close(self) -> None:
        """Close the environment, after the call that is running. Safe to repeat.

        An exception from the environment's `close` is logged: there is nobody to handle it.
        """
        if self._closing is None:
            self.phase = SessionPhase.CLOSING
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        async with self._turn:
            if self._environment is not None and self._plan is not None and self._lane is not None:
                try:
                    close = getattr(self._environment, self._plan.close.name, None)
                    if close is not None:
                        await self._lane.run(close)
                except Exception as error:
                    self.close_error = error
                    logger.exception("close() of session %s failed", self.id)
                finally:
                    self._environment = None
                    self._lane.release()
            self.phase = SessionPhase.CLOSED

    # ------------------------------------------------------------------ use

    @property
    def is_busy(self) -> bool:
        """A call is running or waiting."""
        return self._busy > 0

    def info(self) -> SessionInfo:
        """Describe the session to an operator."""
        cls = self.spec.environment_class
        return SessionInfo(
            session_id=self.id,
            created_at=self.created_at,
            last_activity_at=self.created_at + self.last_activity - self._born,
            step_count=self.step_count,
            environment_type=cls.__name__ if cls is not None else self.spec.name,
        )

    async def handle(self, command: Command, *, strict: bool = False) -> Any:
        """Serve one command; commands are served one at a time, in the order of arrival.

        Args:
            command: What to do.
            strict: Refuse an argument that the environment does not take. Otherwise it is
                left out, and named in the transition's `ignored`.

        Returns:
            A `Transition` for `Reset` and `Step`, a `StateReply` for `GetState`, and for `Call`
            whatever the method returned.

        Raises:
            SessionClosedError: The session has been closed.
            InvalidActionError: The action does not fit its model.
            InvalidArgumentError: With `strict`, for an unknown argument.
            InvalidReturnError: The environment returned no observation.
            Exception: Whatever the environment raised.
        """
        self._busy += 1
        self.last_activity = time.monotonic()
        try:
            async with self._turn:
                return await self._serve(command, strict)
        finally:
            self._busy -= 1
            self.last_activity = time.monotonic()

    async def _serve(self, command: Command, strict: bool) -> Any:
        if self.phase is not SessionPhase.OPEN:
            raise SessionClosedError(self.id)
        try:
            if isinstance(command, Step):
                return await self._step(command, strict)
            if isinstance(command, Reset):
                return await self._reset(command, strict)
            if isinstance(command, GetState):
                return StateReply(await self._read_state())
            return await self._call(command)
        except OpenEnvError:
            raise
        except Exception as error:
            logger.warning(
                "session %s: %s failed", self.id, type(command).__name__.lower(), exc_info=error
            )
            raise

    async def _reset(self, command: Reset, strict: bool) -> Transition:
        plan, lane = self._ready()
        passed, ignored = plan.reset.split(command.arguments, strict=strict)
        self._report(plan.reset, ignored)
        self.step_count = 0
        value = await lane.run(getattr(self._environment, plan.reset.name), **passed)
        return normalise(value, plan.reset.name, ignored)

    async def _step(self, command: Step, strict: bool) -> Transition:
        plan, lane = self._ready()
        action = self.spec.decode_action(command.action)
        passed, ignored = plan.step.split(command.arguments, strict=strict)
        self._report(plan.step, ignored)
        self.step_count += 1
        value = await lane.run(getattr(self._environment, plan.step.name), action, **passed)
        return normalise(value, plan.step.name, ignored)

    async def _read_state(self) -> Any:
        _, lane = self._ready()
        return await lane.peek(self._state_now)

    def _state_now(self) -> Any:
        state = getattr(self._environment, "state")  # noqa: B009 - a duck-typed environment
        if callable(state) and not isinstance(state, BaseModel):
            state = state()
        return state

    async def _call(self, command: Call) -> Any:
        _, lane = self._ready()
        method = getattr(self._environment, command.method, None)
        if method is None:
            raise NotImplementedError(command.method)
        return await lane.run(method, *command.arguments)

    def _ready(self) -> tuple[CallPlan, Lane]:
        assert self._plan is not None and self._lane is not None
        return self._plan, self._lane

    def _report(self, method: Method, ignored: tuple[str, ...]) -> None:
        cls = type(self._environment)
        for name in (name[:100] for name in ignored):
            if (cls, method.name, name) not in _REPORTED and len(_REPORTED) < MAX_REPORTED:
                _REPORTED.add((cls, method.name, name))
                logger.warning(
                    "%s.%s does not take %r; it was passed and ignored (said once a class)",
                    cls.__name__,
                    method.name,
                    name,
                )

    async def metadata(self) -> EnvironmentMetadata:
        """Ask the environment to describe itself."""
        described = await self.handle(Call("get_metadata"))
        return EnvironmentMetadata.model_validate(described, from_attributes=True)


MAX_REPORTED = 1000  # the names come from callers, who may make up any number of them
_REPORTED: set[tuple[type, str, str]] = set()
