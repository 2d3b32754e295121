"""The internal interface of an `EnvClient`, for the rest of openenv.

Every environment subclasses `EnvClient`, so its namespace belongs to its users. Outside the package
`openenv.client`, no module reads a client's private attributes; other modules use this interface.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from openenv.client import background
from openenv.protocol.messages import Request

if TYPE_CHECKING:
    import asyncio

    from openenv.client.client import EnvClient
    from openenv.client.launch import Launch
    from openenv.client.session import ClientSession
    from openenv.client.transports.base import Transport
    from openenv.client.transports.websocket import WebSocketOptions


def internals(client: EnvClient[Any, Any, Any]) -> ClientInternals:
    """Return the internal interface of a client."""
    return ClientInternals(client)


class ClientInternals:
    """The internal interface of a client. All coroutines run on the client's loop.

    Args:
        client: The client.
    """

    def __init__(self, client: EnvClient[Any, Any, Any]) -> None:
        self.client = client

    @property
    def session(self) -> ClientSession:
        """The client's session; it changes when the client moves to another loop."""
        return self.client._session

    @property
    def launch(self) -> Launch | None:
        """The launch of the client's server; None if the client did not start the server."""
        return self.client._launch

    @property
    def options(self) -> WebSocketOptions:
        """The client's limits, headers and key."""
        return self.client._websocket

    @property
    def open_transport(self) -> Callable[[], Transport] | None:
        """Opens transports to an environment in this process; None if the server has an address."""
        return self.client._open_transport

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the client lives on."""
        return self.client._home or background.background_loop()

    async def connect(self) -> None:
        """Connect, and start the server if needed."""
        await self.client._connect_async()

    async def request(self, request: Request, timeout_s: float | None = None) -> Any:
        """Send a request and return the answer; see `ClientSession.request`."""
        return await self.client._request(request, timeout_s)

    async def close(self) -> None:
        """Close the client; see `EnvClient.close`."""
        await self.client._close_async()
