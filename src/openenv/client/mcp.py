"""`MCPToolClient`: a client of an environment whose actions are tool calls.

    with MCPToolClient(base_url="http://localhost:8000") as env:
        print([tool.name for tool in env.list_tools()])
        print(env.call_tool("echo_message", message="hello"))

Tool calls run in the session that `reset`, `step` and `state` use, over the same connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict
from typing_extensions import Self, TypeVar, Unpack

from openenv._internal.generics import members, once_per_class
from openenv.client import codec
from openenv.client.background import interruptible
from openenv.client.client import EnvClient
from openenv.client.hybrid import Pending, PendingClient, PendingStep, PendingValue
from openenv.client.sync import SyncEnvClient
from openenv.errors import (
    ErrorCode,
    ExecutionFailed,
    NotSupportedByServer,
    ProtocolError,
    SessionLost,
    ToolFailed,
)
from openenv.protocol.messages import MCPReply, Request
from openenv.settings import ServerMode, parse_mode
from openenv.tools.results import NOT_FINITE, extract_text, is_dump, read_numbers, read_text
from openenv.tools.types import (
    NO_TOOLS,
    CallToolAction,
    CallToolObservation,
    ListToolsAction,
    ListToolsObservation,
    McpMethod,
    Tool,
)
from openenv.types import Observation, State, StepResult

if TYPE_CHECKING:
    from openenv.client.options import SessionOptions
    from openenv.providers.base import Provider

__all__ = ["GenericMCPObservation", "MCPClientBase", "MCPToolClient"]

ActT = TypeVar("ActT", default=Any)
ObsT = TypeVar("ObsT", default=Any)
StateT = TypeVar("StateT", default=State)

NO_TOOLS_HINT = (
    "it has actions, but no tools: call step() with one. A client of MCP finds them as tools at "
    "the server's /mcp"
)


class GenericMCPObservation(Observation):
    """An observation with any fields that the environment sends."""

    model_config = ConfigDict(extra="allow")


def _production(mode: str | None) -> str:
    if mode is not None and parse_mode(mode) is not ServerMode.PRODUCTION:
        raise ValueError(
            f"mode={mode!r}: MCPToolClient knows 'production' only. To have tools called by steps, "
            "set client.use_production_mode = False; for steps without tools, use GenericEnvClient"
        )
    return ServerMode.PRODUCTION.value


class MCPClientBase(EnvClient[ActT, ObsT, StateT]):
    """A client that knows about tools. Subclass it like `EnvClient`; the models are optional:

        class CalculatorEnv(MCPToolClient): ...

    A step with a `ListToolsAction` returns a `ListToolsObservation`, one with a `CallToolAction` a
    `CallToolObservation`. Other steps return the observation model, or a `GenericMCPObservation`.

    Arguments not described here are those of `EnvClient`, in a different order.

    Args:
        mode: ``production``, the default and the only mode; see `use_production_mode`.
        session_id: Session of the server to join. It must have been created over HTTP and have no
            other client, and it stays open when this client leaves.
        **options: Options of `EnvClient`. Calling a tool directly interrupts a `journal`.

    Attributes:
        use_production_mode: List and call tools directly, as an agent does: such a call is not a
            step and returns no reward. If False, they are steps, so that the calls count, are
            scored and belong to the episode.

    Raises:
        ValueError: The mode is not ``production``.
    """

    use_production_mode = True

    def __init__(
        self,
        base_url: str | None = None,
        connect_timeout_s: float = 10.0,
        message_timeout_s: float | None = 60.0,
        websocket_ping_interval_s: float | None = 20.0,
        websocket_ping_timeout_s: float | None = 20.0,
        provider: Provider | None = None,
        mode: str | None = None,
        max_message_size_mb: float = 100.0,
        headers: Mapping[str, str] | None = None,
        *,
        session_id: str | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        super().__init__(
            base_url,
            connect_timeout_s=connect_timeout_s,
            message_timeout_s=message_timeout_s,
            max_message_size_mb=max_message_size_mb,
            websocket_ping_interval_s=websocket_ping_interval_s,
            websocket_ping_timeout_s=websocket_ping_timeout_s,
            provider=provider,
            mode=_production(mode),
            headers=headers,
            **options,
        )
        self._joined = session_id
        self._tools_cache: list[Tool] | None = None

    def _sibling(self) -> Self:
        sibling = super()._sibling()
        sibling.use_production_mode = self.use_production_mode
        return sibling

    @property
    def _ws_url(self) -> str | None:
        url = super()._ws_url
        if url is None or self._joined is None:
            return url
        return f"{url}?{urlencode({'session_id': self._joined})}"

    # ------------------------------------------------------------------ calls

    @interruptible
    def list_tools(self, use_cache: bool = True) -> PendingValue[list[Tool]]:
        """Return the environment's tools.

        Args:
            use_cache: Return the tools of an earlier call, if there was one.

        Raises:
            NotSupported: The environment has no tools.
            ServerError: The server answered with another error.
            SessionLost: The session is gone; `connect` or `reset` opens another one.
            ConnectError: No server answers.
            ResponseTimeout: No answer came within `message_timeout_s`.
        """
        return self._answer(PendingValue, self._list_tools_async(use_cache=use_cache))

    @interruptible
    def get_tool(self, name: str) -> Pending[Tool | None]:
        """Return the tool with this name, or None; raises the errors of `list_tools`."""
        return self._answer(Pending, self._get_tool_async(name))

    @interruptible
    def has_tool(self, name: str) -> PendingValue[bool]:
        """Return whether a tool with this name exists; raises the errors of `list_tools`."""
        return self._answer(PendingValue, self._has_tool_async(name))

    @overload
    def step(self, action: CallToolAction, **kwargs: Any) -> PendingStep[CallToolObservation]: ...
    @overload
    def step(self, action: ListToolsAction, **kwargs: Any) -> PendingStep[ListToolsObservation]: ...
    @overload
    def step(self, action: ActT, **kwargs: Any) -> PendingStep[ObsT]: ...
    def step(self, action: Any, **kwargs: Any) -> PendingStep[Any]:
        """Carry out an action; see `EnvClient.step`."""
        return super().step(action, **kwargs)

    # `Pending` is read-only, but invariant in its type, because `Future` is.
    def connect(self) -> Pending[Self]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Connect now, instead of on first use. If the session was lost, open another one."""
        return self._answer(PendingClient, self._connect_anew())

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._session.accept_loss()
        return self

    def sync(self) -> SyncMCPClient[ActT, ObsT, StateT]:
        """Return this client with blocking methods."""
        return SyncMCPClient(self)

    # ------------------------------------------------------------------ hooks

    def _step_payload(self, action: Any) -> dict[str, Any]:
        if isinstance(action, ListToolsAction | CallToolAction):
            is_binary = self._session.version == 1
            return codec.action_payload(action, MCPClientBase, binary=is_binary)
        return super()._step_payload(action)

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[Any]:
        observation = payload.get("observation")
        known = _fields(type(self))
        if isinstance(observation, dict):
            if isinstance(observation.get("tools"), list) and "tools" not in known:
                tools = [_tool(one).model_dump() for one in observation["tools"]]
                observation = _only(ListToolsObservation, {**observation, "tools": tools})
                return codec.parse_result({**payload, "observation": observation}, _Listing)
            if isinstance(observation.get("tool_name"), str) and "tool_name" not in known:
                observation = _only(CallToolObservation, observation)
                parsed = codec.parse_result({**payload, "observation": observation}, _ToolCalls)
                parsed.observation.result = read_text(parsed.observation.result)
                return parsed
        return super()._parse_result(payload) if known else codec.parse_result(payload, _Other)

    # ------------------------------------------------------------------ the asynchronous core

    async def _connect_anew(self) -> Self:
        await self._connect_async()
        self._session.accept_loss()
        return self

    async def _list_tools_async(self, *, use_cache: bool = True) -> list[Tool]:
        if self._tools_cache is None or not use_cache:
            self._tools_cache = await self._asked_for_tools()
        return self._tools_cache

    async def _asked_for_tools(self) -> list[Tool]:
        if self.use_production_mode:
            result = await self._json_rpc(McpMethod.TOOLS_LIST, {})
            tools = result.get("tools") if isinstance(result, dict) else None
            if not isinstance(tools, list):
                raise ProtocolError(f"the server answered tools/list with {result!r:.200}")
            return [_tool(one) for one in tools]
        listing: Any = ListToolsAction()
        observation: Any = (await self._step_async(listing)).observation
        tools = getattr(observation, "tools", None)
        if not isinstance(tools, list):
            raise ProtocolError(f"a step with a ListToolsAction gave {observation!r:.200}")
        return [one if isinstance(one, Tool) else _tool(one) for one in tools]

    async def _get_tool_async(self, name: str) -> Tool | None:
        tools = await self._list_tools_async()
        return next((tool for tool in tools if tool.name == name), None)

    async def _has_tool_async(self, name: str) -> bool:
        return await self._get_tool_async(name) is not None

    async def _json_rpc(self, method: McpMethod, params: dict[str, Any]) -> Any:
        """Send a JSON-RPC request to this session and return the result.

        The id is always the same: frames match answers to requests, and a request that is repeated
        because no answer came is recognized by being identical.
        """
        request = {"jsonrpc": "2.0", "id": 1, "method": method.value, "params": params}
        try:
            reply = await self._request(Request("mcp", request))
        except SessionLost as lost:  # a server in production mode may not allow a reset
            raise SessionLost(f"{lost}; or connect() for another session") from lost.__cause__
        response = reply.response if isinstance(reply, MCPReply) else None
        if not isinstance(response, dict):
            raise ProtocolError(f"the server answered {method.value} with {reply!r:.200}")
        error = response.get("error")
        if error is not None:
            raise _failure(error, params.get("name"))
        return response.get("result")


