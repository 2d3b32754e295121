"""Where an agent reaches the tools of a session that somebody else drives."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from openenv.errors import NotSupported, ProtocolError
from openenv.protocol.messages import MCPReply, Request
from openenv.protocol.routes import ROUTE_QUERY
from openenv.tools.types import AGENT_KEY, CREATE

if TYPE_CHECKING:
    from openenv.client.client import EnvClient

__all__ = ["AgentAccess", "agent_access"]


@dataclass(frozen=True)
class AgentAccess:
    """How an agent connects by MCP to the session of a client.

    Attributes:
        url: Where. On a server without keys it names the session, and whoever has it is let in.
        headers: What is to be sent along: the agent's own key, where the server has keys.
        session_id: The session.
    """

    url: str
    headers: dict[str, str] = field(repr=False)
    session_id: str


async def agent_access(client: EnvClient[Any, Any, Any]) -> AgentAccess:
    """See `EnvClient.agent_access`."""
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
    if client._session.route is not None:  # which server of a gateway's has the session
        query[ROUTE_QUERY] = client._session.route
    url = f"{_http(client.base_url)}/mcp" + (f"?{urlencode(query)}" if query else "")
    if key is None:
        return AgentAccess(url, {}, session_id)
    return AgentAccess(url, {"Authorization": f"Bearer {key}"}, session_id)


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


def _http(base_url: str) -> str:
    """A server's address, of whichever scheme, as one of HTTP."""
    if "://" not in base_url:
        return f"http://{base_url}"
    return re.sub("^ws", "http", base_url)
