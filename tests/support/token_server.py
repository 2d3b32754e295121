"""A server on this machine that tells tokens as vLLM does, and says what a test tells it.

    with token_server("hello") as server:              # or a list, or a function of what was asked
        ...                                            # server.url + "/v1" is its base URL

It is `llm_server` for what captures tokens. A token is a byte; a message is ``<role> content end``,
so what it once wrote is rendered in the tokens that it wrote it in. Log-probabilities tell the
place of a token: -0.001, -0.002, ...

Faults: `Reply` and `Failure` as there; `Dropped(reply, after=3)` ends the connection after so many
tokens of a stream.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from support.llm_server import Asked, Failure, Reply
from support.servers import serving

__all__ = ["Dropped", "TokenServer", "logprobs_of", "prompt_of", "token_server", "tokens_in"]

MODEL = "toy"
END = 3
ROLES = {"system": 10, "developer": 10, "user": 11, "assistant": 12, "tool": 13}
FIRST_BYTE = 100


@dataclass(frozen=True)
class Dropped:
    """A stream whose connection ends amid it; told whole, it never is."""

    reply: str | Reply
    after: int = 3


Answer = str | Reply | Failure | Dropped


def tokens_in(text: str) -> list[int]:
    """The tokens of a text."""
    return [FIRST_BYTE + byte for byte in text.encode()]


def written(message: Mapping[str, Any]) -> list[int]:
    """The tokens of what an assistant says."""
    calls = [
        [one["function"]["name"], json.loads(one["function"]["arguments"])]
        for one in message.get("tool_calls") or ()
    ]
    text = _text(message.get("content")) + (json.dumps(calls) if calls else "")
    return [*tokens_in(text), END]


def prompt_of(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """The tokens of a conversation that the assistant is to go on with."""
    tokens = []
    for message in messages:
        tokens.append(ROLES[message["role"]])
        if message["role"] == "assistant":
            tokens += written(message)
        else:
            tokens += [*tokens_in(_text(message.get("content"))), END]
    return [*tokens, ROLES["assistant"]]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "#") for part in content)
    return content or ""


def logprobs_of(tokens: Sequence[int]) -> list[float]:
    """What the server tells of tokens that it wrote."""
    return [-(at + 1) / 1000 for at in range(len(tokens))]


@dataclass
class TokenServer:
    """A running server.

    Attributes:
        answer: What it answers.
        tells: What it can tell: ``tokens``, ``logprobs``, or ``text``; it ignores what else it is
            asked, as a server of that kind does.
        refuses: Names of arguments that it answers 400 to.
        piece: How many tokens a chunk of a stream has.
        asked: What it was asked.
    """

    answer: Answer | Sequence[Answer] | Callable[[Asked], Answer]
    tells: str = "tokens"
    refuses: Sequence[str] = ()
    piece: int = 2
    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/tokenize", self._tokenize, methods=["POST"]),
            ]
        )

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _tokenize(self, request: Request) -> Response:
        tokens = prompt_of((await request.json())["messages"])
        return JSONResponse({"count": len(tokens), "tokens": tokens})

    async def _chat(self, request: Request) -> Response:
        asked = Asked(len(self.asked), await request.json(), dict(request.headers))
        for name in self.refuses:
            if name in asked.body:
                return _error(400, f"Unrecognized request argument supplied: {name}")
        self.asked.append(asked)
        answer = self._chosen(asked)
        if isinstance(answer, Failure):
            headers = {} if answer.retry_after_s is None else {"retry-after": "0"}
            return _error(answer.status, answer.message, headers)
        drop = answer.after if isinstance(answer, Dropped) else None
        said = answer.reply if isinstance(answer, Dropped) else answer
        told = _Told(asked, Reply(said) if isinstance(said, str) else said, self.tells)
        if asked.body.get("stream"):
            return _Stream(told.chunks(self.piece, drop), media_type="text/event-stream")
        assert drop is None, "only a stream is dropped"
        return JSONResponse(told.whole())

    def _chosen(self, asked: Asked) -> Answer:
        if callable(self.answer):
            return self.answer(asked)
        if isinstance(self.answer, (str, Reply, Failure, Dropped)):
            return self.answer
        if asked.number >= len(self.answer):
            return Failure(400, "the script is over")
        return self.answer[asked.number]


@contextlib.contextmanager
def token_server(
    answer: Answer | Sequence[Answer] | Callable[[Asked], Answer] = "ok", **options: Any
) -> Iterator[TokenServer]:
    """Serve until the block ends."""
    server = TokenServer(answer, **options)
    with serving(server.app) as server.url:
        yield server


@dataclass
class _Told:
    """One answer, whole or in chunks."""

    asked: Asked
    reply: Reply
    tells: str

    def __post_init__(self) -> None:
        body = self.asked.body
        self.calls = [
            {
                "id": f"call_{self.asked.number}_{i}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": given if isinstance(given, str) else json.dumps(given),
                },
            }
            for i, (name, given) in enumerate(self.reply.calls)
        ]
        content = self.reply.content or None
        self.message: dict[str, Any] = {"role": "assistant", "content": content}
        if self.calls:
            self.message["tool_calls"] = self.calls
        self.prompt = prompt_of(body["messages"])
        self.tokens = written(self.message) if not self.has_bad_json else tokens_in("bad")
        self.ids = self.tells == "tokens" and bool(body.get("return_token_ids"))
        self.logprobs = self.tells != "text" and bool(body.get("logprobs"))
        self.finish = "length" if self.reply.cut_off else "tool_calls" if self.calls else "stop"
        self.head = {"id": f"chatcmpl-{self.asked.number}", "created": 1, "model": MODEL}
        read, wrote = len(self.prompt), len(self.tokens)
        self.usage = {
            "prompt_tokens": read,
            "completion_tokens": wrote,
            "total_tokens": read + wrote,
        }

    @property
    def has_bad_json(self) -> bool:
        return any(isinstance(given, str) for _, given in self.reply.calls)

    def told(self, first: int, last: int) -> dict[str, Any]:
        """What is told of some of the tokens."""
        told: dict[str, Any] = {"logprobs": None}
        if self.logprobs:
            pairs = list(zip(self.tokens, logprobs_of(self.tokens), strict=True))[first:last]
            content = [{"token": f"<{t}>", "logprob": p, "top_logprobs": []} for t, p in pairs]
            told["logprobs"] = {"content": content}
        if self.ids:
            told["token_ids"] = self.tokens[first:last]
        return told

    def whole(self) -> dict[str, Any]:
        choice = {"index": 0, "message": self.message, "finish_reason": self.finish}
        ids = {"prompt_token_ids": self.prompt} if self.ids else {}
        choices = [{**choice, **self.told(0, len(self.tokens))}]
        shape = {**self.head, "object": "chat.completion", "usage": self.usage}
        return {**shape, **ids, "choices": choices}

    async def chunks(self, piece: int, drop: int | None) -> AsyncIterator[str]:
        first: dict[str, Any] = {"prompt_token_ids": self.prompt} if self.ids else {}
        yield self.event({"role": "assistant", "content": ""}, **first)
        text = self.reply.content or ""
        spoken = len(tokens_in(text))
        for at in range(0, len(self.tokens), piece):
            if drop is not None and at >= drop:
                raise Dropping
            until = min(at + piece, len(self.tokens))
            delta: dict[str, Any] = {}
            if at < spoken:
                delta["content"] = text.encode()[at : min(until, spoken)].decode()
            if until == len(self.tokens) and self.calls:
                delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(self.calls)]
            yield self.event(delta, self.told(at, until))
        yield self.event({}, {"finish_reason": self.finish})
        if (self.asked.body.get("stream_options") or {}).get("include_usage"):
            yield _sse({**self.head, "choices": [], "usage": self.usage})
        yield "data: [DONE]\n\n"

    def event(
        self, delta: dict[str, Any], choice: dict[str, Any] | None = None, **head: Any
    ) -> str:
        told = {"index": 0, "delta": delta, "finish_reason": None, **(choice or {})}
        shape = {**self.head, "object": "chat.completion.chunk", **head}
        return _sse({**shape, "choices": [told]})


class Dropping(Exception):
    """The connection is to end here."""


class _Stream(StreamingResponse):
    """A stream whose connection ends where its events are `Dropping`."""

    async def stream_response(self, send: Any) -> None:
        with contextlib.suppress(Dropping):  # then uvicorn sees no end of the body, and hangs up
            await super().stream_response(send)


def _sse(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    error = {"message": message, "type": "BadRequestError", "param": None, "code": status}
    return JSONResponse({"error": error}, status, dict(headers or {}))
