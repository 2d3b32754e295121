"""`wrap`, which makes an environment class from any MCP server.

    Git = openenv.tools.wrap("uvx mcp-server-git --repository .", reward=score, max_steps=20)
    app = openenv.create_app(Git)

Each session has its own process of the server, and each episode a fresh process, unless the server
has a tool that begins episodes.
"""

from __future__ import annotations

import asyncio
import copy
import copyreg
import inspect
import os
import sys
import uuid
from abc import ABCMeta
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar

from openenv.environment import Transform, scored
from openenv.errors import InvalidReturnError, Refused
from openenv.reward import Score
from openenv.settings import ServerMode
from openenv.tools.environment import MCPEnvironment
from openenv.tools.results import to_dump
from openenv.tools.server_processes import Definition, WrappedServers
from openenv.tools.sources import InProcess, read_sources
from openenv.tools.types import CallToolAction, CallToolObservation, ToolErrorType
from openenv.types import EnvironmentMetadata, Observation, State

__all__ = ["Done", "Reward", "WrappedEnvironment", "wrap"]

Reward = Callable[[CallToolAction, CallToolObservation], float | Awaitable[float | None] | None]
Done = Callable[[CallToolAction, CallToolObservation], bool | Awaitable[bool]]


class _WrappedMeta(ABCMeta):
    """The metaclass of classes made by `wrap`, which are pickled as their `Definition`."""


def _reduce_class(cls: _WrappedMeta) -> str | tuple[Any, ...]:
    if "DEFINITION" not in vars(cls) or cls is WrappedEnvironment:
        return cls.__qualname__
    return build_class, (vars(cls)["DEFINITION"],)


copyreg.pickle(_WrappedMeta, _reduce_class)


class WrappedEnvironment(MCPEnvironment, metaclass=_WrappedMeta):
    """The base class of environments made by `openenv.tools.wrap` from MCP servers.

    A call before the first `reset` starts the servers. After a server has ended, all calls fail as
    ``transport_error`` until `reset`, and are not scored.

    In production there are no episodes: neither `done` nor `max_steps` applies.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True
    DEFINITION: ClassVar[Definition]

    def __init__(self) -> None:
        definition = self.DEFINITION
        rubric = definition.reward or _session_copy(definition.rubric)
        super().__init__(
            transform=_session_copy(definition.transform),
            rubric=None if rubric is None else _ThreadedRubric(rubric),
        )
        self._is_over = False
        self._servers = self._mcp_tools = WrappedServers(definition)

    def get_metadata(self) -> EnvironmentMetadata:
        name = self.DEFINITION.name
        described = inspect.getdoc(type(self)) or name
        return EnvironmentMetadata(name=name, description=described, version="1.0.0")

    # ------------------------------------------------------------------ episodes

    async def reset_async(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        timeout_s: float | None = None,
        **kwargs: Any,
    ) -> Observation:
        """Begin an episode, with the servers' reset tools or fresh servers.

        Args:
            seed: Seed for reset tools that accept one.
            episode_id: Id of the episode; by default a new one.
            timeout_s: Time limit of a reset tool in seconds.
            **kwargs: Further arguments for reset tools.

        Returns:
            The result of the reset tool; an empty observation without such a tool.
        """
        self._home = asyncio.get_running_loop()
        passed = {"seed": seed, "episode_id": episode_id, **kwargs}
        limit_s = self.TOOL_TIMEOUT_S if timeout_s is None else timeout_s
        results = await self._servers.begin(passed, limit_s)
        self._own_state = State(episode_id=episode_id or uuid.uuid4().hex)
        self._is_over = False
        await self._reset_rubric_async()
        if not results:
            return Observation(done=False)
        name = self.DEFINITION.reset_tool or "reset"
        if len(results) == 1:
            return CallToolObservation(tool_name=name, result=to_dump(results[0][1]))
        dumps = {server: to_dump(result) for server, result in results}
        return CallToolObservation(tool_name=name, result=dumps)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        return self._run(self.reset_async(seed=seed, episode_id=episode_id, **kwargs))

    async def _reset_rubric_async(self) -> None:
        if hasattr(self.rubric, "reset"):
            await super()._reset_rubric_async()

    # ------------------------------------------------------------------ calls

    async def _call_tool(
        self, action: CallToolAction, timeout_s: float | None, on_progress: Any = None
    ) -> CallToolObservation:
        if self._is_over:
            raise Refused("the episode is over; reset begins the next one")
        return await super()._call_tool(action, timeout_s, on_progress)

    async def _score_call(self, action: Any, observation: Any) -> Any:
        assert isinstance(action, CallToolAction)
        is_lost = (
            observation.error is not None
            and observation.error.error_type is ToolErrorType.TRANSPORT_ERROR
        )
        if self._tools_mode is not ServerMode.PRODUCTION:
            await self._end(action, observation, is_lost)
            self._is_over = observation.done
        if is_lost:
            if self.rubric is not None:
                observation = scored(observation, Score(unscored="the call did not come back"))
            return self._apply_transform(observation)
        seen = await super()._score_call(action, observation)
        self._is_over = self._is_over or seen.done
        return seen

    async def _end(
        self, action: CallToolAction, observation: CallToolObservation, is_lost: bool
    ) -> None:
        """Set `done` and `truncated` on an observation."""
        definition = self.DEFINITION
        if definition.done is not None and not is_lost:
            is_done = await _call_on_thread(definition.done, action, observation)
            if is_done not in (True, False):
                raise InvalidReturnError(
                    f"done returned {type(is_done).__name__} {is_done!r:.80}; it must return a bool"
                )
            observation.done = bool(is_done)
        steps = self.state.step_count
        if definition.max_steps is not None and steps >= definition.max_steps:
            observation.truncated = not observation.done
            observation.done = True


class _ThreadedRubric:
    """A wrapper that calls a rubric or scoring function on a thread, for code that may block."""

    def __init__(self, rubric: Any) -> None:
        self._rubric = rubric

    async def __call__(self, action: Any, observation: Any) -> Any:
        return await _call_on_thread(self._rubric, action, observation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rubric, name)


def _session_copy(value: Any) -> Any:
    """Return a session's own instance of an object that may have state."""
    return value() if isinstance(value, type) else copy.deepcopy(value)


