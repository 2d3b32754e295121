"""Rollouts as TRL's GRPOTrainer wants them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from harness.tables import Speaker, Tables, call, standing

from blackjack_env import BlackjackAction
from blackjack_env.server.app import app
from openenv import SessionLost
from openenv.rollouts.harness import (
    HarnessRolloutResult,
    MCPHarnessAdapter,
    ModelStepResult,
    ToolResult,
    ToolTraceEntry,
    VerifyResult,
    build_harness_rollout_func,
)
from openenv.rollouts.harness.rollout_func import env_reward

Serve = Callable[[Any], str]


def build(tables: Tables, step: Any = standing, **options: Any) -> Any:
    return build_harness_rollout_func(
        session_factory=tables,
        harness_adapter=MCPHarnessAdapter(),
        model_step_builder=step,
        **options,
    )


def test_each_prompt_is_a_row(serve: Serve) -> None:
    tables = Tables(serve(app))
    rows = build(tables, reward_key="won")(["a", "b", "c"], None)
    assert set(rows) == {
        "prompt_ids",
        "completion_ids",
        "logprobs",
        "env_mask",
        "won",
        "verify_metrics",
    }
    assert {len(column) for column in rows.values()} == {3}
    assert set(rows["won"]) <= {-1.0, 0.0, 1.0}
    assert rows["env_mask"] == [[1]] * 3
    assert rows["verify_metrics"] == [{"step_count": 1}] * 3


def test_rollouts_run_side_by_side_and_keep_their_order(serve: Serve) -> None:
    together = threading.Barrier(4, timeout=30)
    seen: list[str] = []

    def step(trainer: Any, session: Any) -> Any:
        speaker = Speaker([call(action="stand")])

        def turn(messages: Any, tools: Any, sampling: Any) -> ModelStepResult:
            together.wait()
            seen.append(messages[0]["content"])
            result = speaker(messages, tools, sampling)
            result.prompt_ids = [int(messages[0]["content"].split(":")[0])]
            return result

        return turn

    rows = build(Tables(serve(app)), step, concurrency=4)([0, 1, 2, 3], None)
    assert len(seen) == 4
    assert rows["prompt_ids"] == [[0], [1], [2], [3]]


@pytest.mark.parametrize("concurrency", [1, 2])
def test_sessions_are_closed_where_a_rollout_fails(serve: Serve, concurrency: int) -> None:
    tables = Tables(serve(app))

    def step(trainer: Any, session: Any) -> Any:
        raise RuntimeError("no model")

    with pytest.raises(RuntimeError, match="no model"):
        build(tables, step, concurrency=concurrency)(["a"], None)
    (client,) = tables.clients
    with pytest.raises(SessionLost, match="the client was closed"):
        client.sync().step(BlackjackAction(action="stand"))


def test_concurrency_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="concurrency=0"):
        build(Tables(""), concurrency=0)


# ------------------------------------------------------------------ the one reward


def reward(*results: ToolResult, verdict: float | None = None) -> float | None:
    trace = [ToolTraceEntry("play", {}, result) for result in results]
    return env_reward(HarnessRolloutResult(tool_trace=trace), VerifyResult(env_reward=verdict))


def test_the_last_reward_counts() -> None:
    first, last = ToolResult(metadata={"reward": 1}), ToolResult(data={"reward": 2})
    assert reward(first, last) == 2.0
    assert reward(first, ToolResult(metadata={"reward": None}), ToolResult(data="x")) == 1.0
    assert reward(ToolResult(data={"reward": 5}, metadata={"reward": 6})) == 6.0
    assert reward(first, verdict=1.0 + 1e-10) == 1.0
    assert reward(verdict=0.0) == 0.0


def test_what_could_not_be_scored_is_no_reward() -> None:
    with pytest.raises(ValueError, match="has no reward"):
        reward(ToolResult(data="x"))
    with pytest.raises(ValueError, match=r"verify.env_reward is 2.0, but .* was 1.0"):
        reward(ToolResult(metadata={"reward": 1}), verdict=2)
    with pytest.raises(ValueError, match="no finite number"):
        reward(ToolResult(metadata={"reward": float("nan")}))
