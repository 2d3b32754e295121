"""Tools: old clients on our servers, ours on old servers, and old environments on ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echo_env.server.echo_environment import LENGTH_REWARD
from openenv import CapacityError, NotSupported, ToolFailed
from openenv.client import MCPToolClient
from openenv.reward import REWARD_INFO
from openenv.tools import CallToolAction

# The first test may have to install the public package.
pytestmark = [pytest.mark.compat, pytest.mark.timeout(900)]

Serve = Callable[..., list[str]]
Play = Callable[..., Any]

WHOSE = ("peer", "ours")
TARGETS = ("tools_environment:app", "tools_environment:small", "peer_environment:toy")


@pytest.fixture(scope="module")
def urls(serve: Serve) -> dict[str, list[str]]:
    """The shop, the small shop, and an environment without tools, on either server."""
    return {whose: serve(whose, *TARGETS) for whose in WHOSE}


# ------------------------------------------------------------------ one program, both packages


@pytest.fixture(scope="module")
def program(urls: dict[str, list[str]], play: Play) -> dict[tuple[str, str], Any]:
    """What a program written for the public package prints, by whose client and server."""
    return {
        (client, server): play(client, "tools_client.py", urls[server][0], urls[server][2])
        for client in WHOSE
        for server in WHOSE
    }


PARTS = ["sync", "async with", "connect", "side by side", "tasks", "without tools", "modes"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "pair", [("ours", "ours"), ("ours", "peer"), ("peer", "ours")], ids="-on-".join
)
def test_a_program_that_uses_tools_does_the_same(
    program: dict[tuple[str, str], Any], pair: tuple[str, str], part: str
) -> None:
    assert program[pair][part] == program["peer", "peer"][part]


def test_the_program_has_no_other_parts(program: dict[tuple[str, str], Any]) -> None:
    assert list(program["peer", "peer"]) == PARTS


def test_a_call_of_a_tool_is_no_step(program: dict[tuple[str, str], Any]) -> None:
    seen = program["peer", "peer"]["sync"]
    assert seen[2] == {"article": "milk", "basket": 1}
    assert seen[4]["step_count"] == 0
    assert seen[5][1]["result"]["data"] == {"article": "tea", "basket": 3}
    assert seen[8]["step_count"] == 3


# ------------------------------------------------------------------ ours, on either server


@pytest.mark.parametrize("whose", WHOSE)
def test_tools_and_steps_take_one_session(urls: dict[str, list[str]], whose: str) -> None:
    small = urls[whose][1]
    with MCPToolClient(base_url=small).sync() as env:
        env.reset()
        assert env.call_tool("add_to_basket", article="milk")["basket"] == 1
        call = CallToolAction(tool_name="add_to_basket", arguments={"article": "tea"})
        assert env.step(call).observation.result["data"]["basket"] == 2
        other = MCPToolClient(base_url=small, queue_timeout_s=0)
        with other.sync() as second, pytest.raises(CapacityError):
            second.list_tools()


@pytest.mark.parametrize("whose", WHOSE)
def test_in_simulation_a_call_is_a_step(urls: dict[str, list[str]], whose: str) -> None:
    client = MCPToolClient(base_url=urls[whose][0])
    client.use_production_mode = False
    with client.sync() as env:
        env.reset()
        assert env.call_tool("add_to_basket", article="milk")["basket"] == 1
        assert [tool.name for tool in env.list_tools()] == ["add_to_basket", "total", "greet"]
        assert env.state().step_count == 2
        with pytest.raises(ToolFailed, match="Unknown tool: 'nope'") as failed:
            env.call_tool("nope")
        assert (failed.value.tool_name, failed.value.error_type) == ("nope", "tool_not_found")


@pytest.mark.parametrize("whose", WHOSE)
def test_an_environment_without_tools_says_so(urls: dict[str, list[str]], whose: str) -> None:
    with MCPToolClient(base_url=urls[whose][2]).sync() as env:
        with pytest.raises(NotSupported, match="does not support MCP: it has actions"):
            env.list_tools()
        assert env.reset().observation.text == "reset easy"


@pytest.mark.parametrize("whose", WHOSE)
def test_what_a_tool_says_is_the_text_of_the_error(urls: dict[str, list[str]], whose: str) -> None:
    with MCPToolClient(base_url=urls[whose][0]).sync() as env:
        with pytest.raises(ToolFailed) as failed:
            env.call_tool("nope")
        assert str(failed.value) == "Unknown tool: 'nope'"
        assert env.call_tool("greet", name="you") == "Hello, you!", "an argument called `name`"


# ------------------------------------------------------------------ our echo


@pytest.fixture(scope="module")
def echoed(serve: Serve, play: Play) -> dict[str, Any]:
    """What either package's client saw of our echo environment."""
    (url,) = serve("ours", "echo_env.server.app:app")
    return {whose: play(whose, "echo_client.py", url) for whose in WHOSE}


@pytest.mark.parametrize("whose", WHOSE)
def test_a_client_of_tools_talks_to_our_echo(echoed: dict[str, Any], whose: str) -> None:
    reset, tools, hi, length, state, stepped, wrong, said, last = echoed[whose]["sync"]
    ready = "Echo environment ready!"
    told = {"spec": LENGTH_REWARD.as_data()}
    assert reset[1]["metadata"] == {"status": "ready", "message": ready, REWARD_INFO: told}
    assert [tool[:2] for tool in tools] == [
        ["echo_message", "Echo back the provided message."],
        ["echo_with_length", "Echo back the message with its length."],
    ]
    assert (hi, length) == ("hi", {"message": "abc", "length": 3})
    assert (state["episode_id"], state["step_count"]) == ("e", 0)
    assert (stepped[0], stepped[1]["result"]["data"]) == ("CallToolObservation", "hi")
    assert wrong[1]["error"]["error_type"] == "invalid_args"
    assert (said[1]["echoed_message"], said[2]) == ("hello", 0.5)
    assert last["step_count"] == 3


def test_both_clients_see_the_same_of_our_echo(echoed: dict[str, Any]) -> None:
    assert echoed["ours"] == echoed["peer"]
    for seen in echoed.values():
        assert seen["async"] == seen["sync"]
        assert seen["side by side"] == [seen["sync"]] * 8
