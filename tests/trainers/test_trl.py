"""TRL's own GRPOTrainer trains on our environments, a tiny model for a few steps."""

from __future__ import annotations

import json
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import isnan
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from support.commands import environ
from support.servers import serving
from support.venvs import python_of
from trainers.flaky import Broken, Flaky
from trainers.planted import Echoes, Restless, Stage

from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from openenv import create_app

ROOT = Path(__file__).parents[2]
PACKAGES = ("blackjack", "echo", "openspiel", "coding", "game_2048")
NEWEST, LOWEST, LOWEST_WITH_FACTORY = "1.16", "1.6", "1.8"
NEEDED = (
    "torch==2.13.0",
    "trl==1.16.*",
    "matplotlib",
    *(word for path in (".", *(f"envs/{one}_env" for one in PACKAGES)) for word in ("-e", path)),
)

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1200)]


def python(trl: str = NEWEST) -> str:
    """Python with a version of TRL; `async` is the newest, with what its AsyncGRPO needs."""
    needed = [str(ROOT / word) if word == "." or "/" in word else word for word in NEEDED]
    if trl == NEWEST:
        return python_of(ROOT / ".peers" / "trl-envs", *needed)
    if trl == "async":
        return python_of(ROOT / ".peers" / "trl-async", *needed, "aiohttp")
    older = [f"trl=={trl}.*" if word.startswith("trl==") else word for word in needed]
    return python_of(ROOT / ".peers" / f"trl-{trl}", *older, "jmespath")  # which 1.6 needs


PROGRAM = str(Path(__file__).parent / "trl_play.py")


def played(way: str, folder: Path, told: str = "", trl: str = NEWEST, **options: Any) -> Any:
    return json.loads(ran(way, folder, told, trl, **options).stdout.splitlines()[-1])


