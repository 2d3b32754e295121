"""`openenv eval`: how well a policy does, how sure that is, and what two runs have apart."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openenv.cli import _completion
from openenv.cli._console import MISUSED, CommandError, did_you_mean, emit, say
from openenv.cli._progress import display
from openenv.cli.commands import rollout as playing

if TYPE_CHECKING:
    from openenv.evals import Comparison, EvalConfig, EvalResult, Evaluation
    from openenv.evals.metrics import Estimate

__all__ = ["evaluate_command"]

NAMED = 10  # tasks, at most, in what is said

Env = Annotated[
    str | None,
    typer.Argument(
        help="Environment, as for `openenv rollout`; or the folder or file of a stored run "
        "to evaluate.",
        metavar="ENV",
        autocompletion=_completion.complete_environments,
    ),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="RUN",
        help="Evaluate this file of rollouts or folder of a run, and play nothing.",
    ),
]
OutputDir = Annotated[
    Path | None,
    typer.Option(
        "--output-dir",
        "-o",
        metavar="FOLDER",
        help="Write rollouts.jsonl, result.json and the reports to this folder.",
    ),
]
Compare = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="Compare with an earlier run: its folder, rollouts or result.json. `--compare "
        "A B` compares two stored runs.",
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        help="Minimum reward of a solved sample.", show_default="the highest that is declared, or 1"
    ),
]
WhatOfUnscored = Annotated[
    str | None,
    typer.Option(
        "--unscored",
        metavar="fail|skip|fail-all",
        help="Treatment of samples without a reward. fail: those that the policy gave up "
        "count as not solved with the lowest reward, and those with a failed "
        "environment are left out. skip: leave all out. fail-all: count all as not "
        "solved.",
        show_default="fail",
    ),
]
Lowest = Annotated[
    float | None,
    typer.Option(
        "--lowest",
        help="Reward of samples that the policy gave up.",
        show_default="the lowest that is declared, at most 0",
    ),
]
Level = Annotated[
    float | None,
    typer.Option(min=0.5, max=0.999, help="Confidence level of intervals.", show_default="0.95"),
]
Report = Annotated[
    str, typer.Option(metavar="KINDS", help="Reports to write: html, md or none, comma-separated.")
]
Seed = Annotated[int, typer.Option(help="Seed from which all other seeds derive.")]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Resume the rollouts in the folder, without playing finished ones again."
    ),
]
NoCheck = Annotated[
    bool,
    typer.Option(
        "--no-check", help="Skip the check that the environment is reproducible for a seed."
    ),
]


def evaluate_command(
    env: Env = None,
    policy: playing.PolicyName = "random",
    tasks: playing.Tasks = None,
    split: playing.Split = None,
    samples: playing.Samples = 1,
    num_tasks: playing.NumTasks = None,
    concurrency: playing.Concurrency = 16,
    seed: Seed = 0,
    max_steps: playing.MaxSteps = None,
    max_seconds: playing.MaxSeconds = None,
    max_tokens: playing.MaxTokens = None,
    retries: playing.Retries = 2,
    error_budget: playing.ErrorBudget = "0.1",
    trajectory_scorer: playing.Scorer = None,
    base_url: playing.BaseURL = None,
    temperature: playing.Temperature = None,
    max_reply_tokens: playing.MaxReplyTokens = None,
    system_prompt: playing.SystemPrompt = None,
    act_by: playing.ActBy = None,
    output_dir: OutputDir = None,
    resume: Resume = False,
    stored: From = None,
    compare: Compare = None,
    threshold: Threshold = None,
    unscored: WhatOfUnscored = None,
    lowest: Lowest = None,
    level: Level = None,
    report: Report = "html,md",
    no_check: NoCheck = False,
    as_json: playing.AsJSON = False,
) -> None:
    """Evaluate a policy on an environment's tasks, with confidence intervals.

    It exits 0; 1 if nothing could be played or evaluated; 2 if it was misused.

    Examples:
        openenv eval wordle --policy openai:gpt-5-mini --num-tasks 100 -o before
        openenv eval http://localhost:8000 --tasks own --split test -n 4 -o after
        openenv eval --from after --compare before  # two runs that are stored
    """
    options = _PlayOptions(
        policy=policy,
        tasks=tasks,
        split=split,
        samples=samples,
        num_tasks=num_tasks,
        concurrency=concurrency,
        seed=seed,
        max_steps=max_steps,
        max_seconds=max_seconds,
        max_tokens=max_tokens,
        retries=retries,
        error_budget=error_budget,
        trajectory_scorer=trajectory_scorer,
        base_url=base_url,
        temperature=temperature,
        max_reply_tokens=max_reply_tokens,
        system_prompt=system_prompt,
        act_by=act_by,
        no_check=no_check,
    )
    reports = _reports(report)
    if resume and output_dir is None:
        why = "--resume needs to know which folder"
        raise CommandError(why, hint="--output-dir FOLDER", exit_code=MISUSED)
    asked = {
        "threshold": threshold,
        "unscored": _unscored(unscored),
        "lowest": lowest,
        "level": level,
    }
    evaluation = {name: value for name, value in asked.items() if value is not None}
    run = _stored_run(env, stored)
    with _report_errors(output_dir, env):
        from openenv.evals.results import (
            check_extra,
            load_evaluation,
            result_of,
            save,
            stored_rules,
        )

        check_extra(reports if output_dir is not None else ())
        if run is None and compare is not None:  # both are to be evaluated alike
            evaluation = {**_comparable(stored_rules(compare)), **evaluation}
        if run is not None:
            found = load_evaluation(run, **evaluation)
        else:
            assert env is not None
            found = _play(env, options, evaluation, output_dir, resume=resume)
        here = run or output_dir
        compared = None if compare is None else _compare(compare, here, found, evaluation)
        asked_to_play = {} if run is not None else options.given()
        result = result_of(_config(asked_to_play, run, found, lowest), found)
        if output_dir is not None:
            with display() as shown:
                shown.begin("reporting")
                files = save(output_dir, result, found, compared, reports)
                shown.finish(", ".join(file.name for file in files))
    if as_json:
        emit(_as_data(result, compared, output_dir))
        return
    say(summarize_evaluation(found))
    if compared is not None:
        say(summarize_comparison(compared))
    if output_dir is not None:
        say(f"It is in {output_dir}")


# ------------------------------------------------------------------ what was asked for


def _reports(text: str) -> list[str]:
    from openenv.evals.results import REPORTS

    names = [name.strip() for name in text.split(",") if name.strip() not in ("", "none")]
    for name in names:
        if name not in REPORTS:
            known = f"there are {', '.join(REPORTS)}, and none"
            raise CommandError(
                f"there is no report of kind {name!r}",
                hint=did_you_mean(name, REPORTS) or known,
                exit_code=MISUSED,
            )
    return names


TREATMENTS = ("fail", "skip", "fail-all")


def _unscored(text: str | None) -> str | None:
    if text is not None and text not in TREATMENTS:
        raise CommandError(
            f"--unscored {text!r}: there is no such treatment",
            hint=did_you_mean(text, TREATMENTS) or "there are fail, skip and fail-all",
            exit_code=MISUSED,
        )
    return text


def _stored_run(env: str | None, stored: Path | None) -> Path | None:
    """Return the stored run to evaluate, or None to play a new run."""
    from openenv.evals.results import is_stored

    if stored is not None and env is not None:
        raise CommandError("ENV and --from exclude each other", exit_code=MISUSED)
    if stored is None and env is None:
        raise CommandError(
            "what is to be evaluated?",
            hint="name an environment; or a run that is stored, by --from RUN",
            exit_code=MISUSED,
        )
    if stored is not None:
        return stored
    assert env is not None
    return Path(env) if is_stored(env) else None


def _config(
    options: dict[str, Any], run: Path | None, found: Evaluation, lowest: float | None
) -> EvalConfig:
    """Describe what was asked for, so that it can be done again."""
    import openenv
    from openenv.evals import EvalConfig

    asked = dict(sorted(options.items()))
    asked |= {"level": found.level, "unscored": found.unscored_policy, "threshold": found.threshold}
    if lowest is not None:
        asked["lowest"] = found.lowest
    return EvalConfig(
        harness_name="openenv eval",
        harness_version=openenv.__version__,
        library_versions={"openenv": openenv.__version__, "python": platform.python_version()},
        dataset=found.environment,
        eval_parameters={**asked, **({} if run is None else {"run": str(run)})},
    )


# ------------------------------------------------------------------ playing


@dataclass(frozen=True)
class _PlayOptions:
    """Options by which episodes are played for an evaluation; a result keeps those given."""

    policy: str
    tasks: str | None
    split: str | None
    samples: int
    num_tasks: int | None
    concurrency: int
    seed: int
    max_steps: int | None
    max_seconds: float | None
    max_tokens: int | None
    retries: int
    error_budget: str
    trajectory_scorer: str | None
    base_url: str | None
    temperature: float | None
    max_reply_tokens: int | None
    system_prompt: str | None
    act_by: str | None
    no_check: bool

    def given(self) -> dict[str, Any]:
        """Return the options that are not None, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def _play(
    env: str,
    options: _PlayOptions,
    evaluation: dict[str, Any],
    output_dir: Path | None,
    *,
    resume: bool,
) -> Evaluation:
    from openenv import rollouts
    from openenv.evals.harness import play_and_evaluate, seeds_as_tasks

    sys.path.insert(0, str(Path.cwd()))
    given = {name: getattr(options, name) for name in ("temperature", "system_prompt", "act_by")}
    given["max_tokens"] = options.max_reply_tokens
    known = {name: value for name, value in given.items() if value is not None}
    who = rollouts.policy_named(options.policy, base_url=options.base_url, **known)
    num_tasks, seed = options.num_tasks, options.seed
    limits = rollouts.RolloutLimits(options.max_steps, options.max_seconds, options.max_tokens)
    own = playing.tasks_of(env, options.tasks, options.split)
    with own as tasks, display() as shown:
        what: Any = tasks
        if tasks is None and num_tasks is not None:
            what = seeds_as_tasks(range(seed, seed + num_tasks))
        shown.begin("rollouts")
        found = play_and_evaluate(
            env,
            who,
            what,
            output_dir=output_dir,
            checks_reproducibility=not options.no_check,
            evaluation=evaluation,
            n=options.samples,
            num_tasks=num_tasks,
            concurrency=options.concurrency,
            seed=seed,
            limits=limits,
            retries=options.retries,
            error_budget=playing.parse_error_budget(options.error_budget),
            trajectory_scorer=playing.load_scorer(options.trajectory_scorer),
            resume=resume,
            progress=lambda progress: shown.update(
                progress.done, playing.describe_progress(progress)
            ),
        )
        shown.finish(f"{found.counts['samples']:,} rollouts")
    return found


