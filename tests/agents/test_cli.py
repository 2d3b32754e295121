"""A command line that is run once a turn."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from agents.test_environment import kinds, say
from support.processes import is_alive
from support.waiting import wait_until

from openenv.agents import (
    CLIHarnessAgent,
    HarnessConfig,
    HarnessEnvironment,
    HarnessEvent,
    HarnessEventType,
    HarnessStartupError,
)
from openenv.tools import tool

pytestmark = pytest.mark.anyio

# It keeps its conversation in a file of the session's name, as agents do.
PROGRAM = """
import json, os, subprocess, sys, time
session, message, how = sys.argv[1:4]
if message == "fail":
    sys.exit("the model is out of reach")
if message == "crash":
    os.abort()
if message == "child":
    print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid)
    sys.exit()
with open(session + ".txt", "a+") as file:
    file.write(message + chr(10))
    file.seek(0)
    heard = file.read().split(chr(10))[:-1]
print(how, *heard)
"""


def agent(folder: Path, *command: str, **options: Any) -> CLIHarnessAgent:
    settings = {
        name: options.pop(name) for name in list(options) if name in HarnessConfig.model_fields
    }
    config = HarnessConfig(
        name="once",
        command=[sys.executable, "-c", *(command or (PROGRAM, "{session}", "{message}", "first"))],
        working_directory=str(folder),
        **settings,
    )
    return CLIHarnessAgent(config, **options)


async def test_later_turns_resume_the_conversation(tmp_path: Path) -> None:
    resume = [sys.executable, "-c", PROGRAM, "{session}", "{message}", "resumed"]
    env = HarnessEnvironment(agent(tmp_path, resume=resume))
    await env.reset_async()
    one = await say(env, "say {model} and {braces}")
    assert one.metadata["response"] == "first say {model} and {braces}"
    assert kinds(one) == ["text_output", "turn_complete"]
    two = await say(env, "again")
    assert two.metadata["response"] == "resumed say {model} and {braces} again"
    await env.reset_async()
    assert (await say(env, "anew")).metadata["response"] == "first anew"
    await env.close_async()


@pytest.mark.parametrize(
    ("message", "kind", "told"),
    [
        ("fail", "turn_failed", "out of reach"),
        ("crash", "harness_crashed", "SIGABRT"),
    ],
)
async def test_a_command_that_fails_is_no_answer(
    tmp_path: Path, message: str, kind: str, told: str
) -> None:
    env = HarnessEnvironment(agent(tmp_path))
    await env.reset_async()
    failed = await say(env, message)
    assert (failed.done, failed.reward) == (True, None)
    assert failed.metadata["error_type"] == kind and told in failed.metadata["error"]
    await env.close_async()


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
@pytest.mark.slow
async def test_what_a_turn_leaves_in_the_background_ends_with_it(tmp_path: Path) -> None:
    env = HarnessEnvironment(agent(tmp_path))
    await env.reset_async()
    child = int((await say(env, "child")).metadata["response"])
    wait_until(lambda: not is_alive(child), 5, lambda: "a child of the command is left")
    await env.close_async()


async def test_a_command_may_read_the_message_and_write_events(tmp_path: Path) -> None:
    program = """
import json, sys
message = sys.stdin.read()
for n in range(3):
    print(json.dumps({"type": "llm_chunk", "data": {"text": str(n)}}))
print(json.dumps({"type": "turn_complete", "data": {"response": message.upper(), "done": True}}))
"""
    env = HarnessEnvironment(agent(tmp_path, program, output="events"))
    await env.reset_async()
    end = await say(env, "a message\nof two lines")
    assert end.metadata["response"] == "A MESSAGE\nOF TWO LINES\n" and end.done
    assert kinds(end) == [*["llm_chunk"] * 3, "turn_complete"]
    await env.close_async()


async def test_output_of_another_form_is_read_by_a_function(tmp_path: Path) -> None:
    program = """
import json, sys
print(json.dumps({"session": "abc", "kind": "tool", "name": "grep"}))
print(json.dumps({"session": "abc", "kind": "answer", "text": "found by " + sys.argv[1]}))
"""

    def parse(line: str) -> list[HarnessEvent]:
        said = json.loads(line)
        if said["kind"] == "tool":
            return [HarnessEvent(type=HarnessEventType.TOOL_CALL, data={"name": said["name"]})]
        return [HarnessEvent(type=HarnessEventType.TEXT_OUTPUT, data={"text": said["text"]})]

    driven = agent(
        tmp_path,
        program,
        "{session}",
        output=parse,
        session_of=lambda line: str(json.loads(line)["session"]),
    )
    env = HarnessEnvironment(driven)
    await env.reset_async()
    assert kinds(await say(env, "one")) == ["tool_call", "text_output", "turn_complete"]
    assert (await say(env, "two")).metadata["response"] == "found by abc"
    await env.close_async()


async def test_a_command_that_does_not_read_its_input_may_end_before_it_is_written(
    tmp_path: Path,
) -> None:
    program = "import os; os.close(0); print('done')"
    env = HarnessEnvironment(agent(tmp_path, program))
    await env.reset_async()
    message = "long " * 100_000  # more than a pipe holds
    assert (await say(env, message)).metadata["response"] == "done"
    await env.close_async()


async def test_a_function_that_cannot_read_the_output_is_a_failure(tmp_path: Path) -> None:
    env = HarnessEnvironment(agent(tmp_path, "print('hm')", output=lambda line: json.loads(line)))
    await env.reset_async()
    failed = await say(env, "one")
    assert failed.done and "JSONDecodeError" in failed.metadata["error"]
    await env.close_async()


def exists(path: str) -> bool:
    return Path(path).exists()


async def test_the_tools_are_told_of_in_a_file_of_its_own(tmp_path: Path) -> None:
    class Belled(HarnessEnvironment):
        @tool
        def ring(self) -> str:
            """Ring."""
            return "ding"

    program = "import sys; print(sys.argv[1], open(sys.argv[1]).read(), sys.argv[2])"
    env = Belled(agent(tmp_path, program, "{mcp_config}", "{mcp_url}", model="m"))
    await env.reset_async()
    path, _, rest = (await say(env, "show")).metadata["response"].partition(" ")
    url = rest.rpartition(" ")[2]
    assert json.loads(rest.rpartition(" ")[0])["mcpServers"]["openenv"]["url"] == url
    assert not str(path).startswith(str(tmp_path)) and exists(path)
    await env.close_async()
    assert not exists(path)


async def test_a_command_that_writes_too_much_is_stopped(tmp_path: Path) -> None:
    program = "for _ in range(10000): print('x' * 100)"
    env = HarnessEnvironment(agent(tmp_path, program, max_output_bytes=20_000))
    await env.reset_async()
    failed = await say(env, "go")
    assert failed.metadata["error_type"] == "output_too_large"
    await env.close_async()


async def test_a_program_that_is_not_installed_is_missed_at_reset(tmp_path: Path) -> None:
    config = HarnessConfig(name="x", command=["no-such-cli"], working_directory=str(tmp_path))
    env = HarnessEnvironment(CLIHarnessAgent(config))
    with pytest.raises(HarnessStartupError, match="no program 'no-such-cli'; install it"):
        await env.reset_async()
    await env.close_async()