def ran(
    way: str, folder: Path, told: str = "", trl: str = NEWEST, **options: Any
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [python(trl), PROGRAM, way, str(folder), json.dumps(options)],
        env=environ(ROOT / "tests") | {"OMP_NUM_THREADS": "1"},
        input=told,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def steps_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    assert found["error"] is None
    return [one for one in found["logs"] if "reward" in one]


def check_costs(found: dict[str, Any], steps: int, batch: int) -> None:
    assert len(found["costs"]) == steps
    for cost in found["costs"]:
        assert cost["episodes"] == batch
        assert cost["failures"] == 0
        assert cost["tokens"] > 0
        assert 0 < cost["waited_s"] < cost["seconds"]
        assert cost["waited_s"] <= cost["summed_s"]
    assert sum(cost["steps"] for cost in found["costs"]) > batch


@pytest.mark.parametrize("way", ["one", "overlapping"])
def test_an_environment_is_trained_on_by_its_own_reward(way: str, tmp_path: Path) -> None:
    found = played(way, tmp_path)
    logs = steps_of(found)
    assert len(logs) == 3
    for log in logs:
        assert log["rewards/Blackjack/mean"] == log["reward"]
        assert -1 <= log["reward"] <= 1.5
        assert log["tools/call_frequency"] > 0.5
        assert log["tools/failure_frequency"] == 0
        assert log["environment/episodes"] == 8
        assert log["environment/failures"] == 0
    assert any(log["grad_norm"] > 0 for log in logs)
    check_costs(found, 3, 8)


def test_a_training_in_which_no_rollout_acts_says_so(tmp_path: Path) -> None:
    found = played("idle", tmp_path)
    assert found["error"] is None
    warnings = [line for line in found["lines"] if "has acted" in line]
    assert len(warnings) == 1 and "chat template" in warnings[0]


def test_many_environments_are_trained_on_in_one_run(tmp_path: Path) -> None:
    found = played("many", tmp_path)
    logs = steps_of(found)
    for name in ("Echo", "Openspiel", "Coding"):
        assert any(log[f"rewards/{name}/mean"] is not None for log in logs), name
    check_costs(found, 6, 12)


def test_a_rollout_func_plays_a_batch_at_once(tmp_path: Path) -> None:
    found = played("together", tmp_path)
    logs = steps_of(found)
    assert any(log["grad_norm"] > 0 for log in logs)
    for log in logs:
        assert log["rewards/env_reward/mean"] == log["reward"]
    check_costs(found, 3, 8)
    assert any(cost["summed_s"] > cost["waited_s"] for cost in found["costs"])


def test_no_more_rollouts_are_played_at_once_than_there_is_room_for(tmp_path: Path) -> None:
    app = create_app(BlackjackEnvironment, max_concurrent_envs=3)
    with serving(app) as url:
        found = played("together", tmp_path, environment=url, at_once=3)
        check_costs(found, 3, 8)
        assert {cost["failures"] for cost in found["costs"]} == {0}


def test_a_server_without_enough_room_ends_the_training_and_names_the_cure(tmp_path: Path) -> None:
    app = create_app(BlackjackEnvironment, max_concurrent_envs=3)
    with serving(app) as url:
        found = played("one", tmp_path, environment=url, queue_s=1)
    assert found["error"].startswith("CapacityError")
    assert "MAX_CONCURRENT_ENVS" in found["error"]


@pytest.mark.parametrize("way", ["one", "together"])
def test_rollouts_whose_environment_fails_are_left_out(way: str, tmp_path: Path) -> None:
    Flaky.count = 0
    with serving(create_app(Flaky, max_concurrent_envs=16)) as url:
        found = played(way, tmp_path, environment=url)
    logs = steps_of(found)
    failures = sum(cost["failures"] for cost in found["costs"])
    assert 0 < failures < 24
    assert len(logs) == 3
    assert any(log["grad_norm"] > 0 for log in logs)
    for log in logs:
        assert log["reward"] >= -1


def test_an_environment_that_always_fails_ends_the_training(tmp_path: Path) -> None:
    with serving(create_app(Broken, max_concurrent_envs=16)) as url:
        found = played("one", tmp_path, environment=url, failures_in_a_row=6)
    assert found["error"].startswith("EnvironmentsFailing: 6 episodes in a row have failed")
    assert "the episode broke off: ExecutionFailed" in found["error"]


def test_the_worker_of_harnesses_plays_and_scores(tmp_path: Path) -> None:
    found = played("harness", tmp_path)
    assert found["open"] == 0
    assert len(found["played"]) == 6
    for messages, tokens, calls, reward, turns in found["played"]:
        assert messages >= 2
        assert tokens >= turns >= 1
        assert calls >= turns - 1
        assert -1 <= reward <= 1.5
    assert sum(one[2] for one in found["played"]) > 0


def test_transformers_reads_of_a_function_what_its_schema_says(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {
            "from": {"type": "string", "description": "Where\nfrom. Returns: nothing"},
            "how": {"enum": ["slow", "fast"], "description": "Pace"},
            "often": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
            "by": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            "stops": {"type": "array", "items": {"$ref": "#/$defs/Stop"}},
        },
        "required": ["from", "how"],
        "$defs": {
            "Stop": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "wait": {"type": "number"}},
                "required": ["name"],
            }
        },
    }
    found = played("schemas", tmp_path, told=json.dumps({"go": schema}))["go"]
    assert found["description"] == "Does go."
    parameters = found["parameters"]
    assert parameters["required"] == ["from_", "how"]
    properties = parameters["properties"]
    assert properties["from_"] == {
        "type": "string",
        "description": "Where from. Returns - nothing.",
    }
    assert properties["how"]["enum"] == ["slow", "fast"]
    assert properties["often"]["type"] == "integer"
    assert properties["often"]["description"] == "The often (at least 1, at most 9)."
    assert properties["by"]["type"] == "number"
    assert properties["by"]["nullable"]
    assert properties["stops"]["items"]["type"] == "object"
    assert "'wait': number, optional" in properties["stops"]["description"]


# ------------------------------------------------------------------ planted cases

