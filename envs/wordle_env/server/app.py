"""The web application, for ``openenv serve`` and ``uvicorn wordle_env.server.app:app``."""

from __future__ import annotations

import os

from openenv.server import create_app

from ..models import WordleAction, WordleObservation, WordleState
from .wordle_environment import WordleEnvironment

limit = os.environ.get("MAX_CONCURRENT_ENVS")

app = create_app(
    WordleEnvironment,
    WordleAction,
    WordleObservation,
    env_name="wordle_env",
    max_concurrent_envs=int(limit) if limit else None,
    state_cls=WordleState,
)


def main(host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve the environment; the arguments --host and --port override."""
    from openenv.server.run import serve_from_command_line

    serve_from_command_line(app, host=host, port=port)


if __name__ == "__main__":
    main()
