"""The client of the FinRL environment."""

from openenv.client import EnvClient

from .models import FinRLAction, FinRLObservation, FinRLState

__all__ = ["FinRLEnv"]


class FinRLEnv(EnvClient[FinRLAction, FinRLObservation, FinRLState]):
    """A client that trades on one FinRL server.

    `reset` takes `seed`, `episode_id`, `market`, `start`, `days` and `task`, each of them for one
    episode:

        async with FinRLEnv(base_url="http://localhost:8000") as env:
            result = await env.reset(seed=0, market="bull")
            while not result.done:
                result = await env.step(FinRLAction(actions=[0.5]))
    """
