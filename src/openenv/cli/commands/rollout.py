"""`openenv rollout`: episodes of a policy in an environment, with records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openenv.cli import _completion
from openenv.cli._console import FAILED, MISUSED, CommandError, describe_error, emit, say
from openenv.cli._progress import display
from openenv.cli._targets import target_hint

if TYPE_CHECKING:
    from openenv.rollouts import RolloutProgress, RolloutRun, Summary
    from openenv.tasks import Taskset

__all__ = ["rollout"]

# ------------------------------------------------------------------ its options

Env = Annotated[
    str,
    typer.Argument(
        help="Environment: the address of a server; docker://IMAGE; or, in this process, "
        "an installed environment or any TARGET of `openenv serve`.",
        metavar="ENV",
        autocompletion=_completion.complete_environments,
    ),
]
PolicyName = Annotated[
    str,
    typer.Option(
        metavar="POLICY",
        help="Policy: random, openai:MODEL, anthropic:MODEL, transformers:FOLDER, "
        "scripted:FILE, module:name, or human.",
    ),
]
Tasks = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE",
        help="Tasks to play: own (the environment's tasks), a .jsonl or .parquet file, "
        "hf://datasets/ORG/NAME, module:function, or the address of another "
        "environment. By default episodes without a task.",
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        help="Split of the tasks; without --tasks, of the environment's own tasks.", metavar="NAME"
    ),
]
Samples = Annotated[
    int,
    typer.Option(
        "-n", "--samples", min=1, help="Rollouts per task, or number of episodes without tasks."
    ),
]
SamplerName = Annotated[
    str | None,
    typer.Option(
        "--sampler",
        metavar="NAME",
        help="Order of tasks: sequential; shuffled, by the seed; weighted:FIELD, by a "
        "number in each task; or curriculum, which prefers tasks with a learning "
        "signal.",
        show_default="sequential",
    ),
]
NumTasks = Annotated[int | None, typer.Option(min=1, help="Maximum number of tasks.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Maximum number of concurrent episodes.")]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Seed from which all other seeds derive.", show_default="any, which the file tells"
    ),
]
MaxSteps = Annotated[
    int | None,
    typer.Option(min=1, help="Stop an episode after this many steps.", show_default="no limit"),
]
MaxSeconds = Annotated[
    float | None,
    typer.Option(help="Stop an episode after this many seconds.", show_default="no limit"),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Stop an episode after the policy has written this many tokens.",
        show_default="no limit",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the rollouts to this file: JSON lines, or a table for a .parquet file.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Resume the file: keep finished rollouts, and repeat failed ones."
    ),
]
Retries = Annotated[int, typer.Option(min=0, help="Retries after a temporary failure.")]
ErrorBudget = Annotated[
    str,
    typer.Option(metavar="NUMBER", help="Failures to tolerate: a share (0.1) or a number (10)."),
]
Scorer = Annotated[
    str | None,
    typer.Option(
        "--trajectory-scorer",
        metavar="SCORER",
        help="Scorer of whole episodes: module:function, an address, or command:PROGRAM. "
        "By default the environment scores.",
    ),
]
CreditName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Distribution of an episode's reward over steps: terminal, uniform, discounted:0.95.",
    ),
]
TokenCreditName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Distribution of a step's reward over tokens: last, spread, or module:function.",
    ),
]
BaseURL = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Address of the model's server, for openai: and anthropic: policies."
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="Sampling temperature of a model.",
        show_default="0 of an API, 1 of transformers:",
    ),
]
MaxReplyTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Maximum tokens of a reply of a model.",
        show_default="4096 of an API, 256 of transformers:",
    ),
]
SystemPrompt = Annotated[str | None, typer.Option(help="System prompt of a model.", metavar="TEXT")]
ActBy = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="Form of a model's actions: tools, json, text, or auto.",
        show_default="auto",
    ),
]
AsJSON = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]


# ------------------------------------------------------------------ the command


def rollout(
    env: Env,
    policy: PolicyName = "random",
    tasks: Tasks = None,
    split: Split = None,
    sampler: SamplerName = None,
    samples: Samples = 1,
    num_tasks: NumTasks = None,
    concurrency: Concurrency = 16,
    seed: Seed = None,
    max_steps: MaxSteps = None,
    max_seconds: MaxSeconds = None,
    max_tokens: MaxTokens = None,
    output: Output = None,
    resume: Resume = False,
    retries: Retries = 2,
    error_budget: ErrorBudget = "0.1",
    trajectory_scorer: Scorer = None,
    credit: CreditName = "terminal",
    token_credit: TokenCreditName = None,
    base_url: BaseURL = None,
    temperature: Temperature = None,
    max_reply_tokens: MaxReplyTokens = None,
    system_prompt: SystemPrompt = None,
    act_by: ActBy = None,
    as_json: AsJSON = False,
) -> None:
    """Play episodes of an environment, many at once, and record them.

    It exits 0; 1 if more rollouts failed than may, or nothing could be played; 2 if it was misused.

    Examples:
        openenv rollout blackjack -n 8  # at random, in this process
        openenv rollout echo -n 8 --max-steps 10  # whose episodes have no end of their own
        openenv rollout http://localhost:8000 --policy openai:gpt-5-mini -n 64 -o episodes.jsonl
    """
    from openenv import rollouts
    from openenv.rollouts.runs import RolloutOptions

    if resume and output is None:
        hint = "--output FILE"
        raise CommandError("--resume needs to know which file", hint=hint, exit_code=MISUSED)
    sys.path.insert(0, str(Path.cwd()))
    with report_errors(output, env), ExitStack() as stack:
        options = {
            "temperature": temperature,
            "max_tokens": max_reply_tokens,
            "system_prompt": system_prompt,
            "act_by": act_by,
        }
        known: Any = {name: value for name, value in options.items() if value is not None}
        who = rollouts.policy_named(policy, base_url=base_url, **known)
        what = stack.enter_context(tasks_of(env, tasks, split))
        if sampler is not None:
            seed = RolloutOptions(output=output, resume=resume, seed=seed).drawn_seed()
            what = _apply_sampler(sampler, what, samples, num_tasks, seed)
        with display() as shown:
            shown.begin("rollouts")
            run = rollouts.rollout(
                env,
                who,
                what,
                n=samples,
                num_tasks=num_tasks,
                concurrency=concurrency,
                output=output,
                resume=resume,
                seed=seed,
                limits=rollouts.RolloutLimits(max_steps, max_seconds, max_tokens),
                retries=retries,
                error_budget=parse_error_budget(error_budget),
                trajectory_scorer=load_scorer(trajectory_scorer),
                credit=credit,
                token_credit=token_credit,
                progress=lambda progress: shown.update(progress.done, describe_progress(progress)),
            )
            summary = run.summary()
            shown.finish(f"{summary.rollouts:,} rollouts")
    _report(run, summary, output, as_json)


@contextmanager
def tasks_of(env: str, source: str | None, split: str | None) -> Iterator[Taskset | None]:
    """Yield the tasks to play, or None for episodes without tasks."""
    from openenv.errors import NotSupported
    from openenv.rollouts.sessions import own_tasks
    from openenv.tasks.load import load_tasks

    if source == "own" or (source is None and split is not None):
        with ExitStack() as stack:
            try:
                tasks = stack.enter_context(own_tasks(env, split))
            except NotSupported as error:
                hint = "--tasks SOURCE names others"
                why = f"{env} has no tasks of its own: {error}"
                raise CommandError(why, hint=hint, exit_code=MISUSED) from error
            yield tasks
    else:
        yield None if source is None else load_tasks(source, split=split)


def _apply_sampler(
    name: str, tasks: Taskset | None, samples: int, num_tasks: int | None, seed: int
) -> Any:
    from openenv.rollouts.samplers import sampler_named

    if tasks is None:
        raise CommandError(
            "--sampler chooses from tasks, and there are none",
            hint="--tasks SOURCE; or --tasks own, those of the environment",
            exit_code=MISUSED,
        )
    if num_tasks is None and name.partition(":")[0] in ("weighted", "curriculum"):
        why = f"--sampler {name} never ends"
        raise CommandError(why, hint="--num-tasks NUMBER", exit_code=MISUSED)
    return sampler_named(name, tasks, group_size=samples, seed=seed, num_tasks=num_tasks)


def parse_error_budget(text: str) -> float:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise CommandError(
            f"--error-budget {text!r} is not a number",
            hint="0.1 is a share, 10 a count",
            exit_code=2,
        ) from None


def load_scorer(name: str | None) -> Any:
    from openenv.rewards.external.names import resolve_scorer

    return None if name is None else resolve_scorer(name)


@contextmanager
def report_errors(output: Path | None, env: str | None = None) -> Iterator[None]:
    """Convert errors to `CommandError`, with an exit code by kind."""
    from openenv.errors import OpenEnvError
    from openenv.rewards.external.names import ScorerNameError
    from openenv.rollouts import PolicyError, RolloutFileError, RolloutsFailed
    from openenv.server.loading import TargetError
    from openenv.tasks.task import TasksetError

    try:
        yield
    except FileExistsError as error:
        hint = f"go on with it: --output {output} --resume; or name another file"
        raise CommandError(f"{output} already exists", hint=hint, exit_code=MISUSED) from error
    except RolloutsFailed as error:
        again = None if output is None else f"once that is mended: --output {output} --resume"
        raise CommandError(str(error), hint=again, exit_code=FAILED) from error
    except TargetError as error:
        raise CommandError(str(error), hint=target_hint(env or ""), exit_code=MISUSED) from error
    except (PolicyError, RolloutFileError, ScorerNameError, TasksetError) as error:
        raise CommandError(str(error), exit_code=MISUSED) from error
    except (OpenEnvError, OSError) as error:
        raise CommandError(describe_error(error), exit_code=FAILED) from error
    except ValueError as error:  # of an option that means nothing
        raise CommandError(str(error), exit_code=MISUSED) from error


# ------------------------------------------------------------------ what is said


def describe_progress(progress: RolloutProgress) -> str:
    """Describe the progress of a run in a line."""
    of = "" if progress.total is None else f" of {progress.total:,}"
    words = [f"{progress.done:,}{of}", f"{progress.per_s:,.1f}/s"]
    if progress.left_s is not None:
        words.append(f"{_duration(progress.left_s)} left")
    if progress.mean_reward is not None:
        words.append(f"mean reward {progress.mean_reward:.3g}")
    words.append(f"{progress.running} at once" if progress.running else "none running")
    if progress.failed:
        words.append(f"{progress.failed:,} failed")
    return ", ".join(words)


def _duration(seconds: float) -> str:
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def _report(run: RolloutRun, summary: Summary, output: Path | None, as_json: bool) -> None:
    if as_json:
        where = None if output is None else str(output)
        emit({**summary.as_data(), "output": where, "seed": run.header.settings.get("seed")})
        return
    say(summarize_run(summary))
    if output is not None:
        say(f"They are in {output}")


def summarize_run(summary: Summary) -> str:
    """Summarize a run in a few lines."""
    mean = "none was scored" if summary.mean_reward is None else f"mean {summary.mean_reward:.4g}"
    lines = [
        f"rewards: {mean}; {summary.scored:,} scored, {summary.unscored:,} not",
        "ended: " + ", ".join(f"{count:,} {how}" for how, count in summary.outcomes.items()),
        f"steps: {summary.steps:,}, {summary.steps_per_s:,.0f}/s",
    ]
    if summary.completion_tokens:
        lines.append(
            f"tokens: {summary.prompt_tokens:,} read, {summary.completion_tokens:,} written"
        )
    if summary.without_token_rewards:
        lines.append(f"without rewards of tokens: {summary.without_token_rewards:,}; each says why")
    if summary.groups:
        lines.append(f"groups with signal: {summary.groups_with_signal:,} of {summary.groups:,}")
    if summary.failures:
        causes = ", ".join(f"{count:,} {name}" for name, count in summary.failures.items())
        lines.append(f"failed attempts: {causes}; {summary.retries:,} of them were made anew")
    return "\n".join(lines)
