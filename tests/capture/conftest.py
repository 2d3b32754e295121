"""A proxy in front of a server that tells tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from support.token_server import TokenServer, token_server

from openenv.capture import CaptureServer, CaptureSession


class Proxied:
    """A proxy, the server behind it, and one session."""

    def __init__(self, server: CaptureServer, upstream: TokenServer) -> None:
        self.server = server
        self.upstream = upstream
        self.session: CaptureSession = server.registry.create()
        self.key = self.session.session_id
        self.http = httpx.Client(base_url=server.url, trust_env=False, timeout=10)

    def post(self, path: str, body: Any, key: str | None = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {key or self.key}"}
        return self.http.post(path, json=body, headers=headers)

    def chat(self, text: str = "hello", **more: Any) -> httpx.Response:
        messages = more.pop("messages", [{"role": "user", "content": text}])
        body = {"model": "gpt", "messages": messages, **more}
        return self.post("/v1/chat/completions", body)


Start = Callable[..., Proxied]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a proxy: `start(answer, upstream options as a dict, options of the proxy)`."""
    with contextlib.ExitStack() as stack:

        def start(
            answer: Any = "ok", upstream: dict[str, Any] | None = None, **options: Any
        ) -> Proxied:
            behind = stack.enter_context(token_server(answer, **(upstream or {})))
            server = CaptureServer(llm_url=behind.url, model="toy", port=0, **options)
            proxied = Proxied(stack.enter_context(server), behind)
            stack.callback(proxied.http.close)
            return proxied

        yield start
