"""The adapter of `openenv.server.mcp.bridge` to version 2 and later of the official SDK."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from mcp.server.caching import CACHEABLE_METHODS, CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    CompleteRequestParams,
    GetPromptRequestParams,
    ReadResourceRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import to_json

from openenv._internal.version import version
from openenv.errors import Refused
from openenv.server.mcp.bindings import AgentBinding
from openenv.server.mcp.bridge import (
    MAX_SESSIONS,
    MCP_SESSION,
    ORIGIN,
    TRACE,
    Bridge,
    RequestOrigin,
)

T = TypeVar("T")
Context = ServerRequestContext[Any, Any]

IN_HEADERS = b'"x-mcp-header"'  # in a schema: clients repeat the argument in a header


class OurServer(Server[Any]):
    """An SDK server that declares that its lists may change."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> InitializationOptions:
        options = NotificationOptions(True, True, True)
        return super().create_initialization_options(options, *args, **kwargs)


LISTS: dict[str, tuple[type[Any], str]] = {
    "tools": (ToolsListChanged, "send_tool_list_changed"),
    "prompts": (PromptsListChanged, "send_prompt_list_changed"),
    "resources": (ResourcesListChanged, "send_resource_list_changed"),
}


@dataclasses.dataclass
class Listeners:
    """The clients that listen to the events of a session.

    Attributes:
        listed: Current digests of the lists for which at least one client listens to changes.
        uris: The resources that each client has subscribed to.
    """

    bus: InMemorySubscriptionBus
    handler: ListenHandler
    listed: dict[str, bytes] = dataclasses.field(default_factory=dict)
    uris: list[list[str]] = dataclasses.field(default_factory=list)


