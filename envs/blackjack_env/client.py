"""The client of the blackjack environment."""

from openenv.client import EnvClient

from .models import BlackjackAction, BlackjackObservation, BlackjackState

__all__ = ["BlackjackEnv"]


class BlackjackEnv(EnvClient[BlackjackAction, BlackjackObservation, BlackjackState]):
    """A client that plays hands of blackjack on one server.

    `reset` takes `seed`, `episode_id`, `task`, `natural` and `sab`, each of them for one hand:

        async with BlackjackEnv(base_url="http://localhost:8000") as env:
            result = await env.reset(seed=0)
            while not result.done:
                low = result.observation.player_total < 17
                result = await env.step(BlackjackAction(action="hit" if low else "stand"))
    """
