"""The client of the Wordle environment."""

from openenv.client import EnvClient

from .models import WordleAction, WordleObservation, WordleState

__all__ = ["WordleEnv"]


class WordleEnv(EnvClient[WordleAction, WordleObservation, WordleState]):
    """A client that guesses the secret words of one Wordle server.

    `reset` takes `seed`, `episode_id`, `task`, `split`, `hard_mode`, `max_guesses`,
    `max_rejected` and `accept`, each of them for one episode:

        async with WordleEnv(base_url="http://localhost:8000") as env:
            result = await env.reset(seed=0, hard_mode=True)
            while not result.done:
                result = await env.step(WordleAction(guess="crane"))
                print(result.observation.text)
    """
