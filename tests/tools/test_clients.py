"""Clients that are not ours play environments by MCP: the official SDK's, and FastMCP's."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import fastmcp
import httpx
import httpx2
import pytest
from mcp import Client, MCPDeprecationWarning, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import Subscription
from support import agents, workshop
from support.agents import CLIENTS, TESTS, Agent, Connect, over_stdio
from support.amounts import mostly_extended
from support.commands import COMMAND, environ, run_openenv
from support.waiting import eventually
from support.workshop import Street, Workshop
from support.zygote import PythonProcess

from openenv import ConcurrencyConfig, create_app
from openenv.execution.manager import SessionManager
from openenv.protocol.http import SESSION_HEADER
from openenv.server import Key
from openenv.server.mcp.bridge import OBSERVATION, README
from openenv.server.workers import managers_of
from openenv.tools import tool

pytestmark = pytest.mark.anyio

Serve = Callable[[Any], str]
WAYS = [(client, transport) for transport in ("http", "stdio") for client in CLIENTS]
WAYS += [("session", "stdio")]
UNKNOWN = -32602  # JSON-RPC's code for parameters that name nothing

WORLDS = Path(workshop.__file__)


def mcp(url: str) -> str:
    return f"{url}/mcp"


@pytest.fixture
def connect(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> Any:
    """Connect one of the clients to one of the environments, one of the ways."""
    client, transport = request.param
    open_client: Connect = agents.session if client == "session" else CLIENTS[client]

    def connected(cls: type) -> contextlib.AbstractAsyncContextManager[Agent]:
        if transport == "http":
            return open_client(mcp(serve(create_app(cls))))
        return open_client(over_stdio(f"{WORLDS}:{cls.__name__}", tmp_path))

    return connected


# Each client over HTTP, and one over standard streams, where a process is started for each test.
SHOWN = [(client, "http") for client in CLIENTS] + [("sdk", "stdio")]
each_way = pytest.mark.parametrize(
    "connect", mostly_extended(WAYS, SHOWN), indirect=True, ids="-".join
)


# ------------------------------------------------------------------ every client, every transport


@each_way
async def test_tools_are_listed_called_and_cancelled(connect: Any) -> None:
    async with connect(Workshop) as agent:
        tools = await agent.tools()
        assert set(tools) == {
            *("add", "picture", "fail", "wait", "block", "seen", "learn", "pretend")
        }
        add = tools["add"]
        assert (add["title"], add["description"]) == ("Add", "Add two numbers.")
        assert add["annotations"] == {"readOnlyHint": True}
        assert add["inputSchema"]["required"] == ["a"]
        assert add["inputSchema"]["properties"]["b"] == {
            "type": "number",
            "default": 1,
            "description": "What is added",
        }
        assert add["outputSchema"]["properties"] == {"result": {"type": "number"}}

        added = await agent.call("add", a=2, b=3)
        assert added["structuredContent"] == {"result": 5}
        assert added["content"] == [{"type": "text", "text": "5.0"}]
        assert not added["isError"]
        (picture,) = (await agent.call("picture"))["content"]
        assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
        assert base64.b64decode(picture["data"]).startswith(b"\x89PNG")

        failed = await agent.call("fail")
        assert failed["isError"] and failed["content"][0]["text"] == "ValueError: no such luck"
        refused = await agent.call("add", a="two")
        assert refused["isError"] and "a: Input should be a valid number" in str(refused)
        with pytest.raises(MCPError) as unknown:
            await agent.call("reset")
        assert unknown.value.code == UNKNOWN

        told = await agent.give_up("wait")
        assert told == ["running for 1 s"]
        seen = await agent.call("seen")
        assert seen["structuredContent"] == {"calls": 1, "cancelled": 1, "resets": 1}


@each_way
async def test_actions_are_tools_and_the_observation_a_resource(connect: Any) -> None:
    async with connect(Street) as agent:
        tools = await agent.tools()
        assert set(tools) == {"move", "say"}
        move, say = tools["move"], tools["say"]
        assert (move["title"], move["description"]) == ("Move", "Go one step.")
        assert move["annotations"]["title"] == "Move"
        assert set(move["inputSchema"]["properties"]) == {"direction"}
        assert move["inputSchema"]["properties"]["direction"]["enum"] == ["north", "south"]
        assert say["inputSchema"]["required"] == ["words"]
        assert set(move["outputSchema"]["properties"]) >= {"instruction", "place", "done"}
        assert not {"secret", "reward", "frame"} & set(move["outputSchema"]["properties"])

        moved = await agent.call("move", direction="south")
        shown = {"instruction": "Go south.", "place": 1, "done": False}
        assert moved["structuredContent"] == shown
        text, picture = moved["content"]
        assert json.loads(text["text"]) == shown
        assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
        assert moved["_meta"]["openenv/reward"] == 0.5
        assert "mirror" not in str(moved)

        refused = await agent.call("move", direction="up")
        assert refused["isError"] and "direction" in refused["content"][0]["text"]

        assert await agent.resources() == {OBSERVATION}
        (text, picture) = await agent.read(OBSERVATION)
        assert json.loads(text["text"]) == shown
        assert base64.b64decode(picture["blob"]).startswith(b"\x89PNG")
        with pytest.raises(MCPError) as unknown:
            await agent.read("openenv://nothing")
        assert unknown.value.code == UNKNOWN

        assert await agent.prompts() == {"task"}
        task, drawn = await agent.prompt("task")
        assert "Go south." in task["content"]["text"] and drawn["content"]["type"] == "image"
        with pytest.raises(MCPError) as unknown:
            await agent.prompt("nothing")
        assert unknown.value.code == UNKNOWN

        over = await agent.call("move", direction="south")
        assert over["_meta"] == {"openenv/done": True, "openenv/reward": 0.5} | {
            key: value for key, value in over["_meta"].items() if key.startswith("io.model")
        }
        again = await agent.call("move", direction="south")
        assert again["isError"] and "new episode" in again["content"][0]["text"]
        assert (await agent.call("move", direction="south"))["structuredContent"]["place"] == 1


# ------------------------------------------------------------------ what else there is to read


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_readme_of_a_package_is_a_resource(serve: Serve, client: str) -> None:
    from echo_env.server.echo_environment import EchoEnvironment

    async with CLIENTS[client](mcp(serve(create_app(EchoEnvironment)))) as agent:
        assert README in await agent.resources()
        (readme,) = await agent.read(README)
        assert readme["mimeType"] == "text/markdown" and readme["text"].startswith("# ")


# ------------------------------------------------------------------ lists that change


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_tool_that_is_new_is_told_of_in_a_session_of_mcp(
    serve: Serve, tmp_path: Path, transport: str
) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        told.put_nowait(getattr(message, "method", ""))

    target: Any = over_stdio(f"{WORLDS}:Workshop", tmp_path)
    if transport == "http":
        target = mcp(serve(create_app(Workshop)))
    async with Client(target, mode="legacy", message_handler=hear) as client:
        agent = Agent(client)
        tools = client.server_capabilities.tools
        assert tools is not None and tools.list_changed
        await agent.tools()
        while True:  # until the stream for what a server says by itself is open
            await agent.call("learn", name=f"skill_{told.qsize()}")
            with contextlib.suppress(asyncio.TimeoutError):
                assert await asyncio.wait_for(told.get(), 0.2) == "notifications/tools/list_changed"
                break
        assert "skill_0" in await agent.tools()


async def test_a_tool_that_is_new_is_told_of_to_those_who_listen(serve: Serve) -> None:
    url = mcp(serve(create_app(Workshop)))
    async with Client(url, cache=None) as client:
        agent, wanted = Agent(client), {"tools_list_changed": True}
        async with client.listen(resource_subscriptions=[OBSERVATION], **wanted) as heard:
            await agent.call("learn", name="whistle")
            events = [type(await _next(heard)).__name__ for _ in range(2)]
            assert set(events) == {"ToolsListChanged", "ResourceUpdated"}
            assert "whistle" in await agent.tools()


async def _next(heard: Subscription) -> Any:
    return await asyncio.wait_for(anext(heard), 5)


async def test_a_resource_that_was_subscribed_to_is_told_of(serve: Serve) -> None:
    told: asyncio.Queue[Any] = asyncio.Queue()

    async def hear(message: Any) -> None:
        told.put_nowait(message)

    url = mcp(serve(create_app(Street)))
    async with Client(url, mode="legacy", message_handler=hear) as client:
        with pytest.warns(MCPDeprecationWarning):
            await client.subscribe_resource(OBSERVATION)
        agent = Agent(client)
        while True:
            await agent.call("say", words="hello")
            with contextlib.suppress(asyncio.TimeoutError):
                message = await asyncio.wait_for(told.get(), 0.2)
                assert message.method == "notifications/resources/updated"
                assert message.params.uri == OBSERVATION
                break


# ------------------------------------------------------------------ whose session it is


@pytest.fixture
def shop(serve: Serve) -> tuple[str, SessionManager]:
    app = create_app(Workshop, max_concurrent_envs=8)
    return serve(app), managers_of(app)[0]


async def calls(agent: Agent) -> int:
    result = (await agent.call("seen"))["structuredContent"]
    number: int = result["calls"]
    return number


async def test_sessions_of_mcp_have_each_a_session_and_others_share_one(
    shop: tuple[str, SessionManager],
) -> None:
    url, manager = shop
    async with (
        agents.sdk_of_old(mcp(url)) as one,
        agents.sdk_of_old(mcp(url)) as other,
        agents.sdk(mcp(url)) as shared,
        agents.sdk(mcp(url)) as sharing,
    ):
        assert [await calls(one), await calls(one), await calls(other)] == [1, 2, 1]
        assert [await calls(shared), await calls(sharing)] == [1, 2]
        assert manager.active_sessions == 3
    await eventually(lambda: manager.active_sessions == 1)  # DELETE has given back the others


@pytest.mark.parametrize("client", ["sdk", "legacy"])
@pytest.mark.parametrize("by", ["address", "header"])
async def test_a_session_that_is_named_is_played_together(
    shop: tuple[str, SessionManager], client: str, by: str
) -> None:
    url, _ = shop
    async with driving(url) as (trainer, session_id):
        action = {"type": "call_tool", "tool_name": "seen", "arguments": {}}
        await trainer.post("/step", json={"action": action})
        address = f"{mcp(url)}?session_id={session_id}" if by == "address" else mcp(url)
        headers = {} if by == "address" else {SESSION_HEADER: session_id}
        async with with_headers(address, headers, client) as agent:
            assert await calls(agent) == 2
        async with with_headers(address, headers, client) as agent:
            assert await calls(agent) == 3  # it is not the agents' to end
        again = (await trainer.post("/step", json={"action": action})).json()
        assert again["observation"]["result"]["data"]["calls"] == 4


@contextlib.asynccontextmanager
async def driving(
    url: str, headers: dict[str, str] | None = None
) -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    """Whoever drives an environment, over HTTP; and the id of the session."""
    async with httpx.AsyncClient(base_url=url, headers=headers) as trainer:
        session_id = (await trainer.post("/reset", json={})).headers[SESSION_HEADER]
        trainer.headers[SESSION_HEADER] = session_id
        yield trainer, session_id
        await trainer.delete("/session")


@contextlib.asynccontextmanager
async def with_headers(
    url: str, headers: dict[str, str], client: str = "sdk"
) -> AsyncIterator[Agent]:
    mode: Any = "legacy" if client == "legacy" else "auto"
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, cache=None) as made,
    ):
        yield Agent(made)


async def test_a_session_that_is_named_and_not_there_is_an_error(
    shop: tuple[str, SessionManager],
) -> None:
    async with agents.sdk(f"{mcp(shop[0])}?session_id=nobody") as agent:
        with pytest.raises(MCPError, match="nobody") as unknown:
            await agent.call("seen")
        assert unknown.value.code == UNKNOWN


async def test_clients_play_at_once(shop: tuple[str, SessionManager]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        several = [
            await stack.enter_async_context(agents.sdk_of_old(mcp(shop[0]))) for _ in range(4)
        ]
        waits = [agent.call("wait", seconds=0.3) for agent in several]
        before = asyncio.get_running_loop().time()
        assert all(not one["isError"] for one in await asyncio.gather(*waits))
        assert asyncio.get_running_loop().time() - before < 1.0  # not one after the other
        assert [await calls(agent) for agent in several] == [1, 1, 1, 1]


@pytest.mark.parametrize("client", ["sdk", "legacy"])
async def test_an_agent_is_told_that_its_session_was_evicted(serve: Serve, client: str) -> None:
    app = create_app(Workshop, max_concurrent_envs=1)
    url = serve(app)
    async with CLIENTS[client](mcp(url)) as agent:
        assert await calls(agent) == 1
        async with driving(url):  # which needs the one slot
            pass
        with pytest.raises(MCPError, match="room was needed"):
            await agent.call("add", a=1)
        assert await calls(agent) == 1


@pytest.mark.parametrize("client", ["sdk", "legacy"])
async def test_an_agent_is_told_that_its_session_was_idle_for_too_long(
    serve: Serve, client: str
) -> None:
    config = ConcurrencyConfig(max_concurrent_envs=2, session_timeout=0.5)
    app = create_app(Workshop, concurrency_config=config)
    async with CLIENTS[client](mcp(serve(app))) as agent:
        assert await calls(agent) == 1
        await eventually(lambda: managers_of(app)[0].active_sessions == 0)
        if client == "legacy":  # the session of MCP may have ended as well
            with pytest.raises(MCPError, match=r"nobody used it|Session (not found|terminated)"):
                await calls(agent)
            return
        with pytest.raises(MCPError, match="nobody used it"):
            await calls(agent)
        assert await calls(agent) == 1


@pytest.mark.parametrize("client", ["sdk", "legacy"])
async def test_a_function_that_goes_on_after_its_call_is_waited_for(
    shop: tuple[str, SessionManager], client: str
) -> None:
    async with CLIENTS[client](mcp(shop[0])) as agent:
        await agent.give_up("block", seconds=1.5)
        assert (await agent.call("block", seconds=0))["structuredContent"] == {"result": 1}


@pytest.mark.parametrize("client", ["sdk", "legacy"])
async def test_a_function_that_goes_on_after_its_time_is_waited_for(
    serve: Serve, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    class Held(Workshop):
        @tool
        def hold(self) -> bool:
            """Go on until it is released."""
            return released.wait(60)

    monkeypatch.setattr(Held, "TOOL_TIMEOUT_S", 0.2)
    async with CLIENTS[client](mcp(serve(create_app(Held)))) as agent:
        late = await agent.call("hold")
        assert late["isError"] and late["content"][0]["text"] == "hold took longer than 0.2 s"
        behind = await agent.call("add", a=1)
        assert behind["isError"] and "was still running" in behind["content"][0]["text"]
        monkeypatch.setattr(Held, "TOOL_TIMEOUT_S", 60.0)
        released.set()
        deadline = time.monotonic() + 30
        while (over := await agent.call("hold"))["isError"]:
            assert time.monotonic() < deadline, over
            await asyncio.sleep(0.05)
        assert over["structuredContent"] == {"result": True}


# ------------------------------------------------------------------ keys


async def test_an_agents_key_reaches_the_tools_of_its_session_and_no_reward(
    serve: Serve,
) -> None:
    app = create_app(Street, keys=[Key("planted-for-trainers")])
    url, (manager,) = serve(app), managers_of(app)
    trainers = {"Authorization": "Bearer planted-for-trainers"}
    async with driving(url, trainers) as (trainer, session_id):
        for wrong in ("", "Bearer planted-wrong"):
            headers = {"Accept": "application/json, text/event-stream", "Authorization": wrong}
            asked = await trainer.post("/mcp", headers=headers, json={})
            assert asked.status_code == 401
        agents_own = {"Authorization": f"Bearer {manager.issue_agent_key(session_id)}"}
        for client in ("sdk", "legacy"):
            async with with_headers(mcp(url), agents_own, client) as agent:
                assert set(await agent.tools()) == {"move", "say"}
                moved = await agent.call("say", words="hello")
                assert "openenv/reward" not in (moved.get("_meta") or {})
                assert "0.5" not in str(await agent.read(OBSERVATION))
        async with with_headers(mcp(url), agents_own) as agent:
            await agent.call("move", direction="south")
        async with with_headers(f"{mcp(url)}?session_id={session_id}", trainers) as driver:
            said = await driver.call("say", words="hello")
            assert said["structuredContent"]["place"] == 1
            assert said["_meta"]["openenv/reward"] == 0.5


# ------------------------------------------------------------------ where environments live


@pytest.mark.parametrize("client", ["sdk", "legacy"])
async def test_environments_in_worker_processes_are_played_alike(serve: Serve, client: str) -> None:
    url = mcp(serve(create_app(Workshop, workers=1)))
    async with CLIENTS[client](url) as agent:
        assert "add" in await agent.tools()
        assert (await agent.call("add", a=2))["structuredContent"] == {"result": 3}
        assert (await agent.call("fail"))["isError"]
        assert await agent.give_up("wait") == ["running for 1 s"]
        assert (await agent.call("seen"))["structuredContent"]["cancelled"] == 1
        assert (await agent.call("learn", name="whistle"))["content"]
        assert "whistle" in await agent.tools()


@pytest.mark.parametrize("client", ["sdk", "legacy"])
async def test_in_production_nothing_is_reset_and_its_tools_are_there(
    serve: Serve, client: str
) -> None:
    url = mcp(serve(create_app(Workshop, mode="production")))
    async with CLIENTS[client](url) as agent:
        tools = await agent.tools()
        assert "order" in tools and "pretend" not in tools
        assert (await agent.call("order"))["content"][0]["text"] == "ordered"
        assert (await agent.call("seen"))["structuredContent"]["resets"] == 0


# ------------------------------------------------------------------ the command line

NOISY = r"""
import os, subprocess, sys
from openenv.tools import MCPEnvironment, tool

