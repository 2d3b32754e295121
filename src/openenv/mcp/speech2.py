"""What `openenv.mcp.bridge` says, spoken by the official SDK from version 2 on."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import metadata
from typing import Any, TypeVar

from mcp.server.caching import CACHEABLE_METHODS, CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    GetPromptRequestParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from openenv.errors import OpenEnvError
from openenv.mcp.bridge import MAX_SESSIONS, MCP_SESSION, OBSERVATION, PLACE, Bridge, Place
from openenv.mcp.seats import Seat, digest_of

__all__ = ["Speech2"]

T = TypeVar("T")
Context = ServerRequestContext[Any, Any]


class OurServer(Server[Any]):
    """A server of the SDK that says that its tools may change."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> InitializationOptions:
        told = NotificationOptions(tools_changed=True)
        return super().create_initialization_options(told, *args, **kwargs)


@dataclasses.dataclass
class Listeners:
    """Those who listen for what happens in one session."""

    bus: InMemorySubscriptionBus
    handler: ListenHandler
    listed: bytes
    count: int = 0


class Speech2:
    """See `openenv.mcp.bridge.Speech`."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._listeners: dict[str, Listeners] = {}
        self._server = OurServer(
            bridge.name,
            version=metadata.version("openenv"),
            instructions=bridge.instructions,
            cache_hints=dict.fromkeys(CACHEABLE_METHODS, CacheHint()),  # type: ignore[arg-type]
            on_list_tools=self._list_tools,  # type: ignore[arg-type]
            on_call_tool=self._call_tool,  # type: ignore[arg-type]
            on_list_resources=self._list_resources,  # type: ignore[arg-type]
            on_list_resource_templates=_no_templates,  # type: ignore[arg-type]
            on_read_resource=self._read_resource,  # type: ignore[arg-type]
            on_list_prompts=self._list_prompts,  # type: ignore[arg-type]
            on_get_prompt=self._get_prompt,  # type: ignore[arg-type]
            on_subscriptions_listen=self._listen,
        )

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

    def _seat(self, context: Context) -> Seat:
        request = context.request
        if request is None:
            return self._bridge.seat(Place(), None)
        place: Place = request.scope[PLACE]
        return self._bridge.seat(place, request.headers.get(MCP_SESSION))

    async def _list_tools(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> dict[str, Any]:
        return _whole(await self._served(self._bridge.list_tools(self._seat(context))))

    async def _call_tool(self, context: Context, params: CallToolRequestParams) -> dict[str, Any]:
        seat = self._seat(context)
        meta: dict[str, Any] = dict(context.meta or {})
        wants_progress = meta.get("progress_token", meta.get("progressToken")) is not None
        report = context.session.report_progress if wants_progress else None
        called = self._bridge.call_tool(seat, params.name, params.arguments or {}, meta, report)
        result = _whole(await self._served(called))
        await self._tell(context, seat)
        return result

    async def _list_resources(self, context: Context, params: Any) -> dict[str, Any]:
        return _whole(self._bridge.list_resources())

    async def _read_resource(
        self, context: Context, params: ReadResourceRequestParams
    ) -> dict[str, Any]:
        read = self._bridge.read_resource(self._seat(context), str(params.uri))
        return _whole(await self._served(read))

    async def _list_prompts(self, context: Context, params: Any) -> dict[str, Any]:
        return _whole(self._bridge.list_prompts())

    async def _get_prompt(self, context: Context, params: GetPromptRequestParams) -> dict[str, Any]:
        prompt = self._bridge.get_prompt(self._seat(context), params.name)
        return _whole(await self._served(prompt))

    async def _served(self, work: Awaitable[T]) -> T:
        """What a request came to; errors as JSON-RPC has them."""
        try:
            return await work
        except Exception as error:
            raise MCPError(*self._bridge.refusal(error)) from None

    # ------------------------------------------------------------------ what is said unasked

    async def _listen(
        self, context: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        seat = self._seat(context)
        session = await self._served(seat.session())
        listed = digest_of(await self._served(seat.tools()))
        known = self._listeners.get(session.id)
        if known is None:
            bus = InMemorySubscriptionBus()
            known = self._listeners[session.id] = Listeners(bus, ListenHandler(bus), listed)
        known.count += 1
        try:
            return await known.handler(context, params)
        finally:
            known.count -= 1
            if not known.count:
                self._listeners.pop(session.id, None)

    async def _tell(self, context: Context, seat: Seat) -> None:
        """After a call, tell those who listen what has changed by it."""
        if not self._listeners and not seat.hears:
            return
        with contextlib.suppress(OpenEnvError):  # the session may have ended by now
            session = await seat.session()
            listeners = self._listeners.get(session.id)
            if listeners is not None:
                await listeners.bus.publish(ResourceUpdated(uri=OBSERVATION))
                listed, listeners.listed = listeners.listed, digest_of(await seat.tools())
                if listed != listeners.listed:
                    await listeners.bus.publish(ToolsListChanged())
            elif await self._bridge.tools_have_changed(seat):
                await context.session.send_tool_list_changed()


async def _no_templates(context: Context, params: Any) -> dict[str, Any]:
    return _whole({"resourceTemplates": []})


def _whole(result: dict[str, Any]) -> dict[str, Any]:
    """A result as revision 2026-07-28 has it; of earlier ones the SDK leaves out what is new."""
    return {**result, "resultType": "complete"}
