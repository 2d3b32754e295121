"""The web application, for ``openenv serve`` and ``uvicorn reasoning_gym_env.server.app:app``."""

from __future__ import annotations

import os

from openenv.server import create_app

from ..models import ReasoningGymAction, ReasoningGymObservation, ReasoningGymState
from .reasoning_gym_environment import ReasoningGymEnvironment

limit = os.environ.get("MAX_CONCURRENT_ENVS")

app = create_app(
    ReasoningGymEnvironment,
    ReasoningGymAction,
    ReasoningGymObservation,
    env_name="reasoning_gym_env",
    max_concurrent_envs=int(limit) if limit else None,
    state_cls=ReasoningGymState,
)


def main(host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve the environment; the arguments --host and --port override."""
    from openenv.server.run import serve_from_command_line

    serve_from_command_line(app, host=host, port=port)


if __name__ == "__main__":
    main()
