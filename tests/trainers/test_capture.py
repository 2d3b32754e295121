"""Agents from the package index, unmodified, through the proxy; and TRL's worker that trains on
what a program asked a real, if small, model.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.commands import environ
from support.llm_server import Asked, Reply
from support.token_server import prompt_of, token_server, written
from support.venvs import python_of

from openenv.capture import CaptureServer, ProgramSession, export_session
from openenv.rollouts.harness import Message, ResourceSession, ToolResult, VerifyResult

pytestmark = [pytest.mark.trainers, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
AGENTS = ("mini-swe-agent==2.4.6", "smolagents[openai]==1.26.0", "google-genai==3.6.1")
TRL = ("torch==2.13.0", "trl==1.16.*", "-e", str(ROOT))


class Task(ResourceSession):
    """Write 42 into a file of a directory; the agent works there by its own tools."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "answer.txt"

    def initial_messages(self) -> list[Message]:
        return [{"role": "user", "content": "Write 42 into answer.txt"}]

    def list_tools(self) -> list[Any]:
        return []

    def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        raise KeyError(name)

    def verify(self, transcript: list[Message], final_state: Any | None = None) -> VerifyResult:
        is_right = self.file.exists() and self.file.read_text().strip() == "42"
        return VerifyResult(env_reward=float(is_right), done=True)

    def close(self) -> None:
        return None


def python() -> Path:
    return Path(python_of(ROOT / ".peers" / "capture_agents", *AGENTS))


def played(model: Any, directory: Path, *command: str, sequences: int = 1) -> dict[str, Any]:
    """The document of an agent's session of two calls, all of whose tokens are exact.

    They are one sequence, unless the agent tells the model another history than it had: smolagents
    writes its calls of tools into what the model said.
    """
    home = {"HOME": str(directory), "MSWEA_GLOBAL_CONFIG_DIR": str(directory)}
    env = {
        **home,
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "NO_PROXY": "*",
    }
    with (
        token_server(model) as upstream,
        CaptureServer(llm_url=upstream.url, model="toy", port=0) as server,
    ):
        session = ProgramSession(Task(directory), server, command, cwd=directory, env=env)
        try:
            code = session.wait_for_completion(120)
            assert code == 0, session.output
            assert session.verify([]).env_reward == 1.0, session.output
            trace = session.fetch_training_trace()
            document = export_session(session.captured, include_messages=True)
        finally:
            session.close()
    for turn in trace.turns:
        assert turn.prompt_token_ids == prompt_of(turn.request["messages"])
        said = turn.response["choices"][0]["message"]
        assert turn.completion_token_ids == written(said)
    lengths = [one["n_turns"] for one in document["sequences"]]
    assert lengths == ([2] if sequences == 1 else [1, 1])
    total = sum(len(turn.completion_token_ids) for turn in trace.turns)
    assert document["stats"]["n_trainable_tokens"] == total
    assert document["failures"] == []
    return document


def answers(asked: Asked) -> int:
    """How many answers of the model a conversation has."""
    return sum(message["role"] == "assistant" for message in asked.messages)


def test_mini_swe_agent_is_captured_as_it_comes(tmp_path: Path) -> None:
    def model(asked: Asked) -> Reply:
        commands = ["echo 42 > answer.txt", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
        return Reply("THOUGHT: so", [("bash", {"command": commands[min(answers(asked), 1)]})])

    words = ["-y", "--exit-immediately", "-l", "0", "-t", "{prompt}", "-m", "openai/{model}"]
    program = str(python().parent / "mini")
    document = played(model, tmp_path, program, *words, "-o", str(tmp_path / "trajectory.json"))
    assert document["turns"][0]["n_tools"] == 1


@pytest.mark.parametrize("way", ["whole", "streamed"])
def test_an_agent_of_smolagents_that_calls_tools_is_captured(tmp_path: Path, way: str) -> None:
    def model(asked: Asked) -> Reply:
        if answers(asked) == 0:
            return Reply("", [("write", {"text": "42"})])
        return Reply("", [("final_answer", {"answer": "done"})])

    program = str(HERE / "capture_smolagents.py")
    played(model, tmp_path, str(python()), program, "tools", way, sequences=2)


@pytest.mark.parametrize("way", ["whole", "streamed"])
def test_an_agent_of_smolagents_that_writes_code_is_captured(tmp_path: Path, way: str) -> None:
    def model(asked: Asked) -> str:
        code = ["write('42')", "final_answer('done')"][min(answers(asked), 1)]
        return f"Thought: so\n<code>\n{code}\n</code>"

    program = str(HERE / "capture_smolagents.py")
    played(model, tmp_path, str(python()), program, "code", way, sequences=2)


@pytest.mark.parametrize("way", ["whole", "streamed"])
def test_googles_sdk_is_captured(tmp_path: Path, way: str) -> None:
    def model(asked: Asked) -> Reply | str:
        return "done" if answers(asked) else Reply("so", [("write", {"text": "42"})])

    played(model, tmp_path, str(python()), str(HERE / "capture_gemini.py"), way)


def test_trl_trains_on_what_a_program_sampled_from_a_real_model() -> None:
    """Its worker is driven by the one method that plays a rollout; no trainer, no GPU."""
    done = subprocess.run(
        [python_of(ROOT / ".peers" / "trl", *TRL), str(HERE / "capture_play.py")],
        env=environ(ROOT / "tests") | {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["level"], found["logprobs_mode"]) == ("tokens", "processed")
    assert found["furthest"] < 1e-4  # of the log-probabilities, told anew by the model
    assert found["trained"] == found["written"] == found["completion_ids"] > 0
    assert (found["turns"], found["metrics_turns"], found["reward"]) == (3, 3, 6.0)
    assert found["roles"] == ["user", "assistant"] * 3
    assert found["skewed"] > 0  # text made into tokens again is not what was sampled
    assert found["left"] == []