class MCPToolClient(MCPClientBase[ActT, ObsT, StateT]):
    """A client that calls tools, in order; see `MCPClientBase`.

    async with MCPToolClient(base_url="http://localhost:8000") as env:
        await env.reset()
        print(await env.call_tool("echo_message", message="hello"))
    """

    @interruptible
    def call_tool(self, name: str = "", /, **arguments: Any) -> Any:
        """Call a tool and return its result: the plain value, or else the text, or else the
        content blocks.

        Args:
            name: The tool.
            **arguments: The tool's arguments.

        Raises:
            ToolFailed: The tool failed, does not take these arguments, or does not exist. The
                message is the tool's own.
            NotSupported: The environment has no tools.
            ServerError: The server answered with another error.
            SessionLost: The session is gone; `connect` or `reset` opens another one.
            ConnectError: No server answers.
            ResponseTimeout: No answer came within `message_timeout_s`. Under version 1, calling
                again with the same arguments gets that answer, and the tool does not run twice.
        """
        named = name or arguments.pop("name", "")
        if not isinstance(named, str) or not named:
            raise TypeError(f"call_tool takes the name of a tool; got {named!r}")
        return self._answer(PendingValue, self._call_tool_async(named, arguments))

    async def _call_tool_async(self, name: str, arguments: dict[str, Any]) -> Any:
        if self.use_production_mode:
            if self._journal is not None:
                self._journal.interrupt(f"the tool {name!r} was called, which is no step")
            if self._scoring is not None:
                self._scoring.lose(f"the tool {name!r} was called, which is no step")
            params = {"name": name, "arguments": arguments}
            return _value(await self._json_rpc(McpMethod.TOOLS_CALL, params), name)
        call: Any = CallToolAction(tool_name=name, arguments=arguments)
        observation: Any = (await self._step_async(call)).observation
        if isinstance(observation, CallToolObservation):
            return _value(observation.model_dump(mode="json"), name)
        return observation  # the client's own model


