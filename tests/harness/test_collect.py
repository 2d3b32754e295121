"""Harness episodes are collected: in tables of a real server, side by side, gone on with."""

from __future__ import annotations

import fcntl
import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness.tables import Speaker, Tables, call
from support.commands import environ
from support.llm_server import Asked, Reply, llm_server
from support.waiting import wait_until

from blackjack_env.server.app import app
from openenv import SessionLost
from openenv.client import background
from openenv.rewards.llm import OpenAIClient
from openenv.rollouts import RolloutFileError
from openenv.rollouts.collect import (
    CollectRunner,
    EpisodeRecord,
    RolloutSerializer,
    build_dataset_readme,
    build_model_step,
)
from openenv.rollouts.harness import CLIHarnessAdapter, HarnessRolloutResult, MCPHarnessAdapter

Serve = Callable[[Any], str]
TESTS = Path(__file__).parents[1]


def stand(messages: Any, tools: Any, sampling: Any) -> Any:
    return Speaker([call(action="stand")])(messages, tools, sampling)


def runner(url: str, folder: Path, tables: Tables | None = None, **options: Any) -> CollectRunner:
    return CollectRunner(
        session_factory=tables or Tables(url),
        harness_adapter=MCPHarnessAdapter(),
        serializer=RolloutSerializer(folder),
        **options,
    )


