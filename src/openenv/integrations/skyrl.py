"""Environments for SkyRL (skyrl-gym 0.4), registered by a call in SkyRL's entry point:

    register("blackjack", environment="http://localhost:8000")

Rows of the dataset with ``env_class: blackjack`` are then episodes of this environment.
"""

from __future__ import annotations

import pickle  # nosec B403  # nothing is unpickled
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from openenv._internal.packages import needs
from openenv.client import background
from openenv.integrations._episodes import (
    row_arguments,
    session_reward,
    shared_sessions,
)
from openenv.integrations.trl.environments import Columns
from openenv.rollouts.episode_sessions import (
    EpisodeSession,
    EpisodeStart,
    NoActiveEpisode,
    Unfinished,
)
from openenv.rollouts.policies.conversations import opening_messages
from openenv.rollouts.replies import describe_tools

with needs("openenv.integrations.skyrl", "pip install skyrl-gym"):
    from skyrl_gym.envs import (  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
        registration,
    )
    from skyrl_gym.envs.base_text_env import (  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
        BaseTextEnv,
        BaseTextEnvStepOutput,
    )

__all__ = ["OpenEnvTextEnv", "SkyRLOptions", "register"]

Messages = list[dict[str, Any]]


def register(id: str, environment: Hashable, **options: Any) -> None:
    """Register an environment in SkyRL, in this process.

    Call it where SkyRL registers its own environments: in the Ray task that creates the experiment.
    Options under this name in SkyRL's ``environment.skyrl_gym`` configuration take precedence over
    these.

    Args:
        id: Name of the environment in the column ``env_class``.
        environment: An address, the name of an installed environment, another target of ``openenv
            serve``, or an environment class.
        **options: Options; see `SkyRLOptions`.

    Raises:
        TypeError: The arguments cannot be pickled, and so not be sent to another process.
        skyrl_gym.error.RegistrationError: The name is already registered.
    """
    given = {"environment": environment, **options}
    try:
        pickle.dumps(given)
        hash(environment)
    except Exception as error:
        raise TypeError(
            f"environment={environment!r:.200} of register, or an option, cannot be sent to "
            "another process; give an address, the name of an environment, or a class of a module"
        ) from error
    registration.register(
        id=id, entry_point=f"{OpenEnvTextEnv.__module__}:{OpenEnvTextEnv.__name__}", kwargs=given
    )


@dataclass(frozen=True)
class SkyRLOptions:
    """Options of an environment in SkyRL.

    Attributes:
        environment: See `register`.
        columns: The row's columns that are arguments of the environment's reset, or a mapping from
            columns to arguments. Default: all texts and numbers that are not SkyRL's own. A task
            that `openenv.integrations.trl.task_dataset` has put in the row is always used.
        max_turns: Maximum number of replies. Default: the generator's limit, or 1 without it.
        unfinished: Reward of an episode that the model has not finished by then.
        rewarded: ``at_end``: the last step has the episode's reward and earlier steps have 0.0,
            which is right in each mode of SkyRL's generator. ``each_step``: each step has what it
            adds to the episode's reward. A generator with a custom chat template reads only the
            last of these.
        tell: Describe in words how to act. If the action is any text, the description is that of
            the text field in the environment's schema, if there is one.
        retries: Further attempts at a reset after a passing failure.
        equal_beginnings: Raise `UnequalBeginnings` if two episodes of one row with a seed begin
            differently: their rewards cannot be compared.
    """

    environment: Hashable
    columns: Columns | None = None
    max_turns: int | None = None
    unfinished: Unfinished = "earned"
    rewarded: Literal["at_end", "each_step"] = "at_end"
    tell: bool = True
    retries: int = 2
    equal_beginnings: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SkyRLOptions:
        """Create options from a mapping.

        Raises:
            ValueError: An option is unknown or invalid, or `environment` is missing.
        """
        known = [field.name for field in fields(cls)]
        if wrong := sorted(given.keys() - set(known)):
            named = ", ".join(map(repr, wrong))
            raise ValueError(f"options {named} of an environment; expected some of {known}")
        if given.get("environment") is None:
            raise ValueError("environment=None; expected an address or the name of an environment")
        found = cls(**given)
        if found.rewarded not in ("at_end", "each_step"):
            raise ValueError(f"rewarded={found.rewarded!r}; expected at_end or each_step")
        return found


