"""HTTP `/reset`, `/step`, `/state`, `/render`, and `DELETE /session`.

`POST /reset` opens a session and returns its id as a header and as a cookie. A request that carries
either acts on that session, so an episode can be played with ``curl -c jar -b jar``. A request
without them acts on a fresh environment, which is closed after the response: `/step` then steps an
environment that was never reset, and `/state` reads its state. `/reset` does the same if no slot is
free, and its response then names no session. Existing callers rely on that.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Body, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from openenv._internal.net.responses import JSON, read_body
from openenv._internal.quoting import error_list
from openenv._internal.traces import serving
from openenv.errors import (
    EnvironmentCrashed,
    KeySessionsError,
    SessionCapacityError,
    SessionNotFoundError,
    TooLargeError,
)
from openenv.execution.commands import Command, Encode, GetState, Render, Reset, Step
from openenv.execution.manager import SessionManager
from openenv.execution.principal import Principal, principal_of
from openenv.execution.session import Session
from openenv.protocol.http import (
    SESSION_COOKIE,
    SESSION_HEADER,
    ResetRequest,
    ResetResponse,
    StepRequest,
    StepResponse,
)
from openenv.protocol.messages import RenderReply, StateReply, Transition
from openenv.protocol.renderings import as_file
from openenv.protocol.v0.codec import observation_payload, state_payload
from openenv.server.refusals import error_response

NO_ARGUMENTS = Body(default_factory=ResetRequest)

RENDERING: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Text, an SVG, or an image; an array of pixels is written as PNG.",
        "content": {
            "text/plain": {"schema": {"type": "string"}},
            "image/svg+xml": {"schema": {"type": "string"}},
            "image/*": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
# A rendering may contain text of other people, and an SVG can hold scripts. These headers stop
# scripts and requests, also if a browser shows it directly. Renderings change, so none is cached.
RENDERING_HEADERS = {
    "Content-Security-Policy": "sandbox; default-src 'none'; img-src data:; "
    "font-src data:; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class BodyRoute(APIRoute):
    """A route that can answer any body.

    Python parses JSON that it then refuses to write: NaN, lone surrogates, deep nesting. A response
    that quotes the error in such a body must not fail because of it.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                body = await _body(request)
            except ClientDisconnect:  # no client is left to read the answer
                raise HTTPException(400) from None
            except TooLargeError as error:
                return error_response(error)
            if _has_lone_surrogates(body):
                raise RequestValidationError([NOT_TEXT])
            try:
                return await handle(request)
            except RequestValidationError as error:
                raise RequestValidationError(error_list(error), body=error.body) from None

        return handler


async def _body(request: Request) -> bytes:
    """Read a request's body, and store the body for later readers."""
    (manager, *_) = request.app.state.openenv_managers
    body = await read_body(request, manager.limits.max_message_bytes)
    request._body = body  # where Starlette keeps it for the next reader
    return body


NOT_TEXT = {
    "type": "json_invalid",
    "loc": ["body"],
    "msg": "JSON decode error",
    "input": {},
    "ctx": {"error": "a lone surrogate is no text"},
}


# An escape, bytes that UTF-8 forbids but Python's parser accepts, or UTF-16.
MAY_HOLD_SURROGATES = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]|\x00")


def _has_lone_surrogates(body: bytes) -> bool:
    if MAY_HOLD_SURROGATES.search(body) is None:
        return False
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False  # not JSON at all; the parser will report that
    return False


def control_routes(manager: SessionManager) -> APIRouter:
    """Build the routes that drive an episode. Production mode omits these."""
    router = APIRouter(route_class=BodyRoute)
    state_schema: dict[int | str, dict[str, Any]] = {
        200: {"content": {JSON: {"schema": manager.spec.state_cls.model_json_schema()}}}
    }

    async def serve(
        request: Request, command: Command, encode: Encode, headers: dict[str, str] | None = None
    ) -> Response:
        open_session = _session_to_reset if isinstance(command, Reset) else _session
        try:
            async with open_session(manager, request) as session:
                media_type, body = await _handle(manager, request, session, command, encode)
                return _named(Response(body, 200, headers, media_type), session, request)
        except Exception as error:
            return error_response(error, manager)

    @router.post("/reset", tags=["Environment Control"], response_model=ResetResponse)
    async def reset(request: Request, body: ResetRequest = NO_ARGUMENTS) -> Response:
        """Begin an episode. The response names the session to step: a header and a cookie."""
        return await serve(request, Reset(body.model_dump(exclude_unset=True)), _encode_transition)

    @router.post("/step", tags=["Environment Control"], response_model=StepResponse)
    async def step(request: Request, body: StepRequest) -> Response:
        """Take a step in the session that the request names."""
        arguments = body.model_dump(exclude_unset=True, exclude={"action"})
        return await serve(request, Step(body.action, arguments), _encode_transition)

    @router.get("/state", tags=["State Management"], responses=state_schema)
    async def state(request: Request) -> Response:
        """Read the state of the session that the request names."""
        return await serve(request, GetState(), _encode_state)

    @router.get("/render", tags=["State Management"], response_class=Response, responses=RENDERING)
    async def render(request: Request) -> Response:
        """Render the session that the request names, if its environment can be rendered."""
        return await serve(request, Render(), _encode_rendering, RENDERING_HEADERS)

    @router.delete("/session", tags=["Environment Control"])
    async def close(request: Request) -> Response:
        """End the session that the request names."""
        session_id, _ = _session_id(request)
        try:
            if session_id is None:
                raise SessionNotFoundError("", f"no session is named; send {SESSION_HEADER}")
            session = manager.get(session_id, principal=principal_of(request.scope))
            await manager.close(session.id)
        except Exception as error:
            return error_response(error, manager)
        response = JSONResponse({"session_id": session_id, "closed": True})
        response.delete_cookie(SESSION_COOKIE, path=_cookie_path(request))
        return response

    return router


