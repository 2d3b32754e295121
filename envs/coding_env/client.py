"""The client of the coding environment."""

from openenv.client import EnvClient

from .models import CodeAction, CodeObservation, CodeState

__all__ = ["CodingEnv"]


class CodingEnv(EnvClient[CodeAction, CodeObservation, CodeState]):
    """A client that runs Python in a session of its own.

    `reset` takes `seed`, `episode_id` and `task`:

        async with CodingEnv(base_url="http://localhost:8000") as env:
            result = await env.reset(task="run_lengths")
            print(result.observation.prompt)
            result = await env.step(CodeAction(code="print(6 * 7)"))
            result = await env.step(CodeAction(code="def run_lengths(text): ...", submit=True))
            print(result.reward, result.done)
    """
