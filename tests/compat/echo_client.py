"""Talks to our echo environment by the public interface, and prints what it saw.

`python echo_client.py ECHO_URL` is run by the peer's Python and by ours.
"""

import asyncio
import json
import sys

from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.env_server.types import Action
from openenv.core.mcp_client import MCPToolClient


class EchoEnv(MCPToolClient):
    """What the package of echo has been since its actions are tools."""


class EchoAction(Action):
    message: str


STEPS = [
    CallToolAction(tool_name="echo_message", arguments={"message": "hi"}),
    CallToolAction(tool_name="echo_message", arguments={"message": 3}),
    EchoAction(message="hello"),
]


def shown(result):
    observation = result.observation
    fields = observation.model_dump(mode="json", exclude={"truncated"})
    return [type(observation).__name__, fields, result.reward, result.done]


def by_sync(url):
    with EchoEnv(base_url=url).sync() as env:
        seen = [shown(env.reset(episode_id="e"))]
        seen.append([[tool.name, tool.description, tool.input_schema] for tool in env.list_tools()])
        seen.append(env.call_tool("echo_message", message="hi"))
        seen.append(env.call_tool("echo_with_length", message="abc"))
        seen.append(env.state().model_dump())
        seen += [shown(env.step(action)) for action in STEPS]
        seen.append(env.state().model_dump())
    return seen


async def by_async(url):
    async with EchoEnv(base_url=url) as env:
        seen = [shown(await env.reset(episode_id="e"))]
        tools = await env.list_tools()
        seen.append([[tool.name, tool.description, tool.input_schema] for tool in tools])
        seen.append(await env.call_tool("echo_message", message="hi"))
        seen.append(await env.call_tool("echo_with_length", message="abc"))
        seen.append((await env.state()).model_dump())
        seen += [shown(await env.step(action)) for action in STEPS]
        seen.append((await env.state()).model_dump())
    return seen


async def side_by_side(url):
    return await asyncio.gather(*(by_async(url) for _ in range(8)))


def main(url):
    return {
        "sync": by_sync(url),
        "async": asyncio.run(by_async(url)),
        "side by side": asyncio.run(side_by_side(url)),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201