class OpenEnvTextEnv(BaseTextEnv):  # type: ignore[misc]
    """An episode for SkyRL: each reply of the model is an action.

    SkyRL has no value for an unknown reward. So `init` and `step` raise if the environment cannot
    be reached or fails, and `step` raises if the environment has not scored the episode.

    Args:
        env_config: Options under the environment's name in SkyRL's configuration; see
            `SkyRLOptions`.
        extras: The row's columns, and ``max_turns`` of the generator.
        **options: Further `SkyRLOptions`; ``env_config`` takes precedence over them.

    Raises:
        ValueError: An option is unknown or invalid, or `environment` is missing.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any] | None = None,
        extras: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._options = SkyRLOptions.of({**options, **(env_config or {})})
        self._row = dict(extras or {})
        self.max_turns = self._options.max_turns or self._row.get("max_turns") or 1
        self._session: EpisodeSession | None = None
        self._told = 0.0  # the part of the episode's reward that was returned already
        self._metrics: dict[str, Any] = {}

    def init(self, prompt: Messages) -> tuple[Messages, dict[str, Any]]:
        """Begin the episode.

        Args:
            prompt: The row's prompt.

        Returns:
            The messages that the model replies to (the prompt, how to act, and the first
            observation), and an empty dictionary.

        Raises:
            CapacityError: The server has no slot for the episode.
            OpenEnvError: The episode could not begin.
        """
        start = EpisodeStart(prompt, *row_arguments(self._row, self._options.columns))
        sessions = shared_sessions(
            self._options.environment, self._options.retries, self._options.equal_beginnings
        )
        self.turns, self._told, self._metrics = 0, 0.0, {}
        if self._session is None:
            self._session = background.run(sessions.take())
        try:
            first = background.run(self._session.begin(start))
        except BaseException:
            self.close()
            raise
        words = describe_tools(sessions.interface) if self._options.tell else ""
        return opening_messages(prompt, first, words), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Act by a reply of the model.

        Raises:
            NoActiveEpisode: No episode was begun.
            OpenEnvError: The environment has failed; the episode is lost.
            Unscored: The episode is over, and has no reward.
        """
        if self._session is None:
            raise NoActiveEpisode("no episode was begun: call init first")
        try:
            answer = background.run(self._session.reply(action))
            self.turns += 1
            is_last = answer.is_over or self.turns >= self.max_turns
            gained = self._gained(self._session, is_last)
        except BaseException:  # SkyRL does not close an environment that raised
            self.close()
            raise
        said = [] if is_last else [{"role": "user", "content": answer.text}]
        return BaseTextEnvStepOutput(
            observations=said,
            reward=gained,
            done=is_last,
            metadata={"seen": answer.text, "is_refused": answer.is_refused},
        )

    def close(self) -> None:
        """Close the episode's session. Safe to repeat."""
        session, self._session = self._session, None
        if session is not None:
            background.run(session.close())

    def get_metrics(self) -> dict[str, Any]:
        """Return the metrics that SkyRL averages: the reward's components, the steps, and whether
        the episode came to an end.
        """
        return dict(self._metrics)

    def _gained(self, session: EpisodeSession, is_last: bool) -> float:
        if is_last:
            score = session_reward(session, self._options.unfinished)
            self._metrics = {
                **score.components,
                "steps": session.steps,
                "finished": session.is_over,
            }
            value = score.value
        else:
            value = session.score().value if self._options.rewarded == "each_step" else None
        if value is None:  # not known yet
            return 0.0
        before, self._told = self._told, value
        return value - before
