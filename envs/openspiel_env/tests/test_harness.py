"""Tests that collect episodes of tic-tac-toe as public examples do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from openenv.core.harness import HarnessRunLimits, MCPHarnessAdapter, ModelStepResult
from openenv.core.harness.collect import CollectRunner, RolloutSerializer
from openenv.core.llm_client import LLMResponse, ToolCall
from openspiel_env.client import OpenSpielEnv
from openspiel_env.harness import OpenSpielSessionFactory, render_tic_tac_toe_board
from openspiel_env.server.openspiel_environment import OpenSpielEnvironment


def client() -> OpenSpielEnv:
    return OpenSpielEnv.local(lambda: OpenSpielEnvironment(game_name="tic_tac_toe"))


def first_legal(messages: Any, tools: Any, sampling: Any) -> ModelStepResult:
    said = str(messages[-1]["content"])
    (legal,) = re.findall(r'(?:Legal actions: |"legal_actions": ?)\[([\d, ]*)\]', said)
    move = ToolCall("move", tools[0].name, {"action_id": int(legal.split(",")[0])})
    return ModelStepResult(response=LLMResponse("", [move]))


def test_games_are_collected(tmp_path: Path) -> None:
    runner = CollectRunner(
        session_factory=OpenSpielSessionFactory(client, game_name="tic_tac_toe"),
        harness_adapter=MCPHarnessAdapter(),
        serializer=RolloutSerializer(tmp_path),
        limits=HarnessRunLimits(max_turns=9),
    )
    done = runner.run(model_step=first_legal, num_episodes=3, episode_id_prefix="ttt")
    assert (done.num_collected, done.num_failed) == (3, 0)
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["episode_id"] for line in lines] == [f"ttt-00000{n}" for n in range(3)]
    assert all(json.loads(line)["reward"] in (-1.0, 0.0, 1.0) for line in lines)


def test_a_session_shows_the_board_and_plays_a_move() -> None:
    session = OpenSpielSessionFactory(client).create(seed=7, episode_id="e")
    (prompt,) = session.initial_messages()
    assert "tic_tac_toe" in prompt["content"] and "Board:\n0 1 2\n3 4 5\n6 7 8" in prompt["content"]
    result = session.call_tool("play_move", {"action_id": 4})
    assert result.data["board"].split()[4] == "X" and "O" in result.data["board"]
    assert 4 not in result.data["legal_actions"]
    session.close()


def test_what_is_no_board_is_not_drawn() -> None:
    assert render_tic_tac_toe_board([0.0] * 5) == ""