def is_larger(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size > size


def lines(folder: Path, name: str = "results.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_an_episode_is_a_line(serve: Serve, tmp_path: Path) -> None:
    done = runner(serve(app), tmp_path, tasks=["a", "b"]).run(model_step=stand, num_episodes=3)
    assert (done.num_collected, done.num_skipped, done.num_dropped, done.num_failed) == (3, 0, 0, 0)
    assert done.episode_ids == ["ep-000000", "ep-000001", "ep-000002"]
    found = lines(tmp_path)
    assert [one["task"] for one in found] == ["a", "b", None]
    assert done.avg_reward == pytest.approx(sum(one["reward"] for one in found) / 3)
    (first, *_) = found
    assert set(first) == {
        "episode_id",
        "messages",
        "reward",
        "done",
        "tool_trace",
        "metrics",
        "verify_metrics",
        "artifacts",
        "task",
        "extra",
    }
    assert [one["role"] for one in first["messages"]] == ["user", "assistant", "tool"]
    assert first["metrics"] == {"turns": 1, "tool_calls": 1}
    assert first["tool_trace"][0]["tool_name"] == "play"


def test_what_is_there_is_skipped_and_its_task_is_used_up(serve: Serve, tmp_path: Path) -> None:
    url = serve(app)
    runner(url, tmp_path, tasks=["a", "b", "c"]).run(model_step=stand, num_episodes=2)
    done = runner(url, tmp_path, tasks=["a", "b", "c"]).run(model_step=stand, num_episodes=3)
    assert (done.num_collected, done.num_skipped) == (1, 2)
    assert [one["task"] for one in lines(tmp_path)] == ["a", "b", "c"]


def test_a_line_that_was_cut_off_is_had_again(serve: Serve, tmp_path: Path) -> None:
    url = serve(app)
    runner(url, tmp_path).run(model_step=stand, num_episodes=3)
    path = tmp_path / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert RolloutSerializer(tmp_path).collected_episode_ids() == {"ep-000000", "ep-000001"}
    done = runner(url, tmp_path).run(model_step=stand, num_episodes=3)
    assert (done.num_collected, done.num_skipped) == (1, 2)
    assert sorted(one["episode_id"] for one in lines(tmp_path)) == done.episode_ids


def test_a_first_line_that_was_cut_off_is_had_again(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"episode_id": "ep-0')
    done = runner(serve(app), tmp_path).run(model_step=stand, num_episodes=1)
    assert done.num_collected == len(lines(tmp_path)) == 1


def test_damage_before_the_last_line_is_refused_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"episode_id": "a"}\n{}\n')
    with pytest.raises(RolloutFileError) as raised:
        RolloutSerializer(tmp_path).collected_episode_ids()
    assert raised.value.line == 1


def record_of(episode_id: str) -> EpisodeRecord:
    return EpisodeRecord(episode_id, [], 0.0, True, [], {}, {}, {})


def test_one_id_is_not_written_twice(tmp_path: Path) -> None:
    record = record_of("a")
    with RolloutSerializer(tmp_path) as serializer:
        serializer.write_episode(record)
        with pytest.raises(ValueError, match="already"):
            serializer.write_episode(record)


def test_another_process_does_not_write_to_the_folder(tmp_path: Path) -> None:
    with (tmp_path / "results.jsonl").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # for the system, this is another writer
        with pytest.raises(RolloutFileError, match="somebody else"):
            RolloutSerializer(tmp_path).open()


def test_serializers_of_one_process_take_turns_at_a_folder(tmp_path: Path) -> None:
    first, second = RolloutSerializer(tmp_path), RolloutSerializer(f"{tmp_path}/.")
    for number, writer in enumerate([first, second, second, first]):  # and nobody closes any
        writer.write_episode(record_of(f"ep-{number}"))
    with pytest.raises(ValueError, match="has an episode 'ep-2' already"):
        first.write_episode(record_of("ep-2"))
    assert [line["episode_id"] for line in lines(tmp_path)] == [f"ep-{n}" for n in range(4)]


def test_what_is_not_to_be_kept_is_dropped_and_played_again(serve: Serve, tmp_path: Path) -> None:
    url = serve(app)
    none = runner(url, tmp_path).run(
        model_step=stand, num_episodes=2, should_keep=lambda record: False
    )
    assert (none.num_collected, none.num_dropped) == (0, 2)
    assert math.isnan(none.avg_reward)
    assert runner(url, tmp_path).run(model_step=stand, num_episodes=2).num_collected == 2


def test_a_new_run_sets_the_old_one_aside(serve: Serve, tmp_path: Path) -> None:
    url = serve(app)
    runner(url, tmp_path).run(model_step=stand, num_episodes=2)
    with pytest.warns(RuntimeWarning, match=r"resume=False: .*results.jsonl is set aside as"):
        done = runner(url, tmp_path).run(model_step=stand, num_episodes=1, resume=False)
    assert done.num_collected == len(lines(tmp_path)) == 1
    (aside,) = tmp_path.glob("results.*.bak.jsonl")
    assert len(aside.read_text().splitlines()) == 2


def test_what_fails_is_told_and_has_no_reward(serve: Serve, tmp_path: Path) -> None:
    def broken(messages: Any, tools: Any, sampling: Any) -> Any:
        if messages[0]["content"].startswith("bad"):
            raise RuntimeError("boom")
        return stand(messages, tools, sampling)

    done = runner(serve(app), tmp_path, tasks=["good", "bad", "good"]).run(
        model_step=broken, num_episodes=3
    )
    assert (done.num_collected, done.num_failed) == (2, 1)
    assert len(lines(tmp_path)) == 2
    (failed,) = lines(tmp_path, "failures.jsonl")
    assert failed["episode_id"] == "ep-000001"
    assert [one["type"] for one in failed["failures"]] == ["RuntimeError"]


def test_an_episode_without_a_reward_has_failed(serve: Serve, tmp_path: Path) -> None:
    silent = Speaker("I would rather not.")
    done = runner(serve(app), tmp_path).run(model_step=silent, num_episodes=1)
    assert (done.num_collected, done.num_failed) == (0, 1)
    assert "no reward" in lines(tmp_path, "failures.jsonl")[0]["failures"][0]["message"]


def test_what_fails_for_a_passing_cause_is_tried_anew(serve: Serve, tmp_path: Path) -> None:
    tries: list[int] = []

    def shaky(messages: Any, tools: Any, sampling: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise SessionLost("gone")
        return stand(messages, tools, sampling)

    tables = Tables(serve(app))
    done = runner("", tmp_path, tables).run(model_step=shaky, num_episodes=1)
    assert done.num_collected == 1
    assert len(tables.clients) == 3


def test_episodes_are_played_side_by_side(serve: Serve, tmp_path: Path) -> None:
    together = threading.Barrier(4, timeout=20)

    def meet(messages: Any, tools: Any, sampling: Any) -> Any:
        together.wait()
        return stand(messages, tools, sampling)

    done = runner(serve(app), tmp_path, concurrency=4).run(model_step=meet, num_episodes=8)
    assert done.num_collected == 8
    assert sorted(one["episode_id"] for one in lines(tmp_path)) == done.episode_ids


def test_a_harness_may_run_its_own_loop(serve: Serve, tmp_path: Path) -> None:
    def run(bridge: Any, session: Any, limits: Any) -> HarnessRolloutResult:
        return MCPHarnessAdapter().run_white_box(stand, session, limits)

    made = CollectRunner(
        session_factory=Tables(serve(app)),
        harness_adapter=CLIHarnessAdapter(run),
        serializer=RolloutSerializer(tmp_path),
    )
    assert made.run(model_step=None, num_episodes=1).num_collected == 1


@pytest.mark.slow
def test_a_model_behind_an_api_plays(serve: Serve, tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        assert asked.messages[0] == {"role": "system", "content": "Be careful."}
        return Reply("", calls=[("play", {"action": "stand"})])

    with llm_server(answer) as server:
        client = OpenAIClient(server.url, None, "toy")
        step = build_model_step(client, system_prompt="Be careful.")
        done = runner(serve(app), tmp_path, concurrency=3).run(model_step=step, num_episodes=4)
        background.run(client.aclose())
        assert done.num_collected == 4, (tmp_path / "failures.jsonl").read_text()
        assert server.asked[0].body["tools"][0]["function"]["name"] == "play"


def test_a_card_tells_of_the_episodes(serve: Serve, tmp_path: Path) -> None:
    made = runner(serve(app), tmp_path)
    made.run(model_step=stand, num_episodes=3)
    RolloutSerializer(tmp_path).write_metadata({"environment": "black|jack"})
    card = build_dataset_readme(tmp_path)
    assert card.startswith("---\n")
    assert 'path: "results.jsonl"' in card
    assert "| episodes | 3 |" in card
    assert "| `play` | 3 |" in card
    assert "black\\|jack" in card


PROGRAM = """
import sys
sys.path[:0] = [sys.argv[3]]
from harness.tables import Speaker, Tables, call
from openenv.rollouts.harness import MCPHarnessAdapter
from openenv.rollouts.collect import CollectRunner, RolloutSerializer

def stand(messages, tools, sampling):
    return Speaker([call(action="stand")])(messages, tools, sampling)

done = CollectRunner(
    session_factory=Tables(sys.argv[1]),
    harness_adapter=MCPHarnessAdapter(),
    serializer=RolloutSerializer(sys.argv[2]),
    concurrency=4,
).run(model_step=stand, num_episodes=int(sys.argv[4]))
print(done.num_collected, done.num_skipped)
"""


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
@pytest.mark.slow
def test_a_run_that_is_killed_loses_and_doubles_nothing(serve: Serve, tmp_path: Path) -> None:
    url, path = serve(app), tmp_path / "results.jsonl"
    command = [sys.executable, "-c", PROGRAM, url, str(tmp_path), str(TESTS)]
    for _ in range(3):
        before = path.stat().st_size if path.exists() else 0
        with subprocess.Popen([*command, "100000"], env=environ(TESTS)) as process:
            try:
                wait_until(partial(is_larger, path, before + 20_000), 30)
            finally:
                os.kill(process.pid, signal.SIGKILL)
    count = len(RolloutSerializer(tmp_path).collected_episode_ids())  # which refuses doubles
    total = count + 20
    done = subprocess.run(
        [*command, str(total)], env=environ(TESTS), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = [one["episode_id"] for one in lines(tmp_path)]
    assert len(found) == len(set(found))
    assert {f"ep-{number:06d}" for number in range(total)} <= set(found)
