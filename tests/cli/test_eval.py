"""`openenv eval`: played, evaluated, reported and compared, as its users have it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_openenv
from support.runs import HEADER, rollout, run_of
from typer.testing import CliRunner

from game_2048_env.server.game_2048_environment import Game2048Environment
from openenv.cli.__main__ import app
from openenv.cli._console import CommandError
from openenv.evals import Evaluation
from openenv.evals.results import load_evaluation
from openenv.rollouts import RolloutWriter, read_rollouts

POLICIES = """
def stands(observation):
    return {"action": "stand"}

def hits_below_17(observation):
    return {"action": "hit" if observation.player_total < 17 else "stand"}

def breaks(observation):
    raise ZeroDivisionError("the policy is broken")
"""

PLAY = ("eval", "blackjack_env", "--num-tasks", "12", "-n", "2", "--threshold", "1")


def the_data(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two runs are: `a`, of a player who stands, and `b`, of a better one."""
    folder = tmp_path_factory.mktemp("evaluations")
    (folder / "players.py").write_text(POLICIES)
    first = run_openenv(*PLAY, "--policy", "players:stands", "-o", "runs/a", cwd=folder)
    assert (first.returncode, first.stdout) == (0, ""), first.stderr
    better = ("--policy", "players:hits_below_17", "--output-dir", "runs/b", "--compare", "runs/a")
    done = run_openenv(*PLAY, *better, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "a.txt").write_text(first.stderr)
    (folder / "b.json").write_text(done.stdout)
    return folder


@pytest.mark.extended("starts commands; tests/evals shows what they do")
@pytest.mark.slow
def test_an_environments_own_tasks_are_played(tmp_path: Path) -> None:
    asked = ("eval", "2048", "--split", "test", "--num-tasks", "3", "--max-steps", "2")
    the_data(run_openenv(*asked, "-o", "run", "--json", cwd=tmp_path))
    played = {record.task_id for record in read_rollouts(tmp_path / "run" / "rollouts.jsonl")}
    assert played == {task.id for task in Game2048Environment().list_tasks("test")[:3]}
    refused = run_openenv("eval", "2048", "--split", "nowhere", cwd=tmp_path)
    assert refused.returncode != 0 and "train, test" in refused.stderr


@pytest.mark.extended("starts commands; tests/evals shows what they do")
@pytest.mark.slow("evaluates a run and draws its report")
def test_a_run_has_its_folder(folder: Path) -> None:
    names = {file.name for file in (folder / "runs" / "b").iterdir()}
    reports = {"report.html", "report.md", "result.json", "comparison.json"}
    assert names == {"rollouts.jsonl", *reports}
    found = load_evaluation(folder / "runs" / "b" / "result.json")
    assert (
        found.counts["samples"] == len(list(read_rollouts(folder / "runs/b/rollouts.jsonl"))) == 24
    )
    assert (found.counts["tasks"], found.policy) == (12, "players:hits_below_17")
    assert found.reproducible is True


@pytest.mark.slow("evaluates and compares runs")
@pytest.mark.slow
def test_what_it_says_is_what_it_found(folder: Path) -> None:
    said, found = (
        (folder / "a.txt").read_text(),
        load_evaluation(folder / "runs" / "a", threshold=1.0),
    )
    assert found.success.value is not None
    assert f"solved: {100 * found.success.value:.1f} %" in said
    assert "12 tasks, 24 samples: 24 scored, 0 could not be, 0 failed" in said
    assert "It is in runs/a" in said


@pytest.mark.slow
def test_json_has_scores_and_comparison(folder: Path) -> None:
    data = json.loads((folder / "b.json").read_text())
    found = load_evaluation(folder / "runs" / "b", threshold=1.0)
    assert data["scores"]["success_rate"] == found.success.value
    assert data["output_dir"] == "runs/b"
    compared = data["comparison"]
    assert (compared["before"], compared["after"]) == ("players:stands", "players:hits_below_17")
    assert (compared["tasks"], compared["warnings"]) == (12, [])
    solved = compared["solved_in_both"] + compared["solved_in_neither"]
    assert solved + len(compared["fixed"]) + len(compared["regressed"]) == 12


@pytest.mark.extended("starts commands; tests/evals shows what they do")
@pytest.mark.slow
def test_two_runs_that_are_stored_are_compared(folder: Path) -> None:
    again = the_data(
        run_openenv(
            "eval", "--compare", "runs/a", "runs/b", "--threshold", "1", "--json", cwd=folder
        )
    )
    then = json.loads((folder / "b.json").read_text())
    assert again["comparison"] == then["comparison"]


