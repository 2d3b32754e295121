"""Reading the bodies of requests, as far as the server's limit on messages allows."""

from __future__ import annotations

from starlette.requests import Request

from openenv.errors import RequestTooLargeError

__all__ = ["read_body"]


async def read_body(request: Request, limit: int) -> bytes:
    """Read a request's body.

    Args:
        request: The request.
        limit: Bytes that it may have.

    Raises:
        RequestTooLargeError: It has more. The rest is not read.
        starlette.requests.ClientDisconnect: The client has left.
    """
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > limit:
            cure = "raise OPENENV_MAX_MESSAGE_BYTES of the server"
            raise RequestTooLargeError("body of the request", size, limit, cure)
    return b"".join(parts)
