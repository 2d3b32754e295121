"""`openenv rollout`: have a policy play an environment, and keep a record."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openenv.cli import _completion
from openenv.cli._console import FAILED, MISUSED, CommandError, emit, plain, say
from openenv.cli._progress import display
from openenv.cli._targets import target_hint

if TYPE_CHECKING:
    from openenv.rollouts import Progress, RolloutRun, Summary
    from openenv.tasks import Taskset

__all__ = ["rollout"]

# ------------------------------------------------------------------ its options

Env = Annotated[
    str,
    typer.Argument(
        help="What to play: the address of a server; docker://IMAGE; or, in this process, the "
        "name of an installed environment, or whatever `openenv serve` takes.",
        metavar="ENV",
        autocompletion=_completion.environments,
    ),
]
PolicyName = Annotated[
    str,
    typer.Option(
        metavar="POLICY",
        help="Who plays: random, openai:MODEL, anthropic:MODEL, transformers:FOLDER, "
        "scripted:FILE, module:name, or human.",
    ),
]
Tasks = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE",
        help="What is to be done: own, the tasks that the environment has by itself; a .jsonl or "
        ".parquet file, hf://datasets/ORG/NAME, module:function, or the address of another "
        "environment. By default episodes without a task.",
        show_default=False,
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        help="Which of their splits; without --tasks, of the environment's own.",
        metavar="NAME",
        show_default=False,
    ),
]
Samples = Annotated[
    int,
    typer.Option(
        "-n", "--samples", min=1, help="Rollouts of each task, or episodes where there is none."
    ),
]
SamplerName = Annotated[
    str | None,
    typer.Option(
        "--sampler",
        metavar="NAME",
        help="Which tasks come next: sequential; shuffled, by the seed; weighted:FIELD, by a "
        "number of each task; or curriculum, those whose groups are likely to teach something.",
        show_default="sequential",
    ),
]
NumTasks = Annotated[
    int | None, typer.Option(min=1, help="So many tasks at most.", show_default=False)
]
Concurrency = Annotated[int, typer.Option(min=1, help="Episodes at once, at most.")]
Seed = Annotated[
    int | None,
    typer.Option(help="What all seeds follow from.", show_default="any, which the file tells"),
]
MaxSteps = Annotated[
    int | None, typer.Option(min=1, help="Of an episode.", show_default="no limit")
]
MaxSeconds = Annotated[
    float | None, typer.Option(help="Of an episode, on the wall clock.", show_default="no limit")
]
MaxTokens = Annotated[
    int | None,
    typer.Option(min=1, help="That the policy writes in an episode.", show_default="no limit"),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the rollouts to this file: JSON lines, or a table where it is a .parquet.",
        show_default=False,
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Go on with the file: what is in it is not done again, what failed is."
    ),
]
Retries = Annotated[int, typer.Option(min=0, help="Attempts anew, after a passing failure.")]
ErrorBudget = Annotated[
    str, typer.Option(metavar="NUMBER", help="What may fail: a share (0.1), or so many (10).")
]
Scorer = Annotated[
    str | None,
    typer.Option(
        "--trajectory-scorer",
        metavar="SCORER",
        help="What scores each episode as a whole: module:function, an address, command:PROGRAM. "
        "By default the environment does.",
        show_default=False,
    ),
]
CreditName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What each step gets of a reward for the whole: terminal, uniform, discounted:0.95.",
    ),
]
TokenCreditName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What each token gets of it: last, spread, or module:function.",
        show_default=False,
    ),
]
BaseURL = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Of openai: and anthropic: policies: where the model is served.",
        show_default=False,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(min=0.0, help="Of a model.", show_default="0 of an API, 1 of transformers:"),
]
MaxReplyTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The most that one reply of a model may have.",
        show_default="4096 of an API, 256 of transformers:",
    ),
]
SystemPrompt = Annotated[
    str | None,
    typer.Option(help="What a model is told first.", metavar="TEXT", show_default=False),
]
ActBy = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="How a model acts: tools, json, text, or auto.",
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
    """Play episodes of an environment, many at once, and keep a record of each.

    It exits 0; 1 if more rollouts failed than may, or nothing could be played; 2 if it was misused.

    Examples:
        openenv rollout blackjack -n 8  # at random, in this process
        openenv rollout echo -n 8 --max-steps 10  # whose episodes have no end of their own
        openenv rollout http://localhost:8000 --policy openai:gpt-5-mini -n 64 -o episodes.jsonl
    """
    from openenv import rollouts
    from openenv.rollouts.runs import Options

    if resume and output is None:
        hint = "--output FILE"
        raise CommandError("--resume needs to know which file", hint=hint, exit_code=MISUSED)
    sys.path.insert(0, str(Path.cwd()))
    with _said(output, env), ExitStack() as stack:
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
            seed = Options(output=output, resume=resume, seed=seed).drawn_seed()
            what = _sampled(sampler, what, samples, num_tasks, seed)
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
                error_budget=_budget(error_budget),
                trajectory_scorer=_scorer(trajectory_scorer),
                credit=credit,
                token_credit=token_credit,
                progress=lambda progress: shown.update(progress.done, told(progress)),
            )
            summary = run.summary()
            shown.finish(f"{summary.rollouts:,} rollouts")
    _report(run, summary, output, as_json)


@contextmanager
def tasks_of(env: str, source: str | None, split: str | None) -> Iterator[Taskset | None]:
    """What is to be done; None for episodes without a task."""
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


def _sampled(
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


def _budget(text: str) -> float:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise CommandError(
            f"--error-budget {text!r} is no number", hint="0.1 is a share, 10 a count", exit_code=2
        ) from None


def _scorer(name: str | None) -> Any:
    from openenv.rewards.external.names import scorer_named

    return None if name is None else scorer_named(name)


@contextmanager
def _said(output: Path | None, env: str | None = None) -> Iterator[None]:
    """Say what went wrong, and of which kind it is."""
    from openenv.errors import OpenEnvError
    from openenv.rewards.external.names import ScorerNameError
    from openenv.rollouts import PolicyError, RolloutFileError, RolloutsFailed
    from openenv.server.loading import TargetError
    from openenv.tasks.errors import TasksetError

    try:
        yield
    except FileExistsError as error:
        hint = f"go on with it: --output {output} --resume; or name another file"
        raise CommandError(f"{output} is there already", hint=hint, exit_code=MISUSED) from error
    except RolloutsFailed as error:
        again = None if output is None else f"once that is mended: --output {output} --resume"
        raise CommandError(str(error), hint=again, exit_code=FAILED) from error
    except TargetError as error:
        raise CommandError(str(error), hint=target_hint(env or ""), exit_code=MISUSED) from error
    except (PolicyError, RolloutFileError, ScorerNameError, TasksetError) as error:
        raise CommandError(str(error), exit_code=MISUSED) from error
    except (OpenEnvError, OSError) as error:
        raise CommandError(plain(error), exit_code=FAILED) from error
    except ValueError as error:  # of an option that means nothing
        raise CommandError(str(error), exit_code=MISUSED) from error


# ------------------------------------------------------------------ what is said


def told(progress: Progress) -> str:
    """How far it has come, in a line."""
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
    say(in_words(summary))
    if output is not None:
        say(f"They are in {output}")


def in_words(summary: Summary) -> str:
    """What a run has come to, in a few lines."""
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
