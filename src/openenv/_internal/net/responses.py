"""Helpers for web applications: read the body of a request, and answer with an error."""

from __future__ import annotations

import math
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from openenv._internal.incidents import error_data
from openenv.errors import (
    InvalidMessageError,
    NotAuthenticatedError,
    RateLimitError,
    RequestTooLargeError,
    outward,
)

JSON = "application/json"


async def read_body(request: Request, limit: int) -> bytes:
    """Read a request's body.

    Args:
        request: The request.
        limit: Maximum size of the body in bytes.

    Raises:
        RequestTooLargeError: The body is larger. The rest is not read.
        starlette.requests.ClientDisconnect: The client has disconnected.
    """
    parts: list[bytes] = []
    announced = request.headers.get("content-length", "")
    size = int(announced) if announced.isdecimal() else 0  # too large a body is not read at all
    if size <= limit:
        size = 0
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > limit:
                break
    if size > limit:
        cure = "raise OPENENV_MAX_MESSAGE_BYTES of the server"
        raise RequestTooLargeError("body of the request", size, limit, cure)
    return b"".join(parts)


def error_response(error: Exception, *, debug: bool = False) -> Response:
    """Return the response to an error: `detail` (Pydantic's list, or a sentence) and a code.

    Args:
        error: The exception that was raised.
        debug: Send the text of an unexpected exception to the client.
    """
    row = outward(error)
    data = error_data(error, debug=debug)
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
