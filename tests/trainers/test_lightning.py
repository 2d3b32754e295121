"""GRPO by Lightning Fabric itself: what is learnt, of what, and by how many processes."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.commands import SOURCES
from support.servers import serving
from support.venvs import python_of
from trainers.buttons import Buttons

from openenv.server.app import create_app
from openenv.server.loading import load_target

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
ROOT = SOURCES.parent
PACKAGES = (
    *("lightning==2.6.6", "torch==2.13.0", "transformers==5.24.0", "matplotlib"),
    *("-e", str(ROOT)),
    *(
        word
        for name in ("blackjack", "coding", "game_2048")
        for word in ("-e", str(ROOT / "envs" / f"{name}_env"))
    ),
)


def python() -> str:
    return python_of(ROOT / ".peers" / "trainers_lightning", *PACKAGES)


def run(*given: str, room: int) -> dict[str, Any]:
    way, rest = given
    with serving(create_app(Buttons, max_concurrent_envs=room)) as url:
        done = subprocess.run(
            [python(), str(HERE / "lightning_play.py"), way, url, rest],
            env={**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """There is room for ten episodes: one that is not given back would have the next refused."""
    return run("all", str(tmp_path_factory.mktemp("lightning")), room=10)


def test_a_rollout_without_a_reward_is_left_out_and_the_others_are_learnt_of(
    told: dict[str, Any],
) -> None:
    kinds = told["kinds"]
    step = kinds["step"]
    # Of the pairs one rollout obeys and one idles; what breaks and cannot be scored has no reward.
    assert (step["rollouts"], step["unscored"]) == (10, 2)
    assert step["reward"] == pytest.approx((1.0 + 1.5 + 1.0 + 5 * 0.0) / 8)
    assert (step["environment/failures"], step["environment/episodes"]) == (1, 10)
    assert kinds["moved"] > 0
    assert "2 unscored" in kinds["said"]
    assert "1 failures" in kinds["said"]


def test_what_is_not_finished_may_be_left_out(told: dict[str, Any]) -> None:
    step = told["unfinished"]["step"]
    assert (step["reward"], step["unscored"]) == (1.0, 8)


def test_what_is_learnt_is_the_policy_gradient(told: dict[str, Any]) -> None:
    found = told["gradient"]
    assert found["norm"] > 0
    assert found["off"] < 1e-4
    assert found["told"] == pytest.approx(found["norm"], rel=1e-4)


def test_a_batch_in_parts_is_the_same_batch(told: dict[str, Any]) -> None:
    assert told["parts_off"] < 1e-6


def test_a_second_epoch_goes_further(told: dict[str, Any]) -> None:
    assert told["twice_off"] > 1e-5
    assert all(0.0 <= step["clipped"] <= 1.0 for step in told["twice"])


def test_each_step_says_what_it_was_made_of(told: dict[str, Any]) -> None:
    assert len(told["steps"]) == 3
    for step in told["steps"]:
        assert (step["reward"], step["rollouts"], step["unscored"]) == (0.5, 8, 0)
        assert step["reward_std"] == pytest.approx(0.5**0.5)
        assert step["turns"] == 2.5
        assert (step["environment/episodes"], step["environment/steps"]) == (8, 8)
        assert step["environment/refusals"] == 12
        assert 0 < step["environment/seconds"] < step["seconds"]


def test_it_goes_on_where_a_checkpoint_was_made(told: dict[str, Any]) -> None:
    assert told["resumed"]["numbers"] == [3, 4]
    assert told["resumed"]["off"] < 1e-6


def test_the_model_itself_replies(told: dict[str, Any]) -> None:
    # Whatever it says is a button, and the second that is pressed is the last.
    assert told["sampled"] == {"turns": 2, "reward": 1.0}


def test_samples_are_of_the_models_own_distribution(told: dict[str, Any]) -> None:
    found = told["distribution"]
    assert found["said"] == pytest.approx(found["likely"], abs=0.02)
    assert found["spread"] < 0.2
    assert found["is_training"]


def test_what_cannot_be_is_said(told: dict[str, Any]) -> None:
    lonely, clip, nothing, no_rows, sharded, cold, failing = told["refusals"]
    assert lonely == "ValueError: generations=1; expected at least 2"
    assert clip == "ValueError: clip_low=0.0; expected more than 0"
    assert nothing.startswith("ValueError: what is the model told?")
    assert no_rows.startswith("ValueError: what is the model told?")
    assert sharded.startswith("NotImplementedError: FSDPStrategy gives no process the whole model")
    assert cold == "ValueError: temperature=0.0; expected more than 0"
    assert failing.startswith("EnvironmentsFailing: 4 episodes in a row have failed")


def test_two_processes_learn_the_same_as_one_that_plays_as_much() -> None:
    alone = run("processes", "1", room=8)
    both = run("processes", "2", room=8)
    assert both["spread"] == 0.0
    assert both["weights"] == pytest.approx(alone["weights"], rel=1e-4, abs=1e-5)
    for one, other in zip(alone["steps"], both["steps"], strict=True):
        for name in ("reward", "rollouts", "unscored"):
            assert one[name] == other[name]
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-5)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)


def test_the_example_trains_on_two_devices_and_goes_on_where_it_was_interrupted(
    tmp_path: Path,
) -> None:
    model, out = tmp_path / "model", tmp_path / "out"
    made = (
        "import sys; from tiny_models import *; t = tokenizer_for(['hit or stand?'], CHATML); "
        "model_for(t, hidden=32, layers=1).save_pretrained(sys.argv[1]); "
        "t.save_pretrained(sys.argv[1])"
    )
    examples = ROOT / "examples"
    environment = {**os.environ, "PYTHONPATH": str(examples), "OMP_NUM_THREADS": "1"}
    subprocess.run([python(), "-c", made, str(model)], env=environment, check=True, timeout=200)
    with serving(load_target("blackjack_env")) as url:
        for steps in ("2", "3"):
            subprocess.run(
                [
                    *(python(), str(examples / "lightning" / "blackjack.py")),
                    *("--model", str(model)),
                    *("--environment", url, "--devices", "2", "--precision", "32-true"),
                    *("--groups", "2", "--generations", "2", "--save-every", "2"),
                    *("--steps", steps, "--out", str(out)),
                ],
                env=environment,
                check=True,
                timeout=400,
            )
    rows: list[dict[str, str]] = []
    for version in ("version_0", "version_1"):
        with (out / "steps" / version / "metrics.csv").open() as file:
            rows += csv.DictReader(file)
    assert [int(row["step"]) for row in rows] == [1, 2, 3]
    assert all(float(row["rollouts"]) == 8 for row in rows)
    assert all(float(row["environment/failures"]) == 0 for row in rows)
