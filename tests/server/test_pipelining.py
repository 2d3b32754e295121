"""Requests of version 1 that are sent before a session is there."""

from __future__ import annotations

import json
from typing import Any

from support.environments import Counter
from support.servers import serving
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from openenv import create_app

V1 = [Subprotocol("openenv.v1.json")]


def test_requests_after_a_close_that_came_early_are_answered() -> None:
    frame = [
        {"type": "open"},
        {"type": "reset", "id": 1},
        {"type": "close", "id": 2},
        {"type": "close", "id": 3},
        {"type": "state", "id": 4},
    ]
    answers: dict[int, Any] = {}
    with (
        serving(create_app(Counter)) as url,
        connect(url.replace("http", "ws", 1) + "/ws", subprotocols=V1) as socket,
    ):
        socket.send(json.dumps(frame))
        while len(answers) < len(frame):
            found = json.loads(socket.recv(5))
            for answer in found if isinstance(found, list) else [found]:
                if answer["type"] != "hello":
                    answers[answer["id"]] = answer
    assert [answers[number]["type"] for number in (0, 2, 3)] == ["opened", "closed", "closed"]
    assert answers[4]["data"]["code"] == "SESSION_ERROR"
