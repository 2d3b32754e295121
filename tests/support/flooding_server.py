"""An MCP server over HTTP without a library, whose answers are as large as one likes.

Its tools: `add` to a tally, which it gives; `big`, a text of so many characters; `flood`, an answer
of 128 MiB; `packed`, one of as much that is sent as a few KiB.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

__all__ = ["Flooding"]

MIB = 2**20
FLOOD_MIB = 128
NAMES = ("add", "big", "flood", "packed")


class Flooding:
    """An application of ASGI.

    Args:
        kind: How it answers: ``json``, or ``event`` of a stream.
        encoding: What it says of the answer of `packed`.
    """

    def __init__(self, kind: str, encoding: str = "gzip") -> None:
        self._is_json = kind == "json"
        self._encoding = encoding
        self._tally = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        asked = await _asked(receive)
        if "id" not in asked:
            status = 202 if asked else 405
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body"})
            return
        name = asked.get("params", {}).get("name")
        content_type = b"application/json" if self._is_json else b"text/event-stream"
        headers = [(b"content-type", content_type)]
        if name == "packed":
            headers.append((b"content-encoding", self._encoding.encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if name == "flood":
            await self._flood(asked["id"], send)
        elif name == "packed":
            parts = [self._begun(asked["id"]), *([b"x" * MIB] * FLOOD_MIB), self._end()]
            await send({"type": "http.response.body", "body": _packed(parts)})
        else:
            told = {"jsonrpc": "2.0", "id": asked["id"], "result": self._result(asked)}
            body = json.dumps(told).encode()
            if not self._is_json:
                body = b"event: message\ndata: " + body + b"\n\n"
            await send({"type": "http.response.body", "body": body})

    async def _flood(self, number: int, send: Any) -> None:
        begun = self._begun(number)
        await send({"type": "http.response.body", "body": begun, "more_body": True})
        for _ in range(FLOOD_MIB):
            await send({"type": "http.response.body", "body": b"x" * MIB, "more_body": True})
        await send({"type": "http.response.body", "body": self._end()})

    def _begun(self, number: int) -> bytes:
        begun = b'{"jsonrpc": "2.0", "id": %d, "result": {"filling": "' % number
        return begun if self._is_json else b"event: message\ndata: " + begun

    def _end(self) -> bytes:
        return b'"}}' if self._is_json else b'"}}\n\n'

    def _result(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "initialize":
            version = asked["params"]["protocolVersion"]
            info = {"name": "flooding", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        if asked["method"] == "tools/list":
            schema = {"type": "object"}
            return {"tools": [{"name": name, "inputSchema": schema} for name in NAMES]}
        n = asked["params"]["arguments"]["n"]
        if asked["params"]["name"] == "big":
            text = "x" * n
        else:
            self._tally += n
            text = str(self._tally)
        return {"content": [{"type": "text", "text": text}], "isError": False}


async def _asked(receive: Any) -> dict[str, Any]:
    body, is_whole = b"", False
    while not is_whole:
        message = await receive()
        body += message.get("body", b"")
        is_whole = not message.get("more_body")
    return json.loads(body) if body else {}


def _packed(parts: list[bytes]) -> bytes:
    packing = zlib.compressobj(wbits=31)
    return b"".join([*map(packing.compress, parts), packing.flush()])
