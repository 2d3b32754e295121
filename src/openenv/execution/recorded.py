"""Encodes the recorded events of a session as text, where the environment lives.

A `Recording` encodes the replies of a recorded session. It returns them together with the text that
`openenv.execution.recording` writes to a file. So arguments are recorded before the environment can
change them, and a worker process does the work for its own sessions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import msgspec

from openenv.errors import words
from openenv.execution.commands import CallMethod, Command, Encode, Reset, Restore, Step
from openenv.execution.spec import CALL_TOOL, normalise
from openenv.protocol.messages import StateReply, Transition
from openenv.protocol.records import error_text, json_text, transition_text
from openenv.tools.types import CallToolAction
from openenv.types import Observation

KINDS = {Step: b"step", Reset: b"reset", Restore: b"restore"}


def kind_of(command: Command) -> bytes | None:
    """Return the recorded name of a command; None for a command that changes no episode.

    A tool call of an agent is recorded as the corresponding step of a trainer.
    """
    if isinstance(command, CallMethod):
        return b"step" if command.method == CALL_TOOL else None
    return KINDS.get(type(command))


class Recorded(msgspec.Struct):
    """A reply together with the text of its recorded event.

    Attributes:
        payload: The reply, encoded if the call has an encoder.
        text: Members of a JSON object.
    """

    payload: Any
    text: bytes


@dataclass(frozen=True, slots=True)
class Recording:
    """Encodes replies as `encode` does, and adds the text of the recorded event."""

    encode: Encode | None

    def __call__(self, reply: Any) -> Any:
        return reply if self.encode is None else self.encode(reply)

    def of(self, command: Command) -> Encode | None:
        """Return the encoder of the reply to a command that is about to be served."""
        request = request_text(command)
        if request is None:
            return self.encode
        return _RecordedCall(self.encode, request, time.perf_counter())


@dataclass(slots=True)
class _RecordedCall:
    """A command that is being served."""

    encode: Encode | None
    request: bytes
    began: float

    def __call__(self, reply: Any) -> Recorded:
        seconds = time.perf_counter() - self.began
        payload = reply if self.encode is None else self.encode(reply)
        text = b'%b,%b,"seconds":%.6f,"error":null' % (self.request, _reply_text(reply), seconds)
        return Recorded(payload, text)


def request_text(command: Command) -> bytes | None:
    """Write the request of a command as text; None for a command that changes no episode."""
    try:
        if isinstance(command, Step):
            parts = json_text(command.action), json_text(command.arguments)
            return b'"action":%b,"arguments":%b' % parts
        if isinstance(command, Reset):
            others = {name: value for name, value in command.arguments.items() if name != "seed"}
            seed = json_text(command.arguments.get("seed"))
            return b'"seed":%b,"arguments":%b' % (seed, json_text(others))
        if isinstance(command, Restore):
            return b'"snapshot":%b' % msgspec.json.encode(command.data.get("snapshot"))
        if isinstance(command, CallMethod) and command.method == CALL_TOOL:
            name, arguments = command.arguments[:2]  # a progress reporter may follow
            action = CallToolAction(tool_name=name, arguments=arguments)
            timed = {} if command.timeout_s is None else {"timeout_s": command.timeout_s}
            return b'"action":%b,"arguments":%b' % (json_text(action), json_text(timed))
        return None
    except Exception as error:  # a recording never fails the session
        return _unrecorded(error)


def _reply_text(reply: Any) -> bytes:
    try:
        if isinstance(reply, Transition):
            return transition_text(reply)
        if isinstance(reply, Observation):  # from an agent's tool call
            return transition_text(normalise(reply, CALL_TOOL))
        return b'"state":%b' % json_text(reply.state if isinstance(reply, StateReply) else reply)
    except Exception as error:  # a recording never fails the session
        return _unrecorded(error)


def _unrecorded(error: Exception) -> bytes:
    return b'"unrecorded":%b' % msgspec.json.encode(f"{type(error).__name__}: {words(error)}")


def text_of_failure(command: Command, error: BaseException, seconds: float) -> bytes:
    """Write the request of a command and the error as text."""
    request = request_text(command) or b""
    return b'%b,"seconds":%.6f,"error":%b' % (request, seconds, error_text(error))
