"""What commands take for an environment, and what they say of a name that is none."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from openenv import create_app
from openenv.cli.__main__ import app
from openenv.cli._console import CommandError
from openenv.integrations.gymnasium import GymnasiumEnv

IMAGE = "docker://registry.example/us/blackjack-env:latest"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments, standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("rollout", "echo", "--policy", "opnai:x"), "openai:x"),
        (("eval", "echo", "--policy", "antropic:m", "--no-check"), "anthropic:m"),
        (("rollout", "echo", "--policy", "rndom"), "'random'"),
        (("rollout", "ecoh"), "echo"),
        (("eval", "blackjak_env", "--no-check"), "blackjack_env"),
        (("collect", "blakjack", "-o", "x"), "blackjack"),
        (("rollout", "gymnasuim:CartPole-v1"), "gymnasium:CartPole-v1"),
        (("rollout", "dokcer:echo-env"), "docker:echo-env"),
        (("rollout", "echo", "--trajectory-scorer", "comand:true"), "command:true"),
    ],
)
def test_a_name_that_is_spelled_wrong_is_told_with_what_was_meant(
    arguments: tuple[str, ...], meant: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    error = run(*arguments).exception
    assert isinstance(error, CommandError)
    assert f"did you mean {meant}?" in f"{error} {error.hint}"


@pytest.mark.parametrize("command", [("serve",), ("mcp",), ("mcp", "--config")])
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("http://127.0.0.1:8000/web/", "http://127.0.0.1:8000/mcp"),
        ("localhost:8000", "is the address of a server"),
        (IMAGE, "docker run -p 8000:8000 registry.example/us/blackjack-env:latest"),
    ],
)
def test_what_runs_elsewhere_is_not_served_and_it_is_told_how_it_is_used(
    command: tuple[str, ...], target: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    error = run(*command, target).exception
    assert isinstance(error, CommandError) and said in f"{error}, {error.hint}"
    assert "\n" not in f"{error}{error.hint}"


# ------------------------------------------------------------------ docker://IMAGE


@pytest.mark.slow("starts a server for each, here in a process in place of a container")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("info", IMAGE), "BlackjackEnvironment"),
        (("validate", IMAGE), "Verdict: PASS"),
        (("rollout", IMAGE, "-n", "2"), "2 scored"),
        (("rollout", IMAGE, "--tasks", "own", "--split", "test", "--num-tasks", "1"), "1 scored"),
        (("collect", IMAGE, "--policy", "random", "-n", "1", "-o", "out"), "episodes"),
    ],
)
def test_an_image_can_be_given_for_an_environment(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("OPENENV_RUN_IMAGES", "process")
    done = run(*arguments)
    assert done.exception is None, done.output
    assert said in done.output


@pytest.mark.slow("starts a server, here in a process in place of a container")
def test_a_recording_is_replayed_against_an_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from blackjack_env import BlackjackAction, BlackjackEnv
    from blackjack_env.server.blackjack_environment import BlackjackEnvironment

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("OPENENV_RUN_IMAGES", "process")
    application = create_app(BlackjackEnvironment, record=tmp_path)
    with BlackjackEnv.local(application).sync() as env:
        env.reset(seed=1)
        env.step(BlackjackAction(action="stand"))
    (file,) = tmp_path.glob("*/*.jsonl")
    done = run("replay", str(file), "--target", IMAGE)
    assert done.exception is None, done.output
    assert "the same: episodes: 1, events: 2" in done.output


@pytest.mark.slow("starts a server")
def test_trainers_libraries_take_an_image_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_RUN_IMAGES", "process")
    env = GymnasiumEnv(IMAGE)
    try:
        observation, _ = env.reset(seed=1)
        assert observation is not None
    finally:
        env.close()


@pytest.mark.parametrize("command", [("rollout", "-n", "1"), ("validate",)])
def test_an_image_that_cannot_be_run_is_one_line(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_RUN_IMAGES", "process")
    error = run(*command, "docker://no-such-env:latest").exception
    assert isinstance(error, CommandError) and "\n" not in str(error)
    assert "no_such_env" in str(error)
