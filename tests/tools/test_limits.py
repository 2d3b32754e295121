"""A wrapped MCP server that sends more than is taken: by its pipes, and over HTTP.

Each test goes over a limit, by a server that would go on for ever. It is told which limit that was,
the memory of this process stays what it was, and a second server beside it, and the next episode,
go on.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support import bare_server
from support.flooding_server import Flooding
from support.memory import MIB, kept_below
from support.servers import serving

from openenv.errors import Refused
from openenv.tools import CallToolAction, CallToolObservation, wrap
from openenv.tools.connections import MCPConnection, ServerRefused
from openenv.tools.sources import Program
from openenv.tools.transports import MAX_MESSAGE_BYTES, MCPServerProcess, connect_process
from openenv.tools.wrapped import WrappedEnvironment

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

BARE = [sys.executable, bare_server.__file__]
SMALL = MIB  # what `MAX_MESSAGE_BYTES` is set to, where its true size would cost seconds


@contextlib.asynccontextmanager
async def living(*made: type[WrappedEnvironment]) -> AsyncIterator[list[WrappedEnvironment]]:
    envs = [one() for one in made]
    try:
        yield envs
    finally:
        for env in envs:
            await env.close_async()


async def called(env: WrappedEnvironment, name: str, **arguments: Any) -> CallToolObservation:
    action = CallToolAction(tool_name=name, arguments=arguments)
    seen = await env.step_async(action, timeout_s=20)
    assert isinstance(seen, CallToolObservation)
    return seen


async def tally(env: WrappedEnvironment, by: int) -> int:
    seen = await called(env, "add", n=by)
    assert seen.error is None, seen.error
    return int(seen.result["content"][0]["text"])


def why(seen: CallToolObservation) -> str:
    assert seen.error is not None, "it was taken"
    return f"{seen.error.error_type.value}: {seen.error.message}"


# ------------------------------------------------------------------ one message


async def test_a_message_that_has_no_end_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("openenv.tools.transports.MAX_MESSAGE_BYTES", SMALL)
    async with living(wrap(BARE), wrap(BARE)) as (env, neighbour):
        await env.reset_async()
        await neighbour.reset_async()
        with kept_below(32 * MIB):
            told = why(await called(env, "flood"))
        assert "transport_error" in told and f"a message of over {SMALL} bytes" in told, told
        assert "reset starts it again" in told
        assert await tally(neighbour, 1) == 1
        await env.reset_async()
        assert await tally(env, 5) == 5


async def test_the_largest_message_is_64_mebibytes() -> None:
    """The limit in its true size, and no more memory than the message takes by itself."""
    async with living(wrap(BARE), wrap(BARE)) as (env, neighbour):
        await env.reset_async()
        await neighbour.reset_async()
        with kept_below(3 * MAX_MESSAGE_BYTES):
            told = why(await called(env, "big", n=MAX_MESSAGE_BYTES))
        assert f"a message of over {64 * MIB} bytes" in told
        assert await tally(neighbour, 1) == 1
        await env.reset_async()
        assert await tally(env, 5) == 5


@contextlib.asynccontextmanager
async def flooded(
    kind: str, encoding: str = "gzip"
) -> AsyncIterator[tuple[WrappedEnvironment, WrappedEnvironment]]:
    """A server over HTTP that sends too much, and another beside it."""
    with serving(Flooding(kind, encoding)) as url, serving(Flooding(kind)) as other:
        async with living(wrap(f"{url}/mcp"), wrap(f"{other}/mcp")) as (env, neighbour):
            await env.reset_async()
            await neighbour.reset_async()
            yield env, neighbour
            assert await tally(neighbour, 1) == 1
            assert await tally(env, 5) == 5


@pytest.mark.parametrize("kind", ["json", "event"])
async def test_over_http_a_message_has_the_same_limit(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openenv.tools.transports.MAX_MESSAGE_BYTES", 4 * SMALL)
    async with flooded(kind) as (env, _):
        large = await called(env, "big", n=3 * SMALL)
        assert large.error is None and len(large.result["content"][0]["text"]) == 3 * SMALL
        with kept_below(64 * MIB):
            told = why(await called(env, "flood"))
        assert f"a message of over {4 * SMALL} bytes" in told


@pytest.mark.parametrize("kind", ["json", "event"])
async def test_it_is_counted_as_it_is_unpacked(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openenv.tools.transports.MAX_MESSAGE_BYTES", 4 * SMALL)
    async with flooded(kind) as (env, _):
        told = why(await called(env, "packed"))
        assert f"a message of over {4 * SMALL} bytes" in told


async def test_what_may_unpack_to_any_size_is_not_unpacked() -> None:
    async with flooded("json", "gzip, gzip") as (env, _):
        with kept_below(32 * MIB):
            told = why(await called(env, "packed"))
        assert "an answer in the encoding 'gzip, gzip', which is not read" in told


# ------------------------------------------------------------------ lists


@pytest.mark.parametrize(
    ("limit", "value", "told"),
    [
        ("MAX_PAGES", 20, "does not end after 20 pages, .*; at most 20 pages and 67108864 bytes"),
        (
            "MAX_LISTED_BYTES",
            10_000,
            r"does not end after \d\d? pages, .* at most 1000 pages and 10000 bytes",
        ),
    ],
    ids=["pages", "bytes"],
)
async def test_a_list_without_an_end_is_given_up(
    limit: str, value: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"openenv.tools.connections.{limit}", value)
    async with living(wrap([*BARE, "--pages"]), wrap(BARE)) as (env, neighbour):
        await neighbour.reset_async()
        with pytest.raises(Refused, match=f"answer to tools/list {told}"):
            await env.reset_async()
        assert await tally(neighbour, 1) == 1
    connection = MCPConnection(
        lambda: connect_process(MCPServerProcess(Program((*BARE, "--pages")), "bare"))
    )
    with pytest.raises(Refused, match=f"answer to resources/list {told}"):
        await connection.ask("resources/list", {})
    with pytest.raises(ServerRefused, match="Method not found"):  # and it goes on
        await connection.ask("prompts/list", {})
    await connection.aclose()


async def test_a_list_of_a_thousand_pages_is_given_up() -> None:
    """The limit in its true size."""
    connection = MCPConnection(
        lambda: connect_process(MCPServerProcess(Program((*BARE, "--pages")), "bare"))
    )
    with pytest.raises(Refused, match="does not end after 1000 pages"):
        await connection.ask("resources/list", {})
    await connection.aclose()
