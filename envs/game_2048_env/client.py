"""The client of the 2048 environment."""

from openenv.client import EnvClient

from .models import Game2048Action, Game2048Observation, Game2048State

__all__ = ["Game2048Env"]


class Game2048Env(EnvClient[Game2048Action, Game2048Observation, Game2048State]):
    """A client that plays 2048 on one server.

    `reset` takes `seed`, `episode_id`, `task`, `goal` and `max_moves`, each of them for one game:

        async with Game2048Env(base_url="http://localhost:8000") as env:
            result = await env.reset(seed=0, goal=512)
            while not result.done:
                (move, *_) = result.observation.legal_actions
                result = await env.step(Game2048Action(move=move))
    """
