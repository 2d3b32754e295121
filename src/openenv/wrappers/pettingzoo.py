"""Wrapper for multi-agent environments of PettingZoo.

PettingZoo: Terry et al. 2021, "PettingZoo: Gym for Multi-Agent Reinforcement Learning",
arXiv:2009.14471. Both interfaces are supported: agents that take turns (AEC) and agents that act
simultaneously (parallel). A single client acts for all agents.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import pkgutil
import reprlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple

from pydantic import ConfigDict, Field, ValidationError, WithJsonSchema, with_config
from typing_extensions import NotRequired, TypedDict

from openenv._internal.packages import needs
from openenv.errors import Refused
from openenv.reward import Score
from openenv.wrappers.classes import (
    ActT,
    AdapterError,
    ObsT,
    WrapperEnvironment,
    assign_to_caller,
    describe,
    make_class,
    reward_metadata,
    source_name,
    suggest_name,
    to_score,
)
from openenv.wrappers.elements import Elements, SpacesEnvironment, to_json_part

with needs("openenv.wrappers.from_pettingzoo"):
    import pettingzoo  # type: ignore[import-untyped]

__all__ = ["ParallelEnvironment", "TurnsEnvironment", "from_pettingzoo"]

Source = str | Callable[..., Any]


class PettingZooAgents(NamedTuple):
    """The possible agents of an environment, with spaces."""

    agents: dict[str, Any]  # PettingZoo's ids, which may be any object, keyed by their text
    actions: dict[str, Elements]  # the action space of each agent
    observations: dict[str, Elements]  # the observation space of each agent
    scored: str  # the agent whose reward is the reward of the step


class _MultiAgentEnvironment(SpacesEnvironment[ActT, ObsT], Generic[ActT, ObsT]):
    AGENTS: ClassVar[PettingZooAgents]

    def _observe(
        self,
        observed: Mapping[Any, Any],
        rewards: Mapping[Any, Any] | None,
        terminations: Mapping[Any, Any],
        truncations: Mapping[Any, Any],
        infos: Mapping[Any, Any],
        **acting: Any,
    ) -> ObsT:
        """Make an observation; `acting` is the field that names the agents that act next."""
        is_over = not self._env.agents
        if is_over:
            self._end()
        scores = {str(agent): to_score(reward) for agent, reward in (rewards or {}).items()}
        score = scores.get(self.AGENTS.scored, Score())
        metadata = reward_metadata(score)
        if why := {agent: one.unscored for agent, one in scores.items() if one.unscored}:
            metadata["unscored_agents"] = why
        if told := {str(agent): to_json_part(info) for agent, info in infos.items() if info}:
            metadata["infos"] = told
        seen: ObsT = self.OBSERVATION.model_construct(
            **acting,
            observations={
                str(agent): self.AGENTS.observations[str(agent)].write(element)
                for agent, element in observed.items()
                if element is not None
            },
            action_masks=_action_masks(observed, infos),
            rewards={agent: one.value for agent, one in scores.items()},
            terminations={str(agent): bool(flag) for agent, flag in terminations.items()},
            truncations={str(agent): bool(flag) for agent, flag in truncations.items()},
            reward=score.value,
            done=is_over,
            truncated=is_over and any(truncations.values()) and not any(terminations.values()),
            metadata=metadata,
        )
        return seen


class TurnsEnvironment(_MultiAgentEnvironment[ActT, ObsT], Generic[ActT, ObsT]):
    """The base class of environments with agents that take turns (PettingZoo's AEC).

    `from_pettingzoo` makes subclasses. An action is for the agent whose turn it is, which the
    observation names. A terminated or truncated agent gets no more turns: this class takes
    PettingZoo's empty step for it. The episode is over when no agent is left, and truncated if none
    of the last agents was terminated.

    `rewards` holds the step's reward of every agent that was active. `reward` is that of one agent,
    or None if that agent was not active.
    """

    def _observe_reset(self, begun: Any) -> ObsT:
        return self._observe_turn(None)

    def step(self, action: ActT) -> ObsT:  # type: ignore[override]
        self._refuse_unless_running()
        env, turn = self._env, str(self._env.agent_selection)
        said, chosen = action.agent, action.action  # type: ignore[attr-defined]
        if said not in (None, turn):
            raise Refused(f"agent: it is the turn of {turn!r}, not of {said!r}")
        env.step(_read_action(self.AGENTS.actions[turn], chosen))
        self._step_count += 1
        return self._observe_turn(dict(env.rewards))

    def _observe_turn(self, rewards: dict[Any, Any] | None) -> ObsT:
        env = self._env
        terminations, truncations = dict(env.terminations), dict(env.truncations)
        observed = {agent: env.observe(agent) for agent in env.agents}
        infos = {agent: env.infos.get(agent, {}) for agent in env.agents}
        while env.agents and (
            env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        ):
            env.step(None)
        turn = str(env.agent_selection) if env.agents else None
        return self._observe(observed, rewards, terminations, truncations, infos, agent=turn)


class ParallelEnvironment(_MultiAgentEnvironment[ActT, ObsT], Generic[ActT, ObsT]):
    """The base class of environments with agents that act simultaneously.

    `from_pettingzoo` makes subclasses. An action holds the actions of all active agents, which the
    observation names. The episode is over when no agent is left, and truncated if none of the last
    agents was terminated.

    `rewards` holds the step's reward of every agent that was active. `reward` is that of one agent,
    or None if that agent was not active.
    """

    def _observe_reset(self, begun: Any) -> ObsT:
        observed, infos = begun
        return self._observe_all(observed, None, {}, {}, infos)

    def step(self, action: ActT) -> ObsT:  # type: ignore[override]
        self._refuse_unless_running()
        chosen = self._read(action.actions)  # type: ignore[attr-defined]
        outcome = self._env.step(chosen)
        self._step_count += 1
        return self._observe_all(*outcome)

    def _observe_all(self, *outcome: Any) -> ObsT:
        return self._observe(*outcome, agents=[str(agent) for agent in self._env.agents])

    def _read(self, actions: Mapping[str, Any]) -> dict[Any, Any]:
        present = [str(agent) for agent in self._env.agents]
        missing = [agent for agent in present if agent not in actions]
        if missing:
            raise Refused(f"actions: missing for {', '.join(missing)}")
        surplus = [agent for agent in actions if agent not in present]
        if surplus:
            raise Refused(f"actions: {surplus[0]!r} is not in{suggest_name(surplus[0], present)}")
        agents_of_env = self.AGENTS
        return {
            agents_of_env.agents[agent]: _read_action(agents_of_env.actions[agent], actions[agent])
            for agent in present
        }


def _read_action(elements: Elements, value: Any) -> Any:
    try:
        value = elements.reader.validate_python(value)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise Refused(
            f"{elements.what}: {wrong['msg']}, got {reprlib.repr(wrong['input'])}"
        ) from None
    return elements.read(value)


def _action_masks(observed: Mapping[Any, Any], infos: Mapping[Any, Any]) -> dict[str, list[int]]:
    """Return action masks (1 for a legal action) from observations or infos."""
    masks = {}
    for agent, element in observed.items():
        mask = element.get("action_mask") if isinstance(element, dict) else None
        mask = infos.get(agent, {}).get("action_mask") if mask is None else mask
        if mask is not None and not isinstance(mask, dict | tuple):
            masks[str(agent)] = [int(legal) for legal in mask]
    return masks


# ------------------------------------------------------------------ making the class


def from_pettingzoo(
    source: Source, /, *, parallel: bool | None = None, agent: str | None = None, **arguments: Any
) -> type[WrapperEnvironment[Any, Any]]:
    """Make an environment class from an environment of PettingZoo.

    The environment is instantiated once to read its agents and spaces, and again for every session.

    Args:
        source: ``family/name``, such as ``classic/tictactoe_v3``; another module that has `env` or
            `parallel_env`; ``module:function``; or a class or function that makes an environment.
        parallel: True: all agents act simultaneously. False: they take turns. Default: they take
            turns if the environment supports that.
        agent: The agent whose reward is the reward of the step; by default the first of
            `possible_agents`.
        **arguments: Arguments of the factory.

    Raises:
        AdapterError: The environment, agent or an argument does not exist.
        MissingPackage: A required package is not installed.
    """
    make = functools.partial(_make, source, parallel, arguments)
    made_by = functools.partial(
        from_pettingzoo, source, parallel=parallel, agent=agent, **arguments
    )
    with contextlib.closing(make()) as env:
        return assign_to_caller(_make_class(env, source_name(source), agent, make, made_by))  # type: ignore[no-any-return]


def _make_class(
    env: Any, name: str, agent: str | None, make: Callable[[], Any], made_by: Callable[[], Any]
) -> Any:
    is_parallel = isinstance(env, pettingzoo.ParallelEnv)
    agents_of_env = _agent_spaces(env, name, agent, "actions.{}" if is_parallel else "action")
    return make_class(
        ParallelEnvironment if is_parallel else TurnsEnvironment,
        name,
        made_by,
        action=_action_at_once(agents_of_env) if is_parallel else _action_in_turn(agents_of_env),
        observation=_observation(agents_of_env, is_parallel),
        metadata=describe(env.unwrapped, name, "PettingZoo"),
        MAKE=staticmethod(make),
        AGENTS=agents_of_env,
    )


def _agent_spaces(env: Any, name: str, agent: str | None, path: str) -> PettingZooAgents:
    agents = {str(one): one for one in getattr(env, "possible_agents", ())}
    if not agents:
        raise AdapterError(f"{name} does not list its possible_agents, so it has no schema")
    if agent is not None and agent not in agents:
        raise AdapterError(f"{name} has no agent {agent!r}{suggest_name(agent, list(agents))}")
    return PettingZooAgents(
        agents,
        {
            text: Elements(env.action_space(one), path.format(text), title=f"Action_{text}")
            for text, one in agents.items()
        },
        {
            text: Elements(env.observation_space(one), f"observations.{text}", title=f"Seen_{text}")
            for text, one in agents.items()
        },
        next(iter(agents)) if agent is None else agent,
    )


def _action_in_turn(agents_of_env: PettingZooAgents) -> dict[str, Any]:
    kinds: list[Elements] = []
    for one in agents_of_env.actions.values():
        if not any(one.space == other.space for other in kinds):
            kinds.append(one)
    annotation = kinds[0].annotation
    if len(kinds) > 1:  # the turn decides which of them applies
        schemas = [one.reader.json_schema() for one in kinds]
        annotation = Annotated[Any, WithJsonSchema({"anyOf": schemas})]
    spaces = ", or ".join(str(one.space) for one in kinds)
    text = f"The action of the agent whose turn it is: an element of {spaces}."
    acting: Any = Literal[tuple(agents_of_env.agents)]
    said = "The acting agent; a step out of turn is refused."
    return {"action": _field(annotation, text), "agent": _field(acting | None, said, default=None)}


def _action_at_once(agents_of_env: PettingZooAgents) -> dict[str, Any]:
    by_agent = _by_agent("Actions", agents_of_env.actions)
    return {"actions": _field(by_agent, "The action of every agent that is in.")}


def _observation(agents_of_env: PettingZooAgents, is_parallel: bool) -> dict[str, Any]:
    agents: Any = Literal[tuple(agents_of_env.agents)]
    if is_parallel:
        who = {"agents": _field(list[agents], "The agents that act next.")}
    else:
        who = {"agent": _field(agents | None, "The agent whose turn it is; null after the end.")}
    by_agent = _by_agent("Observations", agents_of_env.observations)
    masks = "Masks of legal actions (1), if the environment has any."
    rewards = f"Rewards of this step; `reward` is that of {agents_of_env.scored}."
    return {
        **who,
        "observations": _field(by_agent, "The observation of each agent."),
        "action_masks": _field(dict[str, list[int]], masks),
        "rewards": _field(dict[str, float | None], rewards),
        "terminations": _field(dict[str, bool], "True for agents that are out."),
        "truncations": _field(dict[str, bool], "True for agents that were cut off."),
    }


def _field(annotation: Any, description: str, **options: Any) -> tuple[Any, Any]:
    return annotation, Field(description=description, **options)


def _by_agent(title: str, elements: Mapping[str, Elements]) -> Any:
    fields = {name: NotRequired[one.annotation] for name, one in elements.items()}
    return with_config(ConfigDict(extra="forbid"))(TypedDict(title, fields))  # type: ignore[operator]


# ------------------------------------------------------------------ finding the environment


def _make(source: Source, parallel: bool | None, arguments: dict[str, Any]) -> Any:
    name = source_name(source)
    with needs(f"pettingzoo:{name}", _extra(name)):
        function = _function(source, parallel) if isinstance(source, str) else source
        try:
            env = function(**arguments)
        except TypeError as error:
            raise AdapterError(f"pettingzoo:{name} cannot be made: {error}") from error
    if isinstance(env, pettingzoo.AECEnv) and parallel:
        env = pettingzoo.utils.conversions.aec_to_parallel(env)  # pyright: ignore[reportAttributeAccessIssue]
    elif isinstance(env, pettingzoo.ParallelEnv) and parallel is False:
        env = pettingzoo.utils.conversions.parallel_to_aec(env)  # pyright: ignore[reportAttributeAccessIssue]
    if not isinstance(env, pettingzoo.AECEnv | pettingzoo.ParallelEnv):
        raise AdapterError(
            f"{name} makes {type(env).__name__}; expected an AECEnv or ParallelEnv of PettingZoo"
        )
    return env


def _extra(name: str) -> str | None:
    """Return the command that installs the dependencies of a PettingZoo family."""
    family, slash, _ = name.partition("/")
    return f"pip install 'pettingzoo[{family}]'" if slash else None


def _function(name: str, parallel: bool | None) -> Callable[..., Any]:
    place, _, attribute = name.partition(":")
    module = _module(place)
    wanted = (
        [attribute]
        if attribute
        else ["parallel_env", "env"]
        if parallel
        else ["env", "parallel_env"]
    )
    for one in wanted:
        if hasattr(module, one):
            function: Callable[..., Any] = getattr(module, one)
            return function
    raise AdapterError(f"{module.__name__} has no {' and no '.join(wanted)}")


def _module(name: str) -> ModuleType:
    """Import a module of PettingZoo (``family/name``), or any other."""
    path = name.replace("/", ".")
    for candidate in (f"pettingzoo.{path}", path):
        if _exists(candidate):
            return importlib.import_module(candidate)
    family, _, last = name.rpartition("/")
    hint = suggest_name(last, list(_environments(family))) if family else ""
    raise AdapterError(f"PettingZoo has no {name!r}, and there is no such module{hint}")


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def _environments(family: str) -> Iterable[str]:
    if not _exists(f"pettingzoo.{family}"):
        return []
    found = importlib.import_module(f"pettingzoo.{family}").__path__
    return [one.name for one in pkgutil.iter_modules(found) if "_v" in one.name]
