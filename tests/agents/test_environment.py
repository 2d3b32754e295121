"""Turns of a real program that runs inside an environment, and what becomes of its failures."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from agents.desks import HERE, Desk, Parrot
from support.processes import is_alive
from support.waiting import eventually, wait_until

from openenv.agents import (
    HarnessAction,
    HarnessBusyError,
    HarnessEnvironment,
    HarnessEventType,
    HarnessNotRunningError,
    HarnessStartupError,
)
from openenv.environment import Environment
from openenv.errors import NotSupported
from openenv.execution.commands import Reset, Step
from openenv.execution.session import Session
from openenv.execution.spec import EnvironmentSpec
from openenv.rewards import Rubric
from openenv.tools import CallToolAction
from openenv.types import Action, Observation

pytestmark = pytest.mark.anyio


async def say(env: HarnessEnvironment, message: str, **options: Any) -> Observation:
    observation = await env.step_async(HarnessAction(message=message), **options)
    assert isinstance(observation, Observation)
    return observation


def kinds(observation: Observation) -> list[str]:
    return [event["type"] for event in observation.metadata["turn_events"]]


async def test_a_conversation_is_kept_over_the_turns_of_an_episode() -> None:
    env = Desk()
    first = await env.reset_async(episode_id="mine")
    assert first.metadata == {"episode_id": "mine", "injected_tools": ["ring", "env_bash"]}
    assert not first.done and first.reward is None
    one = await say(env, "hello")
    two = await say(env, "again")
    assert one.metadata["response"] == "I have heard hello"
    assert two.metadata["response"] == "I have heard hello, again"
    assert kinds(two) == ["text_output", "turn_complete"]
    assert (two.metadata["turn_number"], env.state.step_count) == (2, 2)
    assert (two.done, two.reward) == (False, None)
    assert len(env.trajectory) == 4

    await env.reset_async()
    assert (await say(env, "anew")).metadata["response"] == "I have heard anew"
    assert env.state.step_count == 1 and len(env.trajectory) == 2
    await env.close_async()


async def test_the_agent_calls_the_environments_tools() -> None:
    env = Desk()
    await env.reset_async()
    assert (await say(env, "tools")).metadata["response"] == "ring env_bash"
    rang = await say(env, 'call ring {"times": 3}')
    assert json.loads(rang.metadata["response"])["structuredContent"] == {"result": 3}
    assert kinds(rang) == ["tool_call", "tool_result", "turn_complete"]
    called, gave = (event["data"] for event in rang.metadata["turn_events"][:2])
    assert called["arguments"] == {"times": 3} and called["source"] == "environment"
    assert called["id"] == gave["id"] and gave["is_error"] is False
    assert env.rung == 3 and env.state.step_count == 2

    renamed = await say(env, 'call env_bash {"command": "ls"}')
    assert "not run: ls" in renamed.metadata["response"]
    for wrong in ('call ring {"times": "no"}', "call nothing", "call bash"):
        answer = json.loads((await say(env, wrong)).metadata["response"])
        assert answer.get("isError") or "Unknown tool" in answer["message"], answer
    assert env.rung == 3
    await env.close_async()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "kind", "told"),
    [
        ("die 3", "harness_crashed", "exit code 3"),
        ("die 3", "harness_crashed", "the engine is on fire"),
        ("garbage", "protocol_error", "Traceback"),
        ("flood", "output_too_large", "max_output_bytes"),
        ("line", "output_too_large", "max_output_bytes"),
        ("fail", "turn_failed", "the model is out of reach"),
        ("hang", "turn_timeout", "session_timeout_s"),
    ],
)
async def test_a_failure_ends_the_episode_and_is_no_answer(
    message: str, kind: str, told: str
) -> None:
    limit_s = 0.5 if message == "hang" else 20.0
    env = Desk(
        session_timeout_s=limit_s, max_output_bytes=100_000, terminate_grace_s=0.2, rubric=Ones()
    )
    await env.reset_async()
    failed = await say(env, message)
    assert (failed.done, failed.truncated, failed.reward) == (True, True, None)
    assert failed.metadata["error_type"] == kind
    assert told in failed.metadata["error"]
    assert "response" not in failed.metadata
    assert told in failed.metadata["reward_info"]["unscored"]
    assert kinds(failed)[-1] == "error"
    assert not await env.adapter.is_alive()
    with pytest.raises(HarnessNotRunningError, match="reset"):
        await say(env, "are you there?")
    await env.reset_async()
    assert (await say(env, "hello")).metadata["response"] == "I have heard hello"
    await env.close_async()


class Ones(Rubric):
    """Any turn is worth 1."""

    def forward(self, action: Any, observation: Any) -> float:
        return 1.0


async def test_a_failed_episode_is_not_scored_as_a_whole_either() -> None:
    class Scored(Desk):
        trajectory_scorer = staticmethod(lambda trajectory: float(len(trajectory)))

    session = Session(EnvironmentSpec.of(Scored))
    await session.open()
    for last, reward in (("bye", 2.0), ("die", None)):
        await session.handle(Reset())
        await session.handle(Step({"message": "hello"}))
        end = await session.handle(Step({"message": last}))
        assert (end.done, end.reward) == (True, reward)
    assert "unscored" in end.reward_info
    await session.close()


async def test_the_agent_may_end_the_episode_and_so_may_its_limit_of_turns() -> None:
    env = Desk(max_turns=2, rubric=Ones())
    await env.reset_async()
    end = await say(env, "bye")
    assert (end.done, end.truncated, end.reward) == (True, False, 1.0)
    with pytest.raises(HarnessNotRunningError, match="over"):
        await say(env, "hello")
    await env.reset_async()
    assert not (await say(env, "one")).done
    end = await say(env, "two")
    assert (end.done, end.truncated) == (True, True)
    assert end.metadata["response"] == "I have heard one, two"
    await env.close_async()


async def test_a_second_turn_is_refused_while_one_runs(tmp_path: Path) -> None:
    env = Desk(terminate_grace_s=0.2)
    await env.reset_async()
    turn = asyncio.ensure_future(say(env, f"hang {tmp_path / 'begun'}"))
    await eventually((tmp_path / "begun").exists)
    with pytest.raises(HarnessBusyError, match="wait for its end"):
        await say(env, "hello")
    with pytest.raises(HarnessBusyError):
        await env.reset_async()
    with pytest.raises(HarnessBusyError):
        await env.adapter.send_message("hello")
    turn.cancel()
    await asyncio.wait([turn])
    await env.close_async()


async def test_a_turn_that_is_given_up_leaves_no_process(tmp_path: Path) -> None:
    env = Desk(terminate_grace_s=0.2)
    await env.reset_async()
    child = int((await say(env, "child")).metadata["response"])
    assert is_alive(child)
    turn = asyncio.ensure_future(say(env, f"hang {tmp_path / 'begun'}"))
    await eventually((tmp_path / "begun").exists)
    turn.cancel()
    await asyncio.wait([turn])
    assert turn.cancelled()
    assert not await env.adapter.is_alive()
    wait_until(lambda: not is_alive(child), shown=lambda: "a child of the agent is left")
    with pytest.raises(HarnessNotRunningError, match="given up"):
        await say(env, "hello")
    await env.close_async()


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
@pytest.mark.slow
@pytest.mark.parametrize("message", ["die", "bye"])
async def test_what_the_agent_has_started_ends_with_the_episode(message: str) -> None:
    env = Desk(terminate_grace_s=0.2)
    await env.reset_async()
    child = int((await say(env, "child")).metadata["response"])
    await say(env, message)
    wait_until(lambda: not is_alive(child), shown=lambda: "a child of the agent is left")
    await env.close_async()


async def test_tools_answer_during_a_turn_only() -> None:
    env = Desk()
    await env.reset_async()
    bridge = env._bridge
    assert bridge is not None
    tools = bridge._handler._offered
    result = await tools.call("ring", {})
    assert result["isError"] and "no turn is running" in result["content"][0]["text"]
    assert env.rung == 0
    await env.close_async()


@pytest.mark.parametrize(
    ("arguments", "options", "told"),
    [
        (("--fails",), {}, "no licence"),
        (("--slow",), {"startup_timeout_s": 0.3}, "did not become ready within 0.3 s"),
        ((), {"working_directory": "/nowhere"}, "no directory '/nowhere'"),
        ((), {"api_key_env_var": "NOBODYS_KEY"}, "NOBODYS_KEY"),
        ((), {"mcp_config_path": "parrot.py"}, "mcp_config_path"),
    ],
)
async def test_what_cannot_be_started_says_why(
    arguments: tuple[str, ...], options: dict[str, Any], told: str
) -> None:
    env = Desk(*arguments, terminate_grace_s=0.2, **options)
    with pytest.raises(HarnessStartupError, match=told):
        await env.reset_async()
    with pytest.raises(HarnessNotRunningError, match="reset"):
        await say(env, "hello")
    await env.close_async()


async def test_a_program_that_is_not_installed_says_where_to_install_it() -> None:
    env = Desk()
    env.adapter.config.command[0] = "no-such-agent"
    with pytest.raises(HarnessStartupError, match=r"no-such-agent.*install it"):
        await env.reset_async()
    await env.close_async()


async def test_secrets_reach_the_agent_by_name_only_and_no_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PARROT_API_KEY", "parrots-own-secret")
    monkeypatch.setenv("BANK_PASSWORD", "0000-1111-2222")
    env = Desk(api_key_env_var="PARROT_API_KEY", env_vars={"PARROT_TOKEN": "squawk-squawk"})
    await env.reset_async()
    said = (await say(env, "environment")).metadata["response"]
    assert "parrots-own-secret" not in said and "squawk-squawk" not in said
    got = json.loads(said)
    assert got["PARROT_API_KEY"] == "***" and got["PARROT_TOKEN"] == "***"
    assert "BANK_PASSWORD" not in got
    assert "squawk-squawk" not in str(env.trajectory)
    await env.close_async()


async def test_the_file_of_mcp_servers_is_put_back(tmp_path: Path) -> None:
    file = tmp_path / ".mcp.json"
    file.write_text('{"mcpServers": {"mine": {"command": "x"}}, "other": 1}')
    before = file.read_bytes()
    env = Desk(working_directory=str(tmp_path), mcp_config_path=".mcp.json")
    await env.reset_async()
    written = json.loads(file.read_text())
    assert written["other"] == 1 and set(written["mcpServers"]) == {"mine", "openenv"}
    assert written["mcpServers"]["openenv"]["url"].startswith("http://127.0.0.1:")
    await env.close_async()
    assert file.read_bytes() == before


async def test_an_adapter_that_fails_in_its_own_way_is_a_failure_too() -> None:
    class Broken(Parrot):
        async def send_message_streaming(self, message: str) -> Any:
            if message == "raise":
                raise ZeroDivisionError("by the adapter")
            async for event in super().send_message_streaming(message):
                if event.type is not HarnessEventType.TURN_COMPLETE:
                    yield event

    for message, told in (("raise", "ZeroDivisionError"), ("hello", "turn_complete")):
        env = HarnessEnvironment(Broken(session_timeout_s=5.0))
        await env.reset_async()
        failed = await say(env, message)
        assert failed.metadata["error_type"] == "harness_crashed"
        assert told in failed.metadata["error"] and failed.reward is None
        await env.close_async()


async def test_other_actions_are_those_of_any_environment_of_tools() -> None:
    class Other(Action):
        pass

    env = Desk()
    await env.reset_async()
    rang = await env.step_async(CallToolAction(tool_name="ring", arguments={"times": 2}))
    assert rang.result["data"] == 2
    with pytest.raises(NotSupported):
        await env.step_async(Other())
    await env.close_async()


@pytest.mark.blocks_the_loop
def test_it_is_used_from_plain_code_too() -> None:
    env = Desk()
    assert isinstance(env, Environment)
    env.reset(episode_id="plain")
    assert env.state.episode_id == "plain"
    seen = env.step(HarnessAction(message="hello"))
    assert seen.metadata["response"] == "I have heard hello"
    rang = env.step(HarnessAction(message='call ring {"times": 4}'))
    assert "4" in rang.metadata["response"]
    pid = env.adapter._running.pid  # type: ignore[attr-defined]
    env.close()
    assert not is_alive(pid)
    assert os.path.isdir(HERE)
