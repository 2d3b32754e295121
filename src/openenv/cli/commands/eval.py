"""`openenv eval`: scores of a policy with confidence intervals, and comparisons of two runs."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openenv.cli._console import CommandError, MisuseError, emit, say, unknown_name
from openenv.cli._options import argument, complete_environments, option, takes_options
from openenv.cli._progress import display
from openenv.cli.commands import rollout as playing

if TYPE_CHECKING:
    from openenv.evals import Comparison, EvalConfig, EvalResult, Evaluation
    from openenv.evals.metrics import Estimate

NAMED = 10  # maximum number of tasks in a summary
TREATMENTS = ("fail", "skip", "fail-all")


@dataclass(frozen=True)
class EvaluationOptions:
    """Options that decide how samples are judged."""

    threshold: float | None = option(
        None,
        show_default="the highest that is declared, or 1",
        help="Minimum reward of a solved sample.",
    )
    unscored: str | None = option(
        None,
        metavar="fail|skip|fail-all",
        show_default="fail",
        help="How samples without a reward count. fail: those that the policy gave up are not "
        "solved and have the lowest reward, and those with a failed environment are left out. "
        "skip: all are left out. fail-all: none is solved.",
    )
    lowest: float | None = option(
        None,
        show_default="the lowest that is declared, at most 0",
        help="Reward of samples that the policy gave up.",
    )
    level: float | None = option(
        None,
        min=0.5,
        max=0.999,
        show_default="0.95",
        help="Confidence level of the intervals.",
    )


@takes_options
def evaluate_command(
    *,
    env: str | None = argument(
        None,
        metavar="ENV",
        autocompletion=complete_environments,
        help="Environment, as for `openenv rollout`; or the folder or file of a stored run to "
        "evaluate.",
    ),
    what: playing.TaskOptions,
    amount: playing.AmountOptions,
    seed: int = option(0, help="Seed from which all other seeds derive."),
    limits: playing.LimitOptions,
    failures: playing.FailureOptions,
    model: playing.ModelOptions,
    output_dir: Path | None = option(
        None,
        "-o",
        metavar="FOLDER",
        help="Write rollouts.jsonl, result.json and the reports to this folder.",
    ),
    resume: bool = option(
        False, help="Resume the rollouts in the folder, without playing finished ones again."
    ),
    stored: Path | None = option(
        None,
        "--from",
        metavar="RUN",
        help="Evaluate this file of rollouts or folder of a run, and play nothing.",
    ),
    compare: Path | None = option(
        None,
        metavar="RUN",
        help="Compare with an earlier run: its folder, rollouts or result.json. `--compare A B` "
        "compares two stored runs.",
    ),
    rules: EvaluationOptions,
    report: str = option(
        "html,md", metavar="KINDS", help="Reports to write: html, md or none, comma-separated."
    ),
    no_check: bool = option(
        False, help="Skip the check that the environment is reproducible for a seed."
    ),
    as_json: bool = option(False, "--json", help="Print the summary as JSON."),
) -> None:
    """Evaluate a policy on an environment's tasks, with confidence intervals.

    The exit code is 0; 1 if nothing could be played or evaluated; 2 for wrong usage.

    Examples:
        openenv eval blackjack --num-tasks 20 -o after  # at random, in this process
        openenv eval --from after --compare before  # two stored runs
    """
    reports = _reports(report)
    if resume and output_dir is None:
        raise MisuseError("--resume requires --output-dir", hint="--output-dir FOLDER")
    if rules.unscored is not None and rules.unscored not in TREATMENTS:
        why = f"--unscored {rules.unscored!r}: there is no such treatment"
        raise unknown_name(why, rules.unscored, TREATMENTS)
    evaluation = _given(vars(rules))
    run = _stored_run(env, stored)
    sys.path.insert(0, str(Path.cwd()))  # scorers and policies may be the caller's modules
    with _report_errors(output_dir, env):
        from openenv.evals.results import (
            check_extra,
            load_evaluation,
            result_of,
            save,
            stored_rules,
        )

        check_extra(reports if output_dir is not None else ())
        if run is None and compare is not None:  # evaluate the new run by the rules of the old one
            evaluation = {**_comparable(stored_rules(compare)), **evaluation}
        if run is not None:
            found = load_evaluation(run, **evaluation)
        else:
            assert env is not None
            found = _play(
                env,
                what,
                model,
                seed=seed,
                output_dir=output_dir,
                resume=resume,
                evaluation=evaluation,
                checks_reproducibility=not no_check,
                **playing.run_arguments(amount, limits, failures),
            )
        here = run or output_dir
        compared = None if compare is None else _compare(compare, here, found, evaluation)
        options: dict[str, Any] = {"seed": seed, "no_check": no_check}
        for group in (what, amount, limits, failures, model):
            options |= vars(group)
        given = {} if run is not None else _given(options)
        result = result_of(_config(given, run, found, rules.lowest), found)
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


def _reports(text: str) -> list[str]:
    from openenv.evals.results import REPORTS

    names = [name.strip() for name in text.split(",") if name.strip() not in ("", "none")]
    for name in names:
        if name not in REPORTS:
            raise unknown_name(f"there is no report of kind {name!r}", name, [*REPORTS, "none"])
    return names


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _stored_run(env: str | None, stored: Path | None) -> Path | None:
    """Return the stored run to evaluate, or None to play a new run."""
    from openenv.evals.results import is_stored

    if stored is not None and env is not None:
        raise MisuseError("ENV and --from exclude each other")
    if stored is None and env is None:
        raise MisuseError(
            "what is to be evaluated?",
            hint="name an environment; or a run that is stored, by --from RUN",
        )
    if stored is not None:
        return stored
    assert env is not None
    return Path(env) if is_stored(env) else None


def _config(
    options: dict[str, Any], run: Path | None, found: Evaluation, lowest: float | None
) -> EvalConfig:
    """Return a record of the requested evaluation, from which it can be repeated."""
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


def _play(
    env: str, what: playing.TaskOptions, model: playing.ModelOptions, **how: Any
) -> Evaluation:
    from openenv.evals.harness import play_and_evaluate, seeds_as_tasks

    who = model.make_policy(what.policy)
    with playing.tasks_of(env, what.tasks, what.split) as own, display() as shown:
        tasks: Any = own
        if own is None and how["num_tasks"] is not None:
            tasks = seeds_as_tasks(range(how["seed"], how["seed"] + how["num_tasks"]))
        shown.begin("rollouts")
        found = play_and_evaluate(
            env,
            who,
            tasks,
            progress=lambda now: shown.update(now.done, playing.describe_progress(now)),
            **how,
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
                raise MisuseError(
                    f"there are rollouts in {output_dir} already", hint=hint
                ) from error
            except RolloutsFailed as error:
                cure = "once that is mended, --resume goes on" if output_dir else None
                raise CommandError(str(error), hint=cure) from error
            except EvaluationError as error:
                raise MisuseError(str(error)) from error
    except ModuleNotFoundError as error:
        raise CommandError(str(error)) from error


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
        last = max(found.pass_at_k)
        curve = (
            f"{k}: {_format_estimate(one, 'percent')}"
            for k, one in found.pass_at_k.items()
            if not k & (k - 1) or k == last  # powers of two
        )
        lines.append(f"pass@k: {'; '.join(curve)}")
    lines.append(
        f"{counts['tasks']:,} tasks, {counts['samples']:,} samples: {counts['scored']:,} scored, "
        f"{counts['unscored']:,} could not be, {counts['failed']:,} failed"
        + (f"; the policy gave up {given_up:,} of these" if given_up else "")
    )
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


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
