"""Connections to MCP servers: their ends, by whomever and whenever."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware
from mcp.server.mcpserver import MCPServer

from openenv.tools import CallToolAction, MCPEnvironment
from openenv.tools.connections import ConnectionBroken, MCPClient, MCPConnection
from openenv.tools.functions import UnknownTool
from openenv.tools.progress import OnProgress

pytestmark = pytest.mark.anyio


class Far:
    """A server far away, as a connection sees it: it can be counted, held up and broken."""

    def __init__(self) -> None:
        self.connected = self.left = 0
        self.broken: asyncio.Event | None = None
        self.opening: Callable[[], Awaitable[None]] | None = None

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[MCPClient]:
        if self.opening is not None:
            await self.opening()
        self.connected += 1
        self.broken = asyncio.Event()
        try:
            yield self
        finally:
            self.left += 1

    async def tools(self) -> list[dict[str, Any]]:
        return [{"name": "wait", "inputSchema": {"type": "object"}}]

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: OnProgress | None
    ) -> dict[str, Any]:
        await asyncio.sleep(arguments.get("seconds", 0))
        return {"content": [{"type": "text", "text": "waited"}], "isError": False}


async def started(work: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.ensure_future(work)
    for _ in range(10):
        await asyncio.sleep(0)
    return task


async def test_first_calls_at_the_same_time_connect_once() -> None:
    far = Far()
    connection = MCPConnection(far)
    found = await asyncio.gather(*(connection.call("wait", {}) for _ in range(8)))
    assert len(found) == 8 and far.connected == 1
    with pytest.raises(UnknownTool):
        await connection.call("nope", {})
    await connection.aclose()
    assert far.left == 1


async def test_a_first_caller_who_gives_up_does_not_end_it_for_others() -> None:
    far, may_go = Far(), asyncio.Event()

    async def opening() -> None:
        await may_go.wait()

    far.opening = opening
    connection = MCPConnection(far)
    first = await started(connection.call("wait", {}))
    second = await started(connection.call("wait", {}))
    first.cancel()
    may_go.set()
    assert (await second)["isError"] is False
    await connection.aclose()


async def test_what_kept_it_from_connecting_is_told_each_time() -> None:
    far = Far()

    async def opening() -> None:
        raise FileNotFoundError("no such program: some-server")

    far.opening = opening
    connection = MCPConnection(far, "some-server")
    for _ in range(2):
        with pytest.raises(ConnectionBroken, match="no such program"):
            await connection.tools()
    await connection.aclose()


async def test_a_server_that_does_not_answer_is_left_alone() -> None:
    far, ended = Far(), asyncio.Event()

    async def opening() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    far.opening = opening
    connection = MCPConnection(far, connect_timeout_s=0.05)
    with pytest.raises(ConnectionBroken, match="did not answer"):
        await connection.tools()
    await asyncio.wait_for(connection.aclose(), 1)
    assert ended.is_set()


async def test_calls_under_way_end_with_the_connection() -> None:
    connection = MCPConnection(Far())
    calls = [await started(connection.call("wait", {"seconds": 60})) for _ in range(3)]
    await asyncio.wait_for(connection.aclose(), 1)
    for call in calls:
        with pytest.raises(ConnectionBroken):
            await call
    with pytest.raises(ConnectionBroken, match="closed"):
        await connection.call("wait", {})


async def test_calls_under_way_end_with_the_task_that_keeps_the_connection() -> None:
    connection = MCPConnection(Far())
    call = await started(connection.call("wait", {"seconds": 60}))
    assert connection._owner is not None
    connection._owner.cancel()
    with pytest.raises(ConnectionBroken):
        await asyncio.wait_for(call, 1)
    with pytest.raises(ConnectionBroken, match="has ended"):
        await connection.tools()


async def test_a_call_that_is_cancelled_is_no_fault_of_the_connection() -> None:
    connection = MCPConnection(Far())
    call = await started(connection.call("wait", {"seconds": 60}))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await connection.call("wait", {}))["isError"] is False
    await connection.aclose()


async def test_one_that_was_never_used_is_closed_too() -> None:
    far = Far()
    connection = MCPConnection(far)
    await connection.aclose()
    await connection.aclose()
    with pytest.raises(ConnectionBroken, match="closed"):
        await connection.tools()
    assert far.connected == 0


@contextlib.contextmanager
def another_loop() -> Any:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


async def test_another_event_loop_can_close_it_but_not_use_it() -> None:
    far = Far()
    connection = MCPConnection(far)
    with another_loop() as loop:
        there = asyncio.run_coroutine_threadsafe(connection.call("wait", {}), loop)
        assert (await asyncio.wrap_future(there))["isError"] is False
        with pytest.raises(ConnectionBroken, match="event loop"):
            await connection.tools()
        await asyncio.wait_for(connection.aclose(), 2)
        assert far.left == 1


# ------------------------------------------------------------------ of servers in this process


def server(count: list[int]) -> MCPServer:
    made = MCPServer("counting")

    def more() -> int:
        """Count."""
        count.append(len(count))
        return len(count)

    made.add_tool(more)
    return made


def counted(observation: Any) -> int:
    assert observation.error is None, observation.error
    found: int = observation.result["structured_content"]["result"]
    return found


def test_a_server_in_this_process_serves_one_event_loop_after_the_other() -> None:
    env, action = MCPEnvironment(server([])), CallToolAction(tool_name="more")
    assert counted(env.step(action)) == 1
    assert counted(asyncio.run(env.step_async(action))) == 2
    assert counted(asyncio.run(env.step_async(action))) == 3
    assert counted(env.step(action)) == 4
    env.close()
    assert env.step(action).error.error_type == "transport_error"
    env.close()


async def test_an_environment_is_closed_from_another_event_loop() -> None:
    env, action = MCPEnvironment(server([])), CallToolAction(tool_name="more")
    with another_loop() as loop:
        there = asyncio.run_coroutine_threadsafe(env.step_async(action), loop)
        assert counted(await asyncio.wrap_future(there)) == 1
        await asyncio.wait_for(env.close_async(), 5)
        left = asyncio.run_coroutine_threadsafe(others(), loop)
        assert await asyncio.wrap_future(left) == set()


async def others() -> set[Any]:
    return asyncio.all_tasks() - {asyncio.current_task()}


async def test_middleware_of_a_server_finds_the_session_that_it_expects() -> None:
    seen: list[str] = []

    class Noting(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            seen.append(context.fastmcp_context.session_id)
            return await call_next(context)

    made = FastMCP("noted", middleware=[Noting()], dereference_schemas=False)

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    made.tool(add)
    env = MCPEnvironment(made)
    action = CallToolAction(tool_name="add", arguments={"a": 1, "b": 2})
    assert counted(await env.step_async(action)) == 3
    assert counted(await env.step_async(action)) == 3
    assert len(seen) == 2 and len(set(seen)) == 1
    await env.close_async()


def test_a_reserved_name_is_refused_at_once() -> None:
    made = server([])

    def reset() -> None:
        """Begin anew."""

    made.add_tool(reset)
    with pytest.raises(ValueError, match="reset"):
        MCPEnvironment(made)
