"""The shared episode of clients without a session id: ``/web/reset``, ``/web/step``,
``/web/state``, and the events of ``/ws/ui``. The web page itself opens a session per visitor.

Programs and pages written for the public package use these routes and `WebInterfaceManager`.

Invariants: requests run one after the other under an `asyncio.Lock` on one event loop: the session
manager's home loop, or the background loop for an environment without a manager. Methods called on
another loop are forwarded there (`_on_home_loop`). Listeners are woken by an event and send the
latest state, so a slow listener skips intermediate states.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pydantic import BaseModel, Field
from starlette.websockets import WebSocket, WebSocketDisconnect

from openenv.client import background
from openenv.errors import SessionClosedError
from openenv.execution.commands import GetState, GetView, Reset, Step
from openenv.execution.manager import SessionManager
from openenv.execution.session import Session, SessionPhase
from openenv.execution.spec import EnvironmentSpec
from openenv.protocol.messages import StateReply
from openenv.protocol.v0.codec import observation_payload
from openenv.protocol.values import to_wire_value
from openenv.types import EnvironmentMetadata
from openenv.web.about import load_environment_metadata

T = TypeVar("T")

MAX_ACTION_LOGS = 1000
MAX_LOGGED_CHARACTERS = 2**20  # for all logs together, since every listener receives each change
NOT_BEGUN = "no episode has begun; call reset first"


class EpisodeNotStarted(RuntimeError):
    """Raised for a request before the first reset."""


class ActionLog(BaseModel):
    """The record of a step."""

    timestamp: str  # ISO 8601, UTC
    action: dict[str, Any]  # without metadata
    observation: dict[str, Any]
    reward: float | None = None
    done: bool = False
    step_count: int  # number of the step, from 1


class EpisodeState(BaseModel):
    """The published state of the episode."""

    episode_id: str | None = None  # from the environment's state
    step_count: int = 0  # since the reset
    current_observation: dict[str, Any] | None = None
    action_logs: list[ActionLog] = Field(default_factory=list)  # bounded in number and size
    is_reset: bool = True  # whether no step was taken since the reset


class WebInterfaceManager:
    """Runs the requests of all clients of the shared episode, one after the other.

    The methods may be awaited on any event loop.

    Args:
        env: An environment, or a factory of environments.
        action_cls: The action model.
        observation_cls: The observation model.
        metadata: Published metadata; by default the environment's own.
        manager: Session manager that opens and counts the session; by default the session is
            private.

    Attributes:
        episode_state: The published state of the episode.
        connected_clients: WebSockets of the listeners.
    """

    def __init__(
        self,
        env: Any,
        action_cls: Any,
        observation_cls: Any,
        metadata: EnvironmentMetadata | None = None,
        *,
        manager: SessionManager | None = None,
    ) -> None:
        self.action_cls = action_cls
        self.observation_cls = observation_cls
        self.metadata = metadata or load_environment_metadata(env)
        self.episode_state = EpisodeState()
        self.connected_clients: list[WebSocket] = []
        self._made = None if callable(env) else env
        self._factory: Callable[[], Any] = env if callable(env) else lambda: env
        self._manager = manager
        self._session: Session | None = None
        self._state: dict[str, Any] | None = None
        self._sizes: deque[int] = deque()
        self._turn = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: set[asyncio.Event] = set()
        self._making = threading.Lock()

    @property
    def env(self) -> Any:
        """Return the environment, if it runs in this process.

        Raises:
            EpisodeNotStarted: The environment belongs to a server, and no episode has begun.
        """
        if self._manager is not None:
            if self._session is None or self._session.environment is None:
                raise EpisodeNotStarted(NOT_BEGUN)
            return self._session.environment
        with self._making:
            if self._made is None:
                self._made = self._factory()
            return self._made

    async def reset_environment(self, reset_kwargs: dict[str, Any] | None = None) -> dict[str, Any]:
        """Begin an episode with the given arguments of the environment's reset.

        Returns:
            A dictionary with ``observation``, ``reward``, ``done``, and ``metadata`` if not empty.
        """
        return await self._on_home_loop(self._in_turn(self._reset(dict(reset_kwargs or {}))))

    async def step_environment(self, action_data: dict[str, Any]) -> dict[str, Any]:
        """Take a step with an action's fields; return the same fields as `reset_environment`.

        Raises:
            InvalidActionError: The fields do not match the action model.
            SessionClosedError: The episode is lost; reset to begin another.
        """
        return await self._on_home_loop(self._in_turn(self._step(dict(action_data))))

    async def act_on_message(self, message: Any) -> dict[str, Any]:
        """Convert a message to an action with the environment's `message_to_action`, and take the
        step.
        """
        return await self._on_home_loop(self._in_turn(self._message(message)))

    def get_state(self) -> dict[str, Any]:
        """Return the environment's state after the latest request.

        Raises:
            EpisodeNotStarted: There has been no request yet.
        """
        if self._state is None:
            raise EpisodeNotStarted(NOT_BEGUN)
        return dict(self._state)

    async def aclose(self) -> None:
        """Close the environment; a later reset creates another."""
        if self._loop is not None and not self._loop.is_closed():
            await self._on_home_loop(self._close())

    # ------------------------------------------------------------------ on the home loop

    async def _on_home_loop(self, work: Coroutine[Any, Any, T]) -> T:
        here = asyncio.get_running_loop()
        if self._manager is None:
            its = background.background_loop()
        else:
            its = self._manager.home_loop or self._loop or here
            its = its if its.is_running() else here
        if self._loop is not its:
            self._loop, self._turn = its, asyncio.Lock()
        if its is here:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, its))

    async def _in_turn(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._turn:
            return await work

    async def _open_session(self, *, for_reset: bool) -> Session:
        session = self._session
        if session is not None and session.phase is SessionPhase.OPEN:
            return session
        if session is not None and not for_reset:
            raise SessionClosedError(session.id)
        if self._manager is not None:
            self._session = await self._manager.create(provisional=True)
        else:
            spec = EnvironmentSpec.of(lambda: self.env, self.action_cls, self.observation_cls)
            self._session = Session(spec)
            await self._session.open()
        return self._session

    async def _reset(self, arguments: dict[str, Any]) -> dict[str, Any]:
        session = await self._open_session(for_reset=True)
        payload = await session.handle(Reset(arguments), encode=observation_payload)
        told: dict[str, Any] = json.loads(payload)
        self._sizes.clear()
        self.episode_state = EpisodeState(current_observation=told["observation"])
        await self._read_state(session)
        return told

    async def _message(self, message: Any) -> dict[str, Any]:
        session = await self._open_session(for_reset=False)
        view = await session.handle(GetView(message), encode=to_wire_value)
        return await self._step(view["action"])

    async def _step(self, action: dict[str, Any]) -> dict[str, Any]:
        session = await self._open_session(for_reset=False)
        payload = await session.handle(Step(action), encode=observation_payload)
        told: dict[str, Any] = json.loads(payload)
        # Count the action too: a client may send large actions that get short answers.
        self._log(action, told, len(payload) + len(json.dumps(action, default=str)))
        await self._read_state(session)
        return told

    def _log(self, action: dict[str, Any], told: dict[str, Any], size: int) -> None:
        state = self.episode_state
        state.step_count += 1
        state.is_reset = False
        state.current_observation = told["observation"]
        state.action_logs.append(
            ActionLog(
                timestamp=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                action={name: value for name, value in action.items() if name != "metadata"},
                observation=told["observation"],
                reward=told["reward"],
                done=told["done"],
                step_count=state.step_count,
            )
        )
        self._sizes.append(size)
        while len(self._sizes) > MAX_ACTION_LOGS or (
            len(self._sizes) > 1 and sum(self._sizes) > MAX_LOGGED_CHARACTERS
        ):
            self._sizes.popleft()
            state.action_logs.pop(0)

    async def _read_state(self, session: Session) -> None:
        reply = await session.handle(GetState(), encode=_plain_state)
        self._state = reply if isinstance(reply, dict) else {"state": reply}
        self.episode_state.episode_id = self._state.get("episode_id")
        await self._send_state_update()

    async def _close(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        if self._manager is not None:
            await self._manager.close(session.id)
        else:
            await session.close()

    # ------------------------------------------------------------------ listeners

    async def _send_state_update(self) -> None:
        """Wake all listeners; a slow listener sends only the latest state."""
        for changed in self._changed:
            changed.set()

    async def listen(self, websocket: WebSocket) -> None:
        """Send the state and each change to a WebSocket until it disconnects."""
        await websocket.accept()
        changed = asyncio.Event()
        changed.set()
        self.connected_clients.append(websocket)
        self._changed.add(changed)
        sender = asyncio.ensure_future(self._send_changes(websocket, changed))
        try:
            while True:
                await websocket.receive_text()
        except (WebSocketDisconnect, RuntimeError, KeyError):
            pass
        finally:
            self._changed.discard(changed)
            self.connected_clients.remove(websocket)
            sender.cancel()
            with contextlib.suppress(
                asyncio.CancelledError, WebSocketDisconnect, RuntimeError, OSError
            ):
                await sender

    async def _send_changes(self, websocket: WebSocket, changed: asyncio.Event) -> None:
        while True:
            await changed.wait()
            changed.clear()
            told = {"episode_state": self.episode_state.model_dump(mode="json")}
            await websocket.send_json({"type": "state_update", **told})

    async def _run_sync_in_thread_pool(
        self, function: Callable[..., T], *args: Any, **kwargs: Any
    ) -> T:
        """Run a blocking function outside the event loop."""
        return await asyncio.to_thread(function, *args, **kwargs)


def _plain_state(reply: StateReply) -> Any:  # by name, since worker processes unpickle it
    return to_wire_value(reply.state)
