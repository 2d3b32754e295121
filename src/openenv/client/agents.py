"""Access of an agent, by MCP, to the tools of a session that a client drives."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from openenv.client.internals import ClientInternals, internals
from openenv.errors import NotSupported, ProtocolError
from openenv.protocol.messages import ROUTE_QUERY, MCPReply, Request
from openenv.tools.types import AGENT_KEY, CREATE

if TYPE_CHECKING:
    from openenv.client.client import EnvClient

__all__ = ["AgentAccess", "agent_access"]


@dataclass(frozen=True)
class AgentAccess:
    """The address and headers by which an agent reaches a client's session by MCP.

    Attributes:
        url: The address of the MCP endpoint. On a server without keys the address names the
            session, and everybody who knows the address is let in.
        headers: Headers to send: the agent's own key, if the server has keys.
        session_id: The session.
    """

    url: str
    headers: dict[str, str] = field(repr=False)
    session_id: str


async def agent_access(client: EnvClient[Any, Any, Any]) -> AgentAccess:
    """Return how an agent reaches the session of a client; see `EnvClient.agent_access`."""
    inside = internals(client)
    session_id = (await _ask(inside, CREATE))["session_id"]
    key = (await _ask(inside, AGENT_KEY))["key"]
    if client.base_url is None or inside.open_transport is not None:
        raise NotSupported(
            "an environment in this process has no address; serve it, for an agent to reach it",
            feature="agent_access",
        )
    query = {}
    if key is None:
        query["session_id"] = session_id
    if inside.session.route is not None:  # the server of a gateway that has the session
        query[ROUTE_QUERY] = inside.session.route
    url = f"{_http(client.base_url)}/mcp" + (f"?{urlencode(query)}" if query else "")
    if key is None:
        return AgentAccess(url, {}, session_id)
    return AgentAccess(url, {"Authorization": f"Bearer {key}"}, session_id)


async def _ask(client: ClientInternals, method: str) -> dict[str, Any]:
    data = {"jsonrpc": "2.0", "id": 1, "method": method}
    reply = await client.request(Request("mcp", data))
    response = reply.response if isinstance(reply, MCPReply) else None
    if not isinstance(response, dict):
        raise ProtocolError(f"the server answered {method} with {type(reply).__name__}")
    if "error" in response:
        why = f"the server knows no agents of sessions: {response['error'].get('message')}"
        raise NotSupported(why, feature="agent_access")
    result: dict[str, Any] = response["result"]
    return result


def _http(base_url: str) -> str:
    """Return a server's address with an HTTP scheme."""
    if "://" not in base_url:
        return f"http://{base_url}"
    return re.sub("^ws", "http", base_url)
