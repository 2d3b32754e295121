"""Environments as tasks of Inspect AI, and its tasks by our harness; both really run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import SOURCES, environ
from support.venvs import python_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
ROOT = SOURCES.parent

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    python = python_of(ROOT / ".peers" / "inspect", "inspect_ai==0.3.285", *ours)
    done = subprocess.run(
        [python, str(HERE / "inspect_play.py")],
        cwd=tmp_path_factory.mktemp("inspect"),
        env=environ(HERE.parent),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert "was destroyed but it is pending" not in done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


@pytest.fixture
def sums(told: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = told["sums"]
    return found


def values(run: dict[str, Any]) -> dict[str, str]:
    return {one["id"]: one["value"] for one in run["samples"]}


# ------------------------------------------------------------------ an environment as a task


@pytest.mark.parametrize("way", ["text", "tool"])
def test_a_model_acts_by_a_text_or_by_a_tool(sums: dict[str, Any], way: str) -> None:
    run = sums[way]
    assert run["status"] == "success"
    assert values(run) == {"1+1": "1.0", "2+3": "1.0", "20+22": "1.0", "broken": "nan"}
    assert run["samples"][0]["metadata"]["components"] == {"correct": 0.8, "format": 0.2}


def test_the_model_sees_prompt_and_observation_and_no_reward(sums: dict[str, Any]) -> None:
    messages = sums["tool"]["samples"][0]["messages"]
    assert [role for role, _ in messages] == ["system", "user", "user", "assistant", "tool"]
    assert messages[1][1] == "What is 1 + 1?"
    assert messages[2][1] == "Answer with the number alone."
    assert messages[4][1] == "Thank you.\n(the episode is over)"


def test_what_could_not_be_scored_is_left_out_of_the_metrics(sums: dict[str, Any]) -> None:
    run = sums["text"]
    assert (run["metrics"]["mean"], run["unscored"]) == (1.0, [1])
    assert run["samples"][3]["explanation"] == "the judge did not answer"


def test_the_answers_of_tasks_are_in_no_log(sums: dict[str, Any]) -> None:
    """They were: Inspect AI logs what a solver is made with."""
    assert [run["tells_secrets"] for run in sums.values()] == [False] * len(sums)


def test_wrong_answers_score_what_the_environment_says(sums: dict[str, Any]) -> None:
    assert sums["wrong"]["metrics"]["mean"] == pytest.approx(0.2)
    assert len(sums["wrong"]["samples"]) == 8  # two epochs


def test_a_tool_of_the_environment_is_called_and_its_words_are_shown(told: dict[str, Any]) -> None:
    (sample,) = told["echo"]["said"]["samples"]
    assert any(role == "user" and "Say 'hello'." in text for role, text in sample["messages"])
    assert ["tool", "hello\n(the episode is over)"] in sample["messages"]
    assert (sample["metadata"]["steps"], sample["value"]) == (1, "1.0")


def test_an_episode_that_is_not_over_is_worth_the_lowest_reward(told: dict[str, Any]) -> None:
    for name in ("idle", "wrong"):
        (sample,) = told["echo"][name]["samples"]
        assert (sample["value"], sample["metadata"]["is_over"]) == ("0.0", False)


def test_a_model_that_gives_up_has_the_lowest_reward_and_is_not_left_out(
    told: dict[str, Any],
) -> None:
    folds, stands = told["blackjack"]["folds"], told["blackjack"]["stands"]
    assert {one["value"] for one in folds["samples"]} == {"-1.0"}
    assert folds["unscored"] == [0]
    assert folds["metrics"]["mean"] == -1.0 < stands["metrics"]["mean"]


@pytest.mark.parametrize("name", ["idle", "wrong"])
def test_a_model_that_does_not_act_is_not_asked_for_ever(told: dict[str, Any], name: str) -> None:
    (sample,) = told["echo"][name]["samples"]
    assert sample["metadata"]["steps"] == 0
    assert sum(role == "assistant" for role, _ in sample["messages"]) == 10


def test_a_task_that_cannot_be_begun_is_an_error_and_no_score(told: dict[str, Any]) -> None:
    other = told["echo"]["other"]
    assert other["status"] == "error" and other["samples"] == []
    assert "there is no task 'nowhere'" in other["error"]
    assert told["unreachable"]["status"] == "error"
    assert "ConnectError" in told["unreachable"]["error"]


def test_epochs_of_a_seed_have_the_same_cards(told: dict[str, Any]) -> None:
    run = told["blackjack"]["stands"]
    assert run["name"] == "blackjack" and len(run["samples"]) == 24
    by_seed: dict[str, set[str]] = {}
    for one in run["samples"]:
        by_seed.setdefault(one["id"], set()).add(one["value"])
    assert all(len(found) == 1 for found in by_seed.values())
    assert len({value for found in by_seed.values() for value in found}) > 1


def test_what_means_nothing_is_refused(told: dict[str, Any]) -> None:
    assert [said.partition(":")[0] for said in told["misused"]] == [
        "limit=0; expected at least one task",
        "split='test'",
    ]


# ------------------------------------------------------------------ the harness


def test_equal_names_of_metrics_are_told_apart_by_their_scorers(told: dict[str, Any]) -> None:
    """They overwrote each other (K-31e)."""
    assert told["harness"]["both"] == {
        "includes/accuracy": 1.0,
        "includes/stderr": 0.0,
        "match/accuracy": 0.5,
        "match/stderr": 0.5,
    }


def test_another_scorer_s_scores_are_in_the_log_too(told: dict[str, Any]) -> None:
    assert told["harness"]["in files"] == ["exact"]


def test_names_that_are_there_once_stay_as_they_were(told: dict[str, Any]) -> None:
    assert told["harness"]["one"] == {"mean": 0.0, "stderr": 0.0}


def test_reducers_of_one_scorer_are_told_apart(told: dict[str, Any]) -> None:
    reduced = told["harness"]["reduced"]
    assert reduced["match/mean/accuracy"] == reduced["match/pass_at_1/accuracy"] == 0.5
    assert len(reduced) == 8


def test_a_parameter_that_nobody_reads_is_warned_of(told: dict[str, Any]) -> None:
    warned = [one for one in told["harness"]["warned"] if one[0] == "IgnoredArgumentWarning"]
    assert len(warned) == 1 and "temprature" in warned[0][1]
    assert warned[0][2].endswith("inspect_play.py")


def test_a_run_that_fails_is_an_error_that_says_why(told: dict[str, Any]) -> None:
    assert told["harness"]["refused"]["broken"][0] == "RuntimeError"
    assert "the model is broken" in told["harness"]["refused"]["broken"][1]
    assert told["harness"]["refused"]["no model"][0] == "ValueError"
