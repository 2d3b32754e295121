"""What the page is made of, and by which headers it is kept apart from other pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from support.servers import serving
from support.shown import Talker
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from openenv import create_app
from openenv.web import pages
from openenv.web.pages import ASSETS
from openenv.web.watch import MAX_ID, MAX_LISTED


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("ENABLE_WEB_INTERFACE", "true")
    with serving(create_app(Talker, max_concurrent_envs=500)) as url:
        yield url


def test_the_page_runs_its_own_scripts_only_and_is_in_no_frame_of_others(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = httpx.get(f"{url}/web/").headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["connect-src"] == rules["frame-ancestors"] == "'self'"
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    monkeypatch.setenv("SPACE_ID", "someone/talker")
    policy = httpx.get(f"{url}/web/").headers["content-security-policy"]
    assert policy.endswith("frame-ancestors 'self' https://huggingface.co https://*.hf.space")
    about = httpx.get(f"{url}/web/about").json()
    assert 'AutoEnv.from_env("someone/talker")' in json.dumps(about["snippets"]).replace("\\", "")


@pytest.mark.extended("of the web page; test_page.py plays an episode")
@pytest.mark.slow
def test_each_file_is_served_as_what_it_is_and_nothing_else_is(url: str) -> None:
    page = httpx.get(f"{url}/web/").text
    assert "<script>" not in page
    assert " on" not in page.replace(" one", "")  # no handlers
    for file in ASSETS.iterdir():
        if file.is_file():
            answer = httpx.get(f"{url}/web/assets/{file.name}")
            assert answer.status_code == 200
            assert answer.headers["x-content-type-options"] == "nosniff"
            tag = {"If-None-Match": answer.headers["etag"]}
            assert httpx.get(f"{url}/web/assets/{file.name}", headers=tag).status_code == 304
    for path in ("nothing.js", "..%2fpages.py", "../pages.py", "%2e%2e/about.py", "", "vendor"):
        assert httpx.get(f"{url}/web/assets/{path}").status_code == 404, path


def test_names_that_are_asked_for_are_not_kept(url: str) -> None:
    with httpx.Client() as http:
        for number in range(50):
            for name in (f"none-{number}.js", "n" * 5000, "a%00b", "%ff", f"vendor/{number}/x"):
                assert http.get(f"{url}/web/assets/{name}").status_code == 404
    assert set(pages._files()) >= {"index.html", "page.js"}
    assert pages._read.cache_info().currsize <= len(pages._files())


def test_pages_of_others_can_neither_act_nor_watch(url: str) -> None:
    other = {"Origin": "https://elsewhere.example"}
    assert httpx.post(f"{url}/web/reset", headers=other).status_code == 403
    assert httpx.get(f"{url}/web/about", headers=other).status_code == 403
    for path in ("/web/watch", "/ws/ui"):
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws{url[4:]}{path}", additional_headers=other)
        assert refused.value.response.status_code == 403


def test_without_it_being_asked_for_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENABLE_WEB_INTERFACE", raising=False)
    with serving(create_app(Talker)) as url:
        for path in ("/", "/web", "/web/", "/web/about", "/web/assets/page.js"):
            assert httpx.get(url + path).status_code == 404


@pytest.mark.parametrize(
    ("root_path", "headers", "location"),
    [
        ("", {}, "/web/"),
        ("/env", {}, "/env/web/"),
        ("", {"X-Forwarded-Prefix": "/spaces/mine/"}, "/spaces/mine/web/"),
        ("/env", {"X-Forwarded-Prefix": "/outer"}, "/outer/env/web/"),
        ("/outer/env", {"X-Forwarded-Prefix": "/outer"}, "/outer/env/web/"),
        ("", {"X-Forwarded-Prefix": "//elsewhere.org"}, "/web/"),
        ("", {"X-Forwarded-Prefix": "https://elsewhere.org"}, "/web/"),
    ],
)
def test_the_page_is_found_below_the_prefix_of_a_proxy(
    root_path: str, headers: dict[str, str], location: str
) -> None:
    app = FastAPI()
    app.mount(root_path, create_app(Talker, web=True))
    client = TestClient(app, follow_redirects=False)
    for path in ("/web", "/"):
        answer = client.get(root_path + path, headers=headers)
        assert (answer.status_code, answer.headers["location"]) == (307, location)


def test_a_route_of_old_may_be_taken_away_and_another_put_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ENABLE_WEB_INTERFACE", "true")
    app = create_app(Talker)
    app.router.routes[:] = [r for r in app.router.routes if getattr(r, "path", "") != "/web"]

    @app.get("/web")
    def own() -> str:
        return "my own page"

    with serving(app) as url:
        assert httpx.get(f"{url}/web").json() == "my own page"


def test_the_id_of_a_session_to_be_followed_is_read_so_far_and_no_further(url: str) -> None:
    def follow(session_id: object) -> str:
        return json.dumps({"type": "follow", "data": {"session_id": session_id}})

    with (
        connect(f"ws{url[4:]}/web/watch") as watch,
        connect(f"ws{url[4:]}/ws", subprotocols=["openenv.v1.json"]) as socket,  # type: ignore[list-item]
    ):
        socket.recv(10)
        socket.send(json.dumps({"type": "open", "session": 1}))
        socket.recv(10)
        for wrong in ("x" * 60_000, "\x1b" * 10_000, [["y"] * 10_000], {"z" * 60_000: 1}, 10**4000):
            watch.send(follow(wrong))
            while json.loads(frame := watch.recv(10))["type"] == "sessions":
                pass
            assert json.loads(frame)["type"] == "error" and len(frame) < 6 * 2 * MAX_ID + 500, frame
            assert "\x1b" not in str(frame)
        while (told := json.loads(watch.recv(10)))["type"] != "sessions" or not told["data"][
            "sessions"
        ]:
            pass
        watch.send(follow(told["data"]["sessions"][0]["session_id"]))
        while json.loads(watch.recv(10))["type"] != "following":
            pass


def test_of_many_sessions_those_that_were_busy_last_are_listed(url: str) -> None:
    with connect(f"ws{url[4:]}/ws", subprotocols=["openenv.v1.json"]) as socket:  # type: ignore[list-item]
        socket.recv(10)
        socket.send(json.dumps([{"type": "open", "session": n} for n in range(1, 301)]))
        opened = 0
        while opened < 300:
            frame = json.loads(socket.recv(10))
            opened += len(frame) if isinstance(frame, list) else 1
        with connect(f"ws{url[4:]}/web/watch") as watch:
            told = json.loads(watch.recv(10))["data"]
            assert (told["total"], len(told["sessions"])) == (300, MAX_LISTED)
            watch.send("{")
            watch.send(json.dumps({"type": "follow", "data": {"session_id": "nobody"}}))
            said: list[dict[str, Any]] = []
            while len(said) < 2:
                frame = json.loads(watch.recv(10))
                said += [frame] if frame["type"] != "sessions" else []
            assert [one["type"] for one in said] == ["error", "error"]
            assert "nobody" in said[1]["data"]["message"]
