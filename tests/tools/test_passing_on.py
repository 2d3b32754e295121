"""An environment that is made of an MCP server has its resources, prompts and completions."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from mcp import Client, MCPDeprecationWarning, MCPError
from mcp_types import PromptReference
from support.agents import CLIENTS, Agent
from support.libraries import FastLibrary, Library, Tasked
from support.workshop import Workshop

from openenv import create_app
from openenv.server.mcp.bridge import OBSERVATION

pytestmark = pytest.mark.anyio

Serve = Callable[[Any], str]
UNKNOWN = -32602


def mcp(url: str) -> str:
    return f"{url}/mcp"


@pytest.mark.slow
@pytest.mark.parametrize("library", [FastLibrary, Library])
@pytest.mark.parametrize(
    ("client", "workers"), [*((client, None) for client in CLIENTS), ("sdk", 1)]
)
async def test_resources_and_prompts_are_passed_on(
    serve: Serve, client: str, library: type, workers: int | None
) -> None:
    url = mcp(serve(create_app(library, workers=workers)))
    async with CLIENTS[client](url) as agent:
        assert await agent.resources() == {"library://rules", OBSERVATION}
        (read,) = await agent.read("library://rules")
        assert (read["text"], read["mimeType"]) == ("Be quiet.", "text/plain")
        templates = await agent.client.list_resource_templates()
        (template,) = getattr(templates, "resource_templates", templates)
        assert template.uri_template == "library://shelf/{number}"
        (read,) = await agent.read("library://shelf/7")
        assert (read["text"], read["uri"]) == ("Books from 7", "library://shelf/7")

        assert await agent.prompts() == {"lend", "task"}
        (message,) = await agent.prompt("lend", title="Emma")
        assert message["content"]["text"] == "Lend me Emma."
        for asked in (agent.prompt("steal"), agent.read("cinema://rules")):
            with pytest.raises(MCPError) as unknown:
                await asked
            assert unknown.value.code in (UNKNOWN, -32002)


@pytest.mark.parametrize("client", ["sdk", "legacy"])
async def test_completions_are_passed_on(serve: Serve, client: str) -> None:
    lend = PromptReference(type="ref/prompt", name="lend")
    asked = {"name": "title", "value": "Em"}
    for environment, values in ((Library, ["Emma"]), (FastLibrary, []), (Workshop, [])):
        async with CLIENTS[client](mcp(serve(create_app(environment)))) as agent:
            completed = await agent.client.complete(lend, asked)
            assert completed.completion.values == values


async def test_an_authors_own_prompt_stands_in_for_ours(serve: Serve) -> None:
    async with CLIENTS["sdk"](mcp(serve(create_app(Tasked)))) as agent:
        assert await agent.prompts() == {"task"}
        (message,) = await agent.prompt("task")
        assert message["content"]["text"] == "Do as the author says."


async def test_lists_that_have_changed_are_told_of(serve: Serve) -> None:
    url = mcp(serve(create_app(FastLibrary)))
    async with Client(url, cache=None) as client:
        listening = client.listen(
            tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
        )
        async with listening as heard:
            await Agent(client).call("open_annex")
            events = [type(await asyncio.wait_for(anext(heard), 5)).__name__ for _ in range(2)]
            assert set(events) == {"PromptsListChanged", "ResourcesListChanged"}
        assert "borrow" in await Agent(client).prompts()
        assert "library://annex" in await Agent(client).resources()


async def test_an_agent_may_subscribe_to_so_many_resources_only(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openenv.server.mcp.bindings.MAX_SUBSCRIBED", 1)
    async with CLIENTS["legacy"](mcp(serve(create_app(FastLibrary)))) as agent:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            await agent.client.subscribe_resource("library://rules")
            with pytest.raises(MCPError, match="at most"):
                await agent.client.subscribe_resource("library://annex")
            await agent.client.unsubscribe_resource("library://rules")
            await agent.client.subscribe_resource("library://annex")
