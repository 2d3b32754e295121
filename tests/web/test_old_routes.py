"""`/web/reset`, `/web/step`, `/web/state`, `/ws/ui`: what pages and programs of old use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest
from support.servers import serving
from support.shown import Say, Talker
from websockets.sync.client import connect

from openenv import create_app
from openenv.web.episode import MAX_ACTION_LOGS, EpisodeNotStarted, WebInterfaceManager


@pytest.fixture(params=[None, 1], ids=["here", "workers"])
def http(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    monkeypatch.setenv("ENABLE_WEB_INTERFACE", "true")
    app = create_app(Talker, max_concurrent_envs=1, workers=request.param)
    with serving(app) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client


def test_an_episode_is_played_without_naming_a_session(http: httpx.Client) -> None:
    assert http.get("/web/state").status_code == 409
    assert http.get("/web/state").json() == {"detail": "no episode has begun; call reset first"}
    first = http.post("/web/reset", json={"words": ["so"]})
    words = {"metadata": {}, "words": ["so"]}
    assert first.json() == {"observation": words, "reward": None, "done": False}
    step = http.post("/web/step", json={"action": {"word": "hi"}}).json()
    assert step["observation"]["words"] == ["so", "hi"]
    assert (step["reward"], step["done"]) == (0.5, False)
    # Another program, which has no cookies of the first, is in the same episode.
    assert httpx.get(f"{http.base_url}/web/state").json()["step_count"] == 2
    told = http.post("/web/step", json={"message": {"role": "user", "content": "bye"}}).json()
    assert told["observation"]["words"] == ["so", "hi", "BYE"]
    assert http.post("/web/reset").json()["observation"]["words"] == []


def test_what_is_wrong_is_told_and_the_episode_goes_on(http: httpx.Client) -> None:
    http.post("/web/reset").raise_for_status()
    for body, loc in (
        ({"action": {"wort": "hi"}}, "word"),
        ({"action": 7}, "action"),
        ({}, "action"),
        ([], "body"),
    ):
        answer = http.post("/web/step", json=body)
        assert answer.status_code == 422, body
        assert loc in json.dumps(answer.json()["detail"])
    assert http.post("/web/step", content=b"{").status_code == 422
    assert http.post("/web/reset", json={"colour": 1}).status_code == 200  # as of old: ignored
    assert http.post("/web/step", json={"action": {"word": "hi"}}).status_code == 200


def test_the_episode_counts_as_a_session_and_an_idle_one_makes_room(http: httpx.Client) -> None:
    http.post("/web/reset").raise_for_status()
    with connect(f"ws{str(http.base_url)[4:]}/ws") as socket:
        socket.send('{"type": "reset"}')
        assert json.loads(socket.recv(10))["type"] == "observation"
        assert http.post("/web/reset").status_code == 503
        # What was lost is not gone on with in silence.
        lost = http.post("/web/step", json={"action": {"word": "hi"}})
        assert (lost.status_code, lost.json()["code"]) == (410, "SESSION_ERROR")


def test_those_who_listen_are_told_of_each_change(http: httpx.Client) -> None:
    with connect(f"ws{str(http.base_url)[4:]}/ws/ui") as socket:
        first = json.loads(socket.recv(10))
        assert first["type"] == "state_update"
        assert first["episode_state"]["is_reset"]
        http.post("/web/reset").raise_for_status()
        begun = json.loads(socket.recv(10))["episode_state"]
        assert begun["current_observation"]["words"] == []
        http.post("/web/step", json={"action": {"word": "hi"}}).raise_for_status()
        state = json.loads(socket.recv(10))["episode_state"]
        (log,) = state["action_logs"]
        assert (log["action"], log["reward"], log["step_count"]) == ({"word": "hi"}, 0.5, 1)
        assert (state["is_reset"], state["step_count"]) == (False, 1)


def test_a_manager_of_an_instance_may_be_used_from_any_loop() -> None:
    environment = Talker()
    manager = WebInterfaceManager(environment, Say, type(environment.reset()))
    assert manager.env is environment
    with pytest.raises(EpisodeNotStarted):
        manager.get_state()
    asyncio.run(manager.reset_environment({"words": ["a"]}))
    told = asyncio.run(manager.step_environment({"word": "b"}))
    assert told["observation"]["words"] == ["a", "b"]
    assert manager.get_state()["step_count"] == 2
    assert manager.episode_state.action_logs[0].action == {"word": "b"}
    asyncio.run(manager.aclose())


def test_what_is_told_is_bounded() -> None:
    manager = WebInterfaceManager(Talker, Say, type(Talker().reset()))

    async def play() -> None:
        await manager.reset_environment()
        for _ in range(40):
            await manager.step_environment({"word": "x" * 10_000})
        await manager.aclose()

    asyncio.run(play())
    logs = manager.episode_state.action_logs
    assert manager.episode_state.step_count == 40
    assert 1 <= len(logs) < 40 <= MAX_ACTION_LOGS
    assert logs[-1].step_count == 40
    assert len(manager.episode_state.model_dump_json()) < 4 * 2**20
