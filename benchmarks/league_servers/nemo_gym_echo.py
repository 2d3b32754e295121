"""NeMo Gym's resources server in the league: one tool route, and a session by its cookie.

    python nemo_gym_echo.py PORT

It is served as `SimpleServer.run_webserver` serves it, with the same options of uvicorn, but
without the cluster of Ray that `run_webserver` starts, and without access log.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from nemo_gym.base_resources_server import (  # type: ignore[import-not-found]
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import BaseServerConfig  # type: ignore[import-not-found]
from nemo_gym.server_utils import (  # type: ignore[import-not-found]
    SESSION_ID_KEY,
    ServerClient,
    get_global_config_dict,
)
from pydantic import BaseModel, Field


class EchoRequest(BaseModel):
    text: str


class EchoResponse(BaseModel):
    text: str
    reward: float


class EchoServer(SimpleResourcesServer):  # type: ignore[misc]
    config: BaseResourcesServerConfig
    steps: dict[str, int] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app: FastAPI = super().setup_webserver()
        app.post("/echo")(self.echo)
        return app

    async def seed_session(self, request: Request, body: BaseSeedSessionRequest) -> Any:
        self.steps[request.session[SESSION_ID_KEY]] = 0
        return BaseSeedSessionResponse()

    async def echo(self, request: Request, body: EchoRequest) -> EchoResponse:
        self.steps[request.session[SESSION_ID_KEY]] += 1
        return EchoResponse(text=body.text, reward=1.0)

    async def verify(self, request: Request, body: BaseVerifyRequest) -> BaseVerifyResponse:
        steps = self.steps.pop(request.session[SESSION_ID_KEY])
        return BaseVerifyResponse(**body.model_dump(), reward=float(steps))


def main() -> None:
    port = int(sys.argv[1])
    own = {"entrypoint": "app.py", "host": "127.0.0.1", "port": port, "domain": "agent"}
    whole = {
        "head_server": {"host": "127.0.0.1", "port": 1},
        "echo": {"resources_servers": {"echo": own}},
    }
    os.environ["NEMO_GYM_CONFIG_DICT"] = json.dumps(whole)  # read by `get_global_config_dict`
    config = BaseResourcesServerConfig(**own, name="echo")
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
        global_config_dict=get_global_config_dict(),
    )
    server = EchoServer(config=config, server_client=client)
    app = server.setup_webserver()
    server.setup_liveness(app)
    server.set_ulimit()
    server.setup_exception_middleware(app)
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
