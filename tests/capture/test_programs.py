"""Programs that play in an environment while the proxy takes down what they ask."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.tables import Tables
from support.llm_server import Asked, Reply
from support.memory import MIB, kept_below
from support.servers import serving
from support.token_server import TokenServer, prompt_of, token_server, written

from openenv.capture import (
    AgentFailed,
    CaptureServer,
    ProgramSessionFactory,
    run_program,
)
from openenv.capture.programs import OUTPUT_BYTES
from openenv.rollouts.harness import (
    CLIHarnessAdapter,
    LoopOwningSession,
    TrainableSession,
    TrainingTrace,
)
from openenv.rollouts.harness.rollout_func import env_reward

pytestmark = pytest.mark.slow  # programs are started

AGENT = Path(__file__).parents[1] / "support" / "looking_agent.py"


def model(asked: Asked) -> Reply | str:
    if not asked.body.get("tools"):
        return "A hand of blackjack"
    if asked.messages[-1]["role"] == "tool":
        return "I stood."
    return Reply("", [("play", {"action": "stand"})])


@pytest.fixture
def upstream() -> Iterator[TokenServer]:
    with token_server(model) as server:
        yield server


@pytest.fixture
def tables() -> Iterator[Tables]:
    from blackjack_env.server.app import app

    with serving(app) as url:
        yield Tables(url)


class Factory(ProgramSessionFactory):
    def __init__(self, tables: Tables, upstream: TokenServer, *words: str, **options: Any) -> None:
        server = CaptureServer(llm_url=upstream.url, model="toy", port=0)
        super().__init__(tables, server, [sys.executable, str(AGENT), *words], **options)

    def __enter__(self) -> Factory:
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.stop()


def test_a_program_plays_and_its_tokens_its_tools_and_its_reward_are_had(
    tables: Tables, upstream: TokenServer
) -> None:
    with Factory(tables, upstream) as factory:
        session = factory.create("Play", seed=3)
        assert isinstance(session, TrainableSession) and isinstance(session, LoopOwningSession)
        assert session.wait_for_completion(30) == 0
        trace = session.fetch_training_trace()
        reward = session.verify([]).env_reward
        assert session.output == "I stood.\n"
        (call,) = session.tool_trace
        session.close()
        session.close()
        assert factory.server.registry.list_ids() == []
    first, second = trace.turns
    messages = second.request["messages"]
    assert messages[0]["content"].startswith("Play: ")
    assert second.prompt_token_ids == prompt_of(messages)
    assert second.prompt_token_ids[: len(first.prompt_token_ids)] == first.prompt_token_ids
    assert second.completion_token_ids == written({"content": "I stood."})
    assert (call.tool_name, call.arguments) == ("play", {"action": "stand"})
    assert reward == call.result.metadata["reward"]
    assert TrainingTrace.from_entries(trace.to_trace_entries()) == trace


def test_a_programs_side_work_is_not_trained_on(tables: Tables, upstream: TokenServer) -> None:
    with Factory(tables, upstream, "--sub") as factory:
        session = factory.create("Play", seed=3)
        session.wait_for_completion(30)
        assert len(session.captured.graph.nodes()) == 3
        assert len(session.fetch_proxy_trace()) == 2
        session.close()


def test_the_adapter_for_programs_gives_a_rollout_with_one_sequence(
    tables: Tables, upstream: TokenServer
) -> None:
    with Factory(tables, upstream, "--sub", "--fail") as factory:
        session = factory.create("Play", seed=3)
        rollout = CLIHarnessAdapter(run_program).run_black_box(session)
        reward = env_reward(rollout, session.verify(rollout.messages))
        session.close()
    assert [one["role"] for one in rollout.messages] == ["user", "assistant", "tool", "assistant"]
    assert rollout.metrics == {"turns": 3, "tool_calls": 1, "exit_code": 1, "failed_calls": 0}
    assert rollout.prompt_ids == prompt_of(rollout.messages[:1])
    whole = prompt_of(rollout.messages[:-1]) + written(rollout.messages[-1])
    assert rollout.prompt_ids + rollout.completion_ids == whole
    kept = sum(len(turn.completion_ids) for turn in rollout.turns)
    assert sum(rollout.completion_mask) == kept
    assert reward in (-1.0, 0.0, 1.0, 1.5)


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
def test_a_program_that_is_not_done_in_time_is_ended_and_what_it_did_is_there(
    tables: Tables, upstream: TokenServer
) -> None:
    with Factory(tables, upstream, "--hang", timeout_s=3) as factory:
        session = factory.create("Play", seed=3)
        with pytest.raises(TimeoutError, match="not done in 3 s"):
            session.wait_for_completion()
        assert len(session.fetch_training_trace().turns) == 2
        assert session._process is not None and session._process.poll() is not None
        session.close()


def test_a_program_that_asks_nothing_has_failed_and_is_no_rollout(
    tables: Tables, upstream: TokenServer
) -> None:
    with Factory(tables, upstream, "--idle") as factory:
        session = factory.create("Play", seed=3)
        with pytest.raises(AgentFailed, match="asked the model nothing") as failed:
            session.wait_for_completion(30)
        assert (failed.value.exit_code, failed.value.output) == (3, "nothing to do\n")
        with pytest.raises(ValueError, match="no call to train on"):
            session.fetch_training_trace()
        session.close()


def test_a_program_that_is_not_there_leaves_nothing_open(
    tables: Tables, upstream: TokenServer
) -> None:
    with Factory(tables, upstream) as factory:
        factory.command = ["/nowhere/agent"]
        with pytest.raises(AgentFailed, match="/nowhere/agent cannot be started"):
            factory.create("Play", seed=3)
        assert factory.server.registry.list_ids() == []


def test_a_program_gets_no_key_but_its_sessions(
    tables: Tables, upstream: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENENV_LLM_API_KEY", "OPENENV_API_KEY"):
        monkeypatch.setenv(name, "real-secret")
    words = "import os; print(os.environ, os.getcwd())"
    with Factory(tables, upstream, env={"MODEL": "{model}"}) as factory:
        factory.command = [sys.executable, "-c", words]
        session = factory.create("Play", seed=3)
        with pytest.raises(AgentFailed) as failed:
            session.wait_for_completion(30)
        assert session.captured.session_id in failed.value.output
        assert "real-secret" not in failed.value.output
        assert "'MODEL': 'toy'" in failed.value.output
        assert os.getcwd() not in failed.value.output.rpartition(")")[2]
        session.close()


def test_a_session_may_bound_the_calls_of_its_program(
    tables: Tables, upstream: TokenServer
) -> None:
    with Factory(tables, upstream, max_model_calls=1, sampling={"temperature": 1.0}) as factory:
        session = factory.create("Play", seed=3)
        assert session.wait_for_completion(30) == 0
        assert session.output == "Step budget exhausted; stopping.\n"
        (turn,) = session.fetch_training_trace().turns
        assert turn.metadata["sampling_params"]["temperature"] == 1.0
        session.close()


def test_only_a_programs_session_is_run(tables: Tables) -> None:
    session = tables.create("Play", seed=3)
    with pytest.raises(TypeError, match="not a StepEnvSessionAdapter"):
        CLIHarnessAdapter(run_program).run_black_box(session)
    session.close()


def test_programs_play_at_the_same_time(tables: Tables, upstream: TokenServer) -> None:
    with Factory(tables, upstream) as factory:
        sessions = [factory.create("Play", seed=seed) for seed in range(4)]
        for session in sessions:
            assert session.wait_for_completion(50) == 0
        traces = [session.fetch_training_trace() for session in sessions]
        for session in sessions:
            session.close()
    assert [len(trace.turns) for trace in traces] == [2] * 4


def test_of_what_a_program_writes_the_end_is_kept(tables: Tables, upstream: TokenServer) -> None:
    pour = "import sys; sys.stdout.write('x' * 2**25); print('the end')"
    with Factory(tables, upstream) as factory, kept_below(32 * MIB):
        factory.command = [sys.executable, "-c", pour]
        session = factory.create("Play", seed=3)
        with pytest.raises(AgentFailed, match="the end") as caught:
            session.wait_for_completion(30)
        assert len(session.output) == OUTPUT_BYTES and session.output.endswith("xthe end\n")
        assert len(str(caught.value)) < 2 * OUTPUT_BYTES
        session.close()
        factory.command = [sys.executable, str(AGENT)]
        neighbour = factory.create("Play", seed=3)
        assert neighbour.wait_for_completion(30) == 0
        neighbour.close()