@pytest.mark.extended("starts commands; tests/evals shows what they do")
@pytest.mark.slow
def test_what_was_played_is_evaluated_otherwise(folder: Path) -> None:
    """Without playing: a threshold that every hand reaches."""
    stored = "runs/a/rollouts.jsonl"
    done = run_openenv(
        "eval", "--from", stored, "--threshold", "-1", "-o", "again", "--report", "md", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert "solved: 100.0 %" in done.stderr
    assert {file.name for file in (folder / "again").iterdir()} == {"result.json", "report.md"}


@pytest.mark.extended("starts commands; tests/evals shows what they do")
@pytest.mark.slow
def test_a_run_that_is_there_is_gone_on_with_only_if_asked_for(folder: Path) -> None:
    lines = (folder / "runs/a/rollouts.jsonl").read_text().splitlines(keepends=True)
    part = folder / "part"
    part.mkdir()
    (part / "rollouts.jsonl").write_text("".join(lines[:10]))
    stands = (*PLAY, "--policy", "players:stands", "-o", "part", "--report", "none")
    refused = run_openenv(*stands, cwd=folder)
    assert refused.returncode == 2 and "--resume" in refused.stderr
    done = run_openenv(*stands, "--resume", cwd=folder)
    assert done.returncode == 0, done.stderr
    found, whole = (load_evaluation(folder / name, threshold=1.0) for name in ("part", "runs/a"))
    assert found.success == whole.success and found.mean_reward == whole.mean_reward
    assert (part / "rollouts.jsonl").read_text().startswith("".join(lines[:10]))


@pytest.mark.slow
def test_a_policy_that_fails_is_an_error_with_its_cause(folder: Path) -> None:
    done = run_openenv(*PLAY, "--policy", "players:breaks", "-o", "broken", cwd=folder)
    assert done.returncode == 1
    assert "the policy is broken" in done.stderr and "--resume goes on" in done.stderr
    assert not (folder / "broken" / "result.json").exists()


# ------------------------------------------------------------------ misuse


def refused(*arguments: str) -> CommandError:
    """What the command says, in this process, of what it cannot do."""
    done = CliRunner().invoke(app, ["eval", *arguments], standalone_mode=False)
    assert done.output == "" and isinstance(done.exception, CommandError), done.exception
    return done.exception


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "what is to be evaluated"),
        (("x", "--from", "y"), "exclude each other"),
        (("--from", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--from", "a.jsonl", "--report", "htm"), "did you mean html?"),
        (("--from", "a.jsonl", "--unscored", "fale"), "did you mean fail?"),
        (("--from", "."), "is no run"),
        (("--from", "a.jsonl", "--compare", "c.jsonl"), "c.jsonl"),
        (("--compare", "a.jsonl", "b.jsonl"), "no task in common"),
        (("blackjack_env", "--resume"), "--output-dir FOLDER"),
        (("blackjack_env", "--policy", "rondom"), "did you mean 'random'?"),
        (("blackjack_env", "--error-budget", "some"), "is not a number"),
    ],
)
def test_misuse_is_told_and_nothing_played(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    written(tmp_path / "a.jsonl", {"a": [1.0]})
    written(tmp_path / "b.jsonl", {"b": [1.0]})
    error = refused(*arguments)
    assert said in f"{error} {error.hint}"
    assert error.exit_code in (1, 2)


# ------------------------------------------------------------------ what is said, in process


def written(path: Path, rewards: dict[str, Any]) -> Path:
    with RolloutWriter(path, HEADER) as writer:
        for one in run_of(rewards):
            writer.write(one)
    return path


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    path = written(tmp_path / "rollouts.jsonl", {"a": [1.0, None], "b": [0.0]})
    done = CliRunner().invoke(app, ["eval", str(path), "--json"])
    assert done.exception is None
    assert "1 of 3 samples have no known reward" in json.loads(done.stdout)["notes"][0]


def test_what_the_policy_gave_up_is_said_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    with RolloutWriter(path, HEADER.model_copy(update={"reward": {"kind": "terminal"}})) as writer:
        writer.write(rollout("a"))
        writer.write(rollout("b", reward=None, outcome="stopped", unscored=None))
    unknown = CliRunner().invoke(app, ["eval", str(path), "--json"])
    assert json.loads(unknown.stdout)["scores"]["mean_reward"] is None
    given = CliRunner().invoke(app, ["eval", str(path), "--lowest", "-1"])
    assert "mean reward: 0.00 " in given.stderr
    assert "the policy gave up 1 of these" in given.stderr
    left_out = CliRunner().invoke(app, ["eval", str(path), "--unscored", "skip", "--json"])
    assert json.loads(left_out.stdout)["scores"]["mean_reward"] == 1.0


def test_a_result_that_was_evaluated_otherwise_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "rollouts.jsonl", {"a": [1.0], "b": [0.0]})
    done = CliRunner().invoke(app, ["eval", str(path), "-o", str(tmp_path), "--report", "none"])
    assert done.exception is None
    result = tmp_path / "result.json"
    assert json.loads(result.read_text())["config"]["eval_parameters"] == {
        "level": 0.95,
        "run": str(path),
        "threshold": 1.0,
        "unscored": "fail",
    }
    assert CliRunner().invoke(app, ["eval", "--from", str(result)]).exit_code == 0
    error = refused("--from", str(result), "--threshold", "0.5")
    assert "was evaluated with threshold=1.0, and 0.5 is asked for" in str(error)


