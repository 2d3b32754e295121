"""Errors as HTTP responses, and refusals before the application is called."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openenv._internal.net import responses
from openenv.errors import OpenEnvError, words
from openenv.execution.manager import SessionManager

POLICY_VIOLATION = 1008  # RFC 6455, section 7.4.1
MAX_REASON_BYTES = 123  # limit for the reason in a close frame


def error_response(error: Exception, manager: SessionManager | None = None) -> Response:
    """Return the response for an error, and count the error in `manager`."""
    if manager is None:
        return responses.error_response(error)
    manager.counters.failed(error)
    return responses.error_response(error, debug=manager.debug)


async def refuse(
    error: OpenEnvError, scope: Scope, receive: Receive, send: Send, manager: SessionManager
) -> None:
    """Refuse a request or a WebSocket handshake, and count the error.

    A handshake is answered with an HTTP response if the web server supports that, and otherwise by
    closing with code 1008.
    """
    if scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
        await error_response(error, manager)(scope, receive, send)
        return
    manager.counters.failed(error)
    reason = words(error).encode()[:MAX_REASON_BYTES].decode(errors="ignore")
    await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
