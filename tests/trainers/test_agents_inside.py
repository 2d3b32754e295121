"""smolagents, the real package, as an agent that runs inside an environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.llm_server import Asked, Failure, LLMServer, Reply, llm_server
from support.venvs import python_of

from openenv.agents import (
    CLIHarnessAgent,
    HarnessAction,
    HarnessConfig,
    HarnessEnvironment,
    StdioHarnessAdapter,
)
from openenv.tools import tool

pytestmark = [pytest.mark.trainers, pytest.mark.anyio]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "agents" / "smolagents_agent.py"


class Safe(HarnessEnvironment):
    """A safe that opens by its code."""

    def __init__(self, python: str, url: str) -> None:
        config = HarnessConfig(
            name="smolagents",
            command=[python, str(PROGRAM)],
            working_directory=str(ROOT),
            model="toy",
            env_vars={"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "a-key-of-no-one"},
            startup_timeout_s=60.0,
            session_timeout_s=60.0,
        )
        super().__init__(StdioHarnessAdapter(config, ready_check=lambda line: "ready" in line))
        self.tried: list[str] = []

    @tool
    def try_code(self, code: str) -> str:
        """Try a code."""
        self.tried.append(code)
        return "open" if code == "1234" else "closed"


@pytest.fixture(scope="module")
def python() -> str:
    folder = ROOT / ".peers" / "trainers_smolagents"
    return python_of(folder, "smolagents[openai,mcp]==1.26.0", "mcp==1.25.0")  # mcpadapt: below 2


@pytest.fixture
def model() -> Iterator[LLMServer]:
    """Tries the code it is told, then says what it has heard of codes so far."""

    def answer(asked: Asked) -> Reply | Failure:
        text = str(asked.messages)
        codes = [word for word in ("0000", "1234") if f"try {word}" in text]
        if "break" in text:
            return Failure(400)
        if "'closed'" in str(asked.messages[-1]) or "closed" in str(asked.messages[-1]):
            return Reply("", calls=[("final_answer", {"answer": f"no luck with {codes}"})])
        if "open" in str(asked.messages[-1]):
            return Reply("", calls=[("final_answer", {"answer": f"opened, of {codes}"})])
        return Reply("", calls=[("try_code", {"code": codes[-1]})])

    with llm_server(answer) as server:
        yield server


async def turn(env: HarnessEnvironment, message: str) -> dict[str, Any]:
    observation = await env.step_async(HarnessAction(message=message))
    metadata: dict[str, Any] = observation.metadata
    return metadata


async def test_it_uses_the_environments_tools_and_remembers(python: str, model: LLMServer) -> None:
    env = Safe(python, model.url)
    await env.reset_async()
    one = await turn(env, "try 0000")
    assert one["response"] == "no luck with ['0000']", one
    told = [event for event in one["turn_events"] if event["type"] == "tool_call"]
    assert {event["data"].get("source") for event in told} == {"environment", None}
    two = await turn(env, "try 1234")
    assert two["response"] == "opened, of ['0000', '1234']"
    assert env.tried == ["0000", "1234"]
    await env.close_async()


async def test_a_model_that_refuses_is_a_turn_that_failed(python: str, model: LLMServer) -> None:
    env = Safe(python, model.url)
    await env.reset_async()
    failed = await env.step_async(HarnessAction(message="break"))
    assert (failed.done, failed.reward) == (True, None), failed
    assert failed.metadata["error_type"] == "turn_failed"
    assert "400" in failed.metadata["error"]
    await env.close_async()


# ------------------------------------------------------------------ a command, run once a turn

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


@pytest.fixture(scope="module")
def mini() -> str:
    python = python_of(ROOT / ".peers" / "trainers_mini_swe", "mini-swe-agent==2.4.6")
    return str(Path(python).with_name("mini"))


@pytest.mark.parametrize("fails", [False, True], ids=["works", "fails"])
async def test_mini_swe_agent_works_on_the_files_of_an_environment(
    mini: str, tmp_path: Path, fails: bool
) -> None:
    commands = ["echo 42 > answer.txt", SUBMIT]

    def answer(asked: Asked) -> Reply | Failure:
        if fails:
            return Failure(401)
        return Reply("I shall.", calls=[("bash", {"command": commands[asked.number % 2]})])

    with llm_server(answer) as model:
        config = HarnessConfig(
            name="mini-swe-agent",
            command=[mini, "-y", "--exit-immediately", "-t", "{message}", "-m", "openai/{model}"],
            working_directory=str(tmp_path),
            model="toy",
            env_vars={
                "HOME": str(tmp_path),
                "MSWEA_GLOBAL_CONFIG_DIR": str(tmp_path),
                "MSWEA_CONFIGURED": "true",
                "MSWEA_COST_TRACKING": "ignore_errors",
                "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
                "OPENAI_API_BASE": f"{model.url}/v1",
                "OPENAI_API_KEY": "a-key-of-no-one",
            },
            session_timeout_s=60.0,
        )
        env = HarnessEnvironment(CLIHarnessAgent(config))
        await env.reset_async()
        observation = await env.step_async(HarnessAction(message="Write the answer."))
    told = observation.metadata
    if fails:
        assert (observation.done, observation.reward) == (True, None), told
        assert told["error_type"] == "turn_failed"
    else:
        assert not observation.done, told
        assert (tmp_path / "answer.txt").read_text() == "42\n"
        assert "echo 42" in told["response"]
    await env.close_async()
