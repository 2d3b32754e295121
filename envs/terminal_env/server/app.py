"""The web application, for ``openenv serve`` and ``uvicorn terminal_env.server.app:app``."""

from __future__ import annotations

import os
from functools import partial

from openenv.server import create_app

from ..models import TerminalAction, TerminalObservation, TerminalState
from .settings import max_concurrent_envs, read_settings
from .tasks import TaskSet
from .terminal_environment import TerminalEnvironment

app = create_app(
    partial(TerminalEnvironment, read_settings(os.environ), tasks=TaskSet.from_environ(os.environ)),
    TerminalAction,
    TerminalObservation,
    env_name="terminal_env",
    max_concurrent_envs=max_concurrent_envs(os.environ),
    state_cls=TerminalState,
)


def main(host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve the environment; the arguments --host and --port override."""
    from openenv.server.run import serve_from_command_line

    serve_from_command_line(app, host=host, port=port)


if __name__ == "__main__":
    main()
