"""Drives one connection: frames in, `Session.handle`, frames out.

A channel is anything that carries frames: a WebSocket, or two queues in memory. The pump keeps
listening while a request is served, so that a caller who goes away is noticed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol

from pydantic import ValidationError

from openenv.errors import OpenEnvError, ProtocolError, SessionCreationError
from openenv.mcp.types import JsonRpcErrorCode, JsonRpcRequest, JsonRpcResponse
from openenv.protocol.codecs import error_list
from openenv.protocol.connection import ServerConnection
from openenv.protocol.messages import MCPReply, Request, StateReply, Transition
from openenv.sessions.manager import SessionManager
from openenv.sessions.session import Command, GetState, Reset, Session, Step

__all__ = ["Channel", "ChannelClosed", "serve"]

logger = logging.getLogger(__name__)

NORMAL_CLOSURE = 1000  # RFC 6455, section 7.4.1
QUEUED_FRAMES = 64
LINGER_S = 5.0


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel(Protocol):
    """Carries frames to and from one client."""

    async def receive(self) -> str | bytes:
        """Wait for the next frame.

        Raises:
            ChannelClosed: There will be none.
        """
        ...

    async def send(self, frame: str) -> None:
        """Send a frame.

        Raises:
            ChannelClosed: Nobody is there to take it.
        """
        ...

    async def close(self, code: int) -> None:
        """Close from this side, with a code of RFC 6455."""
        ...


async def serve(
    channel: Channel, manager: SessionManager, *, session_id: str | None = None
) -> None:
    """Serve one client until it leaves.

    It gets a session of its own, which is closed when it leaves; or, with `session_id`, joins
    one that exists, which stays. Whoever says goodbye is answered, by the closing of the channel,
    once the environment is closed; one that takes more than `LINGER_S` seconds to close is left
    to the manager, since a web server that shuts down waits for every client that is served.
    """
    connection = ServerConnection()
    frames: asyncio.Queue[str | bytes] = asyncio.Queue(QUEUED_FRAMES)
    async with contextlib.AsyncExitStack() as leaving:
        talking = asyncio.create_task(
            _talk(channel, manager, connection, frames, session_id, leaving)
        )
        listening = asyncio.create_task(_listen(channel, frames))
        try:
            await asyncio.wait({talking, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            connection.drop()
            for task in (talking, listening):
                task.cancel()
            for task in (talking, listening):
                with contextlib.suppress(asyncio.CancelledError, ChannelClosed):
                    await task
    with contextlib.suppress(ChannelClosed):
        await channel.close(NORMAL_CLOSURE)


async def _listen(channel: Channel, frames: asyncio.Queue[str | bytes]) -> None:
    while True:
        await frames.put(await channel.receive())


async def _talk(
    channel: Channel,
    manager: SessionManager,
    connection: ServerConnection,
    frames: asyncio.Queue[str | bytes],
    session_id: str | None,
    leaving: contextlib.AsyncExitStack,
) -> None:
    try:
        session = _join(manager, session_id) if session_id else await manager.create()
    except OpenEnvError as error:
        await channel.send(connection.refuse(error))
        return
    session.attachments += 1
    leaving.push_async_callback(_leave, manager, session, stays=session_id is not None)
    connection.accept()
    await _converse(channel, session, connection, frames)


async def _leave(manager: SessionManager, session: Session, *, stays: bool) -> None:
    session.attachments -= 1
    if not stays:
        closing = asyncio.ensure_future(manager.close(session.id))
        await asyncio.wait({closing}, timeout=LINGER_S)


def _join(manager: SessionManager, session_id: str) -> Session:
    session = manager.get(session_id)
    if session.attachments:
        raise SessionCreationError(f"session {session_id} already has a socket attached")
    return session


async def _converse(
    channel: Channel,
    session: Session,
    connection: ServerConnection,
    frames: asyncio.Queue[str | bytes],
) -> None:
    while True:
        frame = await frames.get()
        try:
            request = connection.receive(frame)
        except ProtocolError:
            raise
        except OpenEnvError as error:
            await channel.send(connection.error(None, error))
            continue
        if request.type == "close":
            return
        await channel.send(await answer(session, connection, request))


async def answer(session: Session, connection: ServerConnection, request: Request) -> str:
    """Serve one request and write the frame that answers it; errors become error frames."""
    try:
        reply: Transition | StateReply | MCPReply
        if request.type == "mcp":
            reply = MCPReply(answer_json_rpc(session, request.data))
        else:
            reply = await session.handle(_command(request))
        return connection.reply(request, reply)
    except Exception as error:
        return connection.error(request, error)


def _command(request: Request) -> Command:
    if request.type == "step":
        return Step(request.data)
    if request.type == "reset":
        return Reset(request.data)
    return GetState()


def answer_json_rpc(session: Session, data: dict[str, object]) -> JsonRpcResponse:
    """Answer a JSON-RPC request to a session's tools. No environment has tools of that kind yet:
    they are actions, and go through `step`.
    """

    try:
        request = JsonRpcRequest.model_validate(data)
    except ValidationError as error:
        return JsonRpcResponse.error_response(
            JsonRpcErrorCode.INVALID_REQUEST, f"Invalid request: {error_list(error)}"
        )
    if request.method == "openenv/session/create":
        return JsonRpcResponse.success({"session_id": session.id}, request.id)
    if request.method in ("tools/list", "tools/call"):
        code, message = JsonRpcErrorCode.INTERNAL_ERROR, "Environment does not support MCP"
    else:
        code, message = JsonRpcErrorCode.METHOD_NOT_FOUND, f"Method not found: {request.method}"
    return JsonRpcResponse.error_response(code, message, request_id=request.id)