def _comparable(rules: dict[str, Any]) -> dict[str, Any]:
    """Return the rules of a run that a comparison has to share."""
    return {name: rules[name] for name in ("threshold", "unscored", "lowest") if name in rules}


def _compare(
    other: Path, run: Path | None, found: Evaluation, evaluation: dict[str, Any]
) -> Comparison:
    from openenv.evals import compare
    from openenv.evals.results import load_evaluation, stored_rules

    rules = {} if run is None else _comparable(stored_rules(run))
    rules |= {"unscored": found.unscored_policy, **evaluation}
    if "threshold" in stored_rules(other):
        rules.setdefault("threshold", found.threshold)
    before = load_evaluation(other, **rules)
    is_same = before.policy == found.policy
    names = (str(other), str(run or "this run")) if is_same else None
    return compare(before, found, names=names, level=found.level)


@contextmanager
def _report_errors(output_dir: Path | None, env: str | None) -> Iterator[None]:
    """Convert errors to `CommandError`, with an exit code by kind."""
    from openenv.evals import EvaluationError
    from openenv.rollouts import RolloutsFailed

    try:
        with playing.report_errors(None, env):
            try:
                yield
            except FileExistsError as error:
                hint = (
                    f"go on with them: --output-dir {output_dir} --resume; or name another folder"
                )
                why = f"there are rollouts in {output_dir} already"
                raise CommandError(why, hint=hint, exit_code=MISUSED) from error
            except RolloutsFailed as error:
                cure = "once that is mended, --resume goes on" if output_dir else None
                raise CommandError(str(error), hint=cure) from error
            except EvaluationError as error:
                raise CommandError(str(error), exit_code=MISUSED) from error
    except ModuleNotFoundError as error:
        raise CommandError(str(error)) from error


