"""The bare limit: the cost of a server of this protocol without any framework.

The server uses picows and msgspec on uvloop. It decodes every request, keeps an episode for every
connection, and answers with a whole observation frame. It validates nothing, isolates nothing and
recovers from nothing.

    python benchmarks/servers/bare.py --port 8000
"""

from __future__ import annotations

import argparse
from random import Random

import msgspec
import uvloop
from picows import (
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    ws_create_server,
)

BACKLOG = 4096
READ_BUFFER_BYTES = 4096  # per connection
FRAME_BYTES = 210 * 160 * 3


class Request(msgspec.Struct):
    """A client's request."""

    type: str
    data: dict[str, object] = {}


class Echo(msgspec.Struct):
    """The observation of the echo environment."""

    echoed: str
    length: int


class Result(msgspec.Struct):
    """The answer to `reset` and `step`."""

    observation: Echo
    reward: float | None
    done: bool


class Observed(msgspec.Struct, tag="observation"):
    """The frame of a result."""

    data: Result


class Episode(msgspec.Struct):
    """The state of a session."""

    episode_id: str | None
    step_count: int


class State(msgspec.Struct, tag="state"):
    """The frame of an episode's state."""

    data: Episode


class Session(WSListener):
    """A connection with its episode."""

    decoder = msgspec.json.Decoder(Request)
    encoder = msgspec.json.Encoder()

    def __init__(self) -> None:
        self.steps = 0

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        elif frame.msg_type == WSMsgType.TEXT:
            request = self.decoder.decode(frame.get_payload_as_memoryview())
            transport.send(WSMsgType.TEXT, self.encoder.encode(self.answer(request)))

    def answer(self, request: Request) -> Observed | State:
        if request.type == "state":
            return State(Episode(None, self.steps))
        if request.type == "reset":
            self.steps = 0
            return Observed(Result(Echo("", 0), None, False))
        self.steps += 1
        message = str(request.data["message"])
        length = len(message)
        return Observed(Result(Echo(message, length), length / 10, False))


class FrameSession(WSListener):
    """A connection that answers every request with a screen as raw bytes."""

    screen = Random(0).randbytes(FRAME_BYTES)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        else:
            Session.decoder.decode(frame.get_payload_as_memoryview())
            transport.send(WSMsgType.BINARY, self.screen)


async def serve(port: int, listener: type[WSListener]) -> None:
    def accept(_: WSUpgradeRequest) -> WSListener:
        return listener()

    server = await ws_create_server(
        accept, "127.0.0.1", port, backlog=BACKLOG, read_buffer_init_size=READ_BUFFER_BYTES
    )
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--frames", action="store_true", help="answer with screens")
    options = parser.parse_args()
    uvloop.run(serve(options.port, FrameSession if options.frames else Session))


if __name__ == "__main__":
    main()
