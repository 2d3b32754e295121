"""Scorers of other libraries as ours, and ours as theirs, with the libraries themselves."""

from __future__ import annotations

import json
import os
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

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(1200)]

HERE = Path(__file__).parent
ROOT = SOURCES.parent
REASONING_GYM_ENV = ROOT / "envs" / "reasoning_gym_env"


def ours() -> list[str]:
    """What this package needs."""
    found: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "dependencies"
    ]
    return found


def told_by(python: str, program: str, directory: Path) -> Any:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [python, str(HERE / program)],
        cwd=directory,
        env={**environ(HERE), "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "was destroyed but it is pending" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# ------------------------------------------------------------------ Inspect AI


@pytest.fixture(scope="module")
def inspect(tmp_path_factory: pytest.TempPathFactory) -> Any:
    python = python_of(ROOT / ".peers" / "inspect", "inspect_ai==0.3.285", *ours())
    return told_by(python, "inspect_scores.py", tmp_path_factory.mktemp("inspect"))


def test_scorers_of_inspect_score_our_episodes(inspect: Any) -> None:
    here = inspect["here"]
    assert here["match"] == [1.0, 0.0]
    assert here["targets"] == here["exact"] == here["looks"] == 1.0
    assert "target, answer, solution" in here["no target"]
    assert "has no message" in here["silent"]


def test_a_judge_of_inspect_that_gives_no_grade_is_no_score(inspect: Any) -> None:
    right, none = inspect["here"]["judge"]
    assert right == 1.0 and "Grade not found" in none


def test_values_of_inspect_are_numbers_and_what_is_none_is_never_0(inspect: Any) -> None:
    here = inspect["here"]
    assert here["values"][:8] == [1.0, 0.5, 0.0, 0.0, 1.0, 0.3, 1.0, 0.5]
    assert "'maybe', which is no number" in here["values"][8]
    assert "not scored" in here["values"][9] and here["values"][10] is None
    assert "the judge was silent" in here["unscored"]


def test_several_values_of_inspect_need_somebody_to_combine_them(inspect: Any) -> None:
    here = inspect["here"]
    assert "a, b, c" in here["several"] and "combine=" in here["several"]
    assert here["combined"] == pytest.approx(2.5 / 3)
    assert "b was not scored" in here["one missing"]


def test_a_rubric_of_ours_scores_a_run_of_inspect(inspect: Any) -> None:
    assert inspect["there"] == {
        "name": "right",
        "scored": [2, 1],
        "mean": 0.5,
        "values": [1.0, 0.0, None],
        "why": "step 1: it asks back",
    }


# ------------------------------------------------------------------ verifiers


@pytest.fixture(scope="module")
def verifiers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if sys.version_info < (3, 11):
        pytest.skip("verifiers 0.4 needs Python 3.11")
    python = python_of(ROOT / ".peers" / "verifiers", "verifiers==0.4.0", *ours())
    return told_by(python, "verifiers_scores.py", tmp_path_factory.mktemp("verifiers"))


def test_the_rewards_of_a_task_are_added_up_by_their_weights(verifiers: Any) -> None:
    value, components = verifiers["here"]["class"]
    assert components == {"exact": 2.0, "turns": 0.2, "users": 0.04}
    assert value == pytest.approx(2.24)
    assert verifiers["here"]["instance"][1]["exact"] == 2.0


def test_functions_are_given_what_they_name(verifiers: Any) -> None:
    here = verifiers["here"]
    assert here["function"] == [0.5, {"right": 0.5}]
    assert here["classic"] == [1.0, {"classic": 1.0}]
    assert here["both"] == [1.5, {"right": 0.5, "classic": 1.0}]
    assert "rubric_text" in here["wants more"]
    assert "two rewards are called right" in here["twice"]


def test_what_fails_in_verifiers_is_no_score(verifiers: Any) -> None:
    here = verifiers["here"]
    assert here["broken"].endswith("raised TaskError")
    assert here["no answer"] == "the task lacks what SumData needs: answer: Field required"
    assert "finite" in here["infinite"]


def test_a_judge_of_verifiers_is_asked_and_one_without_a_verdict_is_no_score(
    verifiers: Any,
) -> None:
    yes, no, perhaps = verifiers["here"]["judge"]
    assert (yes, no) == ([3.0, {"reference": 3.0}], [0.0, {"reference": 0.0}])
    assert perhaps.endswith("raised ValueError")


def test_what_needs_a_runtime_or_is_no_reward_is_refused(verifiers: Any) -> None:
    runtime, number, nothing = verifiers["here"]["refused"]
    assert "tests_pass needs a runtime" in runtime
    assert number.startswith("TypeError") and nothing.startswith("ValueError")


def test_a_rubric_of_ours_is_a_reward_of_verifiers(verifiers: Any) -> None:
    there = verifiers["there"]
    right, wrong, asked = there["in a task"]
    assert right == [0.5, {"solved": [1.0, 0.5]}]
    assert wrong == [0.0, {"solved": [0.0, 0.5]}]
    assert "it asks back" in asked[0] and asked[1] == {"solved": None}
    assert there["plugged"] == [0.5, {"plugged": [1.0, 0.5]}]


# ------------------------------------------------------------------ Reasoning Gym


@pytest.fixture(scope="module")
def reasoning_gym(tmp_path_factory: pytest.TempPathFactory) -> Any:
    # As the tests of the environment make it, which have it made anew if this differs.
    wanted = (ROOT / "pyproject.toml").read_text()
    wanted += (REASONING_GYM_ENV / "pyproject.toml").read_text()
    editable = [word for path in (ROOT, REASONING_GYM_ENV) for word in ("--editable", str(path))]
    packages = ["--compile-bytecode", *editable, "pytest", "pytest-timeout"]
    python = python_of(ROOT / ".peers" / "reasoning", *packages, made_of=wanted)
    return told_by(python, "reasoning_gym_scores.py", tmp_path_factory.mktemp("reasoning"))


def test_datasets_score_our_episodes(reasoning_gym: Any) -> None:
    here = reasoning_gym["here"]
    assert here["scores"] == [1.0, 0.0, 0.0]
    assert here["by name"] == here["a dataset"] == here["answer"] == 1.0
    assert here["played"] == [1.0, 0.0]
    assert here["identity"] == [True, False]


def test_an_entry_that_is_none_is_no_score(reasoning_gym: Any) -> None:
    here = reasoning_gym["here"]
    assert here["no entry"].startswith("Unscored")
    assert here["broken entry"].startswith("KeyError")
    assert here["batch"] == [1.0, 0.0, "LegCountingDataset raised KeyError"]


def test_what_is_no_dataset_or_option_is_refused(reasoning_gym: Any) -> None:
    name, option, late = reasoning_gym["here"]["refused"]
    assert "did you mean 'leg_counting'" in name
    assert "legs" in option and "options need a dataset given by name" in late


def test_no_text_is_run_that_is_not_guarded(reasoning_gym: Any) -> None:
    """Version 0.1.25 evaluates answers of nine datasets, and entries of two more."""
    programs = reasoning_gym["programs"]
    unknown, unused = programs["the same"]
    assert [name.rpartition(".")[2] for name in unknown] == ["number_sorting", "bitwise_arithmetic"]
    assert unused == []
    assert all("may_evaluate=True" in why for why in programs["refused"])
    assert programs["allowed"] == ""
    assert "openenv-reasoning-gym-env" in programs["unguarded"]


def test_an_answer_that_is_a_program_is_wrong_and_is_not_run(reasoning_gym: Any) -> None:
    programs = reasoning_gym["programs"]
    assert programs["run"] == {"countdown": [1.0, 0.01], "n_queens": [1.0, 0.0]}
    assert programs["composite"] == [1.0, 1.0, 1.0]


def test_a_rubric_of_ours_scores_a_dataset(reasoning_gym: Any) -> None:
    assert reasoning_gym["there"] == {
        "same": [True, 3, True],
        "scores": [0.25, 1.0],
        "theirs": 0.0,
        "asked": "step 1: it asks back",
    }
