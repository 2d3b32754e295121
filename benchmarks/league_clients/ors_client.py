"""The async client of `openreward` in the league: a session for each episode.

A reset is the first prompt of a new session, since a session of ORS is one episode.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from openreward import AsyncOpenReward  # type: ignore[import-not-found]
from playing import Order, play, tell  # type: ignore[import-not-found]  # in this folder


class EchoSession:
    _session: Any

    def __init__(self, environment: Any) -> None:
        self._opening = environment.session(split="train", index=0)

    async def __aenter__(self) -> EchoSession:
        self._session = await self._opening.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._opening.__aexit__(None, None, None)

    async def reset(self) -> None:
        (block,) = await self._session.get_prompt()
        assert block.text == ""

    async def step(self, text: str) -> tuple[str, float]:
        output = await self._session.call_tool("echo", {"text": text})
        (block,) = output.blocks
        return block.text, output.reward

    async def finish(self) -> None:
        pass


async def main() -> None:
    order = Order.given()
    # One server plays the platform's three, which have subdomains otherwise.
    os.environ["OPENREWARD_API_URL"] = os.environ["OPENREWARD_SESSION_URL"] = order.url
    os.environ["OPENREWARD_DISABLE_UPDATE_CHECK"] = "1"
    client = AsyncOpenReward(api_key="none", base_url=order.url)
    environment = client.environments.get("echo", variant="echo")
    found = await play(order, lambda: EchoSession(environment))
    await client.environments.aclose()
    tell(found)


if __name__ == "__main__":
    asyncio.run(main())
