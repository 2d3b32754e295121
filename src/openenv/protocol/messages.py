"""Messages of both protocol versions, decoded.

The frames stand in `openenv.protocol.v0.messages` and `openenv.protocol.v1.messages`.

Where an environment has several action models that take the same fields, the action names its model
by the field ``openenv_action``. The schema of the action says so, and so do the capabilities of
``hello``, by ``action_types``. Likewise the data of an observation name its model by
``observation_type``, in either version, where another one has the same fields.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from openenv.arrays import Rendering
from openenv.errors import ErrorCode

# Headers. A client of version 0 that reads `openenv.protocol.v0.non_finite` sends
# ``1``. With a handshake a gateway says which of its servers it has chosen, and how many sessions a
# connection is to have; it is told the former when a connection is resumed, and in the address of
# an agent. For whom it asks its servers it says by a `Tenant`.
NON_FINITE_HEADER = "OpenEnv-Non-Finite"
ROUTE_HEADER, ROUTE_QUERY = "OpenEnv-Route", "openenv_route"
SPREAD_HEADER = "OpenEnv-Spread"
TENANT_HEADER = "OpenEnv-Tenant"

# Keys under which version 0 carries, inside ``metadata``, what it has no field for.
TRUNCATED = "truncated"
INFO = "info"
IGNORED_ARGUMENTS = "ignored_arguments"

# Beside an observation: the name of its model, where another one has the same fields.
OBSERVATION_TYPE = "observation_type"

# What a server can do, as its hello says, that wants the model of an action named by the field
# ``openenv_action`` where several models take the same fields.
ACTION_TYPES = "action_types"


RequestType = Literal[
    "open",
    "reset",
    "step",
    "state",
    "snapshot",
    "restore",
    "render",
    "view",
    "close",
    "mcp",
    "ack",
    "resume",
]


class Request(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A request of either version, decoded; in version 1 this is what is on the wire.

    Attributes:
        type: Which of the requests: open, reset, step, state, snapshot, restore, render, view,
            close or mcp; or ack or resume.
        data: Arguments of `reset`, the action of `step`, the JSON-RPC request of `mcp`, what
            `restore` goes back to, the message of `view`, how to `open`.
        arguments: Further arguments of `step`; version 0 carries none.
        id: The request's number in its session; version 0 has none.
        session: Which of the connection's sessions it is for; version 0 has one.
        ack: How many frames of the server had come when it was sent; the first of a frame has it.
        trace: The client's span, as W3C's ``traceparent``; version 0 carries none.
    """

    type: RequestType
    data: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    id: int = 0
    session: int = 0
    trace: str = ""
    ack: int = 0


class Transition(msgspec.Struct):
    """The result of `reset` or `step`, normalized; not yet encoded.

    Attributes:
        observation: An `Observation`, or any value that JSON can carry.
        reward: A number, or None where there is none.
        done: The episode is over.
        truncated: It was cut off by a limit outside the task.
        metadata: What is sent beside the observation.
        info: Diagnostics, or None.
        ignored: Names of arguments that were passed and not taken.
        reward_info: What is known of the reward beside the number, or None.
        kind: The name of the observation's model, where another one has the same fields.
    """

    observation: Any
    reward: bool | int | float | None = None
    done: bool = False
    truncated: bool = False
    metadata: dict[str, Any] = {}
    info: dict[str, Any] | None = None
    ignored: tuple[str, ...] = ()
    reward_info: dict[str, Any] | None = None
    kind: str = ""


class ObservationReply(msgspec.Struct):
    """An observation frame, decoded by a client: the payload as clients' hooks expect it."""

    payload: dict[str, Any]


class StateReply(msgspec.Struct):
    """A state frame: the state (server side: any model; client side: a dict)."""

    state: Any


class SnapshotReply(msgspec.Struct):
    """A snapshot frame: the bytes that `restore` takes."""

    snapshot: bytes


class RenderReply(msgspec.Struct):
    """A render frame: what shows people where the episode stands."""

    rendering: Rendering


class MCPReply(msgspec.Struct):
    """An mcp frame: a JSON-RPC response."""

    response: Any


class ErrorReply(msgspec.Struct):
    """An error frame: `data` holds message, code and details."""

    data: dict[str, Any]

    @property
    def is_fatal(self) -> bool:
        """The server closes the connection after an error of this kind."""
        return self.data.get("code") in _FATAL


_FATAL = {
    code.value
    for code in (ErrorCode.CAPACITY_REACHED, ErrorCode.FACTORY_ERROR, ErrorCode.SESSION_ERROR)
}

Reply = ObservationReply | StateReply | SnapshotReply | RenderReply | MCPReply | ErrorReply


class Tenant(msgspec.Struct, forbid_unknown_fields=True):
    """Whom a gateway asks for, as JSON in a header of its requests.

    A gateway that has keys sends its servers a key of theirs. They keep the sessions of its tenants
    apart, and to the limits of each.

    Attributes:
        name: How messages and logs call them.
        role: What they may do.
        session: Of an agent, its session.
        max_sessions: Sessions that they may have open at once; None is no limit.
        requests_per_s: Requests a second.
        bytes_per_s: Bytes a second.
    """

    name: str
    role: str
    session: str | None = None
    max_sessions: int | None = None
    requests_per_s: float | None = None
    bytes_per_s: float | None = None

    def to_header(self) -> str:
        """Write the tenant as JSON, in ASCII."""
        import json  # which a client need not load

        fields = msgspec.structs.asdict(self)
        return json.dumps({name: value for name, value in fields.items() if value is not None})

    @classmethod
    def of_header(cls, value: bytes) -> Tenant:
        """Read what `to_header` has written.

        Raises:
            ValueError: It is nothing such.
        """
        return msgspec.json.decode(value, type=cls)
