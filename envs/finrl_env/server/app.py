"""The web application, for ``openenv serve`` and ``uvicorn finrl_env.server.app:app``."""

from __future__ import annotations

import os

from openenv.server import create_app
from openenv.server.endpoints import GetEndpointConfig, register_get_endpoints

from ..models import FinRLAction, FinRLObservation, FinRLState
from .configuration import Described, described
from .finrl_environment import FinRLEnvironment

limit = os.environ.get("MAX_CONCURRENT_ENVS")

app = create_app(
    FinRLEnvironment,
    FinRLAction,
    FinRLObservation,
    env_name="finrl_env",
    max_concurrent_envs=int(limit) if limit else None,
    state_cls=FinRLState,
)

register_get_endpoints(
    app,
    [
        GetEndpointConfig(
            path="/config",
            handler=described,
            response_model=Described,
            tag="Environment Info",
            summary="What the server trades by default",
            description="The shape of actions and observations of an episode that chooses no task.",
        )
    ],
)


def main(host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve the environment; the arguments --host and --port override."""
    from openenv.server.run import serve_from_command_line

    serve_from_command_line(app, host=host, port=port)


if __name__ == "__main__":
    main()
