"""`WS /harness`: real servers, a real socket, the parrot behind it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents.desks import Desk
from support.servers import NotAdopted
from support.sums import SumsEnvironment
from support.waiting import wait_until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from openenv.agents import HarnessAction
from openenv.server.app import create_app
from openenv.types import Observation

Serve = Callable[[Any], str]
TURN_S = 15.0


class QuickDesk(Desk):
    """A desk whose parrot is soon given up."""

    def __init__(self) -> None:
        super().__init__(session_timeout_s=2.0, terminate_grace_s=0.2)


class EmptyDesk(Desk):
    """A desk whose parrot is nowhere to be found."""

    def __init__(self) -> None:
        super().__init__("--fails")


class PlainDesk(QuickDesk):
    """A desk that is kept in a worker process."""


@contextlib.contextmanager
def talking(url: str, path: str = "/harness") -> Iterator[ClientConnection]:
    with connect(url.replace("http", "ws") + path, proxy=None) as socket:
        yield socket


def heard(socket: ClientConnection) -> dict[str, Any]:
    frame: dict[str, Any] = json.loads(socket.recv(TURN_S))
    return frame


def say(socket: ClientConnection, content: str) -> list[dict[str, Any]]:
    """The events of a turn."""
    socket.send(json.dumps({"type": "message", "content": content}))
    return turn(socket)


def turn(socket: ClientConnection) -> list[dict[str, Any]]:
    events = [heard(socket)]
    while events[-1]["type"] not in ("turn_complete", "error", "protocol_error"):
        events.append(heard(socket))
    return events


def production(cls: Any, **options: Any) -> Any:
    return create_app(cls, mode="production", **options)


@pytest.mark.parametrize("is_adopted", [True, False])
def test_a_turn_is_streamed_as_it_happens(serve: Serve, is_adopted: bool) -> None:
    app = production(Desk)
    with talking(serve(app if is_adopted else NotAdopted(app))) as socket:
        begun = heard(socket)
        assert begun["type"] == "session_started"
        assert begun["data"]["harness"] == "parrot" and begun["data"]["session_id"]
        events = say(socket, "hello")
        assert [event["type"] for event in events] == ["text_output", "turn_complete"]
        assert set(events[0]) == {"type", "timestamp", "data"}
        assert events[0]["data"] == {"text": "1: hello"}
        events = say(socket, 'call ring {"times": 2}')
        assert [event["type"] for event in events] == ["tool_call", "tool_result", "turn_complete"]
        assert say(socket, "again")[-1]["data"]["response"].endswith("again")


@pytest.mark.slow
def test_messages_wait_for_their_turn(serve: Serve) -> None:
    with talking(serve(production(Desk))) as socket:
        heard(socket)
        for word in ("one", "two", "three"):
            socket.send(json.dumps({"type": "message", "content": word}))
        said = [turn(socket)[-1]["data"]["response"] for _ in range(3)]
    assert said[-1] == "I have heard one, two, three"


def test_frames_that_are_no_message_are_said_so_and_the_conversation_goes_on(serve: Serve) -> None:
    wrong = [
        ("x", "INVALID_JSON"),
        ("[1]", "VALIDATION_ERROR"),
        ('{"type": "reset"}', "VALIDATION_ERROR"),
        ('{"type": "message"}', "VALIDATION_ERROR"),
        ('{"type": "message", "content": 1}', "VALIDATION_ERROR"),
    ]
    with talking(serve(production(Desk))) as socket:
        heard(socket)
        for frame, code in wrong:
            socket.send(frame)
            answer = heard(socket)
            assert (answer["type"], answer["data"]["code"]) == ("protocol_error", code)
        assert say(socket, "hello")[-1]["data"]["response"] == "I have heard hello"


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "told"),
    [("die", "ended in the middle"), ("hang", "exceeded 2 s"), ("garbage", "no event")],
)
def test_a_turn_that_fails_says_so_and_closes(serve: Serve, message: str, told: str) -> None:
    with talking(serve(production(QuickDesk))) as socket:
        heard(socket)
        end = say(socket, message)[-1]
        assert end["type"] == "error" and end["data"]["recoverable"] is False
        assert told in end["data"]["message"]
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(TURN_S)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1000


def test_after_the_end_of_the_episode_nothing_is_begun(serve: Serve) -> None:
    with talking(serve(production(Desk))) as socket:
        heard(socket)
        assert say(socket, "bye")[-1]["data"]["done"] is True
        over = say(socket, "hello")[-1]
        assert (over["type"], over["data"]["code"]) == ("protocol_error", "EPISODE_OVER")


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
@pytest.mark.slow
def test_who_leaves_takes_the_agent_along(serve: Serve) -> None:
    url = serve(production(QuickDesk))
    with talking(url) as socket:
        heard(socket)
        child = say(socket, "child")[-1]["data"]["response"]
        socket.send(json.dumps({"type": "message", "content": "hang"}))
    wait_until(lambda: not Path(f"/proc/{child}").exists(), 10, lambda: "the agent is left")
    with talking(url) as socket:  # there is one slot, and it is free again
        assert heard(socket)["type"] == "session_started"


def test_a_harness_that_does_not_start_is_an_error_that_says_why(serve: Serve) -> None:
    with talking(serve(production(EmptyDesk))) as socket:
        refused = heard(socket)
        assert refused["type"] == "error" and "no licence" in refused["data"]["message"]
        with pytest.raises(ConnectionClosed):
            socket.recv(TURN_S)


def test_a_full_server_says_so_in_the_words_of_ws(serve: Serve) -> None:
    url = serve(production(Desk))
    with talking(url) as first, talking(url) as second:
        assert heard(first)["type"] == "session_started"
        refused = heard(second)
        assert refused["data"]["code"] == "CAPACITY_REACHED"


@pytest.mark.parametrize("mode", ["simulation", "production"])
def test_it_is_there_in_production_only_and_for_agents_only(serve: Serve, mode: str) -> None:
    served = Desk if mode == "simulation" else SumsEnvironment
    with pytest.raises(InvalidStatus), talking(serve(create_app(served, mode=mode))):
        pass


def test_a_factory_that_does_not_say_what_it_makes_is_asked(serve: Serve) -> None:
    def undeclared() -> Any:
        return Desk()

    def other() -> Any:
        return SumsEnvironment()

    app = create_app(undeclared, HarnessAction, Observation, mode="production")
    with talking(serve(app)) as socket:
        assert heard(socket)["type"] == "session_started"
    app = create_app(other, HarnessAction, Observation, mode="production")
    with talking(serve(app)) as socket:
        refused = heard(socket)
        assert refused["type"] == "error" and "no agent runs" in refused["data"]["message"]


@pytest.mark.slow
def test_an_agent_in_a_worker_process_tells_of_its_turn_at_the_end(serve: Serve) -> None:
    with talking(serve(production(PlainDesk, workers=1))) as socket:
        assert heard(socket)["data"]["harness"] == "parrot"
        events = say(socket, 'call ring {"times": 2}')
        assert [event["type"] for event in events] == ["tool_call", "tool_result", "turn_complete"]
        end = say(socket, "die")[-1]
        assert end["type"] == "error"
