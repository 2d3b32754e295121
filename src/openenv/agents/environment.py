"""`HarnessEnvironment`: an environment that runs an agent with an agent loop inside.

An action is a message, and a step is a turn: the agent works on its own, with its tools and the
environment's, until it answers. The harness keeps the conversation over the turns of an episode.

    class Desk(HarnessEnvironment):
        @tool
        def look_up(self, word: str) -> str:
            \"\"\"What a word means.\"\"\"
            return MEANINGS[word]

    env = Desk(StdioHarnessAdapter(HarnessConfig(name="agent", command=["my-agent"])))
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import PrivateAttr

from openenv._internal.incidents import log_incident
from openenv._internal.redaction import redact, register_secrets_of
from openenv._internal.timing import Expired, within
from openenv.agents.adapter import AgenticHarnessAdapter, build_response
from openenv.agents.bridge import HarnessMCPBridge, RenamedTools
from openenv.agents.errors import (
    HarnessBusyError,
    HarnessCrashedError,
    HarnessError,
    HarnessNotRunningError,
    HarnessOutputTooLarge,
    HarnessTurnTimeoutError,
)
from openenv.agents.events import (
    HarnessEvent,
    HarnessEventType,
    HarnessResponse,
    Listener,
    OnEvent,
    events_to_metadata,
)
from openenv.environment import Transform
from openenv.errors import Unscored, words
from openenv.reward import REWARD_INFO, Score
from openenv.tools.environment import MCPEnvironment
from openenv.tools.results import build_failure, from_dump
from openenv.tools.types import CallToolAction, ListToolsAction, Tool
from openenv.types import Action, Observation, State

__all__ = ["HarnessAction", "HarnessEnvironment", "resolve_tool_conflicts"]

NO_EPISODE = "No active episode; call reset() before step()"
NO_TURN = "no turn is running: the environment's tools answer during a turn only"
CALL_GRACE_S = 5.0  # for cancelled tool calls at the end of a turn
ENVIRONMENT = "environment"  # `source` of events about the environment's tools


class HarnessAction(Action):
    """A turn of the conversation: a message to the agent."""

    message: str

    _listener: Listener = PrivateAttr(default_factory=Listener)

    def with_listener(self, on_event: OnEvent) -> HarnessAction:
        """Set a listener for the events of the turn, and return the action."""
        self._listener = Listener(on_event)
        return self


class HarnessEnvironment(
    MCPEnvironment[HarnessAction | CallToolAction | ListToolsAction, Observation]
):
    """An environment in which an agent harness runs.

    `reset` ends the previous harness and starts a new one with the environment's tools; its
    metadata has `episode_id` and `injected_tools`. `step` takes a `HarnessAction`; its observation
    has the metadata `response`, `turn_events` and `turn_number`. The reward comes from the rubric,
    and is None without a rubric.

    A failed turn ends the episode: `done` and `truncated` are true, the reward is None
    (`reward_info` says why), and the metadata has `error`, `error_type` and `turn_events`. A failed
    turn, `reset`, `close` and the cancellation of a turn end all processes of the harness.

    As in any `MCPEnvironment`, the tools are marked methods and those of an MCP server. The agent
    can call them while a turn runs, one call at a time. See `openenv.agents.errors`.

    Args:
        adapter: The adapter of the harness.
        mcp: A FastMCP server, or a server of the official SDK, with further tools.
        rubric: Computes the reward of every turn that did not fail; see `Environment`.
        transform: Changes the observations; see `Environment`.
        trajectory_scorer: Scores whole episodes; see `Environment`. An episode that ended with a
            failed turn is not scored.

    Raises:
        ValueError: A tool is called reset, step, state or close.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = False

    def __init__(
        self,
        adapter: AgenticHarnessAdapter,
        mcp: Any = None,
        rubric: Any = None,
        transform: Transform[Any] | None = None,
        *,
        trajectory_scorer: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(mcp, transform, rubric)
        scorer = trajectory_scorer or self.trajectory_scorer
        if scorer is not None:
            self.trajectory_scorer = _CompleteEpisodeScorer(scorer)
        self.adapter = adapter
        register_secrets_of(adapter.config.env_vars)
        self._harness_state = State()
        self._trajectory: list[HarnessEvent] = []
        self._turn_events: list[HarnessEvent] | None = None  # while one runs
        self._turn_bytes = 0
        self._listener = Listener()
        self._why_none = NO_EPISODE  # why no turn can start; empty if one can
        self._bridge: HarnessMCPBridge | None = None
        self._tool_turn: asyncio.Lock | None = None  # while one runs
        self._calls: set[asyncio.Task[Any]] = set()
        self._turn_loop: asyncio.AbstractEventLoop | None = None

    @property
    def state(self) -> State:
        """Return the state of the episode; `step_count` counts the turns."""
        return self._harness_state

    @property
    def trajectory(self) -> list[HarnessEvent]:
        """Return the events of the episode so far, without secrets."""
        return list(self._trajectory)

    def harness_name(self) -> str:
        """Return the name of the harness."""
        return self.adapter.config.name

    @staticmethod
    def harness_turn(message: str, on_event: OnEvent) -> HarnessAction:
        """Create an action that reports events to `on_event`, on the event loop of the step."""
        return HarnessAction(message=message).with_listener(on_event)

    # ------------------------------------------------------------------ episodes

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        """Begin an episode: start the harness with an empty conversation.

        Raises:
            HarnessBusyError: A turn is running.
            HarnessStartupError: The harness could not be started; no episode has begun.
        """
        self._home = asyncio.get_running_loop()
        self._check_idle()
        await self._end_episode(NO_EPISODE)
        await self._reset_rubric_async()
        self._trajectory = []
        config = self.adapter.config
        try:
            tools, url = await self._offer_tools()
            await self.adapter.inject_tools(tools, url)
            await self.adapter.start(config.working_directory)
        except BaseException:
            await asyncio.shield(self._end_episode(NO_EPISODE))
            raise
        self._why_none = ""
        self._harness_state = State(episode_id=episode_id or str(uuid.uuid4()))
        names = [tool.name for tool in tools]
        known = {"episode_id": self._harness_state.episode_id, "injected_tools": names}
        return Observation(metadata=known)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Any:
        """Begin an episode from synchronous code, as `reset_async` does."""
        return self._run(self.reset_async(seed, episode_id, **kwargs))

    async def _offer_tools(self) -> tuple[list[Tool], str | None]:
        """Return the tools under the names that the harness sees, and the URL of the bridge."""
        found = (await self._list_tools()).tools
        if not found:
            return [], None
        described = await self.mcp_list_tools()
        resolved = resolve_tool_conflicts(found, self.adapter.BUILTIN_TOOL_NAMES)
        pairs = zip(resolved, found, strict=True)
        renames = {new.name: old.name for new, old in pairs if new.name != old.name}
        self._bridge = HarnessMCPBridge(RenamedTools(_ToolsInTurn(self, described), renames))
        return resolved, await asyncio.to_thread(self._bridge.start)

    async def _end_episode(self, why: str) -> None:
        """Stop the harness; further turns fail with the error text `why`."""
        self._why_none = why
        bridge, self._bridge = self._bridge, None
        try:
            await self.adapter.stop()
        finally:
            if bridge is not None:
                await asyncio.to_thread(bridge.stop)

    def _check_idle(self) -> None:
        if self._turn_events is not None:
            raise HarnessBusyError(
                "a turn is running, and a harness holds one conversation; wait for its end, or "
                "cancel it"
            )

    # ------------------------------------------------------------------ turns

    async def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        if not isinstance(action, HarnessAction):
            return super()._step_impl(action, timeout_s=timeout_s, **kwargs)
        self._check_idle()
        if self._why_none:
            raise HarnessNotRunningError(self._why_none)
        self._turn_events, self._turn_bytes = [], 0
        self._turn_loop, self._tool_turn = asyncio.get_running_loop(), asyncio.Lock()
        self._listener = action._listener
        try:
            observation = await self._take_turn(action, timeout_s)
        except BaseException:  # cancelled: the agent's state is unknown
            why = "the last turn was given up, and the episode with it; call reset()"
            self._turn_events = None
            await asyncio.shield(self._end_episode(why))
            raise
        finally:
            self._turn_events, self._listener = None, Listener()
        return self._apply_transform(observation)

    async def _take_turn(self, action: HarnessAction, timeout_s: float | None) -> Observation:
        limits = (self.adapter.config.session_timeout_s, timeout_s)
        limit_s = min(limit for limit in limits if limit is not None)
        try:
            response = await within(limit_s, self._hear_turn(action.message))
        except Expired:
            cure = "raise session_timeout_s of its HarnessConfig, or ask for less in a turn"
            why = f"the harness turn exceeded {limit_s:g} s; {cure}"
            return await self._fail_turn(HarnessTurnTimeoutError(why))
        except HarnessError as error:
            return await self._fail_turn(error)
        except Exception as error:  # a fault of the adapter
            log_incident(error, f"{type(self.adapter).__name__}.send_message_streaming")
            why = f"the adapter raised {type(error).__name__}: {words(error)}"
            return await self._fail_turn(HarnessCrashedError(why))
        return await self._complete_turn(action, response)

    async def _hear_turn(self, message: str) -> HarnessResponse:
        events: AsyncIterator[HarnessEvent] = self.adapter.send_message_streaming(message)
        close = getattr(events, "aclose", None)
        try:
            async for event in events:
                self._check_size(event)
                self._record(event)
                if event.type is HarnessEventType.TURN_COMPLETE:
                    break
        finally:
            if close is not None:
                await close()
            await self._cancel_calls()
        return build_response(self._turn_events or [])

    def _check_size(self, event: HarnessEvent) -> None:
        limit = self.adapter.config.max_output_bytes
        self._turn_bytes += len(event.model_dump_json(fallback=str))
        if self._turn_bytes > limit:
            raise HarnessOutputTooLarge(
                f"the harness reported over {limit} bytes of events in one turn; raise "
                "max_output_bytes of its HarnessConfig, or make it report less"
            )

    def _record(self, event: HarnessEvent) -> None:
        """Record an event, without secrets, and notify the listener."""
        assert self._turn_events is not None
        event = event.without_secrets()
        self._turn_events.append(event)
        self._trajectory.append(event)
        self._listener(event)

    async def _complete_turn(self, action: HarnessAction, response: HarnessResponse) -> Observation:
        self._harness_state.step_count += 1
        turn, limit = self._harness_state.step_count, self.adapter.config.max_turns
        is_cut = not response.done and limit is not None and turn >= limit
        observation = Observation(
            done=response.done or is_cut,
            truncated=is_cut,
            metadata={
                "response": response.response,
                "turn_events": events_to_metadata(self._turn_events or ()),
                "turn_number": turn,
            },
        )
        if observation.done:
            why = f"its limit of {limit} turns" if is_cut else "the agent has ended it"
            await self._end_episode(f"the episode is over ({why}); call reset() for another")
        if self.rubric is not None:
            observation.reward = await self._apply_rubric_async(action, observation)
        return observation

    async def _fail_turn(self, error: HarnessError) -> Observation:
        """Return the observation of a turn that failed, and end the episode."""
        message = redact(words(error))
        told = {"message": message, "recoverable": False, "error_type": error.error_type}
        self._record(HarnessEvent(type=HarnessEventType.ERROR, data=told))
        events = events_to_metadata(self._turn_events or ())
        await self._end_episode(f"the episode is over ({error.error_type}); call reset()")
        return Observation(
            done=True,
            truncated=True,
            metadata={
                "error": message,
                "error_type": error.error_type,
                "turn_events": events,
                "turn_number": self._harness_state.step_count + 1,
                REWARD_INFO: Score(unscored=f"the harness failed: {message}").as_info(),
            },
        )

    # ------------------------------------------------------------------ the agent's calls

    async def _call_in_turn(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool for the agent, as part of the turn."""
        lock = self._tool_turn
        if self._turn_events is None or lock is None:
            return build_failure(NO_TURN)
        call = asyncio.current_task()
        assert call is not None
        self._calls.add(call)
        try:
            async with lock:
                return await self._call_now(name, dict(arguments))
        finally:
            self._calls.discard(call)

    async def _call_now(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        number = f"env-{uuid.uuid4().hex[:8]}"
        about: dict[str, Any] = {"name": name, "id": number, "source": ENVIRONMENT}
        called = {**about, "arguments": arguments}
        self._record(HarnessEvent(type=HarnessEventType.TOOL_CALL, data=called))
        seen = await self._call_tool(CallToolAction(tool_name=name, arguments=arguments), None)
        failed = seen.error if seen.result is None else None
        result = from_dump(seen.result) if failed is None else build_failure(failed.message)
        is_error = bool(result.get("isError"))
        gave = {**about, "result": result.get("content"), "is_error": is_error}
        self._record(HarnessEvent(type=HarnessEventType.TOOL_RESULT, data=gave))
        return result

    async def _cancel_calls(self) -> None:
        """Cancel the agent's remaining calls, since nothing may run after the turn."""
        self._tool_turn = None
        calls = tuple(self._calls)
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls, timeout=CALL_GRACE_S)

    # ------------------------------------------------------------------ closing

    async def close_async(self) -> None:
        await self._end_episode("the environment is closed")
        await super().close_async()

    def close(self) -> None:
        if self._bridge is not None or not self._why_none:
            self._run(self._end_episode("the environment is closed"))
        super().close()


def resolve_tool_conflicts(
    env_tools: Sequence[Tool], harness_builtin_tools: Collection[str], prefix: str = "env_"
) -> list[Tool]:
    """Rename the environment's tools that have the name of a tool of the harness.

    Args:
        env_tools: The environment's tools.
        harness_builtin_tools: Names of the harness's own tools.
        prefix: Prefix of the new names.

    Raises:
        ValueError: The new name is taken too.
    """
    taken = {*harness_builtin_tools, *(tool.name for tool in env_tools)}
    resolved = []
    for tool in env_tools:
        if tool.name not in harness_builtin_tools:
            resolved.append(tool)
            continue
        name = f"{prefix}{tool.name}"
        if name in taken:
            raise ValueError(
                f"the tool {tool.name!r} has the name of one of the harness's own, and {name!r} is "
                "taken too; rename the environment's tool, or give another prefix"
            )
        resolved.append(tool.model_copy(update={"name": name}))
    return resolved


class _ToolsInTurn:
    """The environment's tools, called on the event loop of the turn."""

    def __init__(self, environment: HarnessEnvironment, described: list[dict[str, Any]]) -> None:
        self._environment = environment
        self._described = described  # listed once per episode, on the environment's loop

    async def tools(self) -> list[dict[str, Any]]:
        return self._described

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        loop = self._environment._turn_loop
        if loop is None or not loop.is_running():
            return build_failure(NO_TURN)
        work = self._environment._call_in_turn(name, arguments)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


class _CompleteEpisodeScorer:
    """A trajectory scorer that leaves an episode unscored if a turn failed."""

    def __init__(self, scorer: Callable[..., Any]) -> None:
        self._scorer = scorer
        keep: Callable[[Any], Any] | None = getattr(scorer, "keep", None)
        if keep is not None:
            self.keep = keep
        self.__qualname__ = getattr(scorer, "__qualname__", type(scorer).__name__)

    def __call__(self, trajectory: Any) -> Any:
        last = trajectory[-1][1] if trajectory else None
        why = getattr(last, "metadata", {}).get("error")
        if why is not None:
            raise Unscored(f"the harness failed: {why}")
        return self._scorer(trajectory)
