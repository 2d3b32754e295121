"""Live view of a running server's sessions over the WebSocket `/web/watch`.

    client                                  server
                                            {type: sessions, data: {server, sessions, ...}}
    {type: follow, data: {session_id}}      {type: following, data: {session_id}}
                                            {type: event, data: {...}}  a recording's event
                                            {type: missed, data: {events}}
                                            {type: ended, data: {session_id}}
    {type: unfollow}

Watching has no effect on sessions: they are not called, kept alive, or delayed by a slow watcher. A
slow watcher misses events and receives the number of missed events.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import Any

import msgspec
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from openenv._internal.quoting import quoted
from openenv.errors import SessionNotFoundError
from openenv.execution.commands import Step
from openenv.execution.manager import SessionManager
from openenv.execution.principal import Principal, Role, principal_of
from openenv.execution.recording import Follower
from openenv.execution.session import Session

SUBPROTOCOL = "openenv.watch"
PERIOD_S = 1.0
MAX_LISTED = 200  # sessions in a frame; the most recently active ones
MAX_UNSENT = 256  # events queued for a watcher
MAX_UNSENT_BYTES = 8 * 2**20
MAX_EVENT_BYTES = 2**20  # of a larger event, only the size is sent
EVENT = b'{"type":"event","data":'
MAX_FRAME_BYTES = 2**16  # for a watcher's request
MAX_ID = 200  # characters of a session's id


# Members of an event that observers see: progress and rewards, but not the content.
OBSERVABLE = frozenset(
    {"event", "episode", "step", "time", "seconds", "reward", "terminated", "truncated", "lost"}
)


class SessionBoard:
    """A list of a key's sessions for watchers, or of all sessions, refreshed periodically."""

    def __init__(self, manager: SessionManager, owner: Principal | None = None) -> None:
        self._manager = manager
        self._owner = owner
        self._made_at = 0.0
        self._frame = b""
        self._before: tuple[float, int] | None = None
        self._rate = 0.0

    def frame(self) -> bytes:
        """Return the list as a frame, at most 0.5 s old."""
        now = time.monotonic()
        if now - self._made_at <= PERIOD_S / 2:
            return self._frame
        manager, counters = self._manager, self._manager.counters
        steps = counters.latencies[Step].whole.count
        if self._before is not None and now > self._before[0]:
            self._rate = (steps - self._before[1]) / (now - self._before[0])
        self._before = now, steps
        sessions = [
            one
            for one in manager.sessions()
            if not one.is_throwaway and (self._owner is None or manager.is_of(one.id, self._owner))
        ]
        latest = sorted(sessions, key=lambda one: one.last_activity, reverse=True)[:MAX_LISTED]
        told = {
            "environment": manager.spec.name,
            "time": time.time(),
            "active": manager.active_sessions,
            "max_sessions": manager.max_sessions,
            "queue": manager.queue_length,
            "steps": steps,
            "steps_per_s": self._rate,
            "trouble": manager.trouble is not None,
            "total": len(sessions),
            "sessions": [_session_row(one, now) for one in latest],
        }
        self._frame, self._made_at = msgspec.json.encode({"type": "sessions", "data": told}), now
        return self._frame


def _session_row(session: Session, now: float) -> dict[str, Any]:
    return {
        "session_id": session.id,
        "phase": session.phase.name.lower(),
        "steps": session.step_count,
        "created_at": session.created_at,
        "idle_s": 0.0 if session.is_busy else max(0.0, now - session.last_activity),
        "is_busy": session.is_busy,
        "is_overdue": session.is_overdue,
        "attachments": session.attachments,
    }


