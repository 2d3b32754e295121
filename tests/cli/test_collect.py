"""`openenv collect` and `openenv sft`: a dataset, and training data of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.commands import COMMAND, ENVIRONMENTS, SOURCES, environ
from support.hub_server import hub
from support.llm_server import Reply, llm_server
from support.venvs import python_of
from support.waiting import wait_until
from support.zygote import PythonProcess, run_python

from openenv.cli.__main__ import app
from openenv.cli._console import CommandError
from openspiel_env.server.app import app as openspiel

Serve = Callable[[Any], str]
TESTS = Path(__file__).parents[1]


def run(
    *arguments: str,
    cwd: Path,
    limit: str | None = None,
    python: str = sys.executable,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    command = [python, *COMMAND[1:], *arguments]
    if limit is not None:
        command = ["bash", "-c", f'ulimit -f {limit} && exec "$@"', "-", *command]
    return run_python(
        command,
        cwd=cwd,
        env={**environ(TESTS), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def is_larger(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size > size


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


@pytest.mark.extended("starts commands; tests/harness shows what they do")
@pytest.mark.slow
def test_a_game_of_a_server_is_collected(serve: Serve, tmp_path: Path) -> None:
    given = ["collect", "openspiel:tic_tac_toe", "--base-url", serve(openspiel), "-o", "data"]
    given += ["-n", "4", "--keep-losses", "--json"]
    done = run(*given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["episodes"], told["new"], told["dropped"]) == (4, 4, 0)
    assert told["statistics"]["episodes"] == 4
    found = lines(tmp_path / "data")
    assert sorted(one["episode_id"] for one in found) == [f"ep-00000{n}" for n in range(4)]
    assert "tic_tac_toe" in found[0]["messages"][0]["content"]
    metadata = json.loads((tmp_path / "data" / "metadata.json").read_text())
    assert metadata["env"] == "openspiel:tic_tac_toe"
    assert metadata["limits"]["steps"] == 9
    assert (tmp_path / "data" / "README.md").read_text().startswith("---\n")

    again = run(*given, cwd=tmp_path)
    assert json.loads(again.stdout)["new"] == 0
    anew = run(*given, "--no-resume", "--episode-id-prefix", "x", cwd=tmp_path)
    assert json.loads(anew.stdout)["new"] == 4
    assert len(list((tmp_path / "data").glob("results.*.bak.jsonl"))) == 1


@pytest.mark.extended("imports datasets and asks a model hundreds of times")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_questions_of_a_dataset_are_asked_of_a_model(tmp_path: Path) -> None:
    paths = [SOURCES.parent, ENVIRONMENTS / "reasoning_gym_env"]
    editable = [word for path in paths for word in ("-e", str(path))]
    needed = ["openai>=1.60", "pyarrow>=19", *editable]
    python = python_of(SOURCES.parent / ".peers" / "collect", *needed)
    with llm_server(Reply("", calls=[("reasoning_gym", {"answer": "4"})])) as server:
        given = ["collect", "reasoning_gym:leg_counting", "-o", "data", "-n", "3", "--parquet"]
        given += ["--llm-endpoint", server.url, "--model", "toy", "--system-prompt", "Be brief."]
        given += ["--dataset-config", '{"max_animals": 3}']
        done = run(*given, cwd=tmp_path, python=python, API_KEY="a-key-of-mine")
        assert done.returncode == 0, done.stderr
        assert len(server.asked) == 3
        asked = server.asked[0]
    assert asked.key == "a-key-of-mine"
    assert asked.body["temperature"] == 0.2
    assert asked.body["max_tokens"] == 200
    assert asked.messages[0]["content"] == "Be brief."
    found = lines(tmp_path / "data")
    assert len({one["messages"][1]["content"] for one in found}) == 3  # another question each
    assert (tmp_path / "data" / "results.parquet").exists()
    assert "a-key-of-mine" not in (tmp_path / "data" / "metadata.json").read_text()


@pytest.mark.extended("starts commands; tests/harness shows what they do")
@pytest.mark.slow
def test_training_data_is_made_of_what_was_collected(tmp_path: Path) -> None:
    given = ["rollouts.worlds:Talk", "--policy", "rollouts.player:say", "-n", "5", "-o", "data"]
    assert run("collect", *given, cwd=tmp_path).returncode == 0
    done = run("sft", "data", "-o", "sft.jsonl", "--min-reward", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["rows"], told["left_out"]) == (1, {"says the same as another": 4})
    again = run("sft", "data", "-o", "sft.jsonl", cwd=tmp_path)
    assert again.returncode == 2
    assert "--force" in again.stderr
    none = run("sft", "data", "-o", "none.jsonl", "--min-reward", "1e9", cwd=tmp_path)
    assert none.returncode == 1
    assert "its reward is too low" in none.stderr
    assert not (tmp_path / "none.jsonl").exists()


@pytest.mark.extended("starts commands; tests/harness shows what they do")
@pytest.mark.slow
def test_a_run_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    given = ["collect", "rollouts.worlds:Talk", "--policy", "rollouts.player:say", "-o", "data"]
    given += ["--seed", "1"]
    path = tmp_path / "data" / "results.jsonl"
    for _ in range(2):
        before = path.stat().st_size if path.exists() else 0
        with PythonProcess(
            [*COMMAND, *given, "-n", "100000"],
            cwd=tmp_path,
            env=environ(TESTS),
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                wait_until(partial(is_larger, path, before + 30_000), 30)
            finally:
                os.kill(process.pid, signal.SIGKILL)
    path.write_bytes(path.read_bytes()[:-7])
    total = path.read_bytes().count(b"\n") + 50
    done = run(*given, "-n", str(total), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [one["episode_id"] for one in lines(tmp_path / "data")]
    assert len(found) == len(set(found))
    assert {f"ep-{number:06d}" for number in range(total)} <= set(found)
    rollouts = (tmp_path / "data" / "rollouts.jsonl").read_bytes()
    assert rollouts.count(b"\n") - 1 == len(found)


@pytest.mark.slow
def test_ctrl_c_leaves_whole_lines_and_exits_with_130(tmp_path: Path) -> None:
    given = ["collect", "rollouts.worlds:Talk", "--policy", "rollouts.player:say", "-o", "data"]
    path = tmp_path / "data" / "results.jsonl"
    with PythonProcess(
        [*COMMAND, *given, "-n", "100000"],
        cwd=tmp_path,
        env=environ(TESTS),
        stderr=subprocess.PIPE,
    ) as process:
        wait_until(partial(is_larger, path, 20_000), 30)
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=30)
    assert process.returncode == 130, words.decode()
    assert b"Traceback" not in words
    assert path.read_bytes().endswith(b"\n")
    played = (tmp_path / "data" / "rollouts.jsonl").read_bytes().count(b"\n") - 1
    assert played >= len(lines(tmp_path / "data"))
    # What was played, and not told of yet, is made up for: nothing is lost or there twice.
    done = run(*given, "-n", str(played), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [one["episode_id"] for one in lines(tmp_path / "data")]
    assert len(found) == len(set(found)) >= played


@pytest.mark.extended("starts commands; tests/harness shows what they do")
@pytest.mark.slow
def test_a_full_disk_is_said_and_the_run_can_be_gone_on_with(tmp_path: Path) -> None:
    given = ["collect", "rollouts.worlds:Talk", "--policy", "rollouts.player:say", "-o", "data"]
    given += ["--seed", "1", "-n", "60"]
    done = run(*given, cwd=tmp_path, limit="20")
    assert done.returncode == 1, done.stderr
    assert "can be gone on with" in done.stderr
    assert "Traceback" not in done.stderr
    assert 0 < len(lines(tmp_path / "data")) < 60
    more = run(*given, cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    assert len({one["episode_id"] for one in lines(tmp_path / "data")}) == 60


@pytest.mark.slow
def test_a_dry_run_looks_and_does_nothing(tmp_path: Path) -> None:
    given = ["collect", "openspiel:catch", "-o", "data", "-n", "4", "--push-to-hub", "acme/games"]
    done = run(*given, "--dry-run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["there"], told["left"], told["policy"]) == (0, 4, "random")
    assert told["tools"] == ["open_spiel"]
    assert told["push_to_hub"] == "acme/games"
    assert not (tmp_path / "data").exists()


@pytest.mark.extended("starts commands; tests/harness shows what they do")
@pytest.mark.slow
def test_a_dataset_is_put_on_the_hub(tmp_path: Path) -> None:
    given = ["collect", "rollouts.worlds:Talk", "--policy", "rollouts.player:say", "-o", "data"]
    given += ["-n", "3", "--push-to-hub", "acme/talks", "--private", "--commit-message", "all"]
    with hub() as server:
        variables = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hf")}
        variables["HF_HUB_DISABLE_XET"] = "1"
        refused = run(*given, cwd=tmp_path, HF_TOKEN="hf_some_other_token", **variables)
        assert refused.returncode == 1
        assert "HF_TOKEN" in refused.stderr
        assert len(lines(tmp_path / "data")) == 3
        done = run(*given, "--json", cwd=tmp_path, HF_TOKEN=server.token, **variables)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["new"] == 0
        assert json.loads(done.stdout)["url"] == f"{server.url}/datasets/acme/talks"
        assert server.private == {"acme/talks": True}
        assert server.commits[0]["summary"] == "all"
        assert set(server.files["acme/talks"]) == {"README.md", "metadata.json", "results.jsonl"}


@pytest.mark.slow
def test_a_server_that_plays_something_else_is_refused(tmp_path: Path) -> None:
    from rollouts.worlds import Heard, Say, Talk
    from support.servers import serving

    from openenv import State
    from openenv.server.app import create_app

    class Catch(State):
        game_name: str = "catch"

    class OnlyCatch(Talk):
        def reset(self, seed: int | None = None, **_: Any) -> Heard:  # type: ignore[override]
            return super().reset(seed)

        @property
        def state(self) -> Catch:
            return Catch()

    with serving(create_app(OnlyCatch, Say, Heard)) as url:
        given = ["collect", "openspiel:chess", "--base-url", url, "-o", "data"]
        done = run(*given, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "'catch'" in done.stderr and "'chess'" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_what_an_environment_needs_and_has_not_is_named(tmp_path: Path) -> None:
    (tmp_path / "lacking.py").write_text("import a_package_that_nobody_has\n")
    done = run("collect", "lacking:Env", "-o", "data", cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert "a_package_that_nobody_has" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_more_failures_than_may_be_exit_with_1_and_name_the_cause(tmp_path: Path) -> None:
    given = ["rollouts.worlds:Talk", "--policy", "rollouts.player:mistaken", "-n", "30"]
    done = run("collect", *given, "-o", "data", cwd=tmp_path)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert lines(tmp_path / "data") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["openspiel"], "expected openspiel:NAME"),
        (["opnspiel:chess", "--base-url", "http://127.0.0.1:9"], "did you mean 'openspiel'"),
        (["openspiel:catch", "--provider", "opnai"], "did you mean openai"),
        (["openspiel:catch", "--provider", "openai"], "--model"),
        (["openspiel:catch", "--llm-endpoint", "http://127.0.0.1:9"], "--model"),
        (["openspiel:catch", "--model", "toy"], "--provider openai"),
        (["openspiel:catch", "--provider", "openai", "--model", "x"], "OPENAI_API_KEY"),
        (["openspiel:catch", "--llm-port", "9"], "--llm-endpoint"),
        (["openspiel:catch", "--policy", "random", "--provider", "openai"], "excludes"),
        (["openspiel:catch", "--policy", "randon"], "did you mean 'random'"),
        (["openspiel:catch", "--dataset-config", "{"], "not valid JSON"),
        (["openspiel:catch", "--dataset-config", "[]"], "expected an object"),
        (["echo", "--dataset-config", "{}"], "--dataset-config"),
        (["openspiel:catch", "--error-budget", "few"], "not a number"),
    ],
    ids=lambda value: "-".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_exits_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CommandError) as raised:
        app(["collect", *arguments, "-o", "data"], standalone_mode=False)
    assert raised.value.exit_code == 2
    assert said in f"{raised.value} {raised.value.hint}"
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["x", "-o", "y.jsonl"], 1, "x"),
        (["x", "-o", "y.csv"], 2, ".parquet"),
        (["x", "-o", "y.jsonl", "--form", "mesages"], 2, "did you mean messages"),
    ],
    ids=["missing", "kind", "form"],
)
def test_training_data_that_cannot_be_made_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError) as raised:
        app(["sft", *arguments], standalone_mode=False)
    assert raised.value.exit_code == code
    assert said in f"{raised.value} {raised.value.hint}"
