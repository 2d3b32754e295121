"""What the tests of the socket share: an application, and the ways to serve it."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from support.environments import Counter, Do, Seen
from support.ws import TEXT, Raw

from openenv import create_app
from openenv.server.socket import SocketProtocol

STATE = '{"type":"state"}'
MAX_BYTES = 100_000

# The protocol class that uvicorn is given; with "auto" the application has it changed for ours.
WAYS: dict[str, Any] = {"ours": SocketProtocol, "adopted": "auto", "asgi": "websockets-sansio"}


def app_of(**options: Any) -> FastAPI:
    return create_app(Counter, Do, Seen, max_concurrent_envs=100, **options)


def assert_serves(client: Raw) -> None:
    client.text(STATE)
    answer = client.read()
    assert answer.opcode == TEXT and json.loads(answer.payload)["type"] == "state"
