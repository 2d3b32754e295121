"""`openenv rollout`: a policy plays, and there is a record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import COMMAND, environ, run_openenv
from support.llm_server import Reply, llm_server
from support.terminals import run_on_a_terminal
from support.waiting import wait_until
from support.zygote import PythonProcess, run_python

from openenv.cli.__main__ import app
from openenv.cli._console import CommandError
from openenv.cli.commands.rollout import describe_progress
from openenv.rollouts import RolloutProgress, read_header, read_rollouts

TESTS = Path(__file__).parents[1]


def rollout(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command, with the modules of the tests to import from."""
    return run_python(
        [*COMMAND, "rollout", *arguments],
        cwd=cwd,
        env=environ(TESTS),
        capture_output=True,
        text=True,
        input=stdin,
        timeout=40,
    )


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    rows = [{"id": f"t{n}", "reset": {"start": f"w{n}"}, "split": "ab"[n % 2]} for n in range(6)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.slow
def test_a_game_is_played_by_chance_and_summed_up(tmp_path: Path) -> None:
    arguments = ["-n", "6", "--max-steps", "5", "--seed", "3", "--json"]
    done = rollout("2048", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["rollouts"] == summary["scored"] == 6
    assert summary["limits"] == {"steps": 6}
    assert summary["seed"] == 3
    assert "rollouts" in done.stderr


@pytest.mark.slow
def test_a_run_is_written_and_gone_on_with(tmp_path: Path, tasks: Path) -> None:
    given = ["rollouts.worlds:Talk", "--policy", "scripted:script.jsonl", "--tasks", str(tasks)]
    given += ["--split", "b", "-n", "2", "--seed", "1", "--output", "runs/x.jsonl"]
    (tmp_path / "script.jsonl").write_text('{"word": "over"}\n')
    assert rollout(*given, cwd=tmp_path).returncode == 0
    output = tmp_path / "runs" / "x.jsonl"
    found = list(read_rollouts(output))
    assert sorted(one.id for one in found) == [f"t{n}#{k}" for n in (1, 3, 5) for k in (0, 1)]
    assert read_header(output).policy == "scripted:script.jsonl"

    again = rollout(*given, cwd=tmp_path)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    output.write_bytes(output.read_bytes()[:-10])
    more = rollout(*given, "--resume", "--json", cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    assert json.loads(more.stdout)["rollouts"] == 6
    assert sorted(one.id for one in read_rollouts(output)) == sorted(one.id for one in found)


@pytest.mark.extended("starts commands; tests/rollouts shows what they do")
@pytest.mark.slow
def test_a_table_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    given = ["rollouts.worlds:Talk", "--policy", "rollouts.player:say", "--credit", "uniform"]
    given += ["--trajectory-scorer", "rollouts.player:length", "-o", "x.parquet"]
    done = rollout(*given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (found,) = read_rollouts(tmp_path / "x.parquet")
    assert found.reward == 2.0
    assert found.step_rewards == [1.0, 1.0]
    assert "x.parquet" in done.stderr


@pytest.mark.extended("starts commands; tests/rollouts shows what they do")
@pytest.mark.slow
def test_a_model_is_asked_where_it_is_served(tmp_path: Path) -> None:
    with llm_server(Reply("", calls=[("say", {"word": "over"})])) as server:
        given = ["--policy", "openai:toy", "--base-url", server.url, "--temperature", "0.5"]
        done = rollout(
            "rollouts.worlds:Talk", *given, "--system-prompt", "Be brief.", "--json", cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        (asked,) = server.asked
    assert asked.body["temperature"] == 0.5
    assert asked.messages[0]["content"] == "Be brief."
    assert json.loads(done.stdout)["outcomes"] == {"done": 1}


@pytest.mark.slow
def test_a_person_plays_at_the_terminal(tmp_path: Path) -> None:
    given = ["rollouts.worlds:Talk", "--policy", "human", "--json"]
    done = rollout(*given, cwd=tmp_path, stdin="hello\nover\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 2
    assert "word: " in done.stderr


@pytest.mark.extended("starts commands; tests/rollouts shows what they do")
@pytest.mark.slow
def test_a_sampler_chooses_from_the_tasks_that_the_environment_has(tmp_path: Path) -> None:
    given = ["2048", "--split", "test", "--sampler", "shuffled", "--num-tasks", "4"]
    given += ["--max-steps", "1", "--output", "x.jsonl", "--json"]
    done = rollout(*given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    order = [one.task_id for one in read_rollouts(tmp_path / "x.jsonl")]
    assert len(set(order)) == 4
    again = rollout(*given, "--resume", cwd=tmp_path)  # by the seed that was drawn
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["seed"] == json.loads(done.stdout)["seed"]
    assert [one.task_id for one in read_rollouts(tmp_path / "x.jsonl")] == order


@pytest.mark.extended("starts commands; tests/rollouts shows what they do")
@pytest.mark.slow
def test_a_full_disk_is_said_and_the_run_can_be_gone_on_with(tmp_path: Path) -> None:
    given = ["rollouts.worlds:Talk", "--policy", "rollouts.player:say", "-n", "60"]
    given += ["--seed", "1", "--output", "x.jsonl"]
    limited = ["bash", "-c", 'ulimit -f 20 && exec "$@"', "-", *COMMAND, "rollout", *given]
    done = run_python(
        limited, cwd=tmp_path, env=environ(TESTS), capture_output=True, text=True, timeout=40
    )
    assert done.returncode == 1, done.stderr
    assert "can be gone on with" in done.stderr and "x.jsonl" in done.stderr
    assert "Traceback" not in done.stderr
    assert 0 < len(list(read_rollouts(tmp_path / "x.jsonl"))) < 60
    more = rollout(*given, "--resume", cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    assert len({one.id for one in read_rollouts(tmp_path / "x.jsonl")}) == 60


@pytest.mark.slow
def test_a_person_may_leave_in_the_middle_of_a_line(tmp_path: Path) -> None:
    command = [*COMMAND, "rollout", "rollouts.worlds:Talk", "--policy", "human"]
    with PythonProcess(
        command,
        cwd=tmp_path,
        env=environ(TESTS),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        said = b""
        while b"word: " not in said:
            said += os.read(process.stderr.fileno(), 4096)
        process.stdin.write(b"hel")
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130  # though the input has not ended


@pytest.mark.slow
def test_more_failures_than_may_be_exit_with_1_and_name_the_cause(tmp_path: Path) -> None:
    given = ["rollouts.worlds:Talk", "--policy", "rollouts.player:mistaken", "-n", "30"]
    done = rollout(*given, "--output", "x.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "--resume" in done.stderr
    assert len(list(read_rollouts(tmp_path / "x.jsonl"))) > 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["2048", "--policy", "radnom"], "did you mean 'random'?"),
        (["no_such_env"], "no_such_env"),
        (["2048", "--tasks", "no/such.jsonl"], "no such file"),
        (["2048", "--resume"], "--output"),
        (["2048", "--error-budget", "some"], "is not a number"),
        (["2048", "--credit", "unifrom"], "uniform"),
        (["2048", "--trajectory-scorer", "rollouts.player:nothing"], "nothing"),
        (["2048", "--max-seconds", "-1"], "seconds"),
        (["2048", "--base-url", "http://127.0.0.1:9"], "asks no server"),
        (["2048", "--max-reply-tokens", "9"], "takes no max_tokens"),
        (["2048", "--tasks", "own"], "has the splits train, test"),
        (["2048", "--split", "tset"], "did you mean 'test'"),
        (["rollouts.worlds:Talk", "--tasks", "own"], "has no tasks of its own"),
        (["2048", "--sampler", "shuffled"], "--tasks own"),
        (["2048", "--split", "test", "--sampler", "shufled"], "did you mean 'shuffled'"),
        (["2048", "--split", "test", "--sampler", "curriculum"], "--num-tasks"),
        (["2048", "--split", "test", "--sampler", "weighted:x", "--num-tasks", "2"], "number 'x'"),
    ],
)
def test_what_cannot_be_meant_exits_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(CommandError) as raised:
        app(["rollout", *arguments], standalone_mode=False)
    assert raised.value.exit_code == 2
    assert said in f"{raised.value} {raised.value.hint}"


@pytest.mark.slow
def test_a_server_that_does_not_answer_exits_with_1(tmp_path: Path) -> None:
    done = rollout("http://127.0.0.1:9", "--policy", "rollouts.player:say", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given_first", "signals", "code"),
    [
        ([], [signal.SIGINT], 130),
        ([], [signal.SIGTERM, signal.SIGTERM], 143),  # as `timeout` does
        ([], [signal.SIGHUP], 129),
        (["env", "--ignore-signal=INT"], [signal.SIGTERM], 143),  # as what a script puts behind
    ],
    ids=["ctrl-c", "twice", "closed terminal", "without ctrl-c"],
)
def test_a_run_that_is_interrupted_can_be_gone_on_with(
    tmp_path: Path, given_first: list[str], signals: list[signal.Signals], code: int
) -> None:
    given = ["rollouts.worlds:Talk", "--policy", "rollouts.player:say", "-n", "100000"]
    given += ["--seed", "1", "--output", "x.jsonl"]
    output = tmp_path / "x.jsonl"
    with PythonProcess(
        [*given_first, *COMMAND, "rollout", *given],
        cwd=tmp_path,
        env=environ(TESTS),
        stderr=subprocess.PIPE,
    ) as process:
        wait_until(lambda: output.exists() and output.stat().st_size > 50_000, 30)
        for one in signals:
            process.send_signal(one)
        _, words = process.communicate(timeout=20)
    assert process.returncode == code, words.decode()
    assert b"Traceback" not in words
    content = output.read_bytes()
    assert content.endswith(b"\n")
    assert 10 < content.count(b"\n") < 100_000


def test_progress_is_said_in_a_line() -> None:
    progress = RolloutProgress(1200, 10000, 3, 0.51, 410.0, 21.4, 256, 256)
    line = "1,200 of 10,000, 410.0/s, 0:21 left, mean reward 0.51, 256 at once, 3 failed"
    assert describe_progress(progress) == line


@pytest.mark.extended("starts commands; tests/rollouts shows what they do")
@pytest.mark.slow
def test_a_terminal_has_a_bar() -> None:
    shown = run_on_a_terminal(f"""
        import sys
        sys.path[:0] = [{str(TESTS)!r}]
        sys.argv[1:] = ["rollout", "rollouts.worlds:Talk", "--policy", "rollouts.player:say"]
        from openenv.cli.__main__ import app
        app(standalone_mode=False)
    """)
    assert "rollouts" in shown
    assert "━" in shown


@pytest.mark.slow
def test_help_names_the_policies(tmp_path: Path) -> None:
    done = run_openenv("rollout", "--help", cwd=tmp_path)
    assert done.returncode == 0
    words: Any = done.stdout.replace("\n", " ")
    assert "transformers:FOLDER" in words
