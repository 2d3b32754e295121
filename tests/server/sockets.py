"""What the tests of the socket share: an application, and the ways to serve it."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from support.environments import Counter, Do, Seen
from support.ws import TEXT, Raw

from openenv import create_app
from openenv.server.socket import SocketProtocol
from openenv.server.websocket import SOCKET_EXTENSION

STATE = '{"type":"state"}'
MAX_BYTES = 100_000

# The protocol class that uvicorn is given; with "auto" the application has it changed for ours.
WAYS: dict[str, Any] = {"ours": SocketProtocol, "adopted": "auto", "asgi": "websockets-sansio"}


def app_of(**options: Any) -> FastAPI:
    return create_app(Counter, Do, Seen, max_concurrent_envs=100, **options)


class NotAdopted:
    """Middleware that hides the socket, as any other web server would not offer it."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            scope.get("extensions", {}).pop(SOCKET_EXTENSION, None)
        await self.app(scope, receive, send)


def assert_serves(client: Raw) -> None:
    client.text(STATE)
    answer = client.read()
    assert answer.opcode == TEXT and json.loads(answer.payload)["type"] == "state"
