"""What people do with the server's class beside serving it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
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


# ------------------------------------------------------------------ open files


FEW_FILES = """
import logging, resource, sys
from fastapi import FastAPI
from openenv import create_app
from openenv.server.run import _raise_open_files
from support.environments import Counter

logging.basicConfig(format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
app = create_app(Counter, max_concurrent_envs=int(sys.argv[1]))
if sys.argv[2] == "mounted":
    inner, app = app, FastAPI()
    app.mount("/environment", inner)
_raise_open_files(app)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["plain", "mounted"])
@pytest.mark.parametrize(("sessions", "warning"), [(200, ""), (1000, "1000 sessions are allowed")])
def test_a_limit_of_open_files_is_raised_and_named_where_it_is_too_low(
    where: str, sessions: int, warning: str
) -> None:
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", FEW_FILES, str(sessions), where],
        env={**os.environ, "PYTHONPATH": tests},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["300"]
    assert done.stderr.startswith(warning) if warning else not done.stderr
    if warning:
        assert "lets a process open 300 files, so about 236 connections" in done.stderr
