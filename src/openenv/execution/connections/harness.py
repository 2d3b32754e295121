"""`WS /harness`: a client talks to the agent in an environment, and follows the agent's work.

The episode begins when the client connects, and is over when it leaves. Frames follow RFC 005:

    <- {"type": "session_started", "data": {"session_id": ..., "harness": ...}}
    -> {"type": "message", "content": "..."}
    <- {"type": "text_output", "timestamp": ..., "data": {...}}     and further events of the turn
    <- {"type": "turn_complete", "timestamp": ..., "data": {"response": ...}}

A message that arrives during a turn waits for its end. A frame that is not a message is answered
with ``protocol_error``, and the connection continues. A turn that fails is answered with ``error``,
with ``recoverable`` false, and closes the socket.
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

EXPECTED = 'send {"type": "message", "content": "..."}'


def may_be_harness(spec: EnvironmentSpec) -> bool:
    """Return whether an agent may run in the environment; True if the class is not known yet."""
    return spec.environment_class is None or is_harness(spec)


def is_harness(spec: EnvironmentSpec) -> bool:
    """Return whether an agent runs in the environment and takes turns."""
    return hasattr(spec.environment_class, HARNESS_TURN)


class HarnessMessage(BaseModel):
    """A message of the client to the agent."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["message"]
    content: str


class HarnessConnection(ServedConnectionV0):
    """A connection to the agent in an environment.

    A client that joins a session continues its episode, if one has begun.
    """

    __slots__ = ("_has_forwarded", "_is_ended")

    _is_ended: bool
    _has_forwarded: bool

    async def _join(self) -> Session:
        self._is_ended = self._has_forwarded = False
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
        self._send_event("session_started", {"session_id": session.id, "harness": name})
        return session

    def _serve(self, frame: str | bytes) -> None:
        try:
            if self._limited is not None:
                self._limited.allow(1, len(frame))
            message = HarnessMessage.model_validate(parse_json(frame))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "(frame)"
            self._refuse(
                "VALIDATION_ERROR", f"Invalid message: {where}: {first['msg']}; {EXPECTED}"
            )
            return
        except InvalidJSONError as error:
            self._refuse("INVALID_JSON", str(error))
            return
        except OpenEnvError as error:
            self._counters.failed(error)
            self._refuse("RATE_LIMITED", str(error))
            return
        if self._is_ended:
            self._refuse("EPISODE_OVER", "the episode is over; connect again for another")
            return
        assert self._session is not None
        self._has_forwarded = False
        turn = getattr(self._session.spec.environment_class, HARNESS_TURN)
        step = Step(turn(message.content, self._forward))
        call = HarnessTurnCall(self._session, step, connection=self)
        self._call = call
        self._session.serve(call)

    def _refuse(self, code: str, why: str) -> None:
        self._send_event("protocol_error", {"message": why, "code": code})

    def _send_event(self, kind: str, data: dict[str, Any]) -> None:
        self._send(json.dumps({"type": kind, "data": data}).encode())

    def _forward(self, event: Any) -> None:
        """Send an event of the current turn."""
        if self._call is not None and not self._is_over:
            self._has_forwarded = True
            self._send(to_json(event, inf_nan_mode="null", fallback=str))

    def end_turn(self, transition: Transition | None, error: BaseException | None) -> None:
        """Continue after a turn."""
        self._call = None
        if self._is_over:
            return
        metadata = (transition.metadata or {}) if transition is not None else {}
        if error is not None:
            self._counters.failed(error)
            why = {
                "message": describe_error(error, debug=self._manager.debug),
                "recoverable": False,
            }
            self._send(to_json({"type": "error", "timestamp": time.time(), "data": why}))
        elif not self._has_forwarded:  # the environment is in another process
            for event in metadata.get("turn_events", ()):
                self._send(to_json(event))
        has_failed = error is not None or "error" in metadata
        self._is_ended = transition is not None and transition.done
        if has_failed or self._is_draining:
            self._channel.close(NORMAL_CLOSURE)
            self._lose()
        elif self._frames:
            self._serve_waiting()


class HarnessTurnCall(QueuedCall, kw_only=True):
    """A queued turn of the agent."""

    connection: HarnessConnection

    def reply(self, result: Any, error: BaseException | None) -> None:
        self.connection.end_turn(result, error)

    def report_overdue(self, error: OpenEnvError) -> None:
        raise AssertionError("a turn here carries no deadline")
