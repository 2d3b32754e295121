"""The client of the chess environment."""

from openenv.client import EnvClient

from .models import ChessAction, ChessObservation, ChessState

__all__ = ["ChessEnv"]


class ChessEnv(EnvClient[ChessAction, ChessObservation, ChessState]):
    """A client that plays chess on one server.

    `reset` takes `seed`, `episode_id`, `fen`, `opponent`, `opponent_depth`, `agent_color` and
    `task`, each of them for one episode:

        async with ChessEnv(base_url="http://localhost:8000") as env:
            result = await env.reset(seed=0, agent_color="white")
            while not result.done:
                result = await env.step(ChessAction(move=result.observation.legal_moves[0]))
    """
