"""Environments as PettingZoo environments with several agents, or a single agent.

PettingZoo: Terry et al. 2021, "PettingZoo: Gym for Multi-Agent Reinforcement Learning",
arXiv:2009.14471.

    env = aec_env("pettingzoo:classic/tictactoe_v3")
    env = parallel_env("http://localhost:8000")

An environment with several agents is recognized by the fields of its models, which are those that
`openenv.wrappers.from_pettingzoo` creates. The observation has the fields `observations`,
`rewards`, `terminations`, `truncations` and optionally `action_masks`, each keyed by agent. It also
has either `agent`, whose turn it is (the action has a field `action`), or `agents`, who all act at
once (the action has a field `actions`). The JSON schema of `observations` names the agents. Any
other environment has one agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import Unpack

from openenv._internal.packages import needs
from openenv.client.options import ClientOptions
from openenv.integrations._fields import SpaceElements
from openenv.integrations._sources import OpenedSource, UnscoredStep, open_source
from openenv.integrations.gymnasium import (
    GymnasiumEnv,
    GymnasiumOptions,
    RenderMode,
    drawn_in_mode,
)
from openenv.spaces import AnyOf, space_of

with needs("openenv.integrations.pettingzoo"):
    import numpy as np
    from gymnasium import Space, spaces
    from pettingzoo import AECEnv, ParallelEnv  # type: ignore[import-untyped]
    from pettingzoo.utils import (  # type: ignore[import-untyped]
        parallel_to_aec,
        turn_based_aec_to_parallel,
    )

if TYPE_CHECKING:
    from openenv.integrations._sources import Source

__all__ = ["AtOnceEnv", "OneAgentEnv", "TurnsEnv", "aec_env", "parallel_env"]

OF_AGENTS = {"observations", "rewards", "terminations", "truncations"}
ONLY_AGENT = "agent_0"


class AgentsOptions(GymnasiumOptions, total=False):
    """Options of `aec_env` and `parallel_env`."""

    action_spaces: Mapping[str, Space[Any]] | None


def aec_env(source: Source, **options: Unpack[AgentsOptions]) -> AECEnv:
    """Return an environment as a `pettingzoo.AECEnv`, in which agents take turns.

    Args:
        source: The environment to connect to; see `openenv.integrations.gymnasium.GymnasiumEnv`.
        **options: Options of `TurnsEnv` and of the client, and ``action_spaces``, the action space
            of each agent; or options of `GymnasiumEnv` if there is one agent.

    Raises:
        ValueError: No space fits the models; the message names the field.
        ConnectError: No server answers.
    """
    env = _view(source, options)
    return env if isinstance(env, AECEnv) else parallel_to_aec(env)


def parallel_env(source: Source, **options: Unpack[AgentsOptions]) -> ParallelEnv:
    """Return an environment as a `pettingzoo.ParallelEnv`, in which all agents act at once.

    If the agents take turns, only the action of the agent whose turn it is counts; see
    `pettingzoo.utils.turn_based_aec_to_parallel`.

    Args:
        source: The environment to connect to; see `aec_env`.
        **options: The same options as for `aec_env`.

    Raises:
        ValueError: No space fits the models; the message names the field.
        ConnectError: No server answers.
    """
    env = _view(source, options)
    if isinstance(env, ParallelEnv):
        return env
    env.metadata["is_parallelizable"] = True
    return turn_based_aec_to_parallel(env)


def _view(source: Any, options: AgentsOptions) -> Any:
    of_client: Any = dict(options)
    names = AgentsOptions.__optional_keys__ - ClientOptions.__optional_keys__
    of_view = {name: of_client.pop(name) for name in names & of_client.keys()}
    client, told = open_source(source, of_client)
    try:
        fields = (told.observation or {}).get("properties", {})
        if told.action is None or told.observation is None or not fields.keys() >= OF_AGENTS:
            return OneAgentEnv(OpenedSource(client, told), **of_view)  # type: ignore[arg-type]
        agent_spaces = _read_spaces(
            told.action, told.observation, of_view.pop("action_spaces", None)
        )
        kind = AtOnceEnv if "agents" in fields else TurnsEnv
        return kind(client, agent_spaces, **of_view)
    except BaseException:
        client.close()
        raise


class AgentSpaces(NamedTuple):
    """The spaces of all possible agents.

    Attributes:
        actions: The action space of each agent.
        observations: The observation space of each agent.
    """

    actions: dict[str, SpaceElements]
    observations: dict[str, SpaceElements]


def _read_spaces(
    action: Mapping[str, Any],
    observation: Mapping[str, Any],
    given: Mapping[str, Space[Any]] | None,
) -> AgentSpaces:
    seen = _field(observation, "observations", "observation")
    assert isinstance(seen, spaces.Dict)
    acted = dict(given) if given is not None else _action_spaces(action, list(seen.spaces))
    if acted.keys() != seen.spaces.keys():
        raise ValueError(f"action_spaces are of {', '.join(acted)}, not of {', '.join(seen)}")
    return AgentSpaces(
        {name: SpaceElements("action", space, None) for name, space in acted.items()},
        {name: SpaceElements("observation", space, None) for name, space in seen.spaces.items()},
    )


def _action_spaces(action: Mapping[str, Any], agents: list[str]) -> dict[str, Space[Any]]:
    if "actions" in action["properties"]:
        by_agent = _field(action, "actions", "action")
        return dict(by_agent.spaces) if isinstance(by_agent, spaces.Dict) else {}
    space = _field(action, "action", "action")
    if isinstance(space, AnyOf):
        raise ValueError(
            "the agents have different actions, and the schema does not tell whose are which: give "
            "action_spaces={agent: space}"
        )
    return dict.fromkeys(agents, space)


def _field(schema: Mapping[str, Any], name: str, path: str) -> Space[Any]:
    definitions = {"$defs": schema.get("$defs", {})}
    return space_of({**schema["properties"][name], **definitions}, path=f"{path}.{name}")


class _AgentsView:
    """Shared code of both kinds of environments with several agents."""

    def __init__(
        self,
        client: Any,
        agent_spaces: AgentSpaces,
        *,
        unscored_reward: float | None = None,
        render_mode: RenderMode | None = None,
    ) -> None:
        self.metadata: dict[str, Any] = {
            **GymnasiumEnv.metadata,
            "name": "openenv",
            "is_parallelizable": False,
        }
        self.render_mode = render_mode
        self.possible_agents = list(agent_spaces.observations)
        self.agents: list[str] = []
        self._client = client
        self._agent_spaces = agent_spaces
        self._unscored_reward = unscored_reward

    def observation_space(self, agent: str) -> Space[Any]:
        """Return the space of an agent's observations; always the same object."""
        return self._agent_spaces.observations[agent].space

    def action_space(self, agent: str) -> Space[Any]:
        """Return the space of an agent's actions; always the same object."""
        return self._agent_spaces.actions[agent].space

    def _reset(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        arguments: dict[str, Any] = {} if options is None else {"options": options}
        if seed is not None:
            arguments["seed"] = int(seed)
        return self._client.reset(**arguments)

    def _plain(self, agent: str, action: Any) -> Any:
        return self._agent_spaces.actions[agent].to_plain(action)

    def _observed(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        agent_spaces = self._agent_spaces.observations
        seen = fields["observations"]
        return {
            agent: agent_spaces[agent].from_plain(seen[agent])
            for agent in agent_spaces
            if agent in seen
        }

    def _rewards(self, fields: Mapping[str, Any], result: Any) -> dict[str, float]:
        return {
            agent: self._scored(agent, reward, result)
            for agent, reward in fields["rewards"].items()
        }

    def _scored(self, agent: str, reward: float | None, result: Any) -> float:
        if reward is not None:
            return float(reward)
        if self._unscored_reward is None:
            raise UnscoredStep(
                f"the environment has not scored this step of {agent}; unscored_reward=0.0, say, "
                "has such steps count as that",
                result,
            )
        return self._unscored_reward

    def render(self) -> Any:
        """Render the current state of the episode; see `GymnasiumEnv.render`."""
        return drawn_in_mode(self._client.render, self.render_mode)

    def close(self) -> None:
        """Close the session and any server started for it. Safe to repeat."""
        self._client.close()


class AtOnceEnv(_AgentsView, ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """A PettingZoo parallel environment, created by `parallel_env`: all agents act at once.

    Args:
        client: The client that is connected to the environment.
        agent_spaces: The spaces of each agent.
        unscored_reward: Reward of an agent whose step was not scored. Default: such a step raises
            `UnscoredStep`.
        render_mode: ``rgb_array`` or ``ansi``.
    """

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        result = self._reset(seed, options)
        fields = dict(result.observation)
        self.agents = list(fields["agents"])
        observed = self._observed(fields)
        return observed, _infos(fields, result, list(observed), observed)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Carry out the actions of all active agents.

        Returns:
            Observations, rewards, terminations, truncations and infos of the agents that acted.
        """
        plain = {agent: self._plain(agent, action) for agent, action in actions.items()}
        result = self._client.step({"actions": plain})
        fields = dict(result.observation)
        self.agents = list(fields["agents"])
        observed = self._observed(fields)
        return (
            observed,
            self._rewards(fields, result),
            dict(fields["terminations"]),
            dict(fields["truncations"]),
            _infos(fields, result, list(observed), observed),
        )


class TurnsEnv(_AgentsView, AECEnv):  # type: ignore[misc]  # PettingZoo has no types
    """A PettingZoo AEC environment, created by `aec_env`: agents take turns.

    A terminated or truncated agent has one more turn, with the action None, as PettingZoo requires.

    Args:
        client: The client that is connected to the environment.
        agent_spaces: The spaces of each agent.
        unscored_reward: Reward of an agent whose step was not scored. Default: such a step raises
            `UnscoredStep`.
        render_mode: ``rgb_array`` or ``ansi``.
    """

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode."""
        result = self._reset(seed, options)
        fields = dict(result.observation)
        self._seen = self._observed(fields)
        self.agents = list(self._seen)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self._note(fields, result)

    def step(self, action: Any) -> None:
        """Carry out the action of the selected agent."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        result = self._client.step({"action": self._plain(agent, action), "agent": agent})
        fields = dict(result.observation)
        rewards = self._rewards(fields, result)
        self._cumulative_rewards[agent] = 0.0
        self._seen |= self._observed(fields)
        self.rewards = {name: rewards.get(name, 0.0) for name in self.agents}
        self._accumulate_rewards()
        self._note(fields, result)

    def _note(self, fields: Mapping[str, Any], result: Any) -> None:
        """Update which agents are terminated or truncated, and which agent is next."""
        self.terminations = {name: fields["terminations"].get(name, False) for name in self.agents}
        self.truncations = {name: fields["truncations"].get(name, False) for name in self.agents}
        self.infos = _infos(fields, result, self.agents, self._seen)
        self.agent_selection = fields["agent"] or self.agents[0]
        self._deads_step_first()

    def observe(self, agent: str) -> Any:
        """Return the latest observation of an agent."""
        return self._seen[agent]


class OneAgentEnv(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """An environment of a single agent, ``agent_0``.

    Args:
        source: The environment to connect to; see `openenv.integrations.gymnasium.GymnasiumEnv`.
        **options: Options of `GymnasiumEnv`.
    """

    def __init__(self, source: Source, **options: Unpack[GymnasiumOptions]) -> None:
        self._env = GymnasiumEnv(source, **options)
        self.metadata = {**self._env.metadata, "name": "openenv", "is_parallelizable": True}
        self.render_mode = self._env.render_mode
        self.possible_agents = [ONLY_AGENT]
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Space[Any]:
        """Return the space of observations."""
        return self._env.observation_space

    def action_space(self, agent: str) -> Space[Any]:
        """Return the space of actions."""
        return self._env.action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; see `GymnasiumEnv.reset`."""
        observation, info = self._env.reset(seed=seed, options=options)
        self.agents = [ONLY_AGENT]
        return {ONLY_AGENT: observation}, {ONLY_AGENT: info}

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Carry out the agent's action; see `GymnasiumEnv.step`."""
        outcome = self._env.step(actions[ONLY_AGENT])
        if outcome[2] or outcome[3]:
            self.agents = []
        return tuple({ONLY_AGENT: part} for part in outcome)

    def render(self) -> Any:
        """Render the current state of the episode."""
        return self._env.render()

    def close(self) -> None:
        """Close the session and any server started for it. Safe to repeat."""
        self._env.close()


def _infos(
    fields: Mapping[str, Any], result: Any, agents: list[str], seen: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the infos of agents, including action masks that are not in the observation."""
    said = (result.metadata or {}).get("infos", {})
    infos = {agent: dict(said.get(agent, {})) for agent in agents}
    for agent, mask in (fields.get("action_masks") or {}).items():
        observation = seen.get(agent)
        if agent in infos and not (isinstance(observation, dict) and "action_mask" in observation):
            infos[agent]["action_mask"] = np.array(mask, np.int8)
    return infos