class SessionWatcher:
    """A connection's bounded send queue, and the session that the connection follows.

    If `owner` is given, only sessions of that key may be followed. Unless `sees_all`, only
    `OBSERVABLE` members of events are sent.
    """

    def __init__(
        self,
        manager: SessionManager,
        board: SessionBoard,
        owner: Principal | None,
        *,
        sees_all: bool,
    ) -> None:
        self._manager = manager
        self._board = board
        self._owner = owner
        self._sees_all = sees_all
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = self._missed = 0
        self._wake, self._has_room = asyncio.Event(), asyncio.Event()
        self._has_room.set()
        self._follower: Follower | None = None

    def _handle(self, frame: str) -> None:
        try:
            asked = msgspec.json.decode(frame, type=_WatchRequest)
        except (msgspec.MsgspecError, RecursionError) as error:
            self._say("error", {"message": f"this frame cannot be read: {error}"})
            return
        self.unfollow()
        if asked.type == "follow":
            self._follow(asked.data.get("session_id"))

    def _follow(self, session_id: Any) -> None:
        try:
            session = self._manager.get(
                str(session_id)[:MAX_ID], confirm=False, principal=self._owner
            )
        except SessionNotFoundError as error:
            self._say("error", {"message": str(error), "session_id": quoted(session_id, MAX_ID)})
            return
        self._follower = session.follow(self._event)
        self._say("following", _session_row(session, time.monotonic()))

    def unfollow(self) -> None:
        """Stop following, and drop unsent events of the followed session."""
        self._unsent = deque(one for one in self._unsent if not one.startswith(EVENT))
        self._unsent_bytes = sum(map(len, self._unsent))
        self._missed = 0
        if self._follower is not None:
            self._follower.stop()
            self._follower = None

    def _event(self, line: bytes | None) -> None:
        """Queue an event of the followed session; None means the session's end.

        Runs on the event loop.
        """
        if line is None:
            self._follower = None
            self._say("ended", {})
            return
        if not self._sees_all:
            line = _redact_event(line)
        is_sent = len(line) <= MAX_EVENT_BYTES
        size = self._unsent_bytes + (len(line) if is_sent else 0)
        if len(self._unsent) >= MAX_UNSENT or size > MAX_UNSENT_BYTES:
            self._missed += 1
        elif is_sent:
            self._put(b"%b%b}" % (EVENT, line))
        else:
            self._say("omitted", {"bytes": len(line)})

    def _say(self, kind: str, data: dict[str, Any]) -> None:
        self._put(msgspec.json.encode({"type": kind, "data": data}))

    def _put(self, frame: bytes) -> None:
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        self._wake.set()
        if len(self._unsent) >= MAX_UNSENT:
            self._has_room.clear()

    async def listen_to(self, websocket: WebSocket) -> None:
        """Handle requests until the socket closes, while the send queue has room."""
        while True:
            await self._has_room.wait()
            frame = await websocket.receive_text()
            if len(frame) > MAX_FRAME_BYTES:
                await websocket.close(1009)
                return
            self._handle(frame)

    async def send_to(self, websocket: WebSocket) -> None:
        """Send queued frames, and the session list each second, until the socket closes."""
        due = 0.0
        while True:
            now = time.monotonic()
            if now >= due:
                await websocket.send_text(self._board.frame().decode())
                due = now + PERIOD_S
            while self._unsent:
                frame = self._unsent.popleft()
                self._unsent_bytes -= len(frame)
                await websocket.send_text(frame.decode())
            self._has_room.set()
            if self._missed:
                missed, self._missed = self._missed, 0
                self._say("missed", {"events": missed})
                continue
            self._wake.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, due - time.monotonic()))


def _redact_event(line: bytes) -> bytes:
    """Replace the members that observers must not see with null."""
    event: dict[str, Any] = msgspec.json.decode(line)
    shown = {name: value if name in OBSERVABLE else None for name, value in event.items()}
    return msgspec.json.encode(shown)


class _WatchRequest(msgspec.Struct):
    """A request of a watcher."""

    type: str
    data: dict[str, Any] = {}


def watch_route(manager: SessionManager) -> WebSocketRoute:
    """Build the route of `/web/watch`.

    On a server with keys, an orchestrator's key shows that key's sessions in full; an observer's
    key shows all sessions, with `OBSERVABLE` members only.
    """
    board = SessionBoard(manager)

    async def watch(websocket: WebSocket) -> None:
        principal = principal_of(websocket.scope)
        if principal is not None and principal.role is Role.AGENT:
            await websocket.close(4403)
            return
        # A browser that offers subprotocols (including the key) expects the server to choose one.
        offered = websocket.scope["subprotocols"]
        await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        is_observer = principal is not None and principal.role is Role.OBSERVER
        owner = None if is_observer else principal
        shown = board if owner is None else SessionBoard(manager, owner)
        watcher = SessionWatcher(manager, shown, owner, sees_all=not is_observer)
        tasks = [
            asyncio.ensure_future(watcher.send_to(websocket)),
            asyncio.ensure_future(watcher.listen_to(websocket)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watcher.unfollow()
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(
                    asyncio.CancelledError, WebSocketDisconnect, RuntimeError, OSError
                ):
                    await task

    return WebSocketRoute("/web/watch", watch)
