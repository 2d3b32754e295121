"""`/ws`: an ASGI WebSocket as a channel for the pump."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from openenv.sessions.manager import SessionManager
from openenv.sessions.pump import ChannelClosed, serve

__all__ = ["websocket_routes"]


class WebSocketChannel:
    """Frames over an accepted ASGI WebSocket."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def receive(self) -> str | bytes:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise ChannelClosed
        text: str | None = message.get("text")
        frame: str | bytes = message["bytes"] if text is None else text
        return frame

    async def send(self, frame: str) -> None:
        try:
            await self._websocket.send({"type": "websocket.send", "text": frame})
        except (WebSocketDisconnect, RuntimeError, OSError) as error:
            raise ChannelClosed from error

    async def close(self, code: int) -> None:
        try:
            await self._websocket.close(code)
        except (WebSocketDisconnect, RuntimeError, OSError) as error:
            raise ChannelClosed from error


def websocket_routes(manager: SessionManager) -> APIRouter:
    """Build the route of `/ws`."""
    router = APIRouter()

    @router.websocket("/ws")
    async def ws(websocket: WebSocket, session_id: str | None = None) -> None:
        await websocket.accept()
        await serve(WebSocketChannel(websocket), manager, session_id=session_id)

    return router
