"""The web application, for ``openenv serve`` and ``uvicorn atari_env.server.app:app``."""

from __future__ import annotations

import os
import secrets

from openenv.server import create_app

from ..models import AtariAction, AtariObservation, AtariState
from .atari_environment import AtariEnvironment
from .snapshots import KEY_VARIABLE

limit = os.environ.get("MAX_CONCURRENT_ENVS")

# Worker processes inherit the key, so that each accepts snapshots that another one has stored.
os.environ.setdefault(KEY_VARIABLE, secrets.token_hex())

app = create_app(
    AtariEnvironment,
    AtariAction,
    AtariObservation,
    env_name="atari_env",
    max_concurrent_envs=int(limit) if limit else None,
    state_cls=AtariState,
)


def main(host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve the environment; the arguments --host and --port override."""
    from openenv.server.run import serve_from_command_line

    serve_from_command_line(app, host=host, port=port)


if __name__ == "__main__":
    main()
