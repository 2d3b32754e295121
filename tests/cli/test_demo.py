from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import openenv_running, run_openenv
from support.processes import is_alive
from support.waiting import wait_until

from openenv.cli import _demo
from openenv.cli._console import CommandError
from openenv.cli.commands import demo as command
from openspiel_env.blackjack import CurvePoint, Evaluation

pytestmark = pytest.mark.slow  # most start servers in processes of their own


ENDS_WITHIN_S = 15.0


@pytest.mark.extended("trains a policy")
@pytest.mark.slow("trains a policy")
def test_a_short_demo_learns_and_leaves_its_files(tmp_path: Path) -> None:
    pytest.importorskip("pyspiel")
    done = run_openenv(
        "demo",
        "--hands=1600",
        "--evaluation-hands=800",
        "--sessions=16",
        "--output-dir=out",
        "--json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["has_learned"] is True
    assert told["learned"]["mean"] > told["random"]["mean"]
    assert told["learned"]["hands"] == told["random"]["hands"] == 800
    assert told["hands_per_second"] > 0
    for player in (told["random"], told["learned"]):
        rates = player["win_rate"] + player["draw_rate"] + player["loss_rate"]
        assert rates == pytest.approx(1)

    picture = tmp_path / told["learning_curve"]
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    episodes = [json.loads(line) for line in (tmp_path / told["episodes"]).read_text().splitlines()]
    assert len(episodes) == 1600
    assert [episode["seed"] for episode in episodes] == list(range(1600))
    assert all(episode["return"] in (-1.0, 0.0, 1.0) for episode in episodes)

    for words in ("random", "learned", "best possible", "hands/s", told["learning_curve"]):
        assert words in done.stderr


@pytest.mark.extended("trains a policy")
def test_ctrl_c_ends_the_demo_and_its_server(tmp_path: Path) -> None:
    pytest.importorskip("pyspiel")
    with openenv_running("demo", "--sessions=4", cwd=tmp_path, log=tmp_path / "log") as demo:
        wait_until(lambda: "process " in demo.words(), ENDS_WITHIN_S, demo.words)
        server = int(demo.words().partition("process ")[2].partition(",")[0])
        code, _ = demo.interrupt()
        assert code == 130
        wait_until(lambda: not is_alive(server))


def test_what_is_missing_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "NEEDED", {"no_such_module": "OpenSpiel", "json": "JSON"})
    with pytest.raises(CommandError) as caught:
        command.demo()
    assert "OpenSpiel" in str(caught.value)
    assert caught.value.hint is not None and "make demo" in caught.value.hint
    assert caught.value.exit_code == 1


def test_a_player_that_learned_nothing_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pyspiel")
    poor = Evaluation(-0.5, 0.01, 0.2, 0.1, 0.7, 100)
    outcome = _demo.DemoResult(poor, poor, [CurvePoint(100, -0.5, 1.0)], 1.0)
    monkeypatch.setattr(_demo, "run", lambda plan: outcome)
    with pytest.raises(CommandError) as caught:
        command.demo(output_dir=tmp_path)
    assert caught.value.exit_code == 1
