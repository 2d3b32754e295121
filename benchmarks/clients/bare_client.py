"""The lower limit of a client's cost: picows on asyncio that only decodes a step's answer.

python bare_client.py URL async STEPS
"""

import asyncio
import json
import sys
import time
from typing import Any

import msgspec
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

WARM_UP = 300
RESET = b'{"type":"reset","data":{}}'
STEP = b'{"type":"step","data":{"message":"hello, world"}}'


class Listener(WSListener):
    """A listener that keeps the last answer."""

    answer: asyncio.Future[Any]

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.answer.set_result(msgspec.json.decode(frame.get_payload_as_bytes()))


async def step_bare(url: str, steps: int) -> dict[str, float]:
    transport, listener = await ws_connect(Listener, f"ws{url.removeprefix('http')}/ws")
    link: Any = listener
    loop = asyncio.get_running_loop()

    async def ask(frame: bytes) -> Any:
        link.answer = loop.create_future()
        transport.send(WSMsgType.TEXT, frame)
        return await link.answer

    await ask(RESET)
    for _ in range(WARM_UP):
        await ask(STEP)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        answer = await ask(STEP)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert answer["data"]["observation"]["echoed"] == "hello, world"
    return {"cpu_us": cpu / steps * 1e6, "wall_us": wall / steps * 1e6}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(step_bare(sys.argv[1], int(sys.argv[3])))))
