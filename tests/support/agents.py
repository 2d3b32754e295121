"""The clients of others by which agents play environments: the official SDK's, and FastMCP's."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastmcp
from fastmcp.client.transports import StdioTransport
from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.dispatcher import ProgressFnT

# A server imports this on a thread, whose imports hold up the loop where the machine is busy.
import openenv.server.mcp.sdk_v2  # noqa: F401
from support.commands import COMMAND, environ

TESTS = Path(__file__).parents[1]


@dataclass
class Agent:
    """Whoever uses a client, of whichever kind; what it gets is as it is on the wire."""

    client: Any

    async def tools(self) -> dict[str, dict[str, Any]]:
        """The tools, by name."""
        found = await self.client.list_tools()
        return {one.name: plain(one) for one in getattr(found, "tools", found)}

    async def call(
        self, tool_name: str, on_progress: ProgressFnT | None = None, **arguments: Any
    ) -> dict[str, Any]:
        if isinstance(self.client, fastmcp.Client):
            return plain(
                await self.client.call_tool_mcp(
                    name=tool_name, arguments=arguments, progress_handler=on_progress
                )
            )
        return plain(
            await self.client.call_tool(tool_name, arguments, progress_callback=on_progress)
        )

    async def resources(self) -> set[str]:
        found = await self.client.list_resources()
        return {str(one.uri) for one in getattr(found, "resources", found)}

    async def read(self, uri: str) -> list[dict[str, Any]]:
        found = await self.client.read_resource(uri)
        return [plain(one) for one in getattr(found, "contents", found)]

    async def prompts(self) -> set[str]:
        found = await self.client.list_prompts()
        return {one.name for one in getattr(found, "prompts", found)}

    async def prompt(self, name: str, **arguments: str) -> list[dict[str, Any]]:
        found = await self.client.get_prompt(name, arguments or None)
        return [plain(one) for one in found.messages]

    async def give_up(self, tool_name: str, **arguments: Any) -> list[str | None]:
        """Call a tool, and cancel the call once it has told how far it is; what it told."""
        told: list[str | None] = []
        running = asyncio.Event()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            told.append(message)
            running.set()

        call = asyncio.create_task(self.call(tool_name, on_progress, **arguments))
        waiting = asyncio.create_task(running.wait())
        await asyncio.wait([call, waiting], timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert running.is_set(), call
        call.cancel()
        await asyncio.wait([call], timeout=10)
        assert call.cancelled()
        return told


def plain(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def over_stdio(target: str, cwd: Path, *options: str) -> StdioServerParameters:
    """`openenv mcp TARGET`, as an agent's program starts it."""
    command, *arguments = (*COMMAND, "mcp", target, *options)
    return StdioServerParameters(command=command, args=arguments, env=environ(TESTS), cwd=cwd)


@contextlib.asynccontextmanager
async def sdk(target: str | StdioServerParameters) -> AsyncIterator[Agent]:
    async with Client(target, cache=None) as client:
        yield Agent(client)


@contextlib.asynccontextmanager
async def sdk_of_old(target: str | StdioServerParameters) -> AsyncIterator[Agent]:
    async with Client(target, mode="legacy", cache=None) as client:
        yield Agent(client)


@contextlib.asynccontextmanager
async def fast(target: str | StdioServerParameters) -> AsyncIterator[Agent]:
    transport: Any = target
    if isinstance(target, StdioServerParameters):
        cwd = None if target.cwd is None else str(target.cwd)
        transport = StdioTransport(target.command, target.args, target.env, cwd, keep_alive=False)
    async with fastmcp.Client(transport) as client:
        yield Agent(client)


@contextlib.asynccontextmanager
async def session(target: str | StdioServerParameters) -> AsyncIterator[Agent]:
    """The client of the SDK below `Client`, as programs for version 1 use it."""
    assert isinstance(target, StdioServerParameters)
    async with (
        stdio_client(target, errlog=sys.stderr) as (read, write),
        ClientSession(read, write) as client,
    ):
        await client.initialize()
        yield Agent(client)


Connect = Callable[[str | StdioServerParameters], contextlib.AbstractAsyncContextManager[Agent]]
CLIENTS: dict[str, Connect] = {"sdk": sdk, "legacy": sdk_of_old, "fastmcp": fast}