WAYS = ["environment_factory", "rollout_func"]


@contextmanager
def staged(environment: type[Any] = Stage, **failures: int) -> Iterator[str]:
    """The address of an environment with planted failures; ``/played`` says how many began."""
    Stage.prepare(**failures)

    def count(_: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(Stage.played)))

    app = create_app(environment, max_concurrent_envs=64)
    app.add_route("/played", count)
    with serving(app) as url:
        yield url


def check_left_out(found: dict[str, Any], own: str) -> int:
    """Check the advantages of each group against those that TRL's own formula gives without the
    rollouts that have no reward; how many have none.
    """
    table = found["table"]
    assert len(table) == 16
    for at in range(0, 16, 4):
        group = table[at : at + 4]
        scored = [row for row in group if row[own] is not None]
        rewards = [row[own] + row["brevity"] for row in scored]
        deviation = (sum((x - mean(rewards)) ** 2 for x in rewards) / (len(rewards) - 1)) ** 0.5
        for row, reward in zip(scored, rewards, strict=True):
            expected = (reward - mean(rewards)) / (deviation + 1e-4)
            assert row["advantage"] == pytest.approx(expected, abs=1e-3)
        for row in group:
            if row[own] is None:
                assert (row["brevity"], row["advantage"]) == (None, 0.0)
    return sum(row[own] is None for row in table)


@pytest.mark.parametrize("failures", [{"breaks_every": 5}, {"fails_every": 5}])
@pytest.mark.parametrize(
    ("trl", "way"),
    [
        (LOWEST_WITH_FACTORY, "environment_factory"),
        (NEWEST, "environment_factory"),
        (LOWEST, "rollout_func"),
        (NEWEST, "rollout_func"),
    ],
)
def test_a_failure_beside_a_second_reward_function_counts_nowhere(
    trl: str, way: str, failures: dict[str, int], tmp_path: Path
) -> None:
    """It counted as 0 of the environment's reward, with an advantage; a reset that raised for good
    ended the run.
    """
    with staged(Stage, **failures) as url:
        found = played("planted", tmp_path, trl=trl, environment=url, by=way)
    assert found["error"] is None
    own = "env_reward" if way == "rollout_func" else "Stage"
    count = check_left_out(found, own)
    assert count >= 2
    assert count == sum(cost["failures"] for cost in found["costs"])
    assert any(log["grad_norm"] > 0 for log in found["logs"] if "grad_norm" in log)


@pytest.mark.parametrize("way", WAYS)
def test_a_second_reward_function_that_counts_failures_is_refused(way: str, tmp_path: Path) -> None:
    with staged() as url:
        found = played("planted", tmp_path, environment=url, by=way, beside="plain")
    assert found["error"].startswith("TrainingRefused: the reward function 'brevity'")
    assert "skip_failures(function)" in found["error"]


@pytest.mark.parametrize("way", WAYS)
def test_groups_that_begin_differently_end_the_training(way: str, tmp_path: Path) -> None:
    with staged(Restless) as url:
        found = played("planted", tmp_path, environment=url, by=way, beside="none")
    assert found["error"].startswith("UnequalBeginnings: two rollouts of one group begin diff")


def test_without_seeds_each_group_of_a_batch_has_an_episode_of_its_own(tmp_path: Path) -> None:
    """All rows of the dataset are equal, as in the examples of many."""
    with staged() as url:
        found = played("planted", tmp_path, environment=url, by="environment_factory")
        assert found["error"] is None
        seeds = [one["seed"] for one in Stage.played[-16:]]
    assert [len(set(seeds[at : at + 4])) for at in range(0, 16, 4)] == [1, 1, 1, 1]
    assert len(set(seeds)) == 4