async def _call_on_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that may block on a thread, and await an awaitable result."""
    value = await asyncio.to_thread(function, *arguments)
    return await value if inspect.isawaitable(value) else value


# ------------------------------------------------------------------ making the class


def wrap(
    source: Any,
    *,
    reward: Reward | None = None,
    done: Done | None = None,
    rubric: Any = None,
    transform: Transform[Any] | None = None,
    tools: Sequence[str] | None = None,
    prefix: bool = False,
    reset_tool: str | None = None,
    max_steps: int | None = None,
    name: str | None = None,
    timeout_s: float = MCPEnvironment.TOOL_TIMEOUT_S,
    start_timeout_s: float = 60.0,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> type[WrappedEnvironment]:
    """Make an environment class from MCP servers.

    Args:
        source: A command line; a list of arguments; the URL of a Streamable HTTP server; the path
            or content of an ``mcp.json``; a server of FastMCP or of the official SDK, which all
            sessions share, or a function that makes one for each episode; or several of these: a
            dict by name, or a list.
        reward: Scores a call, given the `CallToolAction` and the `CallToolObservation`. None means
            "not scored"; raise `Unscored` to give a reason. Any other exception fails the step.
        done: Returns whether the episode is over, given the same arguments.
        rubric: Scores calls instead of `reward`, with the same arguments; its `reset()`, if any, is
            called with every episode. Each session has its own: a class is instantiated, any other
            object is copied.
        transform: Applied to every observation after scoring; each session has its own.
        tools: Names of the tools for agents; None for all.
        prefix: Prefix every tool with its server's name: ``git_status``. By default only tools
            whose names collide are prefixed.
        reset_tool: Name of the tool that begins an episode, which agents do not get. By default
            ``reset``, if a server has it. It gets the arguments of `reset` that it accepts. Without
            such a tool every episode has a fresh process.
        max_steps: Truncate an episode after this many calls; None for no limit.
        name: The environment's name; by default the server's.
        timeout_s: Time limit of a call in seconds, unless the caller passes another.
        start_timeout_s: Time limit for starting a server, in seconds.
        env: Environment variables for the process, in addition to PATH, HOME and similar defaults;
            no others are inherited.
        cwd: Working directory of the process.
        headers: Headers of every request to a URL.

    Raises:
        ValueError: `source` defines no server, arguments contradict each other, or `max_steps` is
            less than 1.
        TypeError: `source` cannot be a server, a function is not callable, or `tools` is a text.
    """
    if reward is not None and rubric is not None:
        raise ValueError("reward and rubric exclude each other: both score the calls")
    for what, function in (("reward", reward), ("done", done), ("rubric", rubric)):
        if function is not None and not callable(function):
            raise TypeError(f"{what} is {type(function).__name__}; expected a function")
    if max_steps is not None and max_steps < 1:
        raise ValueError(f"max_steps is {max_steps}; expected 1 or more, or None")
    if isinstance(tools, str):
        raise TypeError(f"tools is the text {tools!r}; expected a list of names")
    sources = read_sources(source, env=env, cwd=cwd, headers=headers)
    made = build_class(
        Definition(
            name=name or "_".join(sources),
            sources=sources,
            reward=reward,
            rubric=rubric,
            done=done,
            transform=transform,
            tools=None if tools is None else tuple(tools),
            prefix=prefix,
            reset_tool=reset_tool,
            max_steps=max_steps,
            timeout_s=timeout_s,
            start_timeout_s=start_timeout_s,
        )
    )
    # As if defined in the caller's module, so that `openenv serve` finds it.
    made.__module__ = sys._getframe(1).f_globals.get("__name__", __name__)
    return made


def build_class(definition: Definition) -> type[WrappedEnvironment]:
    """Make the class of a definition, in any process."""
    sources = definition.sources.values()
    is_shared = any(isinstance(one, InProcess) and one.is_shared for one in sources)
    attributes = {
        "__doc__": f"The tools of {', '.join(definition.sources)}.",
        "__module__": __name__,
        "DEFINITION": definition,
        "SUPPORTS_CONCURRENT_SESSIONS": not is_shared,
        "TOOL_TIMEOUT_S": definition.timeout_s,
    }
    made: Any = _WrappedMeta(definition.name, (WrappedEnvironment,), attributes)
    return made  # type: ignore[no-any-return]
