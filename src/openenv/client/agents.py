"""Access for an agent, over MCP, to the tools of a session that a client drives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from openenv._internal.addresses import over_http
from openenv.errors import NotSupported, ProtocolError
from openenv.protocol.messages import ROUTE_QUERY, MCPReply, Request
from openenv.tools.types import AGENT_KEY, CREATE

if TYPE_CHECKING:
    from openenv.client.client import EnvClient

__all__ = ["AgentAccess", "agent_access"]


@dataclass(frozen=True)
class AgentAccess:
    """The address and headers with which an agent reaches a client's session over MCP.

    Attributes:
        url: The address of the MCP endpoint. On a server without keys the address names the
            session, and anyone who knows the address has access.
        headers: Headers to send: the agent's own key, if the server has keys.
        session_id: The session.
    """

    url: str
    headers: dict[str, str] = field(repr=False)
    session_id: str


async def agent_access(client: EnvClient[Any, Any, Any]) -> AgentAccess:
    """Return how an agent reaches the session of a client; see `EnvClient.agent_access`."""
    session_id = (await _ask(client, CREATE))["session_id"]
    key = (await _ask(client, AGENT_KEY))["key"]
    if client.base_url is None or client._open_transport is not None:
        raise NotSupported(
            "an environment in this process has no address; serve it, for an agent to reach it",
            feature="agent_access",
        )
    query = {}
    if key is None:
        query["session_id"] = session_id
    if (route := client._session.route) is not None:  # the server that has it, behind a gateway
        query[ROUTE_QUERY] = route
    url = f"{over_http(client.base_url)}/mcp" + (f"?{urlencode(query)}" if query else "")
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return AgentAccess(url, headers, session_id)


async def _ask(client: EnvClient[Any, Any, Any], method: str) -> dict[str, Any]:
    data = {"jsonrpc": "2.0", "id": 1, "method": method}
    reply = await client._request(Request("mcp", data))
    response = reply.response if isinstance(reply, MCPReply) else None
    if not isinstance(response, dict):
        raise ProtocolError(f"the server answered {method} with {type(reply).__name__}")
    if "error" in response:
        why = f"the server knows no agents of sessions: {response['error'].get('message')}"
        raise NotSupported(why, feature="agent_access")
    result: dict[str, Any] = response["result"]
    return result
