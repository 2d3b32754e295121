"""`WS /harness`: a client talks to the agent in an environment, and follows the agent's work.

The episode begins as the client comes, and is over when it leaves. Frames are those of RFC 005:

    <- {"type": "session_started", "data": {"session_id": ..., "harness": ...}}
    -> {"type": "message", "content": "..."}
    <- {"type": "text_output", "timestamp": ..., "data": {...}}     and further events of the turn
    <- {"type": "turn_complete", "timestamp": ..., "data": {"response": ...}}

A message that comes while a turn runs waits for its end. A frame that is no message is answered by
``protocol_error``; the connection goes on. A turn that fails is answered by ``error``, with
``recoverable`` false, and closes the socket.
"""

from __future__ import annotations

import json
import time
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_json

from openenv._internal.incidents import describe_error
from openenv.errors import InvalidJSONError, NotSupported, OpenEnvError
from openenv.execution.commands import CallMethod, GetTransition, Reset, Step
from openenv.execution.connections.channel import NORMAL_CLOSURE
from openenv.execution.connections.v0.connection import ServedConnectionV0
from openenv.execution.session import QueuedCall, Session
from openenv.execution.spec import HARNESS_NAME, HARNESS_TURN, EnvironmentSpec
from openenv.protocol.messages import Transition
from openenv.protocol.v0.codec import parse_json

__all__ = ["HarnessConnection", "may_be_harness"]

EPISODE_OVER = "EPISODE_OVER"
EXAMPLE = '{"type": "message", "content": "..."}'


def may_be_harness(spec: EnvironmentSpec) -> bool:
    """Say whether an agent may run in the environment; True if the class is not known yet."""
    return spec.environment_class is None or is_harness(spec)


def is_harness(spec: EnvironmentSpec) -> bool:
    """Say whether an agent runs in the environment, which takes turns."""
    return hasattr(spec.environment_class, HARNESS_TURN)


class HarnessMessage(BaseModel):
    """A message of the client to the agent."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["message"]
    content: str


class HarnessConnection(ServedConnectionV0):
    """A connection to the agent in an environment.

    A client that joins a session goes on with its episode, if one has begun.
    """

    __slots__ = ("_is_ended", "_was_told")

    _is_ended: bool
    _was_told: bool

    async def _join(self) -> Session:
        self._is_ended = self._was_told = False
        session = await super()._join()
        try:
            if not is_harness(session.spec):
                raise NotSupported(
                    f"no agent runs in {session.spec.name}: /harness is for environments that "
                    "derive from HarnessEnvironment",
                    feature="harness",
                )
            if self._session_id is None or await session.handle(GetTransition()) is None:
                await session.handle(Reset())
            name = await session.handle(CallMethod(HARNESS_NAME))
        except BaseException:
            if self._session_id is None:
                await self._manager.close(session.id)
            raise
        self._tell("session_started", {"session_id": session.id, "harness": name})
        return session

    def _serve(self, frame: str | bytes) -> None:
        try:
            if self._limited is not None:
                self._limited.allow(1, len(frame))
            message = HarnessMessage.model_validate(parse_json(frame))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "(frame)"
            why = f"Invalid message: {where}: {first['msg']}; send {EXAMPLE}"
            self._object("VALIDATION_ERROR", why)
            return
        except InvalidJSONError as error:
            self._object("INVALID_JSON", str(error))
            return
        except OpenEnvError as error:
            self._counters.failed(error)
            self._object("RATE_LIMITED", str(error))
            return
        if self._is_ended:
            why = "the episode is over; connect again for another"
            self._object(EPISODE_OVER, why)
            return
        assert self._session is not None
        self._was_told = False
        turn = getattr(self._session.spec.environment_class, HARNESS_TURN)
        step = Step(turn(message.content, self._hear))
        call = HarnessTurnCall(self._session, step, connection=self)
        self._call = call
        self._session.serve(call)

    def _object(self, code: str, why: str) -> None:
        self._tell("protocol_error", {"message": why, "code": code})

    def _tell(self, kind: str, data: dict[str, Any]) -> None:
        self._send(json.dumps({"type": kind, "data": data}).encode())

    def _hear(self, event: Any) -> None:
        """Send an event of the turn that is under way."""
        if self._call is not None and not self._is_over:
            self._was_told = True
            self._send(to_json(event, inf_nan_mode="null", fallback=str))

    def end_turn(self, transition: Transition | None, error: BaseException | None) -> None:
        """Go on after a turn."""
        was_told = self._was_told
        self._call = None
        if self._is_over:
            return
        if error is not None:
            self._counters.failed(error)
            why = {
                "message": describe_error(error, debug=self._manager.debug),
                "recoverable": False,
            }
            self._send(to_json({"type": "error", "timestamp": time.time(), "data": why}))
        elif transition is not None and not was_told:  # it lives in another process
            for event in _metadata(transition).get("turn_events", ()):
                self._send(to_json(event))
        has_failed = error is not None or "error" in _metadata(transition)
        self._is_ended = transition is not None and transition.done
        if has_failed or self._is_draining:
            self._channel.close(NORMAL_CLOSURE)
            self._lose()
        elif self._frames:
            self._serve_waiting()


def _metadata(transition: Transition | None) -> dict[str, Any]:
    return {} if transition is None else transition.metadata or {}


class HarnessTurnCall(QueuedCall, kw_only=True):
    """A queued turn of the agent."""

    connection: HarnessConnection

    def reply(self, result: Any, error: BaseException | None) -> None:
        self.connection.end_turn(result, error)

    def report_overdue(self, error: OpenEnvError) -> None:
        raise AssertionError("a turn here carries no deadline")