@pytest.mark.parametrize("trl", [LOWEST, NEWEST])
def test_each_row_is_evaluated_once_and_no_batch_repeats_another(trl: str, tmp_path: Path) -> None:
    """12 evaluation prompts played 4 episodes three times, and accumulation one four times."""
    with staged() as url:
        marks = played("episodes", tmp_path, trl=trl, environment=url)["marks"]
        seeds = [one["seed"] for one in Stage.played]
    begun = [seeds[a:b] for a, b in pairwise(marks)]
    first, second, whole, resumed = begun
    assert sorted(first) == sorted(second) == list(range(100, 112))
    assert set(Counter(whole).values()) == {2}
    assert len(whole) == 4 * 4 * 4
    assert Counter(resumed) == Counter(whole[32:])  # as if it had not been resumed


def rows(url: str, folder: Path, **columns: Any) -> Any:
    return played("rows", folder, environment=url, **columns)


def test_a_dataset_without_rows_says_which_episodes_are_played(tmp_path: Path) -> None:
    """The prompt said one task, and the environment played its default."""
    with staged() as url:
        found = rows(url, tmp_path, prompt=["One.", "Two."], task_id=["a", "b"], seed=[3, 4])
        assert found["error"] is None
        assert Counter((one["task_id"], one["seed"]) for one in Stage.played) == {
            ("a", 3): 4,
            ("b", 4): 4,
        }


def test_seeds_of_one_prompt_are_given_to_groups(tmp_path: Path) -> None:
    with staged() as url:
        assert rows(url, tmp_path, prompt=["One."] * 9, seed=list(range(70, 79)))["error"] is None
        counts = Counter(one["seed"] for one in Stage.played)
    assert set(counts) < set(range(70, 79))
    assert sorted(counts.values()) == [4, 4]