class SdkV2:
    """The adapter for version 2; see `openenv.server.mcp.bridge.SDKAdapter`."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._listeners: dict[str, Listeners] = {}
        self._headed: dict[str, dict[str, Any]] = {}  # schemas of arguments repeated in headers
        self._server = OurServer(
            bridge.name,
            version=version(),
            instructions=bridge.instructions,
            cache_hints=dict.fromkeys(CACHEABLE_METHODS, CacheHint()),  # type: ignore[arg-type]
            on_list_tools=partial(self._list, "tools"),  # type: ignore[arg-type]
            on_call_tool=self._call_tool,  # type: ignore[arg-type]
            on_list_resources=partial(self._list, "resources"),  # type: ignore[arg-type]
            on_list_resource_templates=self._list_templates,  # type: ignore[arg-type]
            on_read_resource=self._read_resource,  # type: ignore[arg-type]
            on_subscribe_resource=self._subscribe,  # type: ignore[arg-type]
            on_unsubscribe_resource=self._unsubscribe,  # type: ignore[arg-type]
            on_list_prompts=partial(self._list, "prompts"),  # type: ignore[arg-type]
            on_get_prompt=self._get_prompt,  # type: ignore[arg-type]
            on_completion=self._complete,  # type: ignore[arg-type]
            on_subscriptions_listen=self._listen,
        )

        # Without this function, the SDK lists all tools before each call.
        self._server.get_tool_input_schema = self._headed.get

    # ------------------------------------------------------------------ transports

    @contextlib.asynccontextmanager
    async def http(self) -> AsyncIterator[Callable[..., Any]]:
        manager = self._bridge.manager
        sessions = StreamableHTTPSessionManager(
            self._server,
            session_idle_timeout=manager.idle_timeout_s,
            max_request_body_size=manager.limits.max_message_bytes,
            max_sessions=MAX_SESSIONS,
        )
        async with sessions.run():
            yield sessions.handle_request

    async def stdio(self) -> None:
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (read, write):
            options = self._server.create_initialization_options()
            await self._server.run(read, write, options)

    # ------------------------------------------------------------------ requests

    def _binding(self, context: Context) -> AgentBinding:
        request = context.request
        if request is None:
            binding = self._bridge.binding(RequestOrigin(), None)
            # On standard output; in later revisions clients request the notifications they want.
            binding.hears = context.protocol_version not in MODERN_PROTOCOL_VERSIONS
            return binding
        return self._bridge.binding(request.scope[ORIGIN], request.headers.get(MCP_SESSION))

    async def _list(self, kind: str, context: Context, params: Any) -> dict[str, Any]:
        answer = await self._translate(self._bridge.listing(self._binding(context), kind))
        for tool in answer[kind] if kind == "tools" else ():
            self._headed.pop(tool["name"], None)
            if IN_HEADERS in to_json(tool["inputSchema"]):
                self._headed[tool["name"]] = tool["inputSchema"]
        return _mark_complete(answer)

    async def _call_tool(self, context: Context, params: CallToolRequestParams) -> dict[str, Any]:
        binding = self._binding(context)
        headers = context.request.headers if context.request is not None else {}
        meta: dict[str, Any] = {TRACE: headers.get(TRACE), **(context.meta or {})}
        wants_progress = meta.get("progress_token", meta.get("progressToken")) is not None
        report = context.session.report_progress if wants_progress else None
        called = self._bridge.call_tool(binding, params.name, params.arguments or {}, meta, report)
        result = _mark_complete(await self._translate(called))
        await self._tell(context, binding)
        return result

    async def _list_templates(self, context: Context, params: Any) -> dict[str, Any]:
        found = self._bridge.list_resource_templates(self._binding(context))
        return _mark_complete(await self._translate(found))

    async def _read_resource(
        self, context: Context, params: ReadResourceRequestParams
    ) -> dict[str, Any]:
        read = self._bridge.read_resource(self._binding(context), str(params.uri))
        return _mark_complete(await self._translate(read))

    async def _subscribe(self, context: Context, params: SubscribeRequestParams) -> dict[str, Any]:
        try:
            self._binding(context).subscribe(str(params.uri))
        except Refused as error:
            raise MCPError(*self._bridge.refusal(error)) from None
        return {}

    async def _unsubscribe(
        self, context: Context, params: UnsubscribeRequestParams
    ) -> dict[str, Any]:
        self._binding(context).subscribed.discard(str(params.uri))
        return {}

    async def _get_prompt(self, context: Context, params: GetPromptRequestParams) -> dict[str, Any]:
        prompt = self._bridge.get_prompt(self._binding(context), params.name, params.arguments)
        return _mark_complete(await self._translate(prompt))

    async def _complete(self, context: Context, params: CompleteRequestParams) -> dict[str, Any]:
        asked = params.model_dump(
            mode="json", by_alias=True, exclude_none=True, include={"ref", "argument", "context"}
        )
        return _mark_complete(
            await self._translate(self._bridge.complete(self._binding(context), asked))
        )

    async def _translate(self, work: Awaitable[T]) -> T:
        """Return the result of a request, or raise its error in JSON-RPC form."""
        try:
            return await work
        except Exception as error:
            raise MCPError(*self._bridge.refusal(error)) from None

    # ------------------------------------------------------------------ notifications

    async def _listen(
        self, context: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        binding = self._binding(context)
        session = await self._translate(binding.session())
        known = self._listeners.get(session.id)
        if known is None:
            bus = InMemorySubscriptionBus()
            known = self._listeners[session.id] = Listeners(bus, ListenHandler(bus))
        wanted = params.notifications
        uris = [str(uri) for uri in wanted.resource_subscriptions or ()]
        known.uris.append(uris)
        try:
            for kind in LISTS:
                if getattr(wanted, f"{kind}_list_changed") and kind not in known.listed:
                    known.listed[kind] = await self._translate(self._bridge.digest(binding, kind))
            return await known.handler(context, params)
        finally:
            known.uris.remove(uris)
            if not known.uris:
                self._listeners.pop(session.id, None)

    async def _tell(self, context: Context, binding: AgentBinding) -> None:
        """Tell the listening clients what a call may have changed."""
        session = binding.current
        listeners = None if session is None else self._listeners.get(session.id)
        if listeners is not None:
            for uri in set().union(*listeners.uris):
                await listeners.bus.publish(ResourceUpdated(uri=uri))
            for kind in await self._bridge.changed(binding, listeners.listed):
                await listeners.bus.publish(LISTS[kind][0]())
        if binding.hears:
            for uri in list(binding.subscribed):
                await context.session.send_resource_updated(uri)
            for kind in await self._bridge.changed(binding, binding.listed):
                await getattr(context.session, LISTS[kind][1])()


def _mark_complete(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result in the form of revision 2026-07-28; for earlier ones the SDK adapts it."""
    return {**result, "resultType": "complete"}
