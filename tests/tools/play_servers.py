"""Environments made of MCP servers of whichever version is installed; prints what came of it.

python play_servers.py fastmcp|sdk|lowlevel     drive environments here; one object as JSON
python play_servers.py serve fastmcp|...        serve one, and print its port, until stdin ends
python play_servers.py stdio fastmcp|...        the same over standard input and output
python play_servers.py flood                    wrap servers over HTTP that send too much
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import sys
import time
from importlib import metadata
from typing import Any

from typing_extensions import TypedDict

from openenv import create_app
from openenv.tools import CallToolAction, ListToolsAction, MCPEnvironment
from openenv.tools.connections import sdk_version

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
    "0000000049454e44ae426082"
)
CANCELLED: list[float] = []  # the calls of `wait` that were cancelled, by their argument


class Point(TypedDict):
    x: int
    y: int


# ------------------------------------------------------------------ the same tools, three ways


def add(a: int, b: int) -> int:
    """Add two numbers."""
    if sys.argv[1] == "stdio":
        sys.stdout.write("said aloud, and no part of the protocol\n")
        sys.stdout.flush()
    return a + b


async def wait(seconds: float) -> str:
    """Wait."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        CANCELLED.append(seconds)
        raise
    return "waited"


def block(seconds: float) -> str:
    """Wait, and let nobody else run on this thread."""
    time.sleep(seconds)
    return "blocked"


def fail() -> str:
    """Fail."""
    raise ValueError("no such luck")


def point() -> Point:
    """A point."""
    return {"x": 1, "y": 2}


def with_decorator(server: Any, image: Any, context: Any) -> Any:
    """Add the tools to a server of FastMCP, or of the SDK's form of it."""
    from __main__ import add, block, fail, point, wait

    for function in (add, wait, block, fail, point):
        server.tool()(function)

    async def report(ctx: Any) -> str:
        """Tell the client things."""
        await ctx.info("working")
        await ctx.report_progress(1, 2)
        return "reported"

    async def linger(ctx: Any, seconds: float) -> str:
        """Wait, by somebody who knows the session."""
        waited: str = await wait(seconds)
        return waited

    for function in (report, linger):
        function.__annotations__["ctx"] = context
        server.tool()(function)

    def picture() -> Any:
        """A picture."""
        return image(data=PIXEL, format="png")

    picture.__annotations__["return"] = image
    server.tool()(picture)

    async def grow() -> str:
        """Have one more tool."""

        def extra(x: int) -> int:
            """What has grown."""
            return x

        server.tool()(extra)
        return "grown"

    server.tool()(grow)
    return server


def fastmcp_server() -> Any:
    from fastmcp import Context, FastMCP
    from fastmcp.server.dependencies import get_context
    from fastmcp.utilities.types import Image

    server = with_decorator(FastMCP("tools"), Image, Context)

    def request_id() -> str:
        return str(get_context().request_id)

    def nested() -> bool:
        """Ask for the context in a function that it calls."""
        return bool(request_id())

    async def remember(ctx: Any) -> int:
        """Count the calls, as far as the context knows of others."""
        kept = ctx.get_state("n")
        n = int((await kept if asyncio.iscoroutine(kept) else kept) or 0) + 1
        done = ctx.set_state("n", n)
        if asyncio.iscoroutine(done):
            await done
        return n

    remember.__annotations__["ctx"] = Context
    server.tool(nested)
    server.tool(remember)
    return server


def sdk_server() -> Any:
    if sdk_version() >= 2:
        from mcp.server.mcpserver import Context, Image, MCPServer

        return with_decorator(MCPServer("tools"), Image, Context)
    version1: Any = importlib.import_module("mcp.server.fastmcp")
    return with_decorator(version1.FastMCP("tools"), version1.Image, version1.Context)


