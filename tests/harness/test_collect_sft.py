"""Training data is made of episodes: of datasets, of runs, filtered, in two forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness.test_collect_environments import Judged, brief, chatty
from support.llm_server import Asked, Reply, llm_server

from openenv.rewards.llm import OpenAIClient
from openenv.rollouts import RolloutFileError, RolloutLimits, RolloutRun, rollout
from openenv.rollouts.collect import (
    EpisodeRecord,
    SFTFilters,
    SFTSummary,
    collect,
    sft_rows,
    write_sft,
)
from openenv.rollouts.policies.models import LLMPolicy

TASKS = [{"id": f"t{n}", "prompt": f"Task {n}."} for n in range(3)]


def record(
    name: str, said: str, reward: float = 1.0, group: str = "g", **metrics: Any
) -> EpisodeRecord:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": said}]
    extra = {"group": group}
    return EpisodeRecord(name, messages, reward, True, [], metrics, {}, {}, None, extra)


def ids(*sources: Any, **filters: Any) -> list[str]:
    return [row["episode_id"] for row in sft_rows(*sources, filters=SFTFilters(**filters))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    collect(Judged, chatty, tmp_path / "data", num_episodes=2, prompt="Begin.")
    return tmp_path / "data"


def test_a_conversation_is_a_row_that_ends_with_what_was_said(folder: Path) -> None:
    rows = list(sft_rows(folder, filters=SFTFilters(unique=False)))
    assert len(rows) == 2
    messages = rows[0]["messages"]
    roles = ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [one["role"] for one in messages] == roles
    call = messages[1]["tool_calls"][0]
    assert call["function"]["arguments"] == {"word": "a"}
    assert messages[2]["name"] == call["function"]["name"]
    (tool,) = rows[0]["tools"]
    assert tool["type"] == "function"
    assert tool["function"]["name"] == call["function"]["name"]
    assert "word" in tool["function"]["parameters"]["properties"]


def test_each_reply_is_a_row_in_the_other_form(folder: Path) -> None:
    rows = list(sft_rows(folder, form="prompt-completion"))
    assert len(rows) == 3  # of the two episodes, which say the same
    for number, row in enumerate(rows):
        assert [one["role"] for one in row["completion"]] == ["assistant"]
        assert len(row["prompt"]) == 1 + 2 * number
    assert rows[2]["completion"][0]["tool_calls"][0]["function"]["arguments"] == {"word": "over"}


def test_the_same_is_said_once_whatever_its_calls_are_called() -> None:
    def calling(name: str, id: str) -> EpisodeRecord:
        one = record(name, "")
        function = {"name": "f", "arguments": "{}"}
        one.messages[1]["tool_calls"] = [{"id": id, "type": "function", "function": function}]
        return one

    assert ids([calling("a", "x"), calling("b", "y")]) == ["a"]
    assert ids([calling("a", "x"), calling("b", "y")], unique=False) == ["a", "b"]


def test_the_reward_has_to_be_high_enough() -> None:
    given = [record("a", "1", 0.2), record("b", "2", 0.5), record("c", "3", 0.9)]
    assert ids(given, min_reward=0.5) == ["b", "c"]


def test_the_best_of_each_group_are_taken() -> None:
    given = [
        record("a", "1", 0.2, "g"),
        record("b", "2", 0.9, "g"),
        record("c", "3", 0.1, "h"),
        record("d", "4", 0.9, "g", refused=1),
        record("e", "5", 0.5, "g"),
    ]
    assert ids(given, best_of=1) == ["b", "c"]
    assert ids(given, best_of=2) == ["b", "c", "d"]
    assert ids(given, best_of=1, min_reward=0.5) == ["b"]


def test_mistakes_are_left_out_on_request() -> None:
    given = [record("a", "1", refused=0), record("b", "2", refused=2)]
    assert ids(given, max_refused=0) == ["a"]
    failing = record("c", "3")
    failing.tool_trace = [{"tool_name": "x", "arguments": {}, "result": {"error": "no"}}]
    assert ids([failing], max_refused=0) == []


def test_what_was_left_out_is_told() -> None:
    summary = SFTSummary()
    given = [record("a", "1", 0.1), record("b", "2"), record("c", "2"), record("d", "4", 0.6)]
    list(sft_rows(given, filters=SFTFilters(min_reward=0.5), summary=summary))
    assert (summary.rows, summary.episodes) == (2, 2)
    assert summary.left_out == {"its reward is too low": 1, "says the same as another": 1}
    assert summary.mean_reward == pytest.approx(0.8)


def run_of_a_model(tmp_path: Path | None, limits: RolloutLimits = RolloutLimits()) -> RolloutRun:  # noqa: B008
    def answer(asked: Asked) -> Reply:
        name = asked.body["tools"][0]["function"]["name"]
        word = "rude" if asked.number == 0 else "over"
        return Reply("Hm.", calls=[(name, {"word": word})])

    with llm_server(answer) as server:
        policy = LLMPolicy(OpenAIClient(server.url, None, "toy"), name="openai:toy")
        output = None if tmp_path is None else tmp_path / "run" / "rollouts.jsonl"
        return rollout(
            Judged, policy, TASKS, n=2, output=output, seed=1, concurrency=1, limits=limits
        )


@pytest.mark.slow
def test_runs_of_rollouts_are_sources_too(tmp_path: Path) -> None:
    run_of_a_model(tmp_path)
    for source in (tmp_path / "run", tmp_path / "run" / "rollouts.jsonl"):
        rows = list(sft_rows(source, filters=SFTFilters(best_of=1)))
        assert len(rows) == 3
        assert all(row["reward"] == 4.0 for row in rows)
        assert "tools" not in rows[0]  # which nobody has noted
    tools = [{"type": "function", "function": {"name": "say"}}]
    assert all(row["tools"] == tools for row in sft_rows(tmp_path / "run", tools=tools))


@pytest.mark.slow
def test_a_refused_action_is_known_of_a_rollout() -> None:
    run = run_of_a_model(None)
    assert len(ids(run, unique=False)) == 6
    assert len(ids(run, unique=False, max_refused=0)) == 5


def test_what_has_failed_or_was_not_scored_is_no_best_one() -> None:
    def crash(observation: Any, task: dict[str, Any], step: int) -> dict[str, str]:
        if task["id"] == "t0":
            raise ZeroDivisionError("by nothing")
        return {"word": "a" if task["id"] == "t1" else "over"}

    run = rollout(Judged, crash, TASKS, limits=RolloutLimits(steps=2), error_budget=1)
    summary = SFTSummary()
    list(sft_rows(run, summary=summary))
    # A function holds no conversation, so there is nothing to learn of its rollouts either.
    assert summary.left_out == {"failed": 1, "has no conversation": 2}


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
@pytest.mark.slow
def test_a_table_keeps_each_call_as_it_was(tmp_path: Path, folder: Path) -> None:
    datasets = pytest.importorskip("datasets")
    calls = [{"a": 1}, {"b": "x", "c": [1, {"d": None}]}]
    given = []
    for number, arguments in enumerate(calls):
        one = record(f"e{number}", "")
        function = {"name": "f", "arguments": json.dumps(arguments)}
        one.messages[1]["tool_calls"] = [{"id": "1", "type": "function", "function": function}]
        given.append(one)
    for form in ("messages", "prompt-completion"):
        path = tmp_path / f"{form}.parquet"
        summary = write_sft(given, folder, output=path, form=form)
        found = datasets.load_dataset(
            "parquet", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
        )
        assert len(found) == summary.rows
        said = [row["messages" if form == "messages" else "completion"][-1] for row in found]
        told = [one["tool_calls"][0]["function"]["arguments"] for one in said]
        assert told[:2] == calls
        assert found[0]["tools"] == []
        assert found[2]["tools"][0]["type"] == "function"


def test_a_file_of_lines_is_there_as_a_whole_or_not_at_all(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "x.jsonl"
    assert write_sft(folder, output=path).rows == 1
    assert len(path.read_text().splitlines()) == 1
    with pytest.raises(FileExistsError):
        write_sft(folder, output=path)
    with (folder / "results.jsonl").open("a") as file:
        file.write("nonsense\n")
    before = path.read_bytes()
    with pytest.raises(RolloutFileError):
        write_sft(folder, output=path, replace=True)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob(".x*"))


def test_no_row_at_all_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(RolloutFileError, match="1 its reward is too low"):
        write_sft(
            [record("a", "1", 0.1)],
            output=tmp_path / "x.jsonl",
            filters=SFTFilters(min_reward=0.5),
        )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"form": "chat"}, "prompt-completion"), ({"output": "x.csv"}, "parquet")],
    ids=["form", "output"],
)
def test_what_is_neither_is_refused(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    options = {"output": tmp_path / "x.jsonl", **wrong}
    with pytest.raises(ValueError, match=said):
        write_sft([record("a", "1")], **options)


def test_filters_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="best_of=0"):
        SFTFilters(best_of=0)
    with pytest.raises(ValueError, match="max_refused"):
        SFTFilters(max_refused=-1)


def test_brief_ones_need_no_tools(tmp_path: Path) -> None:
    collect(Judged, brief, tmp_path, num_episodes=1)
    assert ids(tmp_path) == ["ep-000000"]
