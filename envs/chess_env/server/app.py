"""The web application, for ``openenv serve`` and ``uvicorn chess_env.server.app:app``."""

from __future__ import annotations

import os

from openenv.server import create_app

from ..models import ChessAction, ChessObservation, ChessState
from .settings import make_environment_factory, max_concurrent_envs

app = create_app(
    make_environment_factory(os.environ),
    ChessAction,
    ChessObservation,
    env_name="chess_env",
    max_concurrent_envs=max_concurrent_envs(os.environ),
    state_cls=ChessState,
)


def main(host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve the environment; the arguments --host and --port override."""
    from openenv.server.run import serve_from_command_line

    serve_from_command_line(app, host=host, port=port)


if __name__ == "__main__":
    main()