@pytest.mark.parametrize("trl", [LOWEST, NEWEST])
def test_reward_functions_get_the_columns_of_the_row_that_was_played(
    trl: str, tmp_path: Path
) -> None:
    """TRL's own row may have another seed than the group was given."""
    with staged() as url:
        found = played("beside", tmp_path, trl=trl, environment=url)
        seeds = Counter(one["seed"] for one in Stage.played)
    assert found["error"] is None
    assert all(answer == f"of {seed}" for seed, answer in found["given"])
    assert Counter(seed for seed, _ in found["given"]) == seeds


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (
            {"prompt": ["One.", "One."], "task_id": ["a", "b"]},
            "ValueError: row 1 of the trainer's train_dataset has the prompt of an earlier row, "
            "and another episode: 'task_id' differ",
        ),
        (
            {"prompt": ["One.", "Two."], "answer": ["a", "b"]},
            "TaskNotTaken: the environment's reset takes no 'answer'",
        ),
    ],
)
def test_a_dataset_that_cannot_be_played_is_refused(
    columns: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with staged() as url:
        found = rows(url, tmp_path, **columns)
    assert found["error"].startswith(why)
    assert "columns=[...]" in found["error"]


@pytest.mark.parametrize(("trl", "first"), [(LOWEST, ["0.0", 0]), (NEWEST, ["nan", 1])])
def test_a_log_probability_that_is_unknown_does_not_end_training(
    trl: str, first: list[Any], tmp_path: Path
) -> None:
    """An older TRL would take NaN into its loss, so that there the token is not trained on."""
    with staged() as url:
        found = played("unknown", tmp_path, trl=trl, environment=url)
    assert found["error"] is None
    assert found["told"] == [[*first, -1.0, 1]] * 8
    (grad,) = [log["grad_norm"] for log in found["logs"] if "grad_norm" in log]
    assert 0 < grad < 100


def test_the_table_of_completions_has_the_conversation_in_words(tmp_path: Path) -> None:
    with staged() as url:
        found = played("planted", tmp_path, environment=url, by="rollout_func")
    for row in found["table"]:
        first, second, reply, thanks = row["transcript"].split("\n\n")
        assert (first, second, thanks) == (
            "user: Say a line.",
            "user: Speak.",
            "user: Thanks.\n(the episode is over)",
        )
        assert reply.removeprefix("assistant: ") in row["completion"][0]["content"]


# ------------------------------------------------------------------ several processes


def played_by_two(program: str, folder: Path, **options: Any) -> list[Any]:
    """What two processes of one training say, that talk with each other by gloo."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    alike = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [python(), PROGRAM, program, str(folder), json.dumps(options)],
            env=environ(ROOT / "tests")
            | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
            | {**alike, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        told = [one.communicate(timeout=600) for one in processes]
    finally:
        for one in processes:
            one.kill()
    assert [one.returncode for one in processes] == [0, 0], told[0][1][-3000:] + told[1][1][-3000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in told]


def test_rollouts_of_two_processes_get_their_own_replies_of_one_server(tmp_path: Path) -> None:
    """TRL's `VLLMGeneration` gave each the other's: it takes all to ask equally much and often."""
    with serving(create_app(Echoes, max_concurrent_envs=32)) as url:
        first, second = played_by_two("shared", tmp_path, environment=url)
    assert (first["error"], second["error"]) == (None, None)
    assert len(first["table"]) == 2 * 2 * 6
    assert [row["env_reward"] for row in first["table"]] == [1.0] * 24
    turns = [row["transcript"].count("assistant: ") for row in first["table"]]
    assert set(turns) == {1, 2, 3}  # so that they asked differently often
    assert all(count % 2 == 0 for count in first["asked"])


def test_an_environment_factory_is_refused_where_processes_share_a_server(tmp_path: Path) -> None:
    with serving(create_app(Echoes, max_concurrent_envs=32)) as url:
        both = played_by_two("shared", tmp_path, environment=url, by="environment_factory")
    for one in both:
        assert one["error"].startswith("TrainingRefused: environment_factory with several")
        assert "rollout_func" in one["error"]


def test_an_environment_factory_is_refused_where_weights_are_split(tmp_path: Path) -> None:
    with serving(create_app(Echoes, max_concurrent_envs=32)) as url:
        both = played_by_two("split", tmp_path, environment=url)
    for one in both:
        assert one["error"].startswith("environment_factory with several processes and weights")
        assert "FSDP" in one["error"] and "rollout_func" in one["error"]


def test_a_group_that_two_processes_share_begins_alike(tmp_path: Path) -> None:
    """Each plays six rollouts, of groups of four: two of the second group, and a whole one."""
    settings = {"per_device_train_batch_size": 6, "max_steps": 2}
    options = {"by": "environment_factory", "beside": "none", "settings": settings}
    with staged() as url:
        first, second = played_by_two("planted", tmp_path, environment=url, **options)
        seeds = [one["seed"] for one in Stage.played if one["seed"] > 3]  # which taught the model
    assert (first["error"], second["error"]) == (None, None)
    assert sorted(Counter(seeds).values()) == [4] * 6


def test_the_process_that_async_grpo_spawns_plays_groups_that_begin_alike(tmp_path: Path) -> None:
    """The class could not be pickled. Three places play groups of four, so that one begins again
    while its group has not ended.
    """
    with staged(breaks_every=5) as url:
        samples = played("workers", tmp_path, trl="async", environment=url)["samples"]
        seeds = [one["seed"] for one in Stage.played[:16]]
    assert [len(set(seeds[at : at + 4])) for at in range(0, 16, 4)] == [1, 1, 1, 1]
    assert len(set(seeds)) == 4
    unscored = [one for one in samples if isnan(one["reward"])]
    assert unscored
    assert {one["advantage"] for one in unscored} == {0.0}
    assert {one["reward"] for one in samples if not isnan(one["reward"])} == {0.0, 0.4}


def test_a_reward_function_beside_the_environments_is_refused_by_async_grpo(tmp_path: Path) -> None:
    """It would score rollouts that have failed: nothing tells it which."""
    with staged(breaks_every=5) as url:
        done = ran("workers", tmp_path, trl="async", environment=url, is_alone=False)
    assert "does not tell the reward function 'brevity' which rollouts have failed" in done.stderr
    assert "exited during init" in json.loads(done.stdout.splitlines()[-1])["error"]
