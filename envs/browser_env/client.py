"""The client of the browser environment."""

from openenv.client import EnvClient

from .models import AnyAction, BrowserObservation, BrowserState

__all__ = ["BrowserEnv"]


class BrowserEnv(EnvClient[AnyAction, BrowserObservation, BrowserState]):
    """A client that drives a browser session.

    `reset` takes `seed`, `episode_id`, `task`, `start_url` and `options`:

        async with BrowserEnv(base_url="http://localhost:8000") as env:
            result = await env.reset(seed=0, task="login")
            result = await env.step(Fill(role="textbox", name="User", value="ada"))
    """
