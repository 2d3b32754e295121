"""Uses the tools of a shop and of echo by the public interface, and prints what it saw.

`python tools_client.py SHOP_URL [ECHO_URL]` is run by the peer's Python and by ours, against the
peer's server and against ours: it prints the same every time.
"""

import asyncio
import json
import sys

from openenv.core import MCPToolClient
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction
from openenv.core.mcp_client import GenericMCPObservation, MCPClientBase


class ShopEnv(MCPToolClient):
    """Empty, as they are written."""


def shown(result):
    observation = result.observation
    fields = observation.model_dump(mode="json", exclude={"truncated"})
    return [type(observation).__name__, fields, result.reward, result.done]


def tool_shown(tool):
    return [tool.name, tool.description, tool.input_schema]


def failed(error, *words):
    return [isinstance(error, RuntimeError), *(word in str(error) for word in words)]


BUY = CallToolAction(tool_name="add_to_basket", arguments={"article": "tea", "count": 2})
WRONG = [
    ("nope", {}, "Unknown tool"),
    ("add_to_basket", {}, "article"),
    ("total", {"prices": {}}, "'milk'"),
]


def by_sync(url):
    seen = []
    with ShopEnv(base_url=url).sync() as env:
        seen.append(shown(env.reset(episode_id="e")))
        seen.append([tool_shown(tool) for tool in env.list_tools()])
        seen.append(env.call_tool("add_to_basket", article="milk"))
        seen.append(env.call_tool("total", prices={"milk": 1.5}))
        seen.append(env.state().model_dump())
        seen.append(shown(env.step(BUY)))
        seen.append(shown(env.step(CallToolAction(tool_name="nope", arguments={}))))
        seen.append(shown(env.step(ListToolsAction())))
        seen.append(env.state().model_dump())
        seen.append([env.has_tool("total"), env.has_tool("nope"), env.get_tool("nope")])
        seen.append(tool_shown(env.get_tool("greet")))
        seen.append(env.list_tools(use_cache=False) == env.list_tools())
        for name, arguments, words in WRONG:
            try:
                seen.append(env.call_tool(name, **arguments))
            except RuntimeError as error:
                seen.append(failed(error, words))
        seen.append(env.call_tool("add_to_basket", article="milk"))
        seen.append(shown(env.reset(episode_id="f")))
        seen.append(env.call_tool("add_to_basket", article="milk"))
    return seen


async def by_async(env):
    seen = [shown(await env.reset(episode_id="e"))]
    seen.append([tool_shown(tool) for tool in await env.list_tools()])
    seen.append(await env.call_tool("add_to_basket", article="milk"))
    seen.append(await env.call_tool("total", prices={"milk": 1.5}))
    seen.append((await env.state()).model_dump())
    seen.append(shown(await env.step(BUY)))
    seen.append(shown(await env.step(CallToolAction(tool_name="nope", arguments={}))))
    seen.append(shown(await env.step(ListToolsAction())))
    seen.append((await env.state()).model_dump())
    seen.append(
        [await env.has_tool("total"), await env.has_tool("nope"), await env.get_tool("nope")]
    )
    seen.append(tool_shown(await env.get_tool("greet")))
    seen.append(await env.list_tools(use_cache=False) == await env.list_tools())
    for name, arguments, words in WRONG:
        try:
            seen.append(await env.call_tool(name, **arguments))
        except RuntimeError as error:
            seen.append(failed(error, words))
    seen.append(await env.call_tool("add_to_basket", article="milk"))
    seen.append(shown(await env.reset(episode_id="f")))
    seen.append(await env.call_tool("add_to_basket", article="milk"))
    return seen


async def async_with(url):
    async with ShopEnv(base_url=url) as env:
        return await by_async(env)


async def connected(url):
    env = ShopEnv(base_url=url)
    await env.connect()
    try:
        return await by_async(env)
    finally:
        await env.close()


async def side_by_side(url):
    """Each has a basket of its own."""

    async def shop(count):
        async with MCPToolClient(base_url=url) as env:
            await env.reset()
            return await env.call_tool("add_to_basket", article="milk", count=count)

    return await asyncio.gather(*map(shop, range(1, 5)))


async def tools_as_tasks(url):
    async with ShopEnv(base_url=url) as env:
        calling = asyncio.create_task(env.call_tool("add_to_basket", article="milk"))
        listed, called = await asyncio.gather(env.list_tools(), calling)
        return [len(listed), called]


def without_tools(url):
    with MCPToolClient(base_url=url).sync() as env:
        env.reset()
        try:
            env.call_tool("count")
        except RuntimeError as error:
            return failed(error, "Environment does not support MCP")


def modes():
    found = []
    for mode in (None, "production", "PRODUCTION", "other"):
        try:
            found.append(
                MCPToolClient(base_url="http://localhost:1", mode=mode).use_production_mode
            )
        except ValueError:
            found.append("ValueError")
    return [*found, issubclass(MCPToolClient, MCPClientBase), GenericMCPObservation(a=1).a]


def main(shop_url, toy_url):
    return {
        "sync": by_sync(shop_url),
        "async with": asyncio.run(async_with(shop_url)),
        "connect": asyncio.run(connected(shop_url)),
        "side by side": asyncio.run(side_by_side(shop_url)),
        "tasks": asyncio.run(tools_as_tasks(shop_url)),
        "without tools": without_tools(toy_url),
        "modes": modes(),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201