def lowlevel_server() -> Any:
    described = {
        "name": "add",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    }
    waits = {
        "name": "wait",
        "inputSchema": {"type": "object", "properties": {"seconds": {"type": "number"}}},
    }
    fails = {"name": "fail", "inputSchema": {"type": "object"}}

    async def called(name: str, arguments: Any) -> str:
        if name == "wait":
            return await wait(**arguments)
        if name == "fail":
            return fail()
        return str(add(**arguments))

    from mcp.server.lowlevel import Server

    if sdk_version() >= 2:
        import mcp_types as types

        async def on_list_tools(context: Any, params: Any) -> Any:
            tools = [types.Tool.model_validate(one) for one in (described, waits, fails)]
            return types.ListToolsResult(tools=tools)

        async def on_call_tool(context: Any, params: Any) -> Any:
            text = await called(params.name, params.arguments or {})
            return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

        return Server("tools", on_list_tools=on_list_tools, on_call_tool=on_call_tool)

    import mcp.types as types1

    server: Any = Server("tools")

    async def list_tools() -> Any:
        return [types1.Tool.model_validate(one) for one in (described, waits, fails)]

    async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
        text = await called(name, arguments)
        return [types1.TextContent(type="text", text=text)]

    server.list_tools()(list_tools)
    server.call_tool()(call_tool)
    return server


SERVERS = {"fastmcp": fastmcp_server, "sdk": sdk_server, "lowlevel": lowlevel_server}
KIND = sys.argv[-1]


