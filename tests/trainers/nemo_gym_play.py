"""Collect rollouts by NeMo Gym's own agent and model servers; run by a Python that has it.

    python nemo_gym_play.py '{"model": URL, "server": "own" or "ours", "env": {...}, "rows": [...]}'

`env` is the configuration of the resources server. Of rows that are a mapping, `dataset` makes them
with these arguments. Prints what ``/run`` has answered for each of them, as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

SERVERS = ("the_env", "the_agent", "policy_model")


def configuration(asked: dict[str, Any], ports: list[int]) -> dict[str, Any]:
    """What `gym env start` makes of its YAML."""
    here = [{"entrypoint": "app.py", "host": "127.0.0.1", "port": port} for port in ports]
    refers = {
        "resources_server": {"type": "resources_servers", "name": "the_env"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    model = {
        "base_url": f"{asked['model']}/v1",
        "api_key": "none",
        "model": "toy",
        "return_token_id_information": False,
        "uses_reasoning_parser": False,
    }
    return {
        "head_server": {"host": "127.0.0.1", "port": 1},
        "the_env": {
            "resources_servers": {"openenv": {**here[0], "domain": "agent", **asked["env"]}}
        },
        "the_agent": {
            "responses_api_agents": {"simple_agent": {**here[1], "max_steps": 6, **refers}}
        },
        "policy_model": {"responses_api_models": {"vllm_model": {**here[2], **model}}},
    }


def class_of(name: str, server: str) -> Any:
    if name == "the_agent":
        from responses_api_agents.simple_agent.app import SimpleAgent  # type: ignore[import-not-found]

        return SimpleAgent
    if name == "policy_model":
        from responses_api_models.vllm_model.app import VLLMModel  # type: ignore[import-not-found]

        return VLLMModel
    if server == "own":
        from resources_servers.openenv.app import OpenEnvResourcesServer as Own  # type: ignore[import-not-found]

        return Own
    from openenv.integrations.nemo_gym import OpenEnvResourcesServer

    return OpenEnvResourcesServer


@contextlib.asynccontextmanager
async def serving(app: Any, bound: socket.socket) -> AsyncIterator[None]:
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
    running = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield
    finally:
        server.should_exit = True
        await running


async def main(asked: dict[str, Any]) -> list[Any]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in SERVERS]
    config = configuration(asked, [one.getsockname()[1] for one in sockets])
    os.environ["NEMO_GYM_CONFIG_DICT"] = json.dumps(config)
    from nemo_gym.config_types import BaseServerConfig  # type: ignore[import-not-found]
    from nemo_gym.server_utils import ServerClient, get_global_aiohttp_client  # type: ignore[import-not-found]
    from omegaconf import OmegaConf  # type: ignore[import-not-found]

    head = BaseServerConfig(host="127.0.0.1", port=1)
    client = ServerClient(head_server_config=head, global_config_dict=OmegaConf.create(config))
    rows = asked["rows"]
    if isinstance(rows, dict):
        from openenv.integrations.nemo_gym import dataset

        rows = await dataset(asked["env"]["environment"], **rows)
    async with contextlib.AsyncExitStack() as stack:
        for name, bound in zip(SERVERS, sockets, strict=True):
            cls = class_of(name, asked["server"])
            given = next(iter(next(iter(config[name].values())).values()))
            typed = cls.model_fields["config"].annotation.model_validate({**given, "name": name})
            server = cls(config=typed, server_client=client)
            app = server.setup_webserver()
            server.setup_exception_middleware(app)
            await stack.enter_async_context(serving(app, bound))
        told = await asyncio.gather(*(run(client, row) for row in rows))
        await get_global_aiohttp_client().close()
    return told


async def run(client: Any, row: dict[str, Any]) -> dict[str, Any]:
    response = await client.post(server_name="the_agent", url_path="/run", json=row)
    body = json.loads(await response.read())
    return {"status": response.status, "row": row, "body": body}


if __name__ == "__main__":
    outcome = asyncio.run(main(json.loads(sys.argv[1])))
    sys.stdout.write(json.dumps(outcome) + "\n")