class SyncMCPClient(SyncEnvClient[ActT, ObsT, StateT]):
    """An `MCPToolClient` with blocking methods."""

    if TYPE_CHECKING:  # `SyncEnvClient` provides them all

        @overload
        def step(
            self, action: CallToolAction, **kwargs: Any
        ) -> StepResult[CallToolObservation]: ...
        @overload
        def step(
            self, action: ListToolsAction, **kwargs: Any
        ) -> StepResult[ListToolsObservation]: ...
        @overload
        def step(self, action: ActT, **kwargs: Any) -> StepResult[ObsT]: ...
        def step(self, action: Any, **kwargs: Any) -> StepResult[Any]: ...
        def list_tools(self, use_cache: bool = True) -> list[Tool]: ...
        def get_tool(self, name: str) -> Tool | None: ...
        def has_tool(self, name: str) -> bool: ...
        def call_tool(self, name: str = "", /, **arguments: Any) -> Any: ...


# Clients that read observations other than the environment's own.


class _Listing(EnvClient[Any, ListToolsObservation, State]):
    pass


class _ToolCalls(EnvClient[Any, CallToolObservation, State]):
    pass


class _Other(EnvClient[Any, GenericMCPObservation, State]):
    pass


@once_per_class
def _fields(cls: type[EnvClient[Any, Any, Any]]) -> frozenset[str]:
    """Return the fields of a client's observation models; empty if the client declares none."""
    _, observation, _ = codec.models(cls)
    models = members(observation)
    return frozenset(name for one in models for name in getattr(one, "model_fields", ()))


