"""Tests of the Reasoning Gym environment that need the library."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reasoning_gym
from support import rewards
from support.servers import serving

from openenv import Refused
from openenv.errors import ServerError
from openenv.reward import REWARD_INFO
from openenv.testing import check_environment
from openenv.testing.environment import ARGUMENTS_ARE_TAKEN
from reasoning_gym_env import ReasoningGymAction, ReasoningGymEnv, ReasoningGymObservation
from reasoning_gym_env.server import guard
from reasoning_gym_env.server.app import app
from reasoning_gym_env.server.datasets import NAMES, Recipe, dataset_seed
from reasoning_gym_env.server.reasoning_gym_environment import ReasoningGymEnvironment

pytestmark = [
    pytest.mark.filterwarnings("default"),  # the library's own warnings are not ours to fix
    pytest.mark.timeout(300),
]

SLOW = {"futoshiki", "knight_swap", "sokoban", "zebra_puzzles"}
PARTS: list[dict[str, Any]] = [
    {"name": "leg_counting", "weight": 2},
    {"name": "chain_sum", "config": {"max_terms": 3}},
]


def answer(env: ReasoningGymEnvironment, text: str) -> ReasoningGymObservation:
    return env.step(ReasoningGymAction(answer=text))


def correct(env: ReasoningGymEnvironment) -> str:
    found = env.state.correct_answer
    assert found is not None
    return found


# ------------------------------------------------------------------ the contract


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"dataset_name": "chain_sum", "size": 3},
        {"dataset_name": "spiral_matrix", "dataset_config": {"max_n": 4}},
        {"dataset_specs": PARTS},
    ],
    ids=str,
)
def test_it_keeps_the_contract(arguments: dict[str, Any]) -> None:
    check_environment(
        ReasoningGymEnvironment,
        actions=[ReasoningGymAction(answer="4")],
        reset_arguments=arguments,
        # The check passes each argument alone, but options need their dataset.
        skip=[ARGUMENTS_ARE_TAKEN] if "dataset_config" in arguments else [],
    )


def test_rewards_are_as_they_are_declared() -> None:
    with ReasoningGymEnv.local(ReasoningGymEnvironment).sync() as env:
        right = rewards.played(
            env, lambda _: ReasoningGymAction(answer=str(env.state().correct_answer)), seed=4
        )
        wrong = rewards.played(env, lambda _: ReasoningGymAction(answer="a zebra"))
    assert (rewards.worth(right), rewards.parts(right)) == (1.0, {"correctness": 1.0})
    assert wrong[-1].reward is not None
    assert rewards.worth(wrong) == wrong[-1].components["correctness"] < 1.0


def test_it_is_played_over_a_socket() -> None:
    with serving(app) as url, ReasoningGymEnv(base_url=url).sync() as env:
        first = env.reset(dataset_name="leg_counting", seed=42, size=10)
        assert first.reward is None and first.observation.question
        assert first.observation.correct_answer is None
        assert first.observation.dataset_metadata is None
        expected = env.state().correct_answer
        last = env.step(ReasoningGymAction(answer=str(expected)))
        assert (last.reward, last.done, last.observation.score) == (1.0, True, 1.0)
        assert last.observation.correct_answer == expected
        assert last.observation.dataset_metadata is not None
        with pytest.raises(ServerError, match="call reset"):
            env.step(ReasoningGymAction(answer="4"))
        with pytest.raises(ServerError, match="did you mean 'leg_counting'"):
            env.reset(dataset_name="leg_count")


# ------------------------------------------------------------------ every dataset


@pytest.mark.parametrize("name", NAMES)
def test_every_dataset_asks_and_scores(name: str) -> None:
    env = ReasoningGymEnvironment()
    first = env.reset(dataset_name=name, seed=3, size=4)
    assert first.question
    expected = env.state.correct_answer
    last = answer(env, expected if expected is not None else "no idea")
    assert last.done and last.model_dump_json()
    if expected is not None:
        assert last.reward == 1.0 and last.correct_answer == expected


@pytest.mark.parametrize("name", sorted(set(NAMES) - SLOW))
def test_every_question_is_that_of_the_library(name: str) -> None:
    env = ReasoningGymEnvironment()
    expected = reasoning_gym.create_dataset(name, seed=11, size=2)
    asked = [env.reset(dataset_name=name, seed=11, size=2), env.reset()]
    if name != "list_functions":  # draws from the process's generator, which the environment seeds
        assert [one.question for one in asked] == [expected[i]["question"] for i in range(2)]
    again = ReasoningGymEnvironment()
    random.seed(99)
    assert again.reset(dataset_name=name, seed=11, size=2) == asked[0]
    assert again.reset() == asked[1]


def test_no_other_generator_of_random_numbers_is_disturbed() -> None:
    env = ReasoningGymEnvironment()
    random.seed(0)
    np.random.seed(0)
    python, numpy = random.getstate(), np.random.get_state()
    for name in sorted(set(NAMES) - SLOW):
        env.reset(dataset_name=name, seed=1)
        answer(env, "1")
        assert random.getstate() == python, name
    assert random.getstate() == python
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), numpy, strict=True))


def test_sessions_in_threads_do_not_disturb_one_another() -> None:
    names = ["pool_matrix", "list_functions", "chain_sum", "pool_matrix", "list_functions"]

    def asked(name: str) -> list[str | None]:
        env = ReasoningGymEnvironment()
        first = env.reset(dataset_name=name, seed=8, size=20).question
        return [first, *(env.reset().question for _ in range(19))]

    alone = [asked(name) for name in names]
    with ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(asked, names)) == alone


PROGRAM = """
import hashlib, sys
from reasoning_gym_env.server.reasoning_gym_environment import ReasoningGymEnvironment
env = ReasoningGymEnvironment()
for name in sys.argv[1:]:
    print(hashlib.sha256(env.reset(dataset_name=name, seed=5).question.encode()).hexdigest())
