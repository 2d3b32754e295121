"""The web application, for ``openenv serve`` and ``uvicorn coding_env.server.app:app``."""

from __future__ import annotations

import os

from openenv.server import create_app

from ..models import CodeAction, CodeObservation, CodeState
from .python_codeact_env import PythonCodeActEnv

limit = os.environ.get("MAX_CONCURRENT_ENVS")

app = create_app(
    PythonCodeActEnv,
    CodeAction,
    CodeObservation,
    env_name="coding_env",
    max_concurrent_envs=int(limit) if limit else None,
    state_cls=CodeState,
)


def main(host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve the environment; the arguments --host and --port override."""
    from openenv.server.run import serve_from_command_line

    serve_from_command_line(app, host=host, port=port)


if __name__ == "__main__":
    main()
