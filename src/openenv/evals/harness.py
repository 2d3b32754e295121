"""Evaluation harness for environments, and periodic evaluation during training, as in RFC 013.

Training and evaluation play with the same code, `openenv.rollouts.rollout`.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import Self

from openenv.evals.base import EvalConfig, EvalHarness, EvalResult
from openenv.evals.metrics import Evaluation, Unscored, evaluate
from openenv.evals.reproducibility import check_reproducible
from openenv.evals.results import ROLLOUTS, check_extra, result_of, save
from openenv.rollouts.limits import RolloutLimits
from openenv.rollouts.policies.named import FORMS, policy_named
from openenv.rollouts.runs import rollout
from openenv.tasks.load import load_tasks
from openenv.tasks.task import Task
from openenv.tasks.taskset import Taskset

__all__ = ["EnvEvalHarness", "EvalParameters", "EvalSchedule", "play_and_evaluate"]


def play_and_evaluate(
    env: Any,
    policy: Any,
    tasks: Any = None,
    *,
    first: Task | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    checks_reproducibility: bool = True,
    evaluation: dict[str, Any] | None = None,
    **options: Any,
) -> Evaluation:
    """Play an environment and evaluate the rollouts.

    Args:
        env: The environment; see `openenv.rollouts.rollout`.
        policy: The policy that plays.
        tasks: The tasks; see `openenv.rollouts.rollout`.
        first: The first task, needed if `tasks` can be read only once.
        output_dir: The folder to write the rollouts to; None keeps the rollouts in memory.
        checks_reproducibility: Check first that the environment is reproducible; see
            `check_reproducible`.
        evaluation: Arguments of `evaluate`.
        **options: Options of `openenv.rollouts.rollout`. The default of `seed` is 0.

    Raises:
        FileExistsError: The folder already has rollouts, and `resume` is not set.
        MissingPackage: The extra ``eval`` is not installed; nothing was played.
        RolloutsFailed: More rollouts failed than `error_budget` allows.
        OpenEnvError: The rollouts cannot be played or evaluated.
    """
    check_extra()
    output = None if output_dir is None else Path(output_dir) / ROLLOUTS
    if output is not None and output.exists() and not options.get("resume"):
        why = "there are rollouts already; resume=True goes on with them, or name another folder"
        raise FileExistsError(errno.EEXIST, why, str(output))
    if options.get("seed") is None:
        options["seed"] = 0
    is_same = None
    if checks_reproducibility:
        looked_at = tasks if first is None else [first]
        is_same = check_reproducible(env, looked_at, seed=options["seed"]).is_same
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
    run = rollout(env, policy, tasks, output=output, **options)
    return evaluate(run, run.header, reproducible=is_same, **(evaluation or {}))


class EvalParameters(BaseModel):
    """The parameters that `EnvEvalHarness` reads from `eval_parameters`."""

    model_config = ConfigDict(extra="forbid")

    split: str | None = Field(default="test", description="The split to evaluate on.")
    limit: int | None = Field(
        default=None, ge=1, description="So many tasks, the first ones; of no tasks, so many seeds."
    )
    seeds: list[int] | None = Field(
        default=None,
        min_length=1,
        description="Each task is played with each of these; by default with one of its own, "
        "always the same.",
    )
    samples_per_task: int = Field(default=1, ge=1, description="Of each seed, for pass@k.")
    success_threshold: float | None = Field(
        default=None,
        description="A sample is solved from this reward on; by default from the highest one that "
        "is declared, or 1.",
    )
    unscored: Unscored = Field(
        default="fail",
        description="How samples without a known reward count: those that the policy gave up "
        "count as the lowest reward (`fail`), all are left out (`skip`), or all count as not "
        "solved (`fail-all`).",
    )
    lowest_reward: float | None = Field(
        default=None,
        description="What samples count as that the policy gave up; by default the lowest reward "
        "that is declared, at most 0.",
    )
    policy: str | None = Field(default=None, description="The name of a policy.")
    model: str | None = Field(default=None, description="A model that plays, in place of a policy.")
    llm_endpoint: str | None = Field(default=None, description="Where the model is served.")
    temperature: float = Field(default=0.0, ge=0.0, description="Of the model.")
    max_tokens: int | None = Field(default=None, ge=1, description="Of one reply of the model.")
    max_turns: int | None = Field(default=None, ge=1, description="Steps of an episode.")
    max_seconds: float | None = Field(default=None, gt=0, description="Of an episode.")
    concurrency: int = Field(default=16, ge=1, description="Episodes at once.")
    retries: int = Field(default=2, ge=0, description="Attempts anew, after a passing failure.")
    error_budget: float = Field(default=0.1, ge=0.0, le=1.0, description="The share that may fail.")
    resume: bool = Field(default=False, description="Go on with the rollouts of the folder.")
    level: float = Field(default=0.95, gt=0.0, lt=1.0, description="How sure intervals are.")
    checks_reproducibility: bool = Field(
        default=True, description="Look first whether the environment shows the same twice."
    )
    reports: list[str] = Field(default=["html", "md"], description="Of these kinds.")


class EnvEvalHarness(EvalHarness):
    """Evaluates a policy on an environment's tasks; the figures are those of `Evaluation.scores`.

    The `eval_parameters` of `run` are the fields of `EvalParameters`.

    Args:
        env: The environment; see `openenv.rollouts.rollout`. By default `dataset` names it.
        policy: The policy; by default the `policy` or `model` that `eval_parameters` name.
        tasks: Any source that `openenv.tasks.load_tasks` accepts. By default each seed is a task.
        output_dir: The folder for the run's files; see `openenv.evals.results`. None writes no
            files.
    """

    def __init__(
        self,
        env: Any = None,
        policy: Any = None,
        tasks: Any = None,
        *,
        output_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.env = env
        self.policy = policy
        self.tasks = tasks
        self.output_dir = None if output_dir is None else Path(output_dir)

    def run(
        self,
        harness_version: str,
        library_versions: dict[str, str],
        dataset: str,
        eval_parameters: dict[str, Any],
    ) -> dict[str, Any]:
        """Play and evaluate; write the files of the run if there is an `output_dir`.

        Raises:
            FileExistsError: The folder already has rollouts, and `resume` is not set.
            MissingPackage: The extra ``eval`` is not installed; nothing was played.
            ValueError: A parameter is unknown or out of range, or there is no policy or no task.
            RolloutsFailed: More rollouts failed than `error_budget` allows.
            OpenEnvError: The rollouts cannot be played or evaluated.
        """
        try:
            parameters = EvalParameters.model_validate(eval_parameters)
        except ValidationError as error:
            one = error.errors(include_url=False)[0]
            what = f"eval_parameters[{'.'.join(map(str, one['loc']))!r}]"
            raise ValueError(f"{what} is {one['input']!r:.100}: {one['msg']}") from error
        check_extra(parameters.reports if self.output_dir is not None else ())
        tasks, first = self._what(parameters)
        found = play_and_evaluate(
            dataset if self.env is None else self.env,
            self._player(parameters),
            tasks,
            first=first,
            output_dir=self.output_dir,
            checks_reproducibility=parameters.checks_reproducibility,
            evaluation={
                "threshold": parameters.success_threshold,
                "unscored": parameters.unscored,
                "lowest": parameters.lowest_reward,
                "level": parameters.level,
            },
            n=parameters.samples_per_task,
            concurrency=parameters.concurrency,
            seed=0,
            limits=RolloutLimits(parameters.max_turns, parameters.max_seconds),
            retries=parameters.retries,
            error_budget=parameters.error_budget,
            resume=parameters.resume,
        )
        config = EvalConfig(
            harness_name=self.name,
            harness_version=harness_version,
            library_versions=library_versions,
            dataset=dataset,
            eval_parameters=eval_parameters,
        )
        result = result_of(config, found)
        if self.output_dir is not None:
            save(self.output_dir, result, found, reports=parameters.reports)
        return result.scores

    def in_folder(self, name: str) -> Self:
        """Return a copy of the harness that writes its runs to a subfolder of `output_dir`."""
        other = copy.copy(self)
        other.output_dir = None if self.output_dir is None else self.output_dir / name
        return other

    def _player(self, parameters: EvalParameters) -> Any:
        given = parameters.model_fields_set & {"model", "llm_endpoint", "temperature", "max_tokens"}
        if self.policy is not None or parameters.policy is not None:
            if given:
                raise ValueError(f"{', '.join(sorted(given))}: there is a policy already")
            return parameters.policy if self.policy is None else self.policy
        if parameters.model is None:
            raise ValueError("nobody plays: give a policy, or the parameter 'model'")
        if parameters.samples_per_task > 1 and parameters.temperature == 0.0:
            raise ValueError(
                f"samples_per_task={parameters.samples_per_task} at temperature=0.0 are all the "
                "same; give a temperature above 0"
            )
        name, options = parameters.model, dict[str, Any](temperature=parameters.temperature)
        if parameters.max_tokens is not None:
            options["max_tokens"] = parameters.max_tokens
        if name.partition(":")[0] not in FORMS:
            name = f"openai:{name}"
        return policy_named(name, base_url=parameters.llm_endpoint, **options)

    def _what(self, parameters: EvalParameters) -> tuple[Any, Task | None]:
        """Return the tasks, and the first task if the tasks can be read only once."""
        if self.tasks is None:
            if parameters.seeds is not None:
                return seeds_as_tasks(parameters.seeds[: parameters.limit]), None
            if parameters.limit is None:
                raise ValueError("there are no tasks: give some, or 'limit', or 'seeds'")
            return seeds_as_tasks(range(parameters.limit)), None
        split = None if isinstance(self.tasks, Taskset) else parameters.split
        loaded = load_tasks(self.tasks, split=split, limit=parameters.limit)
        if parameters.seeds is None:
            return loaded, None
        return _crossed(loaded, parameters.seeds), next(_crossed(loaded[:1], parameters.seeds))


def seeds_as_tasks(seeds: Iterable[int]) -> list[Task]:
    """Make one task per seed, for an environment without tasks."""
    return [Task(id=f"seed-{seed}", reset={"seed": seed}) for seed in seeds]


def _crossed(tasks: Iterable[Task], seeds: Sequence[int]) -> Iterator[Task]:
    for task in tasks:
        if "seed" in task.reset:
            raise ValueError(f"seeds={list(seeds)}: the task {task.id!r} has a seed of its own")
        for seed in seeds:
            yield task.model_copy(update={"reset": {**task.reset, "seed": seed}})


class EvalSchedule:
    """Runs an evaluation every `every_n_steps` training steps.

    Args:
        harness: The harness that evaluates. An `EnvEvalHarness` with an `output_dir` writes each
            run to a subfolder such as ``step-00000050``.
        config: The configuration of the evaluation.
        every_n_steps: Interval in training steps, at least 1. Step 0, before training, is included.
        on_result: Function to call with the step and the result.

    Raises:
        ValueError: `every_n_steps` is not positive.
    """

    def __init__(
        self,
        harness: EvalHarness,
        config: EvalConfig,
        every_n_steps: int,
        on_result: Callable[[int, EvalResult], object] | None = None,
    ) -> None:
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps={every_n_steps}; expected at least 1")
        self.harness = harness
        self.config = config
        self.every_n_steps = every_n_steps
        self.on_result = on_result
        self._last: int | None = None

    def maybe_run(self, step: int) -> EvalResult | None:
        """Evaluate if the step is due, otherwise return None. A repeated step is not evaluated.

        Args:
            step: Number of training steps so far.

        Raises:
            Exception: The harness raised an exception. The step does not count as evaluated.
        """
        if step % self.every_n_steps or step == self._last:
            return None
        harness = self.harness
        if isinstance(harness, EnvEvalHarness):
            harness = harness.in_folder(f"step-{step:08d}")
        result = harness.run_from_config(self.config)
        self._last = step
        if self.on_result is not None:
            self.on_result(step, result)
        return result
