"""Messages of both protocol versions, decoded.

`openenv.protocol.v0.messages` and `openenv.protocol.v1.messages` describe the frames.

If several action models of an environment take the same fields, an action names its model in the
field ``openenv_action``. The schema of the action says so, and so does ``action_types`` in the
capabilities of ``hello``. In the same way, the data of an observation name its model in
``observation_type``, in either version, if another model has the same fields.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from openenv.arrays import Rendering
from openenv.errors import ErrorCode

# Headers. A client of version 0 that understands `openenv.protocol.v0.non_finite` sends ``1``. In a
# handshake a gateway returns which of its servers it has chosen and how many sessions a connection
# should have. Clients send the former back to resume a connection, and in the address of an agent.
# A gateway tells its servers on whose behalf it asks with a `Tenant`.
NON_FINITE_HEADER = "OpenEnv-Non-Finite"
ROUTE_HEADER, ROUTE_QUERY = "OpenEnv-Route", "openenv_route"
SPREAD_HEADER = "OpenEnv-Spread"
TENANT_HEADER = "OpenEnv-Tenant"

# Keys in ``metadata`` with which version 0 carries values that it has no field for.
TRUNCATED = "truncated"
INFO = "info"
IGNORED_ARGUMENTS = "ignored_arguments"

# Beside an observation: the name of its model, if another model has the same fields.
OBSERVATION_TYPE = "observation_type"

# A capability in a server's hello: an action may name its model in the field ``openenv_action``,
# which is needed if several models take the same fields.
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
    """A request of either version, decoded; in version 1 this struct is on the wire.

    Attributes:
        type: The request's type: open, reset, step, state, snapshot, restore, render, view, close
            or mcp; or ack or resume.
        data: Arguments of `reset`, the action of `step`, the JSON-RPC request of `mcp`, the
            snapshot for `restore`, the message of `view`, the options of `open`.
        arguments: Further arguments of `step`; version 0 carries none.
        id: The request's number in its session; version 0 has none.
        session: The number of the session on its connection; version 0 has one session.
        ack: Number of server frames received so far; set on the first message of a frame.
        trace: The client's span, as a W3C ``traceparent``; version 0 carries none.
    """

    type: RequestType
    data: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    id: int = 0
    session: int = 0
    trace: str = ""
    ack: int = 0


class Transition(msgspec.Struct):
    """The result of `reset` or `step`, normalized but not yet encoded.

    Attributes:
        observation: An `Observation`, or any value that JSON can carry.
        reward: The reward; None if there is none.
        done: Whether the episode is over.
        truncated: Whether a limit outside the task ended the episode.
        metadata: Metadata that is sent beside the observation.
        info: Diagnostics, or None.
        ignored: Names of arguments that the environment does not take.
        reward_info: Details of the reward, or None.
        kind: The name of the observation's model, if another model has the same fields.
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
    """An observation frame, decoded by a client: the payload in the form that its hooks expect."""

    payload: dict[str, Any]


class StateReply(msgspec.Struct):
    """A state frame: the state (server side: any model; client side: a dict)."""

    state: Any


class SnapshotReply(msgspec.Struct):
    """A snapshot frame: the bytes that `restore` takes."""

    snapshot: bytes


class RenderReply(msgspec.Struct):
    """A render frame: a picture of the episode for people."""

    rendering: Rendering


class MCPReply(msgspec.Struct):
    """An mcp frame: a JSON-RPC response."""

    response: Any


class ErrorReply(msgspec.Struct):
    """An error frame: `data` holds message, code and details."""

    data: dict[str, Any]

    @property
    def is_fatal(self) -> bool:
        """Whether the server closes the connection after this error."""
        return self.data.get("code") in _FATAL


_FATAL = {
    code.value
    for code in (ErrorCode.CAPACITY_REACHED, ErrorCode.FACTORY_ERROR, ErrorCode.SESSION_ERROR)
}

Reply = ObservationReply | StateReply | SnapshotReply | RenderReply | MCPReply | ErrorReply


class Tenant(msgspec.Struct, forbid_unknown_fields=True):
    """The client on whose behalf a gateway sends a request, as JSON in a header.

    A gateway with keys sends its servers one of their own keys. The servers keep the sessions of
    the gateway's tenants apart, and apply the limits of each tenant.

    Attributes:
        name: The tenant's name in messages and logs.
        role: The tenant's role.
        session: The session of an agent.
        max_sessions: Maximum number of sessions open at once; None for no limit.
        requests_per_s: Maximum number of requests per second; None for no limit.
        bytes_per_s: Maximum number of bytes per second; None for no limit.
    """

    name: str
    role: str
    session: str | None = None
    max_sessions: int | None = None
    requests_per_s: float | None = None
    bytes_per_s: float | None = None

    def to_header(self) -> str:
        """Write the tenant as JSON, in ASCII."""
        import json  # loaded here, since clients do not need it

        fields = msgspec.structs.asdict(self)
        return json.dumps({name: value for name, value in fields.items() if value is not None})

    @classmethod
    def of_header(cls, value: bytes) -> Tenant:
        """Read a header that `to_header` wrote.

        Raises:
            ValueError: The value is not such a header.
        """
        return msgspec.json.decode(value, type=cls)
