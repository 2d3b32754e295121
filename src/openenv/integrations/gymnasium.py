"""Environments as `gymnasium.Env` and `gymnasium.vector.VectorEnv`.

Gymnasium: Towers et al. 2024, "Gymnasium: A Standard Interface for Reinforcement Learning
Environments", arXiv:2407.17032.

    env = GymnasiumEnv("http://localhost:8000")
    envs = GymnasiumVectorEnv("http://localhost:8000", num_envs=64)

After this module is imported, `gymnasium.make` and `gymnasium.make_vec` make them too:

    gymnasium.make("openenv/Environment-v0", source="http://localhost:8000")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import Unpack

from openenv._internal.packages import needs
from openenv.client._batches import info_of
from openenv.client.options import BatchOptions, ClientOptions
from openenv.client.transports.websocket import WebSocketOptions
from openenv.errors import NotSupported
from openenv.integrations._fields import elements_of_actions, elements_of_observations
from openenv.integrations._sources import (
    UnscoredStep,
    open_source,
    reward_of,
    schemas_of,
    vector_of,
)

with needs("openenv.integrations.gymnasium"):
    import gymnasium
    import numpy as np
    from gymnasium.utils import EzPickle
    from gymnasium.vector import AutoresetMode
    from gymnasium.vector.utils import batch_space

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from openenv.arrays import Rendering
    from openenv.integrations._sources import Source

__all__ = ["ENVIRONMENT_ID", "GymnasiumEnv", "GymnasiumVectorEnv", "UnscoredStep"]

ENVIRONMENT_ID = "openenv/Environment-v0"
RENDER_MODES = ("rgb_array", "ansi")

RenderMode = Literal["rgb_array", "ansi"]


class GymnasiumOptions(ClientOptions, total=False):
    """Options of `GymnasiumEnv`, which describes them."""

    action_space: gymnasium.Space[Any] | None
    observation_space: gymnasium.Space[Any] | None
    action_field: str | None
    observation_field: str | None
    unscored_reward: float | None
    render_mode: RenderMode | None


class GymnasiumEnv(gymnasium.Env[Any, Any], EzPickle):
    """An environment as a `gymnasium.Env`.

    The spaces are those of the models' JSON schemas, by `openenv.spaces.space_of`, or those that
    are given. The only field of a model holds the elements themselves; those of a model with
    several are a `gymnasium.spaces.Dict` of them.

    `reset` passes the options on as arguments of the environment's `reset`. `info` is what the
    environment says beside its observation. A pickle holds what this was made of, and no episode.

    Args:
        source: The address of a server; or what ``openenv serve`` takes, which is then served in a
            process of its own (``gymnasium:CartPole-v1``, ``echo_env``); or a provider, a client,
            or an environment class or factory, which runs in this process. It is closed with this.
        action_space: Of the actions, where it shall not be that of the schema. A `Dict` may name
            some of the fields; the others are left to their defaults.
        observation_space: Of the observations, likewise; fields that it does not name are left out.
        action_field: The field of the action that holds the elements, if they shall be of one only.
        observation_field: The field of the observation, likewise.
        unscored_reward: The reward of a step that the environment has not scored; by default such a
            step raises `UnscoredStep`.
        render_mode: ``rgb_array`` or ``ansi``, for `render`.
        **options: Of the client, such as `api_key` and `message_timeout_s`.

    Raises:
        ValueError: No space fits the models; the message names the field.
        ConnectError: No server answers.
        ProviderError: The server would not start.
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 30}  # noqa: RUF012

    def __init__(
        self,
        source: Source,
        *,
        action_space: gymnasium.Space[Any] | None = None,
        observation_space: gymnasium.Space[Any] | None = None,
        action_field: str | None = None,
        observation_field: str | None = None,
        unscored_reward: float | None = None,
        render_mode: RenderMode | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        EzPickle.__init__(
            self,
            source,
            action_space=action_space,
            observation_space=observation_space,
            action_field=action_field,
            observation_field=observation_field,
            unscored_reward=unscored_reward,
            render_mode=render_mode,
            **options,
        )
        self.render_mode = _checked_mode(render_mode)
        self._unscored_reward = unscored_reward
        self._is_closed = False
        self._client, told = open_source(source, options)
        try:
            self._actions = elements_of_actions(told.action, action_space, action_field)
            self._observations = elements_of_observations(
                told.observation, observation_space, observation_field
            )
        except BaseException:
            self._client.close()
            raise
        self.action_space = self._actions.space
        self.observation_space = self._observations.space

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Makes it reproducible.
            options: Further arguments of the environment's `reset`.
        """
        super().reset(seed=seed)
        arguments = dict(options or {})
        if seed is not None:
            arguments["seed"] = int(seed)
        result = self._client.reset(**arguments)
        return self._observations.from_fields(result.observation), info_of(result) or {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carry out an action.

        Raises:
            UnscoredStep: The step was not scored, and there is no `unscored_reward`.
            ValueError: The action is none of the space.
            ServerError: The environment refused it, or raised.
            SessionLost: The episode is gone; call `reset`.
        """
        result = self._client.step(self._actions.to_fields(action))
        return (
            self._observations.from_fields(result.observation),
            reward_of(result, self._unscored_reward),
            result.terminated,
            result.truncated,
            info_of(result) or {},
        )

    def render(self) -> Any:
        """Show where the episode stands, in the `render_mode`.

        Raises:
            NotSupported: The environment draws nothing, or nothing of that kind.
        """
        return drawn_in_mode(self._client.render, self.render_mode)

    def close(self) -> None:
        """Close the session, and what was started. Safe to repeat, also at interpreter exit."""
        if not self._is_closed:
            self._is_closed = True
            self._client.close()


class GymnasiumVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Environments of a server as `gymnasium.vector.VectorEnv`; see `openenv.VectorEnv`.

    It does what `gymnasium.vector.AsyncVectorEnv` does with as many environments: spaces, seeds,
    automatic resets and infos are the same.

    Args:
        source: As for `GymnasiumEnv`, but for clients.
        num_envs: How many environments, each a session of its own.
        autoreset_mode: What happens when an episode is over.
        action_space: Of the actions of one environment; see `GymnasiumEnv`.
        observation_space: Of the observations of one environment.
        action_field: The field of the action that holds the elements.
        observation_field: The field of the observation that does.
        unscored_reward: The reward of a step that was not scored; by default it raises.
        render_mode: ``rgb_array`` or ``ansi``, for `render`.
        **options: Of `openenv.VectorEnv`, such as `connections` and `api_key`.

    Raises:
        ValueError: No space fits the models; the message names the field.
        ConnectError: No server answers.
        ProviderError: The server would not start.
    """

    def __init__(
        self,
        source: Source,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        action_space: gymnasium.Space[Any] | None = None,
        observation_space: gymnasium.Space[Any] | None = None,
        action_field: str | None = None,
        observation_field: str | None = None,
        unscored_reward: float | None = None,
        render_mode: RenderMode | None = None,
        **options: Unpack[BatchOptions],
    ) -> None:
        mode = AutoresetMode(autoreset_mode)
        self.render_mode = _checked_mode(render_mode)
        self.num_envs = num_envs
        self.metadata = {**GymnasiumEnv.metadata, "autoreset_mode": mode}
        self._unscored_reward = unscored_reward
        self._envs, self._keeper = vector_of(
            source, num_envs, {"autoreset_mode": mode.value, **options}
        )
        try:
            base_url = source if self._keeper is None else self._keeper.base_url
            connection = WebSocketOptions(
                headers=options.get("headers") or {},
                api_key=options.get("api_key"),
                ca_file=options.get("ca_file"),
            )
            told = schemas_of(source, base_url if isinstance(base_url, str) else None, connection)
            self._actions = elements_of_actions(told.action, action_space, action_field)
            self._observations = elements_of_observations(
                told.observation, observation_space, observation_field
            )
        except BaseException:
            self.close()
            raise
        self.single_action_space = self._actions.space
        self.single_observation_space = self._observations.space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed if isinstance(seed, int) else None)
        observations, infos = self._envs.reset(seed=seed, options=options)
        return self._observations.from_batch(observations), infos

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step every environment; see `openenv.VectorEnv.step`.

        Raises:
            UnscoredStep: Some was not scored, and there is no `unscored_reward`.
            EnvironmentsFailed: Some raised, or are lost; `errors` says which and why.
        """
        batch = self._envs.step(self._actions.to_batch(actions, self.action_space))
        observations, rewards, terminations, truncations, infos = batch
        if np.isnan(rewards).any():
            rewards = self._scored(rewards, batch)
        if "final_obs" in infos:
            final = np.full(self.num_envs, None, dtype=object)
            for i, observation in enumerate(infos["final_obs"]):
                if observation is not None:
                    final[i] = self._observations.from_fields(observation)
            infos["final_obs"] = final
        seen = self._observations.from_batch(observations)
        return seen, rewards, terminations, truncations, infos

    def _scored(self, rewards: np.ndarray, batch: Any) -> np.ndarray:
        if self._unscored_reward is None:
            which = np.flatnonzero(np.isnan(rewards)).tolist()
            raise UnscoredStep(
                f"environments {which} have not scored this step; unscored_reward=0.0, say, has "
                "such steps count as that",
                batch,
            )
        return np.where(np.isnan(rewards), self._unscored_reward, rewards)

    def render(self) -> tuple[Any, ...] | None:
        mode = self.render_mode
        if mode is None:
            return drawn_in_mode(self._envs.render, mode)  # type: ignore[no-any-return]
        return tuple(_in_mode(drawn, mode) for drawn in self._envs.render())

    def close_extras(self, **kwargs: Any) -> None:
        """Close every session, and what was started.

        Gymnasium's `__del__` calls this too, also of one that was never made to the end.
        """
        envs, keeper = getattr(self, "_envs", None), getattr(self, "_keeper", None)
        try:
            if envs is not None:
                envs.close()
        finally:
            if keeper is not None:
                keeper.close()


def _checked_mode(mode: str | None) -> str | None:
    if mode is not None and mode not in RENDER_MODES:
        raise ValueError(f"render_mode is {mode!r}; expected {' or '.join(RENDER_MODES)}")
    return mode


def drawn_in_mode(render: Callable[[], Any], mode: str | None) -> Any:
    """Render in a render mode; warn and return None without a mode.

    Raises:
        NotSupported: It draws nothing, or nothing of that kind.
    """
    if mode is None:
        gymnasium.logger.warn("render() without a render_mode: give rgb_array or ansi")
        return None
    return _in_mode(render(), mode)


def _in_mode(drawn: Rendering, mode: str) -> Any:
    """Convert a rendering to a render mode of Gymnasium."""
    if mode == "ansi" and isinstance(drawn, str):
        return drawn
    if mode == "rgb_array" and isinstance(drawn, np.ndarray):
        pixels = drawn[..., None] if drawn.ndim == 2 else drawn
        return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[..., :3]
    if isinstance(drawn, str):
        said = "text, and not rgb_array; render_mode='ansi' has it"
    elif isinstance(drawn, np.ndarray):
        said = "pixels, and not ansi; render_mode='rgb_array' has it"
    else:
        said = f"{drawn.media_type}, and not {mode}"
    raise NotSupported(f"the environment draws {said}", feature="render")


if ENVIRONMENT_ID not in gymnasium.registry:
    gymnasium.register(
        ENVIRONMENT_ID,
        entry_point="openenv.integrations.gymnasium:GymnasiumEnv",
        vector_entry_point="openenv.integrations.gymnasium:GymnasiumVectorEnv",
    )