"""
DEPEND_ON_HASHES = {
    "isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder",
}  # fmt: skip


def questions_elsewhere(names: list[str], hash_seed: str) -> list[str]:
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *names]
    ran = subprocess.run(
        command, env=environ, capture_output=True, text=True, check=True, timeout=300
    )
    return [printed.lstrip(".") for printed in ran.stdout.split()]  # one dataset prints a dot


def test_the_seed_determines_the_question_in_other_processes() -> None:
    names = sorted(set(NAMES) - SLOW - DEPEND_ON_HASHES)
    env = ReasoningGymEnvironment()
    here = [env.reset(dataset_name=name, seed=5).question or "" for name in names]
    expected = [hashlib.sha256(question.encode()).hexdigest() for question in here]
    assert questions_elsewhere(names, "1") == expected


def test_five_datasets_need_the_same_hash_seed_in_other_processes() -> None:
    names = sorted(DEPEND_ON_HASHES - SLOW)
    assert questions_elsewhere(names, "0") == questions_elsewhere(names, "0")


# ------------------------------------------------------------------ questions one after another


def test_a_bare_reset_asks_the_next_question_and_begins_anew_after_the_last() -> None:
    env = ReasoningGymEnvironment()
    asked = [env.reset(dataset_name="chain_sum", seed=1, size=3)] + [env.reset() for _ in range(5)]
    assert asked[:3] == asked[3:]
    assert len({one.question for one in asked}) == 3
    assert env.state.question_index == 2


def test_a_seed_begins_anew_with_the_default_dataset() -> None:
    env = ReasoningGymEnvironment()
    expected = env.reset(seed=4)
    env.reset(dataset_name="chain_sum", seed=1)
    assert env.reset(seed=4) == expected
    assert env.state.dataset_name == "leg_counting"


def test_without_a_seed_questions_differ() -> None:
    asked = {ReasoningGymEnvironment().reset().question for _ in range(8)}
    assert len(asked) > 4


def test_seeds_beyond_what_datasets_take_are_all_different() -> None:
    seeds = [-1, -2, 2**31 + 1, 2**70]
    assert len({dataset_seed(seed) for seed in seeds}) == 4
    assert all(0 <= dataset_seed(seed) <= 2**31 for seed in seeds)
    assert dataset_seed(7) == 7
    env = ReasoningGymEnvironment()
    assert env.reset(seed=-1) != env.reset(seed=1)


def test_a_composite_dataset_asks_questions_of_its_parts_by_their_weights() -> None:
    env = ReasoningGymEnvironment()
    env.reset(dataset_specs=PARTS, seed=1, size=60)
    seen = []
    for _ in range(60):
        last = answer(env, correct(env))
        assert last.reward == 1.0 and last.dataset_metadata is not None
        seen.append(last.dataset_metadata["source_dataset"])
        env.reset()
    assert 28 < seen.count("leg_counting") < 52
    assert set(seen) == {"leg_counting", "chain_sum"}


# ------------------------------------------------------------------ scores


def test_an_answer_that_is_partly_right_scores_in_between() -> None:
    env = ReasoningGymEnvironment()
    env.reset(seed=1)
    reward = answer(env, f"It is {correct(env)}").reward
    assert reward is not None and 0 < reward < 1


def test_an_answer_that_its_dataset_cannot_read_is_worth_nothing() -> None:
    """An unreadable answer used to be unscored, so it was worth more than a wrong answer."""
    env = ReasoningGymEnvironment()
    env.reset(dataset_name="prime_factorization", seed=42)
    last = answer(env, "x")
    assert last.done and last.reward == last.score == 0.0
    assert "unscored" not in last.metadata[REWARD_INFO]


def test_a_question_that_cannot_be_scored_has_no_reward_and_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any) -> float:
        raise ZeroDivisionError

    env = ReasoningGymEnvironment()
    env.reset(dataset_name="prime_factorization", seed=42)
    monkeypatch.setattr(Recipe, "score", fail)
    last = answer(env, "x")
    assert last.done and last.reward is None and last.score is None
    assert "prime_factorization" in last.metadata[REWARD_INFO]["unscored"]
    assert last.correct_answer


# ------------------------------------------------------------------ answers that are programs


EVALUATING = [
    "binary_matrix", "countdown", "intermediate_integration", "n_queens", "puzzle24",
    "polynomial_multiplication", "simple_integration", "spiral_matrix", "string_insertion",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_answer_runs_as_a_program(name: str, tmp_path: Path) -> None:
    if name in SLOW:
        pytest.skip("takes seconds to ask, and does not read answers as Python")
    trace = tmp_path / "ran"
    attempts = [
        f"open({str(trace)!r}, 'w')",
        f"[open({str(trace)!r}, 'w')]",
        f"__import__('pathlib').Path({str(trace)!r}).touch()",
        f"(lambda: open({str(trace)!r}, 'w'))()",
        "entry['answer']",
        "list(entry['answer'])",
        "self",
        "locals()",
    ]
    env = ReasoningGymEnvironment()
    env.reset(dataset_name=name, seed=1, size=len(attempts))
    for attempt in attempts:
        last = answer(env, attempt)
        assert not trace.exists(), attempt
        if name in EVALUATING:
            assert last.reward is None or last.reward < 0.2
        env.reset()


@pytest.mark.parametrize("name", EVALUATING)
def test_an_answer_that_would_take_for_ever_is_not_worked_out(name: str) -> None:
    env = ReasoningGymEnvironment()
    for attempt in ("9**9**9**9", "(9**9)**(9**9)", "9**(99*99*99*99)", "9" * 5000, "(" * 500):
        env.reset(dataset_name=name, seed=1)
        last = answer(env, attempt)
        assert last.reward is None or last.reward < 0.2


@pytest.mark.parametrize(
    "formula", ["x**2/2 + 3*sin(x) + C", "(8 - 4)*(7 - 1)", "-2*x*y**3", "exp(-x)/2", "1.5e3", "pi"]
)
def test_formulas_are_read(formula: str) -> None:
    guard.check_formula(formula)


@pytest.mark.parametrize(
    "text",
    [
        "x.y",
        "f(x)",
        "'a'",
        "[1]",
        "x if x else y",
        "x and y",
        "x < y",
        "lambda: 1",
        "__import__",
        "",
    ],
)
def test_what_is_no_formula_is_not_read(text: str) -> None:
    with pytest.raises(guard.FormulaError):
        guard.check_formula(text)


@pytest.mark.parametrize(
    ("formula", "largest", "words"),
    [
        ("x+" + "1" * 9 + " " * 1990, "x+" + "1" * 9 + " " * 1989, "at most 2000 characters"),
        ("x**10001", "x**10000", "exponents are too large"),
        ("(x**200)**51", "(x**200)**50", "exponents are too large"),
        (str(10**50 + 1), str(10**50), "a number is too large"),
    ],
)
def test_a_formula_has_bounds(formula: str, largest: str, words: str) -> None:
    with pytest.raises(guard.FormulaError, match=words):
        guard.check_formula(formula)
    guard.check_formula(largest)


def test_the_guarded_modules_are_those_that_evaluate_answers() -> None:
    """The test reads the source of the library, since other versions may evaluate elsewhere."""
    pattern = re.compile(r"(?<![\w.])eval\((?:answer|entry)|parse_expr\(answer")
    found = set()
    for one in pkgutil.walk_packages(reasoning_gym.__path__, "reasoning_gym."):
        if ".contrib." in one.name:
            continue
        module = importlib.import_module(one.name)
        if pattern.search(Path(str(module.__file__)).read_text()):
            found.add(one.name)
    guarded = {module.__name__ for module in (*guard.EVALUATED, *guard.PARSED)}
    of_its_own = {"reasoning_gym.algorithmic.number_sorting"}  # evaluates its own answer only
    assert found == guarded | of_its_own


# ------------------------------------------------------------------ tasks


def test_every_dataset_has_as_many_tasks_and_neighbours_differ() -> None:
    env = ReasoningGymEnvironment()
    assert env.list_splits() == ["train", "test"]
    assert env.num_tasks("train") == 1000 * len(NAMES)
    tasks = env.list_tasks("test")
    assert len({task.id for task in tasks}) == len(tasks) == env.num_tasks("test")
    assert [task.dataset_name for task in tasks[: len(NAMES)]] == list(NAMES)
    assert env.get_task_range("train", 5, 9) == [env.get_task("train", i) for i in range(5, 9)]
    for index in (-1, env.num_tasks("test")):
        with pytest.raises(IndexError):
            env.get_task("test", index)


def test_a_task_is_asked_by_its_id_and_as_it_is() -> None:
    env = ReasoningGymEnvironment()
    first = env.reset(task="train/chain_sum/17")
    assert env.state.task == "train/chain_sum/17" and env.state.question_index == 17
    assert env.reset(task={"id": "train/chain_sum/17", "split": "train"}) == first
    (task,) = [t for t in env.list_tasks("test") if t.id == "test/chain_sum/17"]
    assert env.reset(task=task) != first


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"dataset_name": "chain_summ"}, "chain_sum"),
        ({"dataset_name": "composite"}, "dataset_specs"),
        ({"dataset_name": "chain_sum", "dataset_specs": PARTS}, "composite"),
        ({"dataset_specs": []}, "dataset_specs"),
        ({"dataset_specs": [{"name": "nothing"}]}, "nothing"),
        ({"dataset_specs": [{"name": "chain_sum", "weigth": 1}]}, "weigth"),
        ({"dataset_specs": [{"name": "chain_sum", "weight": 0}]}, "weight"),
        ({"dataset_specs": [{"name": "chain_sum"}, {"name": "chain_sum"}]}, "uplicate"),
        ({"dataset_name": "chain_sum", "dataset_config": {"max_trems": 3}}, "max_terms"),
        ({"dataset_name": "chain_sum", "dataset_config": {"min_terms": 9}}, "chain_sum"),
        ({"dataset_name": "chain_sum", "dataset_config": {"min_terms": "x"}}, "chain_sum"),
        ({"dataset_name": "chain_sum", "dataset_config": {"seed": 9}}, "seed"),
        (
            {"dataset_name": "spell_backward", "dataset_config": {"data_file": "/etc/passwd"}},
            "file",
        ),
        ({"dataset_config": [1]}, "config"),
        ({"size": 0}, "size"),
        ({"size": "many"}, "size"),
        ({"seed": "1"}, "seed"),
        ({"task": "train/nothing/1"}, "train/nothing/1"),
        ({"task": "test/chain_sum/100"}, "test/chain_sum/100"),
        ({"task": 3}, "task"),
        ({"task": "train/chain_sum/1", "seed": 1}, "task"),
    ],
    ids=str,
)
def test_a_wrong_argument_of_reset_is_refused_and_changes_nothing(
    arguments: dict[str, Any], field: str
) -> None:
    env = ReasoningGymEnvironment()
    env.reset(dataset_name="chain_sum", seed=1)
    before = env.state
    with pytest.raises(Refused, match=field):
        env.reset(**arguments)
    assert env.state == before
    assert answer(env, correct(env)).reward == 1.0


def test_nothing_happens_before_a_question() -> None:
    env = ReasoningGymEnvironment()
    for call in (partial(answer, env, "1"), env.render, env.snapshot):
        with pytest.raises(Refused, match="before reset"):
            call()
    assert env.state.episode_id is None


# ------------------------------------------------------------------ snapshots and pictures


def test_a_stored_question_is_asked_anywhere() -> None:
    env, elsewhere = ReasoningGymEnvironment(), ReasoningGymEnvironment()
    for arguments in ({"dataset_specs": PARTS, "seed": 1}, {"task": "test/chain_sum/3"}):
        env.reset(**arguments)
        elsewhere.restore(env.snapshot())
        assert elsewhere.state == env.state and elsewhere.render() == env.render()
        assert answer(env, "4") == answer(elsewhere, "4")
        elsewhere.restore(env.snapshot())
        with pytest.raises(Refused, match="after done"):
            answer(elsewhere, "4")


@pytest.mark.parametrize(
    "wrong",
    [
        {"index": -1},
        {"index": 10**6},
        {"task": "test/chain_sum/4"},
        {"task": "nothing"},
        {"more": 1},
        {"recipe": {"name": "nothing", "config": {}, "parts": [], "seed": 1, "size": 9}},
        {"recipe": {"name": "chain_sum", "config": {"x": 1}, "parts": [], "seed": 1, "size": 9}},
    ],
    ids=str,
)
def test_wrong_bytes_are_refused_and_change_nothing(wrong: dict[str, Any]) -> None:
    env = ReasoningGymEnvironment()
    env.reset(task="test/chain_sum/3")
    before = env.snapshot()
    for data in (json.dumps({**json.loads(before), **wrong}).encode(), b"", b"\xff", b"[]"):
        with pytest.raises(ValueError):
            env.restore(data)
    assert env.snapshot() == before


def test_a_question_is_shown_with_its_answer_after_it_only() -> None:
    env = ReasoningGymEnvironment()
    first = env.reset(dataset_name="chain_sum", seed=1)
    assert first.question is not None and first.question in env.render()
    assert "correct answer" not in env.render()
    answer(env, "4")
    assert f"correct answer: {correct(env)}" in env.render()
