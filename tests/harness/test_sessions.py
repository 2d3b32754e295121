"""An environment as a session of tools, and its tools by the messages of MCP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness.tables import TOOLS, Tables, action, began

from blackjack_env.server.app import app
from openenv import ExecutionFailed, SessionLost
from openenv.rollouts.harness import (
    LoopOwningSession,
    SessionMCPBridge,
    StepEnvSessionAdapter,
    ToolCallRejected,
    ToolResult,
    TrainableSession,
    UnknownSessionTool,
    VerifyResult,
)
from openenv.tools import Tool

Serve = Callable[[Any], str]


def test_seed_and_episode_reach_the_environment(serve: Serve) -> None:
    tables = Tables(serve(app), reset_kwargs={"natural": True})
    session = tables.create("Play", seed=5, episode_id="mine")
    result = session.call_tool("play", {"action": "stand"})
    state = result.metadata["state"]
    assert (state["episode_id"], state["natural"]) == ("mine", True)
    again = tables.create("Play", seed=5)
    assert again.initial_messages() == session.initial_messages()
    session.close()
    session.close()
    again.close()


def test_messages_are_the_callers_own(serve: Serve) -> None:
    session = Tables(serve(app)).create("Play")
    session.initial_messages()[0]["content"] = "spoilt"
    session.initial_messages().clear()
    assert session.initial_messages()[0]["content"].startswith("Play: ")
    session.close()


def test_results_and_verdict_can_be_ones_own(serve: Serve) -> None:
    def result(name: str, arguments: dict[str, Any], step: Any, state: Any) -> ToolResult:
        return ToolResult(data=step.observation.text, done=step.done)

    def verdict(transcript: Any, final_state: Any, last: Any, state: Any) -> VerifyResult:
        return VerifyResult(env_reward=last.reward, artifacts={"final": final_state})

    tables = Tables(serve(app), tool_result_builder=result, verify_builder=verdict)
    session = tables.create("Play", seed=5)
    assert isinstance(session.call_tool("play", {"action": "stand"}).data, str)
    told = session.verify([], final_state="F")
    assert told.env_reward in {-1.0, 0.0, 1.0}
    assert told.artifacts == {"final": "F"}
    session.close()


def test_before_a_step_there_is_no_reward(serve: Serve) -> None:
    session = Tables(serve(app)).create("Play", seed=5)
    verdict = session.verify([{"role": "user"}])
    assert (verdict.env_reward, verdict.done) == (None, False)
    assert verdict.metrics == {"step_count": 0}
    assert verdict.artifacts["transcript_length"] == 1
    session.close()


def test_an_unknown_tool_and_a_wrong_argument_do_no_step(serve: Serve) -> None:
    session = Tables(serve(app)).create("Play", seed=5)
    with pytest.raises(UnknownSessionTool, match=r"^Unknown tool: fold; there is play$"):
        session.call_tool("fold", {})
    with pytest.raises(KeyError, match="reserved"):
        session.call_tool("reset", {})
    with pytest.raises(ToolCallRejected, match="KeyError: 'action'"):
        session.call_tool("play", {})
    assert session.call_tool("play", {"action": "stand"}).metadata["state"]["step_count"] == 1
    session.close()


def test_a_lost_session_is_an_error_and_no_new_episode(serve: Serve) -> None:
    session = Tables(serve(app)).create("Play", seed=5)
    session.close()
    with pytest.raises(SessionLost, match="the client was closed"):
        session.call_tool("play", {"action": "stand"})


def test_a_session_that_does_not_begin_closes_its_client(serve: Serve) -> None:
    tables = Tables(serve(app), reset_kwargs={"natural": "perhaps"})
    with pytest.raises(ExecutionFailed):
        tables.create("Play", seed=5)
    (client,) = tables.clients
    with pytest.raises(SessionLost, match="the client was closed"):
        client.sync().state()


def test_names_of_tools_that_drive_the_episode_are_refused() -> None:
    class Untouched:
        def reset(self, **_: Any) -> None:
            raise AssertionError("it was reset")

    tools = [*TOOLS, Tool(name="step", description="", input_schema={})]
    with pytest.raises(ValueError, match="tool_specs: step: reserved"):
        StepEnvSessionAdapter(
            Untouched(),
            tool_specs=tools,
            action_builder=action,
            initial_messages_builder=began,
        )


def test_sessions_whose_agent_owns_the_loop_are_known_by_what_they_have() -> None:
    class Owner:
        def wait_for_completion(self, timeout_s: float | None = None) -> int:
            return 0

        def fetch_proxy_trace(self) -> list[Any]:
            return []

    assert isinstance(Owner(), LoopOwningSession)
    assert not isinstance(Owner(), TrainableSession)


# ------------------------------------------------------------------ by MCP

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def asked(params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def test_tools_are_listed_and_called_by_mcp(serve: Serve) -> None:
    session = Tables(serve(app)).create("Play", seed=5)
    bridge = SessionMCPBridge(session)
    (tool,) = bridge.handle_request(LIST)["result"]["tools"]
    assert set(tool) == {"name", "description", "inputSchema"}
    answer = bridge.handle_request(asked({"name": "play", "arguments": {"action": "stand"}}))
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 7)
    assert set(answer["result"]) == {"data", "done", "metadata", "error"}
    assert answer["result"]["done"]
    session.close()


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        ({"id": 7, "method": "tools/list"}, -32600, "Invalid Request"),
        ({"jsonrpc": "2.0", "id": 7, "method": "nope"}, -32601, "Method not found"),
        (asked({}), -32602, "Missing tool name"),
        (asked([]), -32602, "Missing tool name"),
        (asked({"name": "reset"}), -32602, "Reserved orchestration tool: reset"),
        (asked({"name": "fold"}), -32601, "Unknown tool: fold; there is play"),
        (asked({"name": "play", "arguments": 3}), -32602, "expected an object, not 3"),
        (asked({"name": "play", "arguments": {}}), -32602, "play: KeyError: 'action'"),
    ],
    ids=["version", "method", "no name", "a list", "reserved", "unknown", "number", "lacking"],
)
def test_what_is_wrong_is_told_by_its_code(
    serve: Serve, request_: dict[str, Any], code: int, words: str
) -> None:
    session = Tables(serve(app)).create("Play", seed=5)
    error = SessionMCPBridge(session).handle_request(request_)["error"]
    session.close()
    assert error["code"] == code
    assert words in error["message"]


def test_a_request_that_is_none_is_answered() -> None:
    session: Any = None
    answer = SessionMCPBridge(session).handle_request([1])  # type: ignore[arg-type]
    assert answer["error"]["code"] == -32600
