"""The client of the OpenSpiel environment."""

from openenv.client import EnvClient

from .models import OpenSpielAction, OpenSpielObservation, OpenSpielState

__all__ = ["OpenSpielEnv"]


class OpenSpielEnv(EnvClient[OpenSpielAction, OpenSpielObservation, OpenSpielState]):
    """A client that plays the games of one OpenSpiel server.

    `reset` takes `seed`, `episode_id`, `game_name`, `game_params` and `opponent_policy`, each of
    them for one episode:

        async with OpenSpielEnv(base_url="http://localhost:8000") as env:
            result = await env.reset(seed=0, game_name="blackjack")
            while not result.done:
                result = await env.step(OpenSpielAction(action_id=1))
    """
