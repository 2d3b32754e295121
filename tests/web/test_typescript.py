"""The client in TypeScript, compiled, in a browser: pages drive environments."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Browser, Page
from support.environments import Counter, Do, Progress, Seen
from support.servers import serving
from support.typescript import built

from openenv import create_app
from openenv.server import Key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

MODULES = {
    "openenv-client": "/dist/index.js",
    "openenv-client/msgpack": "/dist/msgpack.js",
    "@msgpack/msgpack": "/node_modules/@msgpack/msgpack/dist.esm/index.mjs",
}
PAGE = f'<script type="importmap">{json.dumps({"imports": MODULES})}</script>'


class Files(SimpleHTTPRequestHandler):
    """The package's files, and an empty page that finds them."""

    def do_GET(self) -> None:
        if self.path != "/":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    handler = functools.partial(Files, directory=str(built()))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(5)


@pytest.fixture
def page(chromium: Browser, origin: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setenv("OPENENV_ALLOWED_ORIGINS", origin)
    context = chromium.new_context()
    page = context.new_page()
    page.goto(origin)
    yield page
    context.close()


EPISODE = """
async ([url, codec, apiKey]) => {
  const { EnvClient, json } = await import("openenv-client");
  const { msgpack } = await import("openenv-client/msgpack");
  const codecs = { msgpack: [msgpack], json: [json], none: [] }[codec];
  const env = await EnvClient.connect(url, apiKey ? { codecs, apiKey } : { codecs });
  try {
    await env.reset({ seed: 1 });
    const steps = [1, 2, 3].map((value) => env.step({ what: "echo", value }));
    const values = (await Promise.all(steps)).map(({ observation }) => observation.value);
    return { version: env.version, values, state: await env.state() };
  } finally {
    await env.close();
  }
}
"""


@pytest.mark.extended("of the web page; test_page.py plays an episode")
@pytest.mark.parametrize(("codec", "version"), [("msgpack", 1), ("json", 1), ("none", 0)])
def test_a_page_plays_an_episode(page: Page, codec: str, version: int) -> None:
    with serving(create_app(Counter, Do, Seen, state_cls=Progress)) as url:
        played = page.evaluate(EPISODE, [url, codec, None])
    assert played["version"] == version
    assert played["values"] == [1, 2, 3]
    assert played["state"]["step_count"] == 3


def test_a_page_has_a_key(page: Page) -> None:
    key = "the-trainers-key-0123456789"
    with serving(create_app(Counter, Do, Seen, state_cls=Progress, keys=[Key(key)])) as url:
        assert page.evaluate(EPISODE, [url, "json", key])["values"] == [1, 2, 3]


class OnlyVersion0:
    """Middleware that chooses no subprotocol, as a server of the public package."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            scope["subprotocols"] = []
        await self.app(scope, receive, send)


@pytest.mark.extended("of the web page; test_page.py plays an episode")
def test_a_page_plays_with_a_server_of_version_0(page: Page) -> None:
    app: Callable[..., Any] = create_app(Counter, Do, Seen, state_cls=Progress)
    with serving(OnlyVersion0(app)) as url:
        played = page.evaluate(EPISODE, [url, "json", None])
    assert played["version"] == 0 and played["values"] == [1, 2, 3]