print("imported")
sys.stdout.write("without an end")
os.write(1, b"imported by the descriptor\n")


class Noisy(MCPEnvironment):
    def __init__(self):
        print("made")
        super().__init__()

    def close(self):
        print("closed")
        super().close()

    @tool
    def shout(self) -> str:
        'Print, by every means there is.'
        print("shouted", flush=True)
        os.write(1, b"shouted to the descriptor\\n")
        subprocess.run(["echo", "shouted by a child"])
        return "hoarse"

    @tool
    def ask(self) -> str:
        'Read what is none of its business.'
        return sys.stdin.readline() or "nothing"
"""


def said(*tools: str) -> list[dict[str, Any]]:
    """What a client says that calls these tools."""
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    begun = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    calls = [
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name}}
        for number, name in enumerate(tools, 2)
    ]
    return [begun, {"jsonrpc": "2.0", "method": "notifications/initialized"}, *calls]


def test_stdout_of_openenv_mcp_carries_the_protocol_only(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    with PythonProcess(
        [*COMMAND, "mcp", "noisy.py"],
        cwd=tmp_path,
        env=environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        answers = []
        for message in said("shout", "ask"):
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            if "id" in message:
                answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        rest, words = process.stdout.read(), process.stderr.read()
        assert process.wait(15) == 0
    assert [one["id"] for one in answers] == [1, 2, 3] and rest == ""
    assert answers[1]["result"]["structuredContent"] == {"result": "hoarse"}
    assert answers[2]["result"]["structuredContent"] == {"result": "nothing"}
    for printed in (
        "imported",
        "imported by the descriptor",
        "made",
        "shouted to the descriptor",
        "shouted by a child",
    ):
        assert printed in words
    assert words.endswith("closed\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_openenv_mcp_that_is_told_to_stop_closes_what_it_has(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    with PythonProcess(
        [*COMMAND, "mcp", "noisy.py"],
        cwd=tmp_path,
        env=environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        for message in said("shout"):
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            if "id" in message:
                process.stdout.readline()
        process.send_signal(number)
        words = process.stderr.read()
        assert process.wait(15) == -number
    assert words.endswith("closed\n")


@pytest.mark.blocks_the_loop  # FastMCP, which imports what a configuration needs
async def test_the_entry_that_is_printed_starts_the_server(tmp_path: Path) -> None:
    done = await asyncio.to_thread(
        run_openenv, "mcp", f"{WORLDS}:Workshop", "--config", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    config = json.loads(done.stdout)
    (entry,) = config["mcpServers"].values()
    assert set(config["mcpServers"]) == {"workshop"}
    entry["env"] = environ(TESTS)  # this tree, and not the one that is installed
    async with fastmcp.Client(config) as client:
        assert "add" in await Agent(client).tools()


def test_a_target_that_is_none_says_so_on_stderr(tmp_path: Path) -> None:
    done = run_openenv("mcp", "nobody_env", cwd=tmp_path)
    assert done.returncode != 0 and done.stdout == "" and "nobody_env" in done.stderr
