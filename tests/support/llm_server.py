"""A server on this machine that speaks the APIs of language models, and says what a test tells it.

    with llm_server("hello") as server:                          # always the same
    with llm_server(["first", "second"]) as server:              # one after another, then no more
    with llm_server(lambda asked: asked.last.upper()) as server: # a function, plain or async def

        client = OpenAIClient(server.url, None, "toy")           # or AnthropicClient
        ...
        assert server.asked[0].messages == [{"role": "user", "content": "hi"}]

It answers ``POST /v1/chat/completions`` and ``GET /v1/models`` as OpenAI's API does (so
`server.url + "/v1"` is what a client of OpenAI takes as its base URL) and ``POST /v1/messages`` as
Anthropic's; a chat completion is streamed where that is asked for, a message never. It runs in a
thread, so a program in another process can ask it too.

What it may be told to answer:

- a text;
- `Reply("text", calls=[("add", {"a": 1})])`: with calls of tools;
- `Failure(429, retry_after_s=0)`, `Failure(500)`: an error, in the form of the API that was asked;
- `Late(reply, after_s=0.1)`; `Late()` answers nothing at all until the client has gone.

An SDK takes a while for its first request, in which it holds up the loop that it runs on:
`warm_up` in a fixture of the module makes that request before any test does.

The tokens that it tells of are words. An id is made of the number of the request: ``call_0_0``.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from openenv.rewards.llm import AnthropicClient, OpenAIClient
from support.servers import serving

__all__ = ["Asked", "Failure", "LLMServer", "Late", "Reply", "llm_server", "warm_up"]

MODEL = "toy"


@dataclass(frozen=True)
class Asked:
    """One request: what its body holds, and with which headers it came."""

    number: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]

    @property
    def key(self) -> str:
        """The API key, in whichever header an SDK sends it."""
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return self.headers.get("x-api-key", bearer)

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages

    @property
    def last(self) -> str:
        """The text of the last message."""
        return _text(self.messages[-1]["content"])

    @property
    def words(self) -> int:
        system = _text(self.body.get("system") or "")
        return sum(len(_text(one.get("content")).split()) for one in self.messages) + len(
            system.split()
        )


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(_text(block.get("text", block.get("content"))) for block in content)
    return content if isinstance(content, str) else ""


@dataclass(frozen=True)
class Reply:
    """What a model says; `calls` are pairs of a tool's name and its arguments.

    Arguments that are text are sent as they are, for a model that writes no valid JSON.
    """

    content: str | None = ""
    calls: Sequence[tuple[str, Mapping[str, Any] | str]] = ()
    cut_off: bool = False


@dataclass(frozen=True)
class Failure:
    """What a server says that does not answer."""

    status: int
    message: str = "it failed on purpose"
    retry_after_s: float | None = None


@dataclass(frozen=True)
class Late:
    """A reply that comes after a while, or, without `after_s`, never."""

    reply: str | Reply | Failure = ""
    after_s: float | None = None


Answer = str | Reply | Failure | Late


@dataclass
class LLMServer:
    """A running server: its address, what it was asked so far, and how many ask at once."""

    answer: Answer | Sequence[Answer] | Callable[[Asked], Any]
    key: str | None = None
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    at_once: int = 0
    at_most_at_once: int = 0

    def __post_init__(self) -> None:
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat_completions, methods=["POST"]),
                Route("/v1/messages", self._messages, methods=["POST"]),
                Route("/v1/models", self._models),
            ]
        )

    async def _models(self, request: Request) -> Response:
        models = [{"id": MODEL, "object": "model", "created": 0, "owned_by": "tests"}]
        return JSONResponse({"object": "list", "data": models})

    async def _chat_completions(self, request: Request) -> Response:
        return await self._answered(request, _chat_completion, _openai_error)

    async def _messages(self, request: Request) -> Response:
        return await self._answered(request, _message, _anthropic_error)

    async def _answered(
        self,
        request: Request,
        form: Callable[[Asked, Reply], dict[str, Any]],
        error_form: Callable[[str], dict[str, Any]],
    ) -> Response:
        asked = Asked(len(self.asked), await request.json(), dict(request.headers))
        self.asked.append(asked)
        self.at_once += 1
        self.at_most_at_once = max(self.at_most_at_once, self.at_once)
        try:
            answer = await self._chosen(asked)
            if isinstance(answer, Late):
                answer = await _in_time(answer, request)
        finally:
            self.at_once -= 1
        if isinstance(answer, Failure):
            wait = {} if answer.retry_after_s is None else {"retry-after": answer.retry_after_s}
            headers = {name: str(value) for name, value in wait.items()}
            return JSONResponse(error_form(answer.message), answer.status, headers)
        told = form(asked, Reply(answer) if isinstance(answer, str) else answer)
        if asked.body.get("stream"):
            return StreamingResponse(_streamed(told), media_type="text/event-stream")
        return JSONResponse(told)

    async def _chosen(self, asked: Asked) -> Answer:
        if self.key is not None and asked.key != self.key:
            return Failure(401, "the key is not known")
        if asked.body.get("stream") and "anthropic-version" in asked.headers:
            return Failure(400, "this server streams no messages")
        answer: Any = self.answer
        if callable(answer):
            answer = answer(asked)
            return await answer if inspect.isawaitable(answer) else answer  # type: ignore[no-any-return]
        if isinstance(answer, (str, Reply, Failure, Late)):
            return answer
        replies = list(answer)
        if asked.number >= len(replies):
            return Failure(400, f"the script has {len(replies)} replies, and this is one more")
        return replies[asked.number]  # type: ignore[no-any-return]


async def _in_time(late: Late, request: Request) -> str | Reply | Failure:
    """Wait for the client to go, or until it is time."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(request.receive(), late.after_s)
    return late.reply