class Tools(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__(SERVERS[KIND]())


# ------------------------------------------------------------------ played here


async def call(env: MCPEnvironment, name: str, timeout_s: float | None = None, **given: Any) -> Any:
    action = CallToolAction(tool_name=name, arguments=given)
    observation = await env.step_async(action, timeout_s=timeout_s)
    dumped: dict[str, Any] = observation.model_dump(mode="json")
    return {"result": dumped["result"], "error": dumped["error"]}


async def until(condition: Any, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.01)
    return True


async def played() -> dict[str, Any]:
    env = Tools()
    await env.reset_async()
    listed = await env.step_async(ListToolsAction())
    first = await asyncio.gather(*(call(env, "add", a=n, b=1) for n in range(2)))
    told: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append([progress, total])

    found: dict[str, Any] = {
        "tools": {one.name: one.input_schema for one in listed.tools},
        "first": first,
        "add": await call(env, "add", a=1, b=2),
        "wrong": await call(env, "add", a="x", b=2),
        "missing": await call(env, "add", a=1),
        "unknown": await call(env, "nope"),
        "reserved": await call(env, "reset"),
        "fail": await call(env, "fail"),
        "slow": await call(env, "wait", timeout_s=0.2, seconds=30),
        "cancelled": await until(lambda: CANCELLED == [30]),
        "after": await call(env, "add", a=3, b=4),
        "many": await asyncio.gather(*(call(env, "wait", seconds=0.1) for _ in range(20))),
    }
    if KIND != "lowlevel":
        found |= {name: await call(env, name) for name in ("point", "picture", "report", "grow")}
        found["grown"] = await call(env, "extra", x=5)
        told.clear()
        reported = await env.mcp_call_tool("report", {}, on_progress)
        await until(lambda: told)
        found["progress"], found["reported"] = told, reported.error is None
        found["lingered"] = await call(env, "linger", timeout_s=0.2, seconds=31)
        found["no longer"] = await until(lambda: CANCELLED == [30, 31])
        found["blocked"] = await call(env, "block", timeout_s=0.2, seconds=0.6)
    if KIND == "fastmcp":
        found["nested"] = await call(env, "nested")
        found["remembered"] = [await call(env, "remember") for _ in range(3)]
    await env.close_async()
    found["closed"] = await call(env, "add", a=1, b=2)
    return found


def refused() -> str | None:
    """What is said of a server with a tool that is called reset."""
    server = SERVERS[KIND]()

    def reset() -> str:
        """Begin anew."""
        return ""

    server.tool()(reset)
    try:
        MCPEnvironment(server)
    except ValueError as error:
        return str(error)
    return None


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


async def opened_and_closed(count: int) -> None:
    for _ in range(count):
        env = Tools()
        await call(env, "add", a=1, b=2)
        if KIND != "lowlevel":
            await call(env, "report")
        await env.close_async()


async def leaks() -> dict[str, Any]:
    await opened_and_closed(5)
    before = descriptors(), len(asyncio.all_tasks())
    await opened_and_closed(200)
    after = descriptors(), len(asyncio.all_tasks())
    return {"before": before, "after": after}


async def together() -> list[Any]:
    """32 sessions at once, each with a server of its own."""

    async def one(n: int) -> Any:
        env = Tools()
        found = [await call(env, "add", a=n, b=i) for i in range(5)]
        found.append(await call(env, "wait", seconds=0.05))
        await env.close_async()
        return [int(each["result"]["content"][0]["text"]) for each in found[:5]] == [
            n + i for i in range(5)
        ] and found[5]["error"] is None

    return await asyncio.gather(*map(one, range(32)))


def by_plain_code() -> list[Any]:
    """`step` where there is no event loop, then on several ones, one after the other."""
    env, name = Tools(), "report" if KIND != "lowlevel" else "add"
    given: dict[str, Any] = {} if KIND != "lowlevel" else {"a": 1, "b": 2}
    action = CallToolAction(tool_name=name, arguments=given)
    seen = [env.step(action), env.step(action)]
    seen += [asyncio.run(env.step_async(action)), asyncio.run(env.step_async(action))]
    seen += [env.step(action)]
    env.close()
    return [one.error and one.error.message for one in seen]


def main() -> None:
    found = asyncio.run(played())
    if KIND != "lowlevel":
        found["refused"] = refused()
    found["leaks"] = asyncio.run(leaks())
    found["together"] = asyncio.run(together())
    found["plain"] = by_plain_code()
    found["versions"] = {name: _version(name) for name in ("mcp", "fastmcp")}
    say(found)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def serve() -> None:
    from support.servers import serving

    with serving(create_app(Tools, max_concurrent_envs=64)) as url:
        say(url)
        for _ in sys.stdin:
            say(census())


def say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def census() -> dict[str, int]:
    """What there is of what clients may leave behind, and which calls were cancelled."""
    gc.collect()
    kinds = [type(one).__name__ for one in gc.get_objects()]
    counted = {name: kinds.count(name) for name in ("StreamableHTTPServerTransport", "Seat")}
    return {**counted, "Task": kinds.count("Task"), "cancelled": len(CANCELLED)}


def client() -> None:
    """Ask a server by the client of SDK 1, and print what came of it."""
    url = sys.argv[2]

    async def run() -> dict[str, Any]:
        http: Any = importlib.import_module("mcp.client.streamable_http")
        sdk: Any = importlib.import_module("mcp")
        changes: list[str] = []

        async def on_message(message: Any) -> None:
            changes.append(type(getattr(message, "root", message)).__name__)

        told: list[Any] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            told.append(progress)

        async with (
            http.streamable_http_client(f"{url}/mcp") as (read, write, _),
            sdk.ClientSession(read, write, message_handler=on_message) as session,
        ):
            begun = await session.initialize()
            listed = await session.list_tools()
            added = await session.call_tool("add", {"a": 1, "b": 2})
            await session.call_tool("linger", {"seconds": 1.2}, progress_callback=on_progress)
            await session.call_tool("grow", {})
            await until(lambda: "ToolListChangedNotification" in changes)
            try:
                await session.call_tool("nope", {})
            except sdk.McpError as error:
                code = error.error.code
            read_back = await session.read_resource("openenv://observation")
            return {
                "revision": begun.protocolVersion,
                "tools": [one.name for one in listed.tools],
                "added": added.structuredContent,
                "ticks": len(told),
                "changes": changes,
                "unknown": code,
                "observation": read_back.contents[0].text,
            }

    say(asyncio.run(run()))


def stdio() -> None:
    from openenv.server.mcp.bridge import Bridge
    from openenv.server.workers import managers_of

    async def run() -> None:
        (manager,) = managers_of(create_app(Tools, max_concurrent_envs=64))
        await Bridge(manager).serve_stdio()
        await manager.aclose()

    asyncio.run(run())


def flood() -> None:
    """Call a tool whose answer is too large, and then another; print the error and the answer."""
    from support.flooding_server import Flooding
    from support.servers import serving

    from openenv.tools import transports, wrap

    transports.MAX_MESSAGE_BYTES = 2**20

    async def run(url: str) -> list[str]:
        env = wrap(f"{url}/mcp")()
        await env.reset_async()
        seen: Any = await env.step_async(CallToolAction(tool_name="flood"), timeout_s=20)
        action = CallToolAction(tool_name="add", arguments={"n": 5})
        after: Any = await env.step_async(action, timeout_s=20)
        await env.close_async()
        return [seen.error.message, after.result["content"][0]["text"]]

    found = {}
    for kind in ("json", "event"):
        with serving(Flooding(kind)) as url:
            found[kind] = asyncio.run(run(url))
    say(found)


if __name__ == "__main__":
    {"flood": flood, "serve": serve, "stdio": stdio, "client": client}.get(sys.argv[1], main)()
