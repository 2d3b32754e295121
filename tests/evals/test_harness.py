"""`EnvEvalHarness` and `EvalSchedule`: real episodes, evaluated, stored and compared."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.llm_server import Asked, Reply, llm_server
from support.sums import SumObservation, SumsEnvironment

from openenv._internal.packages import MissingPackage
from openenv.errors import ConnectError
from openenv.evals import (
    ComparisonError,
    EnvEvalHarness,
    EvalConfig,
    EvalResult,
    EvalSchedule,
    EvaluationError,
    check_reproducible,
    compare_eval_results,
    load_evaluation,
)
from openenv.evals.metrics import Evaluation
from openenv.evals.results import REPORTS, is_stored, save
from openenv.rollouts import PolicyStopped, RolloutsFailed
from openenv.tasks import load_tasks

TASKS = [
    {"id": f"{a}+{b}", "prompt": f"What is {a} + {b}?", "criteria": {"answer": str(a + b)}}
    for a, b in ((1, 1), (2, 3), (20, 22))
]
TASKS.append({"id": "broken", "prompt": "What is 1 + 0?", "criteria": {"answer": "broken"}})


def adds(observation: Any, task: dict[str, Any]) -> dict[str, str]:
    left, right = task["prompt"][len("What is ") : -1].split(" + ")
    return {"answer": str(int(left) + int(right))}


def always_two(observation: Any) -> dict[str, str]:
    return {"answer": "2"}


def config(**parameters: Any) -> EvalConfig:
    return EvalConfig(
        harness_name="EnvEvalHarness",
        harness_version="1",
        library_versions={"openenv": "x"},
        dataset="sums",
        eval_parameters={"split": None, "reports": [], **parameters},
    )


def scores(policy: Any, tasks: Any = TASKS, **parameters: Any) -> dict[str, Any]:
    harness = EnvEvalHarness(SumsEnvironment, policy, tasks)
    return harness.run_from_config(config(**parameters)).scores


# ------------------------------------------------------------------ the harness


def test_it_plays_each_task_and_says_what_came_of_it() -> None:
    found = scores(adds, samples_per_task=2)
    assert found["success_rate"] == found["pass@2"] == 1.0
    assert found["unscored_rate"] == 0.25 and found["error_rate"] == 0.0
    assert found["component/correct"] == pytest.approx(0.8)
    assert found["per_task"]["broken"] == {"success": None, "reward": None}
    assert found["reproducible"] is True
    worse = scores(always_two)
    assert worse["per_task"]["2+3"] == {"success": 0.0, "reward": pytest.approx(0.2)}


def test_samples_without_a_reward_count_as_not_solved_if_asked_for() -> None:
    assert scores(adds, unscored="fail-all")["success_rate"] == 0.75


def plays(total: int) -> dict[str, str]:
    return {"action": "hit" if total < 17 else "stand"}


def honest(observation: Any) -> dict[str, str]:
    return plays(observation["player_total"])


def leaves(observation: Any) -> dict[str, str]:
    """Give up on hands that are hard to win."""
    if 12 <= observation["player_total"] <= 18:
        raise PolicyStopped
    return honest(observation)


def raises(observation: Any) -> dict[str, str]:
    if 12 <= observation["player_total"] <= 18:
        raise ZeroDivisionError
    return honest(observation)


def acts_wrongly(observation: Any) -> dict[str, str]:
    return {"action": "fold"} if 12 <= observation["player_total"] <= 18 else honest(observation)


@pytest.mark.parametrize("folds", [leaves, raises, acts_wrongly])
def test_a_policy_that_folds_on_hard_hands_is_no_better_than_an_honest_one(folds: Any) -> None:
    """Left out, its hard hands made it look best: +0.6 where the honest one has -0.1."""

    def figures(policy: Any, **more: Any) -> tuple[float, float]:
        harness = EnvEvalHarness("blackjack_env.server.app:app", policy)
        found = harness.run_from_config(
            config(limit=60, success_threshold=1.0, error_budget=1.0, **more)
        ).scores
        return found["mean_reward"], found["success_rate"]

    tried, folded = figures(honest), figures(folds)
    assert folded[0] < tried[0] and folded[1] < tried[1]
    assert figures(folds, unscored="skip")[0] > tried[0], "what is left out can be had"


def test_the_threshold_can_be_given() -> None:
    assert scores(always_two, success_threshold=0.2)["success_rate"] == 1.0


def test_so_many_tasks_are_played() -> None:
    assert list(scores(adds, limit=2)["per_task"]) == ["1+1", "2+3"]


def test_each_task_is_played_with_each_seed(tmp_path: Path) -> None:
    harness = EnvEvalHarness(SumsEnvironment, adds, TASKS[:2], output_dir=tmp_path)
    harness.run_from_config(config(seeds=[3, 5], samples_per_task=2))
    per_task = load_evaluation(tmp_path).per_task
    seeds = {name: sorted(s.seed or 0 for s in task.samples) for name, task in per_task.items()}
    assert seeds == {"1+1": [3, 3, 5, 5], "2+3": [3, 3, 5, 5]}


def test_seeds_and_a_seed_of_its_own_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="'a' has a seed of its own"):
        scores(adds, [{"id": "a", "reset": {"seed": 1}}], seeds=[1, 2])


def test_without_tasks_the_seeds_are_the_tasks() -> None:
    assert list(scores(always_two, None, limit=3)["per_task"]) == ["seed-0", "seed-1", "seed-2"]
    assert list(scores(always_two, None, seeds=[7, 9])["per_task"]) == ["seed-7", "seed-9"]
    with pytest.raises(ValueError, match="'limit'"):
        scores(always_two, None)


def test_a_dataset_that_is_an_environment_needs_no_other() -> None:
    where = config(limit=2, policy="random").model_copy(update={"dataset": "support.sums_app:app"})
    assert EnvEvalHarness().run_from_config(where).scores["success_rate"] == 0.0


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"temprature": 0.5}, "temprature"),
        ({"samples_per_task": 0}, "samples_per_task"),
        ({"seeds": []}, "seeds"),
        ({"unscored": "zero"}, "unscored"),
        ({"model": "m"}, "model: there is a policy already"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(parameters: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        scores(adds, **parameters)


def test_somebody_has_to_play() -> None:
    with pytest.raises(ValueError, match="nobody plays"):
        scores(None)


def test_samples_of_a_model_that_does_not_vary_are_refused() -> None:
    with pytest.raises(ValueError, match=r"temperature=0\.0"):
        scores(None, model="m", llm_endpoint="http://127.0.0.1:9/v1", samples_per_task=2)


def test_more_failures_than_may_be_are_an_error() -> None:
    def fails(observation: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(RolloutsFailed):
        scores(fails)


def test_a_model_that_is_served_plays_by_the_tools_of_the_environment() -> None:
    def says(asked: Asked) -> Reply:
        question = next(one["content"] for one in asked.messages if "+" in str(one["content"]))
        answer = adds(None, {"prompt": question.partition("\n")[0]})
        return Reply("", calls=[(asked.body["tools"][0]["function"]["name"], answer)])

    with llm_server(says) as server:
        found = scores(
            None,
            TASKS[:3],
            model="toy",
            llm_endpoint=f"{server.url}/v1",
            temperature=0.7,
            samples_per_task=2,
        )
        assert {one.body["temperature"] for one in server.asked} == {0.7}
    assert found["pass@2"] == 1.0
    assert found["mean_completion_tokens"] is not None and found["mean_prompt_tokens"] > 0


# ------------------------------------------------------------------ reproducibility


class Forgetful(SumsEnvironment):
    """Takes a seed, and shows what it likes."""

    COUNT: ClassVar[Any] = itertools.count()

    def reset(self, seed: int | None = None, *args: Any, **kwargs: Any) -> SumObservation:
        return SumObservation(question=f"Number {next(self.COUNT)}?")


def test_an_environment_that_discards_the_seed_is_told_of() -> None:
    found = EnvEvalHarness(Forgetful, always_two).run_from_config(config(limit=2)).scores
    assert found["reproducible"] is False
    assert "Two fresh sessions" in " ".join(found["evaluation"]["notes"])
    assert check_reproducible(Forgetful).why.endswith("show other values of question")


def test_the_check_can_be_left_out() -> None:
    assert scores(adds, checks_reproducibility=False)["reproducible"] is None


def test_tasks_that_are_read_once_are_left_alone() -> None:
    tasks = iter([1, 2])
    found = check_reproducible(SumsEnvironment, tasks)
    assert found.is_same is None and "once" in found.why
    assert next(tasks) == 1


def test_the_first_task_is_begun_to_look() -> None:
    assert check_reproducible(SumsEnvironment, load_tasks(TASKS)).is_same is True


def test_a_task_that_cannot_be_begun_is_not_told_to_be_the_same() -> None:
    class Refuses(SumsEnvironment):
        def reset(self, *args: Any, **kwargs: Any) -> SumObservation:
            raise RuntimeError("no")

    found = check_reproducible(Refuses)
    assert found.is_same is None and "could not be begun" in found.why


def test_no_server_is_an_error() -> None:
    with pytest.raises(ConnectError):
        check_reproducible("http://127.0.0.1:9")


# ------------------------------------------------------------------ what is stored


def stored(folder: Path, policy: Any = adds, **parameters: Any) -> EvalResult:
    harness = EnvEvalHarness(SumsEnvironment, policy, TASKS, output_dir=folder)
    return harness.run_from_config(config(**parameters))


@pytest.mark.slow
def test_a_run_is_stored_and_read_again(tmp_path: Path) -> None:
    result = stored(tmp_path, reports=["html", "md"])
    names = {"rollouts.jsonl", "result.json", "report.html", "report.md"}
    assert {file.name for file in tmp_path.iterdir()} == names
    assert EvalResult.model_validate_json((tmp_path / "result.json").read_bytes()) == result
    of_folder, of_rollouts, of_result = (
        load_evaluation(tmp_path / name) for name in ("", "rollouts.jsonl", "result.json")
    )
    assert of_folder == of_result
    assert of_rollouts.model_copy(update={"reproducible": True}) == of_result
    assert all(is_stored(tmp_path / name) for name in ("", "rollouts.jsonl", "result.json"))
    assert not is_stored(tmp_path / "elsewhere")


@pytest.mark.slow
def test_what_the_tasks_are_scored_by_is_in_no_file(tmp_path: Path) -> None:
    secret = [{**TASKS[0], "criteria": {"answer": "2 and BANANA"}}]
    harness = EnvEvalHarness(SumsEnvironment, adds, secret, output_dir=tmp_path)
    harness.run_from_config(config(reports=["html", "md"]))
    assert all("BANANA" not in file.read_text() for file in tmp_path.iterdir())


def test_a_run_is_gone_on_with(tmp_path: Path) -> None:
    stored(tmp_path)
    played: list[str] = []

    def noted(observation: Any, task: dict[str, Any]) -> dict[str, str]:
        played.append(task["id"])
        return adds(observation, task)

    noted.__qualname__, noted.__module__ = adds.__qualname__, adds.__module__
    lines = (tmp_path / "rollouts.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "rollouts.jsonl").write_text("".join(lines[:-1]))
    again = stored(tmp_path, noted, resume=True)
    assert again.scores["success_rate"] == 1.0 and len(played) == 1


def test_two_results_are_compared(tmp_path: Path) -> None:
    before, after = stored(tmp_path / "a", always_two), stored(tmp_path / "b")
    compared = compare_eval_results(before, after)
    assert (compared.fixed, compared.regressed) == (["2+3", "20+22"], [])
    with pytest.raises(ComparisonError):
        compare_eval_results(before, stored(tmp_path / "c", success_threshold=0.5))


def test_results_of_another_harness_are_refused(tmp_path: Path) -> None:
    other = EvalResult(config=config(), scores={"accuracy": 1.0})
    with pytest.raises(EvaluationError, match="the first is no result of EnvEvalHarness"):
        compare_eval_results(other, other)
    (tmp_path / "result.json").write_text('{"config": {}}')
    with pytest.raises(EvaluationError, match="is no result: "):
        load_evaluation(tmp_path / "result.json")
    with pytest.raises(EvaluationError, match="is no run"):
        load_evaluation(tmp_path.parent)


def test_a_result_is_not_told_to_be_of_options_that_it_is_not_of(tmp_path: Path) -> None:
    stored(tmp_path)
    result = tmp_path / "result.json"
    assert load_evaluation(result, threshold=1.0, unscored="fail").threshold == 1.0
    with pytest.raises(EvaluationError, match=r"with threshold=1\.0, and 0\.5 is asked for"):
        load_evaluation(result, threshold=0.5)
    with pytest.raises(EvaluationError, match="with unscored='fail'"):
        load_evaluation(result, unscored="skip")
    assert load_evaluation(tmp_path, threshold=0.5).threshold == 0.5


@pytest.mark.parametrize("name", ["", "rollouts.jsonl"])
def test_a_run_that_is_read_keeps_the_rules_it_was_evaluated_by(tmp_path: Path, name: str) -> None:
    stored(tmp_path, success_threshold=0.5, unscored="fail-all", lowest_reward=-2.0, level=0.8)
    again = load_evaluation(tmp_path / name)
    assert (again.threshold, again.threshold_from) == (0.5, "as asked for")
    assert (again.unscored_policy, again.lowest, again.level) == ("fail-all", -2.0, 0.8)
    assert load_evaluation(tmp_path / name, threshold=None, level=0.9).threshold == 0.5
    (tmp_path / "others.jsonl").write_bytes((tmp_path / "rollouts.jsonl").read_bytes())
    assert load_evaluation(tmp_path / "others.jsonl").threshold == 1.0  # nobody says of what it is
    (tmp_path / "result.json").write_text("{}")
    assert load_evaluation(tmp_path / "rollouts.jsonl").threshold == 1.0
    with pytest.raises(EvaluationError, match="is no result"):
        load_evaluation(tmp_path)


def never_asked(observation: Any) -> Any:
    raise AssertionError("it was played")


@pytest.mark.parametrize(
    ("missing", "reports"), [("scipy", []), ("matplotlib", ["html"]), ("jinja2", ["md"])]
)
def test_what_an_evaluation_needs_is_looked_for_before_it_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, reports: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingPackage, match=rf"'{missing}'.*pip install 'openenv\[eval\]'"):
        stored(tmp_path / "run", never_asked, reports=reports)
    assert not (tmp_path / "run").exists()


def test_rollouts_that_are_there_are_told_of_before_the_environment_is_begun(
    tmp_path: Path,
) -> None:
    stored(tmp_path)
    begun: list[int] = []

    class Noted(SumsEnvironment):
        def __init__(self) -> None:
            begun.append(1)
            super().__init__()

    harness = EnvEvalHarness(Noted, never_asked, TASKS, output_dir=tmp_path)
    with pytest.raises(FileExistsError, match="resume=True goes on with them"):
        harness.run_from_config(config())
    assert begun == []


def test_what_was_found_of_an_environment_is_said_of_its_run_later(tmp_path: Path) -> None:
    harness = EnvEvalHarness(Forgetful, always_two, output_dir=tmp_path)
    notes = harness.run_from_config(config(limit=2)).scores["evaluation"]["notes"]
    assert load_evaluation(tmp_path).notes == notes


def test_what_is_there_of_another_run_is_removed(tmp_path: Path) -> None:
    result = stored(tmp_path, reports=["md"])
    for name in ("comparison.json", "report.html"):
        (tmp_path / name).write_text("of another run")
    save(tmp_path, result, Evaluation.model_validate(result.scores["evaluation"]), reports=["md"])
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"rollouts.jsonl", "result.json", "report.md"}


@pytest.mark.slow
def test_secrets_are_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sesame-opens-it")
    result = stored(tmp_path / "a")
    result.config.eval_parameters["base_url"] = "http://me:sesame-opens-it@llm/v1"
    evaluation = load_evaluation(tmp_path / "a")
    evaluation.settings["trajectory_scorer"] = "http://scorer?token=hush-hush"
    for file in save(tmp_path / "b", result, evaluation):
        assert "sesame" not in file.read_text() and "hush" not in file.read_text()


def test_reports_are_of_known_kinds(tmp_path: Path) -> None:
    result = stored(tmp_path / "a", reports=["md"])
    assert (tmp_path / "a" / "report.md").exists()
    assert not (tmp_path / "a" / "report.html").exists()
    evaluation = Evaluation.model_validate(result.scores["evaluation"])
    with pytest.raises(ValueError, match="html, md"):
        save(tmp_path / "b", result, evaluation, reports=["pdf"])
    assert set(REPORTS) == {"html", "md"}


def test_a_result_is_json_that_others_can_read(tmp_path: Path) -> None:
    stored(tmp_path)
    data = json.loads((tmp_path / "result.json").read_text(), parse_constant=pytest.fail)
    assert data["scores"]["success_rate"] == 1.0
    assert data["config"]["harness_name"] == "EnvEvalHarness"


# ------------------------------------------------------------------ every so many steps


def test_an_evaluation_is_run_every_so_many_steps(tmp_path: Path) -> None:
    told: list[tuple[int, float]] = []
    harness = EnvEvalHarness(SumsEnvironment, adds, TASKS[:1], output_dir=tmp_path)
    schedule = EvalSchedule(
        harness,
        config(),
        every_n_steps=2,
        on_result=lambda step, result: told.append((step, result.scores["success_rate"])),
    )
    ran = [schedule.maybe_run(step) is not None for step in (0, 1, 2, 2, 3, 4)]
    assert ran == [True, False, True, False, False, True]
    assert told == [(0, 1.0), (2, 1.0), (4, 1.0)]
    folders = sorted(folder.name for folder in tmp_path.iterdir())
    assert folders == ["step-00000000", "step-00000002", "step-00000004"]
    assert harness.output_dir == tmp_path


def test_a_step_whose_evaluation_failed_is_tried_again() -> None:
    answers = iter([ZeroDivisionError(), None])

    def moody(observation: Any) -> dict[str, str]:
        if (error := next(answers)) is not None:
            raise error
        return {"answer": "2"}

    harness = EnvEvalHarness(SumsEnvironment, moody, TASKS[:1])
    schedule = EvalSchedule(harness, config(), every_n_steps=1)
    with pytest.raises(RolloutsFailed):
        schedule.maybe_run(1)
    assert schedule.maybe_run(1) is not None


def test_a_schedule_without_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="every_n_steps=0"):
        EvalSchedule(EnvEvalHarness(), config(), every_n_steps=0)
