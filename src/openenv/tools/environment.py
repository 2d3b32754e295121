"""`MCPEnvironment`: an environment with tool calls as actions.

    class Calculator(MCPEnvironment):
        @tool
        def add(self, a: float, b: float) -> float:
            \"\"\"Add two numbers.\"\"\"
            return a + b

The tools are methods marked with `openenv.tools.tool`, functions registered on an instance with
``self.tool(...)``, and the tools of an MCP server that is passed to the constructor. Agents call
them through MCP at ``/mcp``; trainers through `step` with a `CallToolAction`, or `MCPToolClient`.

Threads: coroutines run on the server's event loop (`_home`), plain functions on a worker thread,
one at a time. A thread cannot be stopped, so a call that times out or is cancelled leaves its
thread running; `_thread_is_back` makes every later call wait for it, since two functions of one
instance must never run at the same time. Without a server, `step` runs coroutines on a private loop
(`_own_loop`), always the same, since connections to MCP servers belong to a loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from typing_extensions import TypeVar as TypeVarWithDefault

from openenv._internal.redaction import redact
from openenv._internal.timing import Expired, close_loop, within
from openenv.environment import Environment, Transform
from openenv.errors import NotSupported, OpenEnvError, Refused, SandboxUnavailable, words
from openenv.settings import ServerMode, parse_mode
from openenv.tools.functions import (
    FunctionTool,
    InvalidToolArguments,
    ToolMark,
    UnknownTool,
    check_not_reserved,
    declared_tools,
)
from openenv.tools.progress import REPORTER
from openenv.tools.results import extract_text, to_dump
from openenv.tools.types import (
    RESERVED_TOOL_NAMES,
    CallToolAction,
    CallToolObservation,
    ListToolsAction,
    ListToolsObservation,
    Tool,
    ToolError,
    ToolErrorType,
)
from openenv.types import Action, Observation, State

if TYPE_CHECKING:
    from openenv.tools.code import CodeMode

__all__ = ["MCP_TOOL_CALL_TIMEOUT", "VALID_MODES", "MCPEnvironment", "get_server_tools"]

MCP_TOOL_CALL_TIMEOUT = 30.0  # seconds; the default of `MCPEnvironment.TOOL_TIMEOUT_S`
VALID_MODES = frozenset(mode.value for mode in ServerMode)

ActT = TypeVarWithDefault("ActT", bound=Action, default=Action)
ObsT = TypeVarWithDefault("ObsT", bound=Observation, default=Observation)
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
T = TypeVar("T")


class MCPEnvironment(Environment[ActT, ObsT, State]):
    """An environment of tools. Subclasses add tools, and may implement `reset` and `state`.

    Without them an episode is defined by its tool calls alone, and `state` counts the calls.
    Actions other than `ListToolsAction` and `CallToolAction` go to `_step_impl`; declare them as
    type parameters: ``MCPEnvironment[MyAction | CallToolAction | ListToolsAction, MyObservation]``.

    Plain functions run on a thread, so they may block; one at a time, but not always on the same
    thread. Coroutines run on the server's event loop, and so do plain functions of a class that
    declares ``NEVER_BLOCKS``.

    The rubric, and then the transform, are applied to the observation of every call.

    Args:
        mcp_server: A server of FastMCP (2, 3 or 4) or of the official SDK that provides the tools.
            Agents can also use its resources, prompts and completions.
        transform: Transform of observations; see `Environment`.
        rubric: Rubric that scores actions; see `Environment`.

    Class attributes:
        TOOL_TIMEOUT_S: Time limit of a call in seconds, unless the caller passes another.
        CODE_SANDBOX: The guarantee that the sandbox of `execute_code` must give: ``"process"``,
            ``"namespaces"`` or ``"kernel"``; see `openenv.sandbox.Guarantee`.

    Raises:
        ValueError: A tool is named reset, step, state or close, or its name is invalid.
        TypeError: `mcp_server` is not an MCP server.
    """

    TOOL_TIMEOUT_S: ClassVar[float] = MCP_TOOL_CALL_TIMEOUT
    CODE_SANDBOX: ClassVar[str] = "namespaces"

    # Class attributes, so that subclasses need not call this constructor.
    mcp_server: Any = None
    _mode: ServerMode | str | None = None  # set by the author, at any time
    _server_mode: ServerMode | None = None
    _mcp_tools: Any = None
    _has_let_go = False
    _own_tools: tuple[FunctionTool, ...] = ()
    _home: asyncio.AbstractEventLoop | None = None  # the server's event loop
    _own_loop: asyncio.AbstractEventLoop | None = None  # for calls without a server
    _own_client: Any = None
    _code: CodeMode | None = None
    _coded: AbstractSet[str] = frozenset()  # names of the tools that the interpreter knows
    _own_state: State | None = None
    _thread: asyncio.Future[Any] | None = None  # running call of a plain function

    def __init__(
        self,
        mcp_server: Any = None,
        transform: Transform[Any] | None = None,
        rubric: Any | None = None,
    ) -> None:
        super().__init__(transform, rubric)
        if mcp_server is not None:
            from openenv.tools.servers import open_server_tools

            self.mcp_server = mcp_server
            self._mcp_tools = open_server_tools(mcp_server)
            for described in _run_on_new_loop(self._mcp_tools.known_tools()):
                check_not_reserved(described["name"])
        declared_tools(type(self))  # raises for an invalid tool

    # ------------------------------------------------------------------ for subclasses

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Any:
        """Begin an episode; by default reset the rubric and the call count."""
        self._reset_rubric()
        self._own_state = State(episode_id=episode_id)
        return Observation(done=False)

    @property
    def state(self) -> State:
        if self._own_state is None:
            self._own_state = State()
        return self._own_state

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Execute an action that is not a tool call."""
        taken, kind = "ListToolsAction and CallToolAction", type(action).__name__
        raise NotSupported(f"{type(self).__name__} takes {taken}, not {kind}", feature=kind)

    def tool(self, mode: str | None = None) -> Callable[[FunctionT], FunctionT]:
        """Register a function as a tool of this instance: ``@self.tool(mode="production")``.

        Args:
            mode: ``simulation`` or ``production``: offer the tool only on a server in this mode.
                Default: both. Each mode may have a function of the same name.

        Raises:
            ValueError: The mode is unknown, or the function's name is not allowed for a tool.
        """
        chosen = None if mode is None else parse_mode(mode)

        def registered(function: FunctionT) -> FunctionT:
            made = FunctionTool.of(function, ToolMark(mode=chosen))
            others = [one for one in self._own_tools if one.key != made.key]
            self._own_tools = (*others, made)
            return function

        return registered

    # ------------------------------------------------------------------ tools

    def _functions(self) -> dict[str, FunctionTool]:
        """Return the tool functions of the server's mode; later definitions replace earlier."""
        every = (*declared_tools(type(self)), *self._own_tools)
        return {one.name: one for one in every if one.is_offered_in(self._tools_mode)}

    async def mcp_list_tools(self) -> list[dict[str, Any]]:
        """List the tools, in the form of MCP's `tools/list`.

        Raises:
            ValueError: The server has a tool named reset, step, state or close.
        """
        self._home = asyncio.get_running_loop()
        found = {name: one.description for name, one in self._functions().items()}
        if self._mcp_tools is not None:
            for described in await self._mcp_tools.tools():
                check_not_reserved(described["name"])
                found.setdefault(described["name"], described)
        return list(found.values())

    async def mcp_call_tool(
        self, name: str, arguments: Mapping[str, Any], on_progress: Any = None
    ) -> CallToolObservation:
        """Call a tool and score the observation."""
        self._home = asyncio.get_running_loop()
        REPORTER.set(None if on_progress is None else (on_progress, self._home))
        action = CallToolAction(tool_name=name, arguments=dict(arguments))
        called = await self._call_tool(action, None, on_progress)
        return await self._score_call(action, called)  # type: ignore[no-any-return]

    async def mcp_ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Send an agent's request for resources, prompts or completions to the MCP server.

        Args:
            method: The MCP method, such as ``resources/read``.
            params: The parameters, in MCP's form.

        Returns:
            The result, in MCP's form; None if the environment has no MCP server.

        Raises:
            ServerRefused: The server answered with an error.
            Refused: The server did not answer within `TOOL_TIMEOUT_S`.
        """
        self._home = asyncio.get_running_loop()
        if self._mcp_tools is None:
            return None
        try:
            asked = self._mcp_tools.ask(method, params)
            answer: dict[str, Any] = await within(self.TOOL_TIMEOUT_S, asked)
        except Expired:
            why = f"the MCP server did not answer {method} within {self.TOOL_TIMEOUT_S:g} s"
            raise Refused(why) from None
        return answer

    async def _call_tool(
        self, action: CallToolAction, timeout_s: float | None, on_progress: Any = None
    ) -> CallToolObservation:
        limit_s = self.TOOL_TIMEOUT_S if timeout_s is None else timeout_s
        if type(self).state is MCPEnvironment.state:
            self.state.step_count += 1
        waited = self._thread is not None
        try:
            call = self._result(action.tool_name, action.arguments, on_progress)
            result = await within(limit_s, call)
        except Expired:
            why = f"{action.tool_name} took longer than {limit_s:g} s"
            if waited:
                why += ", because an earlier call that timed out was still running"
            return _build_error(action, ToolErrorType.TIMEOUT, why)
        except asyncio.CancelledError:
            await self._thread_is_back()
            raise
        except UnknownTool as error:
            return _build_error(action, ToolErrorType.TOOL_NOT_FOUND, str(error))
        except InvalidToolArguments as error:
            return _build_error(action, ToolErrorType.INVALID_ARGS, str(error))
        except ConnectionError as error:
            return _build_error(action, ToolErrorType.TRANSPORT_ERROR, redact(words(error)))
        except Exception as error:
            text = words(error)  # MCP passes it on, so that a model can correct its call
            why = text if isinstance(error, OpenEnvError) else f"{type(error).__name__}: {text}"
            return _build_error(action, ToolErrorType.EXECUTION_ERROR, redact(why))
        if result.get("isError"):
            dump = to_dump(result)
            is_plain = all(block.get("type") == "text" for block in result["content"])
            failed = _build_error(action, ToolErrorType.EXECUTION_ERROR, extract_text(result))
            return failed if is_plain else failed.model_copy(update={"result": dump})
        return CallToolObservation(tool_name=action.tool_name, result=to_dump(result))

    async def _result(
        self, name: str, arguments: Mapping[str, Any], on_progress: Any
    ) -> dict[str, Any]:
        """Call a tool and return the result in MCP's form."""
        await self._thread_is_back()
        function = self._functions().get(name)
        if function is not None:
            return await function.call(
                self, arguments, inline=self.NEVER_BLOCKS, on_thread=self._on_thread
            )
        if self._mcp_tools is None or name in RESERVED_TOOL_NAMES:
            raise UnknownTool(f"Unknown tool: {name!r}")
        return await self._mcp_tools.call(name, arguments, on_progress)  # type: ignore[no-any-return]

    async def _on_thread(self, function: Callable[[], T]) -> T:
        """Call a plain function on a thread, which later calls wait for."""

        def forget(thread: asyncio.Future[Any]) -> None:
            if not thread.cancelled():
                thread.exception()  # retrieved, since the caller may be gone
            if self._thread is thread:
                self._thread = None

        self._thread = asyncio.ensure_future(asyncio.to_thread(function))
        self._thread.add_done_callback(forget)
        result: T = await asyncio.shield(self._thread)
        return result

    async def _thread_is_back(self) -> None:
        """Wait for a running function after its call timed out or was cancelled."""
        thread = self._thread
        if thread is not None and thread.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([thread])

    async def _score_call(self, action: Any, observation: Any) -> Any:
        if self.rubric is not None:
            observation.reward = await self._apply_rubric_async(action, observation)
        return self._apply_transform(observation)

    # ------------------------------------------------------------------ steps

    async def step_async(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        self._home = asyncio.get_running_loop()
        cls = type(self)
        if cls.step is not MCPEnvironment.step and cls.step_async is MCPEnvironment.step_async:
            # The subclass overrides `step` but not `step_async`.
            return await asyncio.to_thread(self.step, action, timeout_s=timeout_s, **kwargs)
        return await self._step_action(action, timeout_s, kwargs)

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Execute an action from synchronous code; a server awaits `step_async` instead."""
        return self._run(self._step_action(action, timeout_s, kwargs))

    async def _step_action(
        self, action: Any, timeout_s: float | None, arguments: dict[str, Any]
    ) -> Any:
        if isinstance(action, ListToolsAction):
            return await self._list_tools()
        if isinstance(action, CallToolAction):
            return await self._score_call(action, await self._call_tool(action, timeout_s))
        await self._thread_is_back()
        implementation: Any = self._step_impl
        arguments = {"timeout_s": timeout_s, **arguments}
        if self.NEVER_BLOCKS or inspect.iscoroutinefunction(implementation):
            value = implementation(action, **arguments)
        else:
            value = await asyncio.to_thread(implementation, action, **arguments)
        return await value if inspect.isawaitable(value) else value

    async def _list_tools(self) -> ListToolsObservation:
        tools = [
            Tool(
                name=one["name"],
                description=one.get("description") or "",
                input_schema=one.get("inputSchema") or {},
            )
            for one in await self.mcp_list_tools()
        ]
        return ListToolsObservation(tools=tools)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine from synchronous code, on the server's event loop or a private loop."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if self._home is not None and self._home.is_running() and self._home is not here:
            return asyncio.run_coroutine_threadsafe(work, self._home).result()
        if self._own_loop is None:
            self._own_loop = asyncio.new_event_loop()
            weakref.finalize(self, self._own_loop.close)  # for an environment that is never closed
        loop = self._own_loop
        if here is None:
            return loop.run_until_complete(work)
        # This thread runs another event loop, so a second one must run elsewhere.
        return _wait_on_thread(lambda: loop.run_until_complete(work))

    # ------------------------------------------------------------------ code mode

    @property
    def supports_code_mode(self) -> bool:
        """True if this machine has a sandbox with the required guarantee for `execute_code`.

        The first access tries a sandbox.
        """
        from openenv.sandbox.kinds import strongest

        try:
            strongest(self.CODE_SANDBOX)
        except SandboxUnavailable:
            return False
        return True

    def get_callables(self) -> dict[str, Callable[..., Any]]:
        """Return the tools as functions that take keyword arguments and return plain values."""
        names = {one["name"] for one in self._run(self.mcp_list_tools())}
        return {name: self._callable(name) for name in sorted(names)}

    def _callable(self, name: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            action = CallToolAction(tool_name=name, arguments=arguments)
            observation = self.step(action)
            if observation.error is not None:
                raise RuntimeError(observation.error.message)
            dump = observation.result
            return dump["data"] if dump["data"] is not None else extract_text(dump)

        call.__name__ = name
        return call

    def execute_code(self, code: str) -> Observation:
        """Run Python code in a sandbox where the tools are functions of keyword arguments.

        Names persist from one call to the next, until `close`. The call itself is not a step, but
        each tool call in the code is one. The code may run for `TOOL_TIMEOUT_S` seconds.

        Returns:
            An observation whose `metadata` has `stdout`, `stderr` and `exit_code`; `result`, the
            value that the code assigned to a variable of that name, as JSON, or its `repr` if JSON
            has no form for it; and `error` if the code failed.

        Raises:
            NotSupported: This machine has no sandbox that guarantees `CODE_SANDBOX`. The message
                says what is missing. The code is never run without it.
            SandboxEnded: The code ended the sandbox; the next call gets a new one.
        """
        return self._code_mode().run(code, self.TOOL_TIMEOUT_S)

    def _code_mode(self) -> CodeMode:
        from openenv.tools.code import CodeMode

        functions = set(self._functions())
        if self._code is not None and functions != self._coded:  # tools were added or removed
            self._code.close()
        if self._code is None or self._code.is_over:
            self._code = CodeMode(self.get_callables(), self.CODE_SANDBOX)
            self._coded = functions
        return self._code

    # ------------------------------------------------------------------ for the runner

    def mcp_serve_in(self, mode: ServerMode) -> None:
        """Set the server's mode, which determines the tools that are offered."""
        self._server_mode = mode

    @property
    def _tools_mode(self) -> ServerMode:
        """Return the mode that selects tools: the server's production mode, else the author's."""
        legal = [mode for mode in ServerMode if self._mode in (mode, mode.value)]
        if self._server_mode is ServerMode.PRODUCTION or not legal:
            return self._server_mode or ServerMode.SIMULATION
        return legal[0]

    @property
    def mcp_client(self) -> Any:
        """Return a FastMCP client of the MCP server, to be entered with `mcp_session`."""
        if self._own_client is None and self.mcp_server is not None:
            from openenv.tools.servers import fastmcp_client

            self._own_client = fastmcp_client(self.mcp_server)
        return self._own_client

    @contextlib.asynccontextmanager
    async def mcp_session(self) -> AsyncIterator[Any]:
        """Keep `mcp_client` connected while the context is open."""
        client = self.mcp_client
        if client is None:
            yield None
            return
        async with client:
            yield client

    async def close_async(self) -> None:
        await self._thread_is_back()
        await self._let_go()
        closed: Any = await asyncio.to_thread(self.close)
        if inspect.isawaitable(closed):
            await closed

    @property
    def _is_free(self) -> bool:
        """True if no MCP server is held, or it has been released."""
        return self._has_let_go or self._mcp_tools is None

    async def _let_go(self) -> None:
        self.mcp_server = self._own_client = None
        if not self._is_free:
            self._has_let_go = True
            await self._mcp_tools.aclose()

    def close(self) -> None:
        code, self._code = self._code, None
        if code is not None:
            code.close()
        if not self._is_free:
            self._run(self._let_go())
        loop, self._own_loop = self._own_loop, None
        if loop is not None:
            _wait_on_thread(lambda: close_loop(loop, waits_for_threads=True))


def _run_on_new_loop(work: Coroutine[Any, Any, T]) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _wait_on_thread(lambda: asyncio.run(work))


def _wait_on_thread(function: Callable[[], T]) -> T:
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(function).result()


def get_server_tools(mcp_server: Any) -> dict[str, Any]:
    """Return the tool objects of a FastMCP server by name."""

    async def found() -> dict[str, Any]:
        if hasattr(mcp_server, "get_tools"):  # FastMCP 2
            return dict(await mcp_server.get_tools())
        return {tool.name: tool for tool in await mcp_server.list_tools()}

    return _run_on_new_loop(found())


def _build_error(action: CallToolAction, kind: ToolErrorType, message: str) -> CallToolObservation:
    error = ToolError(error_type=kind, message=message)
    return CallToolObservation(tool_name=action.tool_name, error=error)
