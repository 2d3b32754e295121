"""The client of the TextArena environment."""

from openenv.client import EnvClient

from .models import TextArenaAction, TextArenaObservation, TextArenaState

__all__ = ["TextArenaEnv"]


class TextArenaEnv(EnvClient[TextArenaAction, TextArenaObservation, TextArenaState]):
    """A client that plays the games of one TextArena server.

    `reset` takes `seed`, `episode_id`, `task`, `env_id`, `num_players`, `max_turns`, `opponent`,
    `opponent_messages` and `agent_player`, each of them for one game:

        async with TextArenaEnv(base_url="http://localhost:8000") as env:
            result = await env.reset(env_id="TicTacToe-v0", opponent="random", seed=0)
            result = await env.step(TextArenaAction(message="[4]"))
    """
