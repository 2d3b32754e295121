"""Base class of the connections of both protocol versions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from openenv.errors import NotSupported, TooLargeError
from openenv.execution.commands import (
    Command,
    GetState,
    GetView,
    Render,
    Reset,
    Restore,
    Step,
    TakeSnapshot,
)
from openenv.execution.connections.channel import Channel, charge
from openenv.execution.connections.json_rpc import (
    JsonRpcCommand,
    build_json_rpc_command,
    json_rpc_error,
    parse_request,
)
from openenv.execution.manager import SessionManager
from openenv.execution.principal import Principal
from openenv.execution.session import Session
from openenv.protocol.messages import MCPReply, Request
from openenv.settings import ServerMode
from openenv.tools.types import JsonRpcResponse

# A client is cut off after this many unreadable frames in a row.
REFUSED_FRAMES = 1000
LINGER_S = 5.0

# The commands for requests, by the type of the request.
COMMANDS: dict[str, Callable[[Request], Command]] = {
    "step": lambda request: Step(request.data, request.arguments),
    "reset": lambda request: Reset(request.data),
    "state": lambda request: GetState(),
    "snapshot": lambda request: TakeSnapshot(),
    "restore": lambda request: Restore(request.data),
    "render": lambda request: Render(),
    "view": lambda request: GetView(request.data.get("message")),
}


class ServedConnection:
    """The connection of a client: frames come in, sessions serve requests, and frames go out.

    Calls of the channel drive the connection, not a task of its own, so that a step costs no more
    than its own work, and a waiting client costs next to nothing. The connection keeps listening
    while a request is served, so it notices at once when the client leaves.

    Attributes:
        hears_while_clogged: Whether to listen to a client that does not read.
        ended: Done when the client has left and its sessions are closed or left to the manager.
    """

    hears_while_clogged = False

    __slots__ = (
        "_channel",
        "_counters",
        "_is_draining",
        "_is_over",
        "_is_paused",
        "_is_simulation",
        "_largest",
        "_limited",
        "_manager",
        "_principal",
        "_refused",
        "ended",
    )

    def __init__(
        self, manager: SessionManager, channel: Channel, principal: Principal | None
    ) -> None:
        self._manager = manager
        self._counters = manager.counters
        self._largest = manager.limits.max_message_bytes
        self._principal = principal
        self._limited = None if principal is None else principal.if_limited()
        self._channel = charge(channel, self._limited)
        self._is_simulation = manager.spec.mode is ServerMode.SIMULATION
        self._is_over = self._is_draining = self._is_paused = False
        self._refused = 0  # unreadable frames since the last readable one
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def max_unread_bytes(self) -> int:
        """Return the number of bytes that a client may leave unread."""
        return self._manager.limits.max_unread_bytes

    def note_cut_off(self) -> None:
        """Count a client that is cut off because of unread answers."""
        self._counters.slow_readers_cut += 1

    def _command_of(self, request: Request) -> Command | None:
        """Return the command for a request; None for a request of another kind.

        In production mode clients control the environment only through its tools.
        """
        command_of = COMMANDS.get(request.type) if self._is_simulation else None
        return None if command_of is None else command_of(request)

    def _json_rpc_command(
        self, session: Session, data: dict[str, Any]
    ) -> JsonRpcCommand | JsonRpcResponse:
        """Return the command of a JSON-RPC request, or the response if no session is needed."""
        request = parse_request(data)
        if isinstance(request, JsonRpcResponse):
            return request
        return build_json_rpc_command(self._manager, session, request, self._principal)

    def json_rpc_failure(self, command: JsonRpcCommand, error: BaseException) -> MCPReply:
        """Count the error of a JSON-RPC request, and return the answer."""
        self._counters.failed(error)
        return MCPReply(json_rpc_error(error, command.respond.id, debug=self._manager.debug))


def closed_in_production(request_type: str) -> NotSupported:
    """Return the error for a request that only a server in simulation mode serves."""
    return NotSupported(
        f"this server runs in production mode, where time flows and nobody can {request_type}; "
        "what an agent can do there are the environment's tools, by MCP at /mcp",
        feature=request_type,
    )


def too_large(what: str, size: int, limit: int, cure: str) -> TooLargeError:
    """Return the error for an answer that is larger than the client accepts."""
    return TooLargeError(what, size, limit, f"raise OPENENV_MAX_MESSAGE_BYTES of the server{cure}")


async def close_or_leave(manager: SessionManager, session: Session) -> None:
    """Close the session of a client that has left, or leave it to the manager after `LINGER_S`.

    A web server that shuts down waits for every client that is being served, so an environment's
    slow `close` must not keep a connection alive.
    """
    session.attachments -= 1
    closing = asyncio.ensure_future(manager.close(session.id))
    await asyncio.wait({closing}, timeout=LINGER_S)
