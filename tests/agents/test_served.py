"""Harnesses that are MCP servers, by pipes and by Streamable HTTP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from agents.test_environment import kinds, say
from support.processes import is_alive

from openenv.agents import (
    HarnessConfig,
    HarnessEnvironment,
    HarnessStartupError,
    HarnessTransport,
    MCPHarnessAgent,
)

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PROGRAM = """
import os, sys
from fastmcp import FastMCP
server = FastMCP("agent")
heard = []

@server.tool
def begin(prompt: str, style: str) -> dict:
    if prompt == "die":
        os._exit(7)
    if prompt == "fail":
        raise ValueError("no model")
    heard.append(prompt)
    return {"thread": "t1", "text": f"{style} {prompt}", "pid": os.getpid()}

@server.tool
def go_on(prompt: str, style: str, thread: str) -> dict:
    heard.append(prompt)
    return {"thread": thread, "text": " ".join(heard)}

if len(sys.argv) > 1:
    print("chatter " * 1000, flush=True)
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
else:
    server.run(show_banner=False)
"""


def agent(folder: Path, transport: str, **options: Any) -> MCPHarnessAgent:
    program = folder / "served_agent.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), *(["{port}"] if transport == "http" else [])]
    config = HarnessConfig(
        name="served",
        command=command,
        working_directory=str(folder),
        transport=HarnessTransport(transport),
        model="m1",
        terminate_grace_s=1.0,
    )
    named: dict[str, Any] = {"tool": "begin", "reply_tool": "go_on", "thread": "thread"}
    return MCPHarnessAgent(
        config, argument="prompt", arguments={"style": "as {model}"}, **{**named, **options}
    )


@pytest.mark.parametrize("transport", ["mcp", "http"])
async def test_its_tool_takes_turns(tmp_path: Path, transport: str) -> None:
    env = HarnessEnvironment(agent(tmp_path, transport))
    await env.reset_async()
    one = await say(env, "hello")
    assert "as m1 hello" in one.metadata["response"]
    assert kinds(one) == ["text_output", "turn_complete"]
    pid = int(one.metadata["response"].rpartition(":")[2].strip(" }"))
    assert is_alive(pid)
    assert "hello again" in (await say(env, "again")).metadata["response"]
    await env.close_async()
    assert not is_alive(pid)


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
@pytest.mark.parametrize("transport", ["mcp", "http"])
@pytest.mark.parametrize(("message", "kind"), [("die", "harness_crashed"), ("fail", "turn_failed")])
async def test_a_failure_is_no_answer(
    tmp_path: Path, transport: str, message: str, kind: str
) -> None:
    env = HarnessEnvironment(agent(tmp_path, transport))
    await env.reset_async()
    failed = await say(env, message)
    assert (failed.done, failed.reward, failed.metadata["error_type"]) == (True, None, kind)
    await env.close_async()


@pytest.mark.parametrize("transport", ["mcp", "http"])
async def test_what_cannot_be_started_says_why(tmp_path: Path, transport: str) -> None:
    env = HarnessEnvironment(agent(tmp_path, transport, tool="nothing"))
    with pytest.raises(HarnessStartupError, match="no tool nothing; it has begin, go_on"):
        await env.reset_async()
    broken = agent(tmp_path, transport)
    broken.config.command[1:] = ["-c", "import sys; sys.exit('no licence')"]
    env = HarnessEnvironment(broken)
    with pytest.raises(HarnessStartupError, match="no licence"):
        await env.reset_async()


def test_standard_output_is_for_another_adapter() -> None:
    config = HarnessConfig(name="x", command=["x"])
    with pytest.raises(ValueError, match="speaks 'mcp' or 'http'"):
        MCPHarnessAgent(config, tool="x")