def evaluated(folder: Path, rewards: dict[str, Any], *options: str) -> Path:
    """A run in its folder, evaluated by the command."""
    folder.mkdir()
    path = written(folder / "rollouts.jsonl", rewards)
    asked = ["eval", str(path), "-o", str(folder), "--report", "none", *options]
    done = CliRunner().invoke(app, asked)
    assert done.exception is None, done.output
    return folder


def test_a_comparison_keeps_the_threshold_of_the_run(tmp_path: Path) -> None:
    """Which is not the one that follows from the rewards that are declared."""
    half = evaluated(tmp_path / "half", {"a": [0.6], "b": [0.2]}, "--threshold", "0.5")
    whole = evaluated(tmp_path / "whole", {"a": [0.6], "b": [0.7]})
    asked = ["eval", "--from", str(half), "--compare", str(whole), "--json"]
    done = CliRunner().invoke(app, asked)
    assert done.exception is None, done.output
    data = json.loads(done.stdout)
    assert data["scores"]["success_rate"] == 0.5  # from 1 on, it would be none
    assert data["comparison"]["regressed"] == ["b"]
    done = CliRunner().invoke(app, ["eval", "--from", str(whole), "--compare", str(half), "--json"])
    data = json.loads(done.stdout)
    assert (data["scores"]["success_rate"], data["comparison"]["regressed"]) == (0.0, [])
    done = CliRunner().invoke(app, [*asked, "--threshold", "0.1"])
    assert json.loads(done.stdout)["scores"]["success_rate"] == 1.0


@pytest.mark.slow("plays an environment")
def test_what_is_played_is_compared_by_the_rules_of_the_earlier_run(tmp_path: Path) -> None:
    play = ["eval", "blackjack_env", "--num-tasks", "2", "--report", "none", "--no-check"]
    first = [*play, "-o", str(tmp_path / "first"), "--threshold", "-1"]
    assert CliRunner().invoke(app, first).exception is None
    done = CliRunner().invoke(app, [*play, "--compare", str(tmp_path / "first"), "--json"])
    assert done.exception is None, done.output
    data = json.loads(done.stdout)
    assert data["scores"]["success_rate"] == 1.0
    assert (data["comparison"]["fixed"], data["comparison"]["regressed"]) == ([], [])


@pytest.mark.parametrize(
    ("missing", "options"),
    [("scipy", []), ("matplotlib", ["-o", "run"]), ("jinja2", ["-o", "run", "--report", "md"])],
)
def test_a_missing_extra_is_told_of_before_anything_is_played(
    missing: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, missing, None)
    error = refused("no_such_environment", *options)
    assert f"'{missing}', which is not installed: pip install 'openenv[eval]'" in str(error)
    assert not (tmp_path / "run").exists()


def test_rollouts_that_are_there_are_told_of_with_how_to_go_on(tmp_path: Path) -> None:
    folder = evaluated(tmp_path / "run", {"a": [1.0]})
    error = refused("no_such_environment", "-o", str(folder))
    assert str(error) == f"there are rollouts in {folder} already"
    assert error.hint is not None and f"--output-dir {folder} --resume" in error.hint


def test_words_are_short_where_there_are_many_tasks() -> None:
    from openenv.cli.commands.eval import summarize_comparison, summarize_evaluation
    from openenv.evals import compare, evaluate

    def run(reward: float) -> Evaluation:
        return evaluate([rollout(f"t{i}", s, reward) for i in range(40) for s in range(20)], HEADER)

    words = summarize_evaluation(run(1.0))
    assert "1: 100.0 %" in words and "16: " in words and "20: " in words and "; 3: " not in words
    told = summarize_comparison(compare(run(0.0), run(1.0)))
    assert "fixed: 40: t0, t1" in told and "and 30 more" in told and "regressed: 0\n" in f"{told}\n"


@pytest.mark.slow("starts a command as a console script does")
def test_a_scorer_is_found_in_the_working_directory(tmp_path: Path) -> None:
    """As `openenv` is installed, the directory is on the path only if the command puts it there."""
    (tmp_path / "scorer_here.py").write_text("def score(trajectory):\n    return 0.5\n")
    start = "import sys; sys.path[:1] = []; from openenv.cli.__main__ import main; main()"
    asked = ("eval", "blackjack", "--num-tasks", "2", "--no-check", "--json")
    done = subprocess.run(
        [sys.executable, "-c", start, *asked, "--trajectory-scorer", "scorer_here:score"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
