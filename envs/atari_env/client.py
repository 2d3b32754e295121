"""The client of the Atari environment."""

from openenv.client import EnvClient

from .models import AtariAction, AtariObservation, AtariState

__all__ = ["AtariEnv"]


class AtariEnv(EnvClient[AtariAction, AtariObservation, AtariState]):
    """A client that plays the games of one Atari server.

    `reset` takes `seed`, `episode_id`, `task`, `game_name`, `obs_type`, `full_action_space`,
    `mode`, `difficulty`, `repeat_action_probability`, `frameskip` and `max_frames`, each of them
    for one episode:

        async with AtariEnv(base_url="http://localhost:8000") as env:
            result = await env.reset(seed=0, game_name="breakout")
            while not result.done:
                result = await env.step(AtariAction(action_id=policy(result.observation.frame)))
    """
