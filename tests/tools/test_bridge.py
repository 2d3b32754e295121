"""How an environment's MCP server keeps apart who opened which session of MCP."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from openenv.server.mcp.bridge import _Opening


def test_a_session_is_known_before_its_client_learns_of_it() -> None:
    # Over HTTP the client's next request may be here before this answer is sent to its end.
    happened: list[str] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        happened.append(message["type"])

    async def answer() -> None:
        opening = _Opening(send, happened.append)
        headers = [(b"mcp-session-id", b"f00")]
        await opening.send({"type": "http.response.start", "status": 200, "headers": headers})
        await opening.send({"type": "http.response.body", "body": b'{"result":{}}'})
        assert not opening.is_refused

    asyncio.run(answer())
    assert happened == ["f00", "http.response.start", "http.response.body"]
