"""The client of the terminal environment."""

from openenv.client import EnvClient

from .models import TerminalAction, TerminalObservation, TerminalState

__all__ = ["TerminalEnv"]


class TerminalEnv(EnvClient[TerminalAction, TerminalObservation, TerminalState]):
    """A client that uses a shell in a session of its own.

    `reset` takes `seed`, `episode_id` and `task`:

        async with TerminalEnv(base_url="http://localhost:8000") as env:
            result = await env.reset(task="sum_the_orders")
            print(result.observation.prompt)
            result = await env.step(TerminalAction(command="ls -l"))
            print(result.observation.output, result.observation.exit_code)
            result = await env.step(TerminalAction(kind="submit"))
            print(result.reward, result.done)
    """
