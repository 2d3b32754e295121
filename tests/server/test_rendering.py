"""`GET /render`: what an environment draws, for browsers and whatever else can show a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from support.dice import Dice
from support.drawn import GIF, SVG, Easel, EaselEnv, Sketches, read_png
from support.servers import serving

from openenv import Limits, NotSupported, create_app
from openenv.arrays import is_pixels, write_png
from openenv.client.mcp import MCPToolClient
from openenv.protocol.http import SESSION_HEADER
from openenv.server import Key, Role

Serve = Callable[[Any], str]

FILES = {
    "text": ("text/plain; charset=utf-8", "steps: 0 ☃".encode()),
    "svg": ("image/svg+xml", SVG.encode()),
    "xml": ("image/svg+xml", f'<?xml version="1.0"?>{SVG}'.encode()),
    "gif": ("image/gif", GIF),
}


@pytest.fixture(params=[None, 1], ids=["here", "workers"])
def http(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """A client with a cookie jar, of a server of easels."""
    patience_s = 30  # a worker process may take a while to start
    with (
        serving(create_app(Easel, workers=request.param)) as url,
        httpx.Client(base_url=url, timeout=patience_s) as http,
    ):
        yield http


def test_each_form_is_a_file_of_its_own_type(http: httpx.Client) -> None:
    for what, (media_type, content) in FILES.items():
        http.post("/reset", json={"what": what}).raise_for_status()
        answer = http.get("/render")
        assert answer.status_code == 200
        assert (answer.headers["content-type"], answer.content) == (media_type, content)


def test_an_array_is_a_png(http: httpx.Client) -> None:
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3)
    alpha = np.full((2, 2, 4), 128, np.uint8)
    for what, pixels in (("grey", grey), ("alpha", alpha)):
        http.post("/reset", json={"what": what}).raise_for_status()
        answer = http.get("/render")
        assert answer.headers["content-type"] == "image/png"
        assert np.array_equal(read_png(answer.content), pixels)


def test_the_session_is_named_by_cookie_or_header(http: httpx.Client) -> None:
    session = http.post("/reset").headers[SESSION_HEADER]
    http.post("/step", json={"action": {"what": "text"}}).raise_for_status()
    assert http.get("/render").text == "steps: 1 ☃"
    named = httpx.get(f"{http.base_url}/render", headers={SESSION_HEADER: session})
    assert (named.text, named.headers[SESSION_HEADER]) == ("steps: 1 ☃", session)
    unknown = httpx.get(f"{http.base_url}/render", headers={SESSION_HEADER: "nobody"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "SESSION_ERROR")
    # One that names none sees an environment of its own, which was never reset.
    fresh = httpx.get(f"{http.base_url}/render")
    assert "nothing to see before the first reset" in fresh.json()["detail"]
    assert SESSION_HEADER not in fresh.headers


def test_a_drawing_that_fails_is_an_error_and_the_session_goes_on(http: httpx.Client) -> None:
    http.post("/reset").raise_for_status()
    for what, status, code, words in (
        ("raise", 500, "EXECUTION_ERROR", "OSError in render"),
        ("nothing", 500, "EXECUTION_ERROR", "render returned NoneType"),
        ("surrogate", 500, "EXECUTION_ERROR", "cannot be sent"),
        ("cannot", 501, "NOT_SUPPORTED", "no package to draw with"),
    ):
        http.post("/step", json={"action": {"what": what}}).raise_for_status()
        answer = http.get("/render")
        assert (answer.status_code, answer.json()["code"]) == (status, code), what
        assert words in answer.json()["detail"] and "secret" not in answer.text
    http.post("/step", json={"action": {}}).raise_for_status()
    assert http.get("/render").text == "steps: 5 ☃"


def test_an_environment_without_it_says_so(serve: Serve) -> None:
    answer = httpx.get(serve(create_app(Dice)) + "/render")
    assert (answer.status_code, answer.json()["feature"]) == (501, "render")


def test_no_script_of_a_drawing_is_run(http: httpx.Client) -> None:
    http.post("/reset", json={"what": "svg"}).raise_for_status()
    headers = http.get("/render").headers
    assert headers["content-security-policy"].startswith("sandbox; default-src 'none';")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_one_that_is_too_large_is_refused(serve: Serve) -> None:
    url = serve(create_app(Easel, limits=Limits(max_message_bytes=2_000_000)))
    with httpx.Client(base_url=url) as http:
        http.post("/reset", json={"what": "large"}).raise_for_status()
        answer = http.get("/render").json()
        assert (answer["code"], answer["size"], answer["limit"]) == (
            "TOO_LARGE",
            3_000_000,
            2_000_000,
        )


def test_it_is_described(serve: Serve) -> None:
    described = httpx.get(serve(create_app(Easel)) + "/openapi.json").json()
    content = described["paths"]["/render"]["get"]["responses"]["200"]["content"]
    assert content.keys() == {"text/plain", "image/svg+xml", "image/*"}


# ------------------------------------------------------------------ who sees it


def test_an_agent_never_does(serve: Serve) -> None:
    keys = [Key("planted-trainers-key", name="t"), Key("planted-watchers-key", Role.OBSERVER, "w")]
    url = serve(create_app(Easel, keys=keys))
    with EaselEnv(url, api_key="planted-trainers-key").sync() as trainer:
        trainer.reset()
        assert trainer.render() == "steps: 0 ☃"
        access = trainer.agent_access()
        for headers in (access.headers, {"Authorization": "Bearer planted-watchers-key"}):
            for more in ({}, {SESSION_HEADER: access.session_id}):
                answer = httpx.get(f"{url}/render", headers={**headers, **more})
                assert (answer.status_code, answer.json()["code"]) == (403, "NOT_PERMITTED")
        session = {SESSION_HEADER: access.session_id}
        assert httpx.get(f"{url}/render", headers=session).status_code == 401


def test_a_tool_that_is_called_render_is_a_tool(serve: Serve) -> None:
    with MCPToolClient(serve(create_app(Sketches))).sync() as env:
        env.reset()
        with pytest.raises(NotSupported, match="no method 'render'"):
            env.render()
        assert env.call_tool("render", colour="red") == "drawn in red"


# ------------------------------------------------------------------ pixels


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (3, 5, 1), (3, 5, 3), (1, 7, 4)])
def test_pixels_are_written_as_png_and_read_again(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    assert np.array_equal(
        read_png(write_png(pixels)), pixels.squeeze(2) if 1 in shape[2:] else pixels
    )


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((2, 2, 2), np.uint8),
        np.zeros((0, 2, 3), np.uint8),
        np.zeros((2, 2, 3)),
        np.zeros((2, 2, 3, 1), np.uint8),
        np.zeros(3, np.uint8),
        np.uint8(3),
    ],
    ids=lambda value: str(value.shape),
)
def test_what_are_no_pixels_is_not_written(value: Any) -> None:
    assert not is_pixels(value)
    with pytest.raises(ValueError, match="is no picture"):
        write_png(value)