def _session_id(request: Request) -> tuple[str | None, bool]:
    """Return the session id of a request, and whether it came in a header."""
    by_header = request.headers.get(SESSION_HEADER)
    return (by_header, True) if by_header else (request.cookies.get(SESSION_COOKIE), False)


@contextlib.asynccontextmanager
async def _session_to_reset(manager: SessionManager, request: Request) -> AsyncIterator[Session]:
    session_id, by_header = _session_id(request)
    principal = principal_of(request.scope)
    if session_id is not None:
        try:
            session = manager.get(session_id, confirm=by_header, principal=principal)
        except SessionNotFoundError:
            if by_header:
                raise  # a cookie may be left over from another server or an ended session
        else:
            yield session
            return
    async with _new_session(manager, principal, is_named=session_id is not None) as session:
        yield session


@contextlib.asynccontextmanager
async def _new_session(
    manager: SessionManager, principal: Principal | None, *, is_named: bool
) -> AsyncIterator[Session]:
    """Open a session to reset, and close it again if the request fails.

    Without a free slot a throwaway session serves the request. A caller that named a session wants
    to continue an episode, and is refused instead.
    """
    try:
        session = await manager.create(provisional=True, principal=principal)
    except SessionCapacityError as error:
        if is_named or isinstance(error, KeySessionsError):
            raise
        async with manager.throwaway(principal) as session:
            yield session
        return
    try:
        yield session
    except Exception:
        await manager.close(session.id)
        raise


@contextlib.asynccontextmanager
async def _session(manager: SessionManager, request: Request) -> AsyncIterator[Session]:
    session_id, by_header = _session_id(request)
    principal = principal_of(request.scope)
    if session_id is None:
        async with manager.throwaway(principal) as session:
            yield session
    else:
        # A cookie may be sent by a program that knows nothing about sessions and ends none.
        yield manager.get(session_id, confirm=by_header, principal=principal)


async def _handle(
    manager: SessionManager, request: Request, session: Session, command: Command, encode: Encode
) -> tuple[str, bytes]:
    """Carry out a command; return the media type and the body of the answer."""
    name = f"openenv.{request.url.path.rpartition('/')[2]}"
    trace = request.headers.get("traceparent")
    try:
        with serving(name, trace, session.attributes()) as span:
            media_type, body = await session.handle(command, encode=encode, trace=span)
    except EnvironmentCrashed:
        await manager.close(session.id)  # no one else would free its slot
        raise
    if len(body) > (limit := manager.limits.max_message_bytes):
        cure = "raise OPENENV_MAX_MESSAGE_BYTES of the server"
        raise TooLargeError("answer", len(body), limit, cure)
    return media_type, body


def _named(response: Response, session: Session, request: Request) -> Response:
    if not session.is_throwaway:
        response.headers[SESSION_HEADER] = session.id
        response.set_cookie(
            SESSION_COOKIE,
            session.id,
            path=_cookie_path(request),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
    return response


def _cookie_path(request: Request) -> str:
    """Return the path at which the application is mounted, which the session cookie is limited to.

    Several applications on a host must not take each other's cookie.
    """
    return request.scope.get("root_path") or "/"


# Encoders of replies, at module level so that a worker process can import them.


def _encode_transition(transition: Transition) -> tuple[str, bytes]:
    if transition.reward is not None:
        transition.reward = float(transition.reward)
    return JSON, observation_payload(transition, empty_metadata=b',"metadata":null')


def _encode_state(reply: StateReply) -> tuple[str, bytes]:
    return JSON, state_payload(reply)


def _encode_rendering(reply: RenderReply) -> tuple[str, bytes]:
    return as_file(reply.rendering)
