"""A model server without a model: it reports tokens as vLLM does, at a chosen rate.

    PIECES=256 GAP_MS=0 python benchmarks/servers/model.py

The program prints its port. An answer has `PIECES` tokens, one in each chunk of a stream, and takes
`GAP_MS` milliseconds for each token.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

PIECES, GAP_S = int(os.environ.get("PIECES", "256")), float(os.environ.get("GAP_MS", "0")) / 1000
PROMPT = list(range(2000))
HEAD = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": len(PROMPT), "completion_tokens": PIECES, "total_tokens": 2000 + PIECES}
LOGPROB = {"token": "word ", "logprob": -0.5, "bytes": None, "top_logprobs": []}


def answer(asked: dict) -> bytes:  # type: ignore[type-arg]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "word " * PIECES},
        "finish_reason": "stop",
    }
    told = {**HEAD, "object": "chat.completion", "usage": USAGE, "choices": [choice]}
    if asked.get("return_token_ids"):
        told["prompt_token_ids"] = PROMPT
        choice["token_ids"] = [7] * PIECES
        choice["logprobs"] = {"content": [LOGPROB] * PIECES}
    return json.dumps(told).encode()


def events(asked: dict) -> list[bytes]:  # type: ignore[type-arg]
    ids = bool(asked.get("return_token_ids"))
    piece = {"index": 0, "delta": {"content": "word "}, "finish_reason": None}
    first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    if ids:
        piece |= {"token_ids": [7], "logprobs": {"content": [LOGPROB]}}
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    chunks = [{**HEAD, **({"prompt_token_ids": PROMPT} if ids else {}), "choices": [first]}]
    chunks += [{**HEAD, "choices": [piece]}] * PIECES + [{**HEAD, "choices": [last]}]
    if (asked.get("stream_options") or {}).get("include_usage"):
        chunks.append({**HEAD, "choices": [], "usage": USAGE})
    return [b"data: " + json.dumps(one).encode() + b"\n\n" for one in chunks] + [
        b"data: [DONE]\n\n"
    ]


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            asked = json.loads(await reader.readexactly(length) or b"{}")
            ok = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\n"
            if not asked.get("stream"):
                body = answer(asked)
                await asyncio.sleep(GAP_S * PIECES)  # as long as a model would take
                kind = ok % b"application/json"
                writer.write(kind + b"content-length: %d\r\n\r\n" % len(body) + body)
                continue
            writer.write(ok % b"text/event-stream" + b"transfer-encoding: chunked\r\n\r\n")
            for event in events(asked):
                writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                if GAP_S:
                    await asyncio.sleep(GAP_S)
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
