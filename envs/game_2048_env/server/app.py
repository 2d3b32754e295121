"""The web application, for ``openenv serve`` and ``uvicorn game_2048_env.server.app:app``."""

from __future__ import annotations

import os

from openenv.server import create_app

from ..models import Game2048Action, Game2048Observation, Game2048State
from .game_2048_environment import Game2048Environment

limit = os.environ.get("MAX_CONCURRENT_ENVS")

app = create_app(
    Game2048Environment,
    Game2048Action,
    Game2048Observation,
    env_name="2048_env",
    max_concurrent_envs=int(limit) if limit else None,
    state_cls=Game2048State,
)


def main(host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve the environment; the arguments --host and --port override."""
    from openenv.server.run import serve_from_command_line

    serve_from_command_line(app, host=host, port=port)


if __name__ == "__main__":
    main()
