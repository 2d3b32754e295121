"""The request `view`: what an environment has a page show, and what a message is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.dice import Dice
from support.servers import serving
from support.shown import AwaitingTalker, Talker
from websockets.sync.client import connect

from openenv import create_app


class Wire:
    """A client that speaks version 1 as JSON."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._number = 0

    def ask(self, kind: str, data: dict[str, Any] | None = None) -> Any:
        self._number += 1
        told = {} if data is None else {"data": data}
        self._socket.send(json.dumps({"type": kind, "session": 1, "id": self._number, **told}))
        while True:
            frame = json.loads(self._socket.recv(10))
            for message in frame if isinstance(frame, list) else [frame]:
                if message.get("id") == self._number:
                    return message


@pytest.fixture(params=["sync", "async", "workers"])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    cls = AwaitingTalker if request.param == "async" else Talker
    workers = 1 if request.param == "workers" else None
    with (
        serving(create_app(cls, workers=workers)) as url,
        connect(f"ws{url[4:]}/ws", subprotocols=["openenv.v1.json"]) as socket,  # type: ignore[list-item]
    ):
        assert "view" in json.loads(socket.recv(10))["data"]["capabilities"]
        socket.send(json.dumps({"type": "open", "session": 1}))
        yield Wire(socket)


def test_a_view_has_html_and_moves_of_the_last_observation(wire: Wire) -> None:
    assert wire.ask("view")["data"] == {"html": None, "moves": [], "action": None}
    wire.ask("reset")
    wire.ask("step", {"word": "hi"})
    assert wire.ask("view")["data"] == {
        "html": "<b>1 0.5 False</b>",
        "moves": [
            {"label": "Greet", "action": {"word": "hello"}},
            {"label": "Leave", "action": {"metadata": {}, "word": "bye"}},
        ],
        "action": None,
    }


def test_a_message_is_the_action_that_the_environment_makes_of_it(wire: Wire) -> None:
    wire.ask("reset")
    told = wire.ask("view", {"message": {"role": "user", "content": "hi"}})
    assert told["data"]["action"] == {"metadata": {}, "word": "HI"}
    assert wire.ask("step", told["data"]["action"])["data"]["observation"]["words"] == ["HI"]


def test_an_episode_that_was_left_by_a_restore_is_not_shown(wire: Wire) -> None:
    wire.ask("reset")
    wire.ask("step", {"word": "hi"})
    stored = wire.ask("snapshot")["data"]
    wire.ask("step", {"word": "there"})
    assert wire.ask("restore", stored)["data"]["step_count"] == 1
    assert wire.ask("view")["data"] == {"html": None, "moves": [], "action": None}
    wire.ask("step", {"word": "again"})
    assert wire.ask("view")["data"]["html"] == "<b>2 0.5 False</b>"


def test_what_a_method_may_not_return_is_an_error_and_the_session_goes_on(wire: Wire) -> None:
    for first, words in (
        ("bad html", "render_web returned int; it must return str"),
        ("bad moves", "web_actions returned 'hello'; it must return pairs of a label and an"),
        ("raises", "OSError in view"),
    ):
        wire.ask("reset", {"words": [first]})
        answer = wire.ask("view")
        assert (answer["type"], answer["data"]["code"]) == ("error", "EXECUTION_ERROR")
        assert words in answer["data"]["message"]
        assert wire.ask("step", {"word": "on"})["data"]["observation"]["words"] == [first, "on"]
    wire.ask("reset", {"words": ["no html"]})
    assert wire.ask("view")["data"]["html"] is None


def test_an_environment_that_says_nothing_is_shown_as_it_is() -> None:
    with (
        serving(create_app(Dice)) as url,
        connect(f"ws{url[4:]}/ws", subprotocols=["openenv.v1.json"]) as socket,  # type: ignore[list-item]
    ):
        socket.send(json.dumps({"type": "open", "session": 1}))
        wire = Wire(socket)
        wire.ask("reset")
        assert wire.ask("view")["data"] == {"html": None, "moves": [], "action": None}
        told = wire.ask("view", {"message": "hi"})["data"]
        assert told["action"] == {"message": "hi"}
