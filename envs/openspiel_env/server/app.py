"""The OpenSpiel environment as a web application."""

from __future__ import annotations

import os

from openenv.server import create_app

from ..models import OpenSpielAction, OpenSpielObservation, OpenSpielState
from .environment import OpenSpielEnvironment

_LIMIT = os.environ.get("MAX_CONCURRENT_ENVS")

app = create_app(
    OpenSpielEnvironment,
    OpenSpielAction,
    OpenSpielObservation,
    env_name="openspiel_env",
    state_cls=OpenSpielState,
    max_concurrent_envs=int(_LIMIT) if _LIMIT else None,
)


def main(host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve the application until it is interrupted."""
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
