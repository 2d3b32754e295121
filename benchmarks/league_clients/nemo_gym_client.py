"""NeMo Gym's `ServerClient` in the league, which hands a session's cookies on as its agents do.

An episode is `/seed_session`, a request for each step, and `/verify`, which scores it. There is
nothing to connect or close: all sessions share the connections of one aiohttp client.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any
from urllib.parse import urlsplit

from nemo_gym.config_types import BaseServerConfig  # type: ignore[import-not-found]
from nemo_gym.server_utils import (  # type: ignore[import-not-found]
    ServerClient,
    get_global_aiohttp_client,
    get_response_json,
    raise_for_status,
)
from omegaconf import OmegaConf  # type: ignore[import-not-found]
from playing import Order, play, tell  # type: ignore[import-not-found]  # in this folder

NOTHING = {
    "id": "resp_1",
    "created_at": 0.0,
    "model": "none",
    "object": "response",
    "output": [],
    "parallel_tool_calls": False,
    "tool_choice": "auto",
    "tools": [],
}
EPISODE = {"responses_create_params": {"input": []}, "response": NOTHING}


class EchoSession:
    def __init__(self, client: Any) -> None:
        self._client = client
        self._cookies: Any = None
        self._steps = 0

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        response = await self._client.post(
            server_name="echo", url_path=path, json=body, cookies=self._cookies
        )
        await raise_for_status(response)
        self._cookies = response.cookies
        return await get_response_json(response)

    async def __aenter__(self) -> EchoSession:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def reset(self) -> None:
        # `json={}` would be sent as no body at all.
        response = await self._client.post(
            server_name="echo", url_path="/seed_session", json={"seed": 0}, cookies=self._cookies
        )
        await raise_for_status(response)
        self._cookies, self._steps = response.cookies, 0
        await response.read()

    async def step(self, text: str) -> tuple[str, float]:
        answer = await self._post("/echo", {"text": text})
        self._steps += 1
        return answer["text"], answer["reward"]

    async def finish(self) -> None:
        answer = await self._post("/verify", EPISODE)
        if answer["reward"] != self._steps:
            raise ValueError(f"{self._steps} steps were scored {answer['reward']}")


async def main() -> None:
    order = Order.given()
    port = urlsplit(order.url).port
    server = {"resources_servers": {"echo": {"host": "127.0.0.1", "port": port}}}
    config = {"head_server": {"host": "127.0.0.1", "port": 1}, "echo": server}
    os.environ["NEMO_GYM_CONFIG_DICT"] = json.dumps(config)  # read by the aiohttp client
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
        global_config_dict=OmegaConf.create(config),
    )
    found = await play(order, lambda: EchoSession(client))
    await get_global_aiohttp_client().close()
    tell(found)


if __name__ == "__main__":
    asyncio.run(main())
