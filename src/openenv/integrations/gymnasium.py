"""Environments as `gymnasium.Env` and `gymnasium.vector.VectorEnv`.

Gymnasium: Towers et al. 2024, "Gymnasium: A Standard Interface for Reinforcement Learning
Environments", arXiv:2407.17032.

    env = GymnasiumEnv("http://localhost:8000")
    envs = GymnasiumVectorEnv("http://localhost:8000", num_envs=64)

Importing this module also registers them for `gymnasium.make` and `gymnasium.make_vec`:

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
    """Options of `GymnasiumEnv`, documented there."""

    action_space: gymnasium.Space[Any] | None
    observation_space: gymnasium.Space[Any] | None
    action_field: str | None
    observation_field: str | None
    unscored_reward: float | None
    render_mode: RenderMode | None


class GymnasiumEnv(gymnasium.Env[Any, Any], EzPickle):
    """An environment as a `gymnasium.Env`.

    By default `openenv.spaces.space_of` derives the spaces from the models' JSON schemas. If a
    model has a single field, the space is that of the field. If it has several, the space is a
    `gymnasium.spaces.Dict` with an entry for each field.

    `reset` passes its `options` to the environment's `reset` as arguments. `info` holds the step's
    metadata and info, and the reward's details. A pickle holds the constructor's arguments only.

    Args:
        source: The environment to connect to: the address of a server; a target of ``openenv
            serve`` (``gymnasium:CartPole-v1``, ``echo_env``), which is served in a process of its
            own; a provider; a client; or an environment class or factory, which runs in this
            process. `close` closes it.
        action_space: The action space, to replace the one from the schema. A `Dict` may name some
            of the fields; the others keep their defaults.
        observation_space: The observation space, to replace the one from the schema. Fields that a
            `Dict` does not name are left out.
        action_field: The action's field that holds the element. Default: all fields.
        observation_field: The observation's field that holds the element. Default: all fields.
        unscored_reward: Reward of a step that the environment has not scored. Default: such a step
            raises `UnscoredStep`.
        render_mode: ``rgb_array`` or ``ansi``, for `render`.
        **options: Options of the client, such as `api_key` and `message_timeout_s`.

    Raises:
        ValueError: No space fits the models; the message names the field.
        ConnectError: No server answers.
        ProviderError: The server did not start.
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
            seed: Seed of the episode.
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
            ValueError: The action is not in the space.
            ServerError: The environment refused the action, or raised.
            SessionLost: The episode is lost; call `reset`.
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
        """Render the current state of the episode in the `render_mode`.

        Raises:
            NotSupported: The environment cannot render, or not in this mode.
        """
        return drawn_in_mode(self._client.render, self.render_mode)

    def close(self) -> None:
        """Close the session and any server started for it. Safe to repeat, also at exit."""
        if not self._is_closed:
            self._is_closed = True
            self._client.close()


class GymnasiumVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Environments of a server as `gymnasium.vector.VectorEnv`; see `openenv.VectorEnv`.

    Spaces, seeds, automatic resets and infos are the same as those of a
    `gymnasium.vector.AsyncVectorEnv` with as many environments.

    Args:
        source: The environment to connect to; see `GymnasiumEnv`. It cannot be a client.
        num_envs: Number of environments, each a session of its own.
        autoreset_mode: When an environment is reset after the end of an episode.
        action_space: Action space of one environment; see `GymnasiumEnv`.
        observation_space: Observation space of one environment; see `GymnasiumEnv`.
        action_field: The action's field that holds the element. Default: all fields.
        observation_field: The observation's field that holds the element. Default: all fields.
        unscored_reward: Reward of an unscored step. Default: such a step raises `UnscoredStep`.
        render_mode: ``rgb_array`` or ``ansi``, for `render`.
        **options: Options of `openenv.VectorEnv`, such as `connections` and `api_key`.

    Raises:
        ValueError: No space fits the models; the message names the field.
        TypeError: `source` is a client, or not an environment.
        ConnectError: No server answers.
        ProviderError: The server did not start.
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
            UnscoredStep: A step was not scored, and there is no `unscored_reward`.
            EnvironmentsFailed: Some environments raised, or were lost; `errors` says which and why.
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
        """Close every session and any server started for them.

        Gymnasium's `__del__` calls this too, even if the constructor raised.
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
        NotSupported: The environment cannot render, or not in this mode.
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