def _only(model: type[BaseModel], fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name in model.model_fields}


def _tool(payload: Any) -> Tool:
    """Read a tool with its schema under ``input_schema`` or ``inputSchema``."""
    if not isinstance(payload, Mapping) or not isinstance(payload.get("name"), str):
        raise ProtocolError(f"the server's list of tools holds {payload!r:.200}")
    schema = payload.get("input_schema", payload.get("inputSchema"))
    return Tool(
        name=payload["name"],
        description=payload.get("description") or "",
        input_schema=schema or {},
    )


def _value(result: Any, tool_name: str) -> Any:
    """Return the plain value of a tool result, or of a `CallToolObservation` with one.

    Raises:
        ToolFailed: The result is an error.
    """
    if isinstance(result, dict) and "tool_name" in result and "error" in result:
        if error := result["error"]:
            kind = error.get("error_type")
            raise ToolFailed(str(error.get("message")), tool_name=tool_name, error_type=kind)
        result = result.get("result")
    if not is_dump(result):
        return result
    if result["is_error"]:
        raise ToolFailed(extract_text(result), tool_name=tool_name)
    if result.get("data") is not None or not result["content"]:
        is_told = (result.get("meta") or {}).get(NOT_FINITE)
        return read_numbers(result.get("data")) if is_told else result.get("data")
    is_text = all(block.get("type") == "text" for block in result["content"])
    return extract_text(result) if is_text else result["content"]


def _failure(error: Any, tool_name: str | None) -> Exception:
    if not isinstance(error, Mapping):
        return ProtocolError(f"the server answered with an error that is none: {error!r:.200}")
    message, data = str(error.get("message")), error.get("data") or {}
    if message == NO_TOOLS:
        return NotSupportedByServer(
            f"{message}: {NO_TOOLS_HINT}", ErrorCode.NOT_SUPPORTED.value, {"feature": "tools"}
        )
    code = ErrorCode.EXECUTION_ERROR.value
    details = data if isinstance(data, Mapping) else {"data": data}
    if tool_name is None:
        return ExecutionFailed(message, code, details)
    return ToolFailed(message, code, details, tool_name=tool_name)
