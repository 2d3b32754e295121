"""Responses to agents: errors in the format of the agent's API, and streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from openenv.capture.dialects.base import Dialect
from openenv.capture.upstream import UpstreamError, UpstreamHTTPError, UpstreamTimeoutError

__all__ = [
    "EVENTS",
    "EventResponse",
    "AgentDisconnected",
    "build_upstream_error",
    "build_error",
    "error_status",
    "cancel_on_disconnect",
]

EVENTS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
ResultT = TypeVar("ResultT")


class AgentDisconnected(Exception):
    """Raised when the agent has disconnected."""


class EventResponse(Response):
    """A stream of events that stops when the agent disconnects, even between two events.

    Args:
        events: The events. The generator must have been started, so that its cleanup code runs.
    """

    def __init__(self, events: AsyncGenerator[str, None]) -> None:
        self.events = events
        self.background = None
        self.status_code = 200
        self.init_headers(EVENTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(AgentDisconnected, OSError):
            await cancel_on_disconnect(Request(scope, receive), self._send(send))

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        async with contextlib.aclosing(self.events) as events:
            await send(start)
            async for event in events:
                if event:
                    body = event.encode("utf-8", "surrogatepass")
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def cancel_on_disconnect(request: Request, work: Awaitable[ResultT]) -> ResultT:
    """Await `work`, and cancel it if the agent disconnects.

    Raises:
        AgentDisconnected: The agent disconnected first.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise AgentDisconnected
    finally:
        for task in (working, gone):
            if not task.done():
                task.cancel()
                await asyncio.wait({task})


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def error_status(error: UpstreamError) -> int:
    """Return the HTTP status that the agent gets after an upstream error."""
    if isinstance(error, UpstreamHTTPError):
        return error.status_code
    return 504 if isinstance(error, UpstreamTimeoutError) else 502


def build_upstream_error(dialect: Dialect, error: UpstreamError) -> Response:
    """Build the response for an upstream error, with the upstream's status, in the format of the
    agent's API.
    """
    status = error_status(error)
    if not isinstance(error, UpstreamHTTPError):
        return build_error(dialect, status, str(error))
    headers = {} if error.retry_after is None else {"retry-after": error.retry_after}
    return JSONResponse(dialect.error(status, error.text, error.body), status, headers)


def build_error(dialect: Dialect, status: int, message: str) -> Response:
    """Build the response for an error of the proxy itself."""
    return JSONResponse(dialect.error(status, message), status)
