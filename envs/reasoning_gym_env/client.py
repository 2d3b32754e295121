"""The client of the Reasoning Gym environment."""

from openenv.client import EnvClient

from .models import ReasoningGymAction, ReasoningGymObservation, ReasoningGymState

__all__ = ["ReasoningGymEnv"]


class ReasoningGymEnv(EnvClient[ReasoningGymAction, ReasoningGymObservation, ReasoningGymState]):
    """A client that answers questions of one Reasoning Gym server; an answer ends the episode.

    `reset` takes `seed`, `episode_id`, `task`, `dataset_name`, `dataset_config`, `dataset_specs`
    and `size`. Without any of them it asks the next question of the same dataset:

        async with ReasoningGymEnv(base_url="http://localhost:8000") as env:
            result = await env.reset(dataset_name="leg_counting", seed=42, size=10)
            result = await env.step(ReasoningGymAction(answer="4"))
            print(result.reward, result.observation.correct_answer)
    """
