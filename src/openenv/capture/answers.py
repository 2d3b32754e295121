"""What agents are answered: errors in the form of their API, and streams that end where they go."""

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

__all__ = ["EVENTS", "EventResponse", "Gone", "failed", "refused", "status_of", "unless_gone"]

EVENTS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
ResultT = TypeVar("ResultT")


class Gone(Exception):
    """The agent has hung up."""


class EventResponse(Response):
    """A stream of events. It ends where the agent hangs up, even while nothing comes.

    Args:
        events: The events; they have to be begun, so that they see their end.
    """

    def __init__(self, events: AsyncGenerator[str, None]) -> None:
        self.events = events
        self.background = None
        self.status_code = 200
        self.init_headers(EVENTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(Gone, OSError):
            await unless_gone(Request(scope, receive), self._send(send))

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        async with contextlib.aclosing(self.events) as events:
            await send(start)
            async for event in events:
                if event:
                    body = event.encode("utf-8", "surrogatepass")
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def unless_gone(request: Request, work: Awaitable[ResultT]) -> ResultT:
    """The result of some work, which is given up if the agent hangs up.

    Raises:
        Gone: It did.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise Gone
    finally:
        for task in (working, gone):
            if not task.done():
                task.cancel()
                await asyncio.wait({task})


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def status_of(error: UpstreamError) -> int:
    """The status that an agent is answered where the upstream fails: its own, if it has one."""
    if isinstance(error, UpstreamHTTPError):
        return error.status_code
    return 504 if isinstance(error, UpstreamTimeoutError) else 502


def failed(dialect: Dialect, error: UpstreamError) -> Response:
    """The upstream's error, by its own status, in the form of the agent's API."""
    status = status_of(error)
    if not isinstance(error, UpstreamHTTPError):
        return refused(dialect, status, str(error))
    headers = {} if error.retry_after is None else {"retry-after": error.retry_after}
    return JSONResponse(dialect.error(status, error.text, error.body), status, headers)


def refused(dialect: Dialect, status: int, message: str) -> Response:
    """An error of the proxy's own."""
    return JSONResponse(dialect.error(status, message), status)