@contextlib.contextmanager
def llm_server(
    answer: Answer | Sequence[Answer] | Callable[[Asked], Any] = "", *, key: str | None = None
) -> Iterator[LLMServer]:
    """Serve until the block ends.

    Args:
        answer: What it answers; see above.
        key: The API key that it wants. By default it takes any, and none.
    """
    server = LLMServer(answer, key)
    with serving(server.app) as server.url:
        yield server


def warm_up(*kinds: type[OpenAIClient] | type[AnthropicClient]) -> None:
    """Have the SDKs of clients do, where nobody waits for it, what they do once only."""

    async def ask(url: str) -> None:
        for kind in kinds:
            async with kind(url, None, MODEL) as client:
                await client.complete("hello")

    with llm_server("hello") as server:
        asyncio.run(ask(server.url))


# ------------------------------------------------------------------ the forms of the two APIs


def _chat_completion(asked: Asked, reply: Reply) -> dict[str, Any]:
    calls = [
        {
            "id": f"call_{asked.number}_{i}",
            "type": "function",
            "function": {"name": name, "arguments": _json(given)},
        }
        for i, (name, given) in enumerate(reply.calls)
    ]
    message = {"role": "assistant", "content": reply.content}
    finish = "length" if reply.cut_off else "tool_calls" if calls else "stop"
    written = len((reply.content or "").split())
    return {
        "id": f"chatcmpl-{asked.number}",
        "object": "chat.completion",
        "created": 0,
        "model": asked.body["model"],
        "choices": [
            {
                "index": 0,
                "message": message | ({"tool_calls": calls} if calls else {}),
                "finish_reason": finish,
            }
        ],
        "usage": {
            "prompt_tokens": asked.words,
            "completion_tokens": written,
            "total_tokens": asked.words + written,
        },
    }


def _streamed(completion: Mapping[str, Any]) -> Iterator[str]:
    """A chat completion as the events of a stream: all that is said is in the first."""
    (choice,) = completion["choices"]
    message = dict(choice["message"])
    calls = [{"index": i, **one} for i, one in enumerate(message.pop("tool_calls", ()))]
    delta = message | ({"tool_calls": calls} if calls else {})
    ending = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    shared = {name: completion[name] for name in ("id", "created", "model")}
    shared["object"] = "chat.completion.chunk"
    for part in (
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [ending]},
        {"choices": [], "usage": completion["usage"]},
    ):
        yield f"data: {json.dumps({**shared, **part})}\n\n"
    yield "data: [DONE]\n\n"


def _message(asked: Asked, reply: Reply) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": reply.content}]
    content = content if reply.content else []
    for i, (name, given) in enumerate(reply.calls):
        number = f"call_{asked.number}_{i}"
        content.append({"type": "tool_use", "id": number, "name": name, "input": given})
    stop = "max_tokens" if reply.cut_off else "tool_use" if reply.calls else "end_turn"
    return {
        "id": f"msg_{asked.number}",
        "type": "message",
        "role": "assistant",
        "model": asked.body["model"],
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": asked.words, "output_tokens": len((reply.content or "").split())},
    }


def _openai_error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "error", "param": None, "code": None}}


def _anthropic_error(message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": "api_error", "message": message}}


def _json(given: Mapping[str, Any] | str) -> str:
    return given if isinstance(given, str) else json.dumps(given)
