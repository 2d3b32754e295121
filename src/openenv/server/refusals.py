"""Turning a request away before the application sees it."""

from __future__ import annotations

import math
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openenv._internal.incidents import error_data
from openenv.errors import (
    InvalidMessageError,
    NotAuthenticatedError,
    OpenEnvError,
    RateLimitError,
    outward,
    words,
)
from openenv.execution.manager import SessionManager

__all__ = ["error_response", "refuse"]

JSON = "application/json"
POLICY_VIOLATION = 1008  # RFC 6455, section 7.4.1
MAX_REASON_BYTES = 123  # of a close frame


def error_response(error: Exception, manager: SessionManager | None = None) -> Response:
    """Answer with what went wrong: `detail` (Pydantic's list, or a sentence) and a code.

    Args:
        error: What was raised.
        manager: Where it was, if it got that far: there it is counted.
    """
    if manager is not None:
        manager.counters.failed(error)
    row = outward(error)
    data = error_data(error, debug=manager is not None and manager.debug)
    body: dict[str, Any] = {"detail": data.pop("message"), **data}
    if isinstance(error, InvalidMessageError):
        body = {"detail": data["errors"]}
    content = to_json(body, inf_nan_mode="null", serialize_unknown=True)
    return Response(content, row.http_status, _headers(error, row.http_status), media_type=JSON)


def _headers(error: Exception, status: int) -> dict[str, str] | None:
    if isinstance(error, RateLimitError):
        return {"Retry-After": str(math.ceil(error.retry_after_s))}
    if isinstance(error, NotAuthenticatedError):
        return {"WWW-Authenticate": 'Bearer realm="openenv"'}
    return {"Retry-After": "1"} if status in (429, 503) else None


async def refuse(
    error: OpenEnvError, scope: Scope, receive: Receive, send: Send, manager: SessionManager
) -> None:
    """Answer a request, or refuse a WebSocket's handshake: by an HTTP response where the web
    server can send one there, otherwise by closing with 1008. It counts as an error of `manager`.
    """
    if scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
        await error_response(error, manager)(scope, receive, send)
        return
    manager.counters.failed(error)
    reason = words(error).encode()[:MAX_REASON_BYTES].decode(errors="ignore")
    await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
