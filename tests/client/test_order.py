"""Version 0 matches answers to requests by their order alone: what could shift it is an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from support.environments import Counter, CounterEnv, Do

from openenv import ResponseTimeout, SessionLost, create_app
from openenv.errors import ProtocolError

Serve = Callable[[Any], str]


def answer(text: str) -> str:
    data = {"observation": {"text": text}, "reward": None, "done": False}
    return json.dumps({"type": "observation", "data": data})


async def answering_twice(scope: Any, receive: Any, send: Any) -> None:
    """Answers the first request twice, and the n-th after it by n."""
    if scope["type"] != "websocket":
        return
    await receive()
    await send({"type": "websocket.accept"})
    count = 0
    while (await receive())["type"] == "websocket.receive":
        for _ in range(2 if count == 0 else 1):
            await send({"type": "websocket.send", "text": answer(str(count))})
        count += 1


@pytest.mark.parametrize("carrier", ["websocket", "asgi"])
def test_an_answer_that_nobody_asked_for_shifts_nothing(carrier: str, serve: Serve) -> None:
    if carrier == "asgi":
        client = CounterEnv.local(answering_twice)
    else:
        client = CounterEnv(base_url=serve(answering_twice))
    with client:
        assert client.reset().observation.text == "0"
        asyncio.run(asyncio.sleep(0.05))  # it comes between two requests
        with pytest.raises(ProtocolError, match="nobody asked for"):
            client.step(Do())
        with pytest.raises(SessionLost, match="broke the protocol"):
            client.step(Do())
        assert client.reset().observation.text == "0", "on a new connection"


@pytest.mark.anyio
async def test_a_limit_of_no_time_at_all_shifts_nothing() -> None:
    async with CounterEnv.local(create_app(Counter)) as client:
        await client.reset()
        with pytest.raises(ResponseTimeout):
            await client.step(Do(), timeout_s=0)
        assert (await client.reset()).observation.text == "ready"
        for i in range(3):
            echo = await client.step(Do(what="echo", value=i), timeout_s=5)
            assert echo.observation.value == i
