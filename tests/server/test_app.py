"""What people do with the server's class beside serving it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from support.environments import Counter, Do, Seen

from openenv.core.env_server.http_server import HTTPEnvServer, StepRequest
from openenv.protocol.http import StepRequest as SameStepRequest


class Server(HTTPEnvServer):
    """As several public environments subclass it: what it holds is set, and read, by them."""

    def __init__(self, env: Any, action_cls: Any, observation_cls: Any) -> None:
        self.action_cls = action_cls
        self.observation_cls = observation_cls
        super().__init__(env=env, action_cls=action_cls, observation_cls=observation_cls)
        self.env = self._env_factory()


def test_a_subclass_of_old_works() -> None:
    server = Server(Counter, Do, Seen)
    assert (server.action_cls, server.observation_cls) == (Do, Seen)
    assert isinstance(server.env, Counter)
    app = FastAPI()
    server.register_routes(app)
    assert "/reset" in [getattr(route, "path", "") for route in app.routes]


def test_the_module_of_old_gives_what_it_had_imported() -> None:
    assert StepRequest is SameStepRequest
