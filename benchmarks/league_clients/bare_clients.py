"""Bare sockets in the league: picows connections that only encode a step and decode its answer."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect
from playing import Order, play, tell  # type: ignore[import-not-found]  # in this folder

RESET = b'{"type":"reset","data":{}}'


class Listener(WSListener):
    """A listener that keeps the last answer."""

    answer: asyncio.Future[Any]

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.TEXT:
            self.answer.set_result(msgspec.json.decode(frame.get_payload_as_bytes()))


class BareSession:
    _transport: Any
    _listener: Any

    def __init__(self, url: str) -> None:
        self._url = f"ws{url.removeprefix('http')}/ws"

    async def __aenter__(self) -> BareSession:
        self._loop = asyncio.get_running_loop()
        self._transport, self._listener = await ws_connect(Listener, self._url)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._transport.send_close()
        self._transport.disconnect()

    async def _ask(self, frame: bytes) -> Any:
        self._listener.answer = self._loop.create_future()
        self._transport.send(WSMsgType.TEXT, frame)
        return (await self._listener.answer)["data"]

    async def reset(self) -> None:
        assert (await self._ask(RESET))["observation"]["echoed"] == ""

    async def step(self, text: str) -> tuple[str, float]:
        request = {"type": "step", "data": {"message": text}}
        answer = await self._ask(msgspec.json.encode(request))
        return answer["observation"]["echoed"], answer["reward"]

    async def finish(self) -> None:
        pass


def main() -> None:
    order = Order.given()
    tell(asyncio.run(play(order, lambda: BareSession(order.url))))


if __name__ == "__main__":
    main()