# ------------------------------------------------------------------ what is said


def _as_data(
    result: EvalResult, compared: Comparison | None, output_dir: Path | None
) -> dict[str, Any]:
    """Return scores and comparison, without the details that only files hold."""
    scores = {name: value for name, value in result.scores.items() if name != "evaluation"}
    return {
        "scores": scores,
        "notes": result.scores["evaluation"].get("notes", []),
        "comparison": None if compared is None else compared.model_dump(exclude={"per_task"}),
        "output_dir": None if output_dir is None else str(output_dir),
    }


def summarize_evaluation(found: Evaluation) -> str:
    """Summarize an evaluation in a few lines."""
    counts = found.counts
    given_up = counts.get("given_up", 0)
    solved = _format_estimate(found.success, "percent")
    lines = [
        f"solved: {solved}, from a reward of {found.threshold:g} on",
        f"mean reward: {_format_estimate(found.mean_reward, 'number')}",
    ]
    if len(found.pass_at_k) > 1:
        curve = (
            f"{k}: {_format_estimate(one, 'percent')}" for k, one in _select_points(found.pass_at_k)
        )
        lines.append(f"pass@k: {'; '.join(curve)}")
    lines.append(
        f"{counts['tasks']:,} tasks, {counts['samples']:,} samples: {counts['scored']:,} scored, "
        f"{counts['unscored']:,} could not be, {counts['failed']:,} failed"
        + (f"; the policy gave up {given_up:,} of these" if given_up else "")
    )
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def _select_points(curve: dict[int, Estimate]) -> Iterator[tuple[int, Estimate]]:
    last = max(curve)
    return ((k, one) for k, one in curve.items() if not k & (k - 1) or k == last)


def _format_estimate(estimate: Estimate, how: str) -> str:
    from openenv.evals.report import FILTERS

    value: str = FILTERS[how](estimate.value)
    return value if estimate.low is None else f"{value} ({FILTERS[f'{how}_interval'](estimate)})"


def summarize_comparison(compared: Comparison) -> str:
    """Summarize a comparison in a few lines."""
    from openenv.evals.report import number, p_value, signed

    lines = [f"{compared.after} against {compared.before}, {compared.tasks:,} tasks in both:"]
    tested = [one for one in compared.differences if one.p_adjusted is not None]
    for one in tested:
        interval = "" if one.low is None else f" ({number(one.low)} to {number(one.high)})"
        p = p_value(one.p_adjusted)
        lines.append(f"  {one.name}: {signed(one.difference)}{interval}, p {p}")
    for what, tasks in (("fixed", compared.fixed), ("regressed", compared.regressed)):
        more = len(tasks) - NAMED
        named = ", ".join(tasks[:NAMED]) + (f" and {more:,} more" if more > 0 else "")
        lines.append(f"  {what}: {len(tasks):,}{f': {named}' if named else ''}")
    return "\n".join([*lines, *(f"note: {warning}" for warning in compared.warnings)])
