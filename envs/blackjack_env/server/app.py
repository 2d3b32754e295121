"""The web application, for ``openenv serve`` and ``uvicorn blackjack_env.server.app:app``."""

from __future__ import annotations

import os

from openenv.server import create_app

from ..models import BlackjackAction, BlackjackObservation, BlackjackState
from .blackjack_environment import BlackjackEnvironment

limit = os.environ.get("MAX_CONCURRENT_ENVS")

app = create_app(
    BlackjackEnvironment,
    BlackjackAction,
    BlackjackObservation,
    env_name="blackjack_env",
    max_concurrent_envs=int(limit) if limit else None,
    state_cls=BlackjackState,
)


def main(host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve the environment; the arguments --host and --port override."""
    from openenv.server.run import serve_from_command_line

    serve_from_command_line(app, host=host, port=port)


if __name__ == "__main__":
    main()
