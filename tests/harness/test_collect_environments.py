"""Episodes of environments are collected: by any policy, as conversations, gone on with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rollouts.worlds import Talk
from support.llm_server import Asked, Reply, llm_server

from openenv import RewardSpec
from openenv.rewards.llm import OpenAIClient
from openenv.rollouts import (
    RolloutFileError,
    RolloutLimits,
    RolloutsFailed,
    read_rollouts,
)
from openenv.rollouts.collect import EpisodeRecord, RolloutSerializer, collect
from openenv.rollouts.policies.models import LLMPolicy

Serve = Callable[[Any], str]


class Judged(Talk):
    """``over`` is worth 4; ``bad`` and then ``over`` is worth -1."""

    REWARD = RewardSpec("terminal", range=(-1.0, 4.0))

    def answer(self, heard: Any, word: str) -> Any:
        if heard.done:
            heard.reward = -1.0 if "bad" in self.words else float(len(word))
        return heard


def brief(observation: dict[str, Any]) -> dict[str, str]:
    return {"word": "over"}


def chatty(observation: dict[str, Any], step: int) -> dict[str, str]:
    return {"word": ("a", "b", "over")[step]}


def wavering(observation: dict[str, Any], step: int, task: dict[str, Any]) -> dict[str, str]:
    """A loser in every second episode."""
    is_bad = int(task["id"][-1]) % 2
    return {"word": "bad" if is_bad and not step else "over"}


def records(folder: Path) -> list[EpisodeRecord]:
    return list(RolloutSerializer(folder).records())


def test_what_a_policy_does_is_told_as_a_conversation(tmp_path: Path) -> None:
    done = collect(Judged, chatty, tmp_path, num_episodes=2, system_prompt="Talk.", prompt="Begin.")
    assert (done.episodes, done.new, done.dropped) == (2, 2, 0)
    first = min(records(tmp_path), key=lambda one: one.episode_id)
    assert first.episode_id == "ep-000000"
    roles = [one["role"] for one in first.messages]
    assert roles == ["system", "user", *["assistant", "tool"] * 3]
    assert first.messages[1]["content"].startswith("Begin.")
    call = first.messages[2]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"word": "a"}
    assert first.messages[3]["tool_call_id"] == call["id"]
    assert "over" in first.messages[-1]["content"]  # what came of the last action
    assert first.reward == 4.0 and first.done
    assert [one["arguments"] for one in first.tool_trace] == [
        {"word": "a"},
        {"word": "b"},
        {"word": "over"},
    ]
    assert done.statistics["reward"]["mean"] == 4.0


def test_losses_are_dropped_and_not_played_again(tmp_path: Path) -> None:
    done = collect(Judged, wavering, tmp_path, num_episodes=4)
    assert (done.episodes, done.dropped) == (2, 2)
    assert all(one.reward > 0 for one in records(tmp_path))
    again = collect(Judged, wavering, tmp_path, num_episodes=4)
    assert (again.episodes, again.new, again.dropped) == (2, 0, 2)
    kept = collect(Judged, wavering, tmp_path / "all", num_episodes=4, keep_losses=True)
    assert (kept.episodes, kept.dropped) == (4, 0)


def test_more_episodes_are_had_of_a_dataset_that_is_there(tmp_path: Path) -> None:
    collect(Judged, brief, tmp_path, num_episodes=2)
    done = collect(Judged, brief, tmp_path, num_episodes=5)
    assert (done.episodes, done.new) == (5, 3)
    assert {one.episode_id for one in records(tmp_path)} == {f"ep-00000{n}" for n in range(5)}


def test_another_teacher_does_not_go_on_with_it(tmp_path: Path) -> None:
    collect(Judged, brief, tmp_path, num_episodes=1)
    with pytest.raises(RolloutFileError, match="policy"):
        collect(Judged, chatty, tmp_path, num_episodes=2)
    done = collect(Judged, chatty, tmp_path, num_episodes=2, resume=False)
    assert done.episodes == 2
    assert len(list(tmp_path.glob("*.bak.jsonl"))) == 2


def test_what_was_played_and_not_yet_in_the_dataset_is_made_up_for(tmp_path: Path) -> None:
    collect(Judged, brief, tmp_path, num_episodes=3)
    path = tmp_path / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"\n") + 30])  # the program ended between the two
    done = collect(Judged, brief, tmp_path, num_episodes=3)
    assert (done.episodes, done.new) == (3, 2)
    assert sorted(path.read_bytes().splitlines()) == sorted(whole.splitlines())


def test_what_the_file_of_rollouts_lost_is_played_again(tmp_path: Path) -> None:
    collect(Judged, brief, tmp_path, num_episodes=3)
    for name in ("results.jsonl", "rollouts.jsonl"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-30])
    done = collect(Judged, brief, tmp_path, num_episodes=3)
    assert (done.episodes, done.new) == (3, 1)
    assert len(list(read_rollouts(tmp_path / "rollouts.jsonl"))) == 3


def test_episodes_that_somebody_else_collected_are_not_had_again(tmp_path: Path) -> None:
    with RolloutSerializer(tmp_path) as serializer:
        messages = [{"role": "assistant", "content": "hi"}]
        serializer.write_episode(EpisodeRecord("ep-000001", messages, 1, True, [], {}, {}, {}))
    done = collect(Judged, brief, tmp_path, num_episodes=3)
    assert (done.episodes, done.new) == (3, 2)


def test_what_was_not_scored_is_no_episode(tmp_path: Path) -> None:
    done = collect(Judged, chatty, tmp_path, num_episodes=2, limits=RolloutLimits(steps=1))
    assert done.episodes == 0
    assert done.summary.unscored == 2
    assert done.statistics["reward"]["mean"] is None
    assert "| episodes | 0 |" in (tmp_path / "README.md").read_text()


def test_what_fails_is_in_the_rollouts_and_not_in_the_dataset(tmp_path: Path) -> None:
    def crash(observation: dict[str, Any], task: dict[str, Any]) -> dict[str, str]:
        if task["id"] == "ep-000002":
            raise ZeroDivisionError("by nothing")
        return {"word": "over"}

    with pytest.raises(RolloutsFailed):
        collect(Judged, crash, tmp_path, num_episodes=4, error_budget=0)
    done = collect(Judged, crash, tmp_path, num_episodes=4, error_budget=1)
    assert done.episodes == 3
    failed = [one for one in read_rollouts(tmp_path / "rollouts.jsonl") if one.failures]
    assert [one.reward for one in failed] == [None]


def test_tasks_are_done_several_times_each(tmp_path: Path) -> None:
    tasks = [{"id": f"t{n}", "prompt": f"Task {n}.", "reset": {"start": "w"}} for n in range(3)]
    done = collect(Judged, brief, tmp_path, tasks=tasks, n=2)
    assert done.episodes == 6
    found = {one.episode_id: one for one in records(tmp_path)}
    assert set(found) == {"t0", "t0#1", "t1", "t1#1", "t2", "t2#1"}
    assert found["t1"].messages[0]["content"].startswith("Task 1.")
    assert found["t1"].extra["group"] == found["t1#1"].extra["group"]


@pytest.mark.slow
def test_a_model_plays_at_a_real_server(serve: Serve, tmp_path: Path) -> None:
    from rollouts.worlds import Heard, Say

    from openenv.server.app import create_app

    def answer(asked: Asked) -> Reply:
        words = asked.last
        name = asked.body["tools"][0]["function"]["name"]
        return Reply("Hm.", calls=[(name, {"word": "over" if "a" in words else "rude"})])

    url = serve(create_app(Judged, Say, Heard))
    with llm_server(answer) as server:
        policy = LLMPolicy(OpenAIClient(server.url, None, "toy"), name="openai:toy")
        done = collect(url, policy, tmp_path, num_episodes=3, prompt="Say anything.")
    assert done.episodes == 3
    for one in records(tmp_path):
        assert one.messages[-1]["role"] == "tool"
        assert [m["role"] for m in one.messages].count("assistant") == one.metrics["turns"]


@pytest.mark.slow
def test_a_table_is_the_same_episodes(tmp_path: Path) -> None:
    import pyarrow.parquet

    collect(Judged, chatty, tmp_path, num_episodes=2, table=True)
    rows = pyarrow.parquet.read_table(tmp_path / "results.parquet").to_pylist()
    made = {one.episode_id: one for one in records(tmp_path)}
    assert len(rows) == 2
    for row in rows:
        told = [json.loads(message) for message in row["messages"]]
        assert told == made[row["episode_id"]].messages
    assert 'path: "results.parquet"' in (tmp_path / "README.md").read_text()
    collect(Judged, chatty, tmp_path, num_episodes=3)  # which would leave it out of date
    assert pyarrow.parquet.read_table(tmp_path / "results.parquet").num_rows == 3


def test_what_is_noted_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "a-secret-of-mine")
    collect(Judged, brief, tmp_path, num_episodes=1, metadata={"model": "x?key=a-secret-of-mine"})
    for name in ("metadata.json", "README.md"):
        assert "a-secret-of-mine" not in (tmp_path / name).read_text()


def test_a_policy_that_wants_to_know_is_told_what_was_refused(tmp_path: Path) -> None:
    def careful(observation: dict[str, Any], refusal: str | None) -> dict[str, str]:
        return {"word": "over" if refusal else "rude"}

    collect(Judged, careful, tmp_path, num_episodes=1)
    (one,) = records(tmp_path)
    assert one.metrics["refused"] == 1
    assert [m["role"] for m in one.messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert "mind your language" in one.messages[2]["content"]
