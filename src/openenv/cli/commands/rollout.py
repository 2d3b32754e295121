"""`openenv rollout`: episodes of a policy in an environment, with records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openenv.cli._console import (
    CommandError,
    MisuseError,
    describe_error,
    did_you_mean,
    emit,
    say,
)
from openenv.cli._options import argument, complete_environments, option, takes_options
from openenv.cli._progress import display

if TYPE_CHECKING:
    from openenv.rollouts import RolloutProgress, Summary
    from openenv.tasks import Taskset

# The option groups are shared with `openenv eval`; their order is the order in the help.


@dataclass(frozen=True)
class TaskOptions:
    """Options that select the policy and the tasks."""

    policy: str = option(
        "random",
        metavar="POLICY",
        help="Policy that plays: random, openai:MODEL, anthropic:MODEL, transformers:FOLDER, "
        "scripted:FILE, module:name, or human.",
    )
    tasks: str | None = option(
        None,
        metavar="SOURCE",
        help="Tasks to play: own (the environment's tasks), a .jsonl or .parquet file, "
        "hf://datasets/ORG/NAME, module:function, or the address of another environment. By "
        "default episodes have no task.",
    )
    split: str | None = option(
        None,
        metavar="NAME",
        help="Split of the tasks to play; without --tasks, of the environment's own tasks.",
    )


@dataclass(frozen=True)
class AmountOptions:
    """Options that set how many episodes are played."""

    samples: int = option(
        1,
        "-n",
        "--samples",
        min=1,
        help="Number of rollouts per task, or of episodes if there are no tasks.",
    )
    num_tasks: int | None = option(
        None, min=1, help="Maximum number of tasks to play; by default all."
    )
    concurrency: int = option(16, min=1, help="Maximum number of episodes that run at once.")


@dataclass(frozen=True)
class LimitOptions:
    """Options that limit an episode."""

    max_steps: int | None = option(
        None, min=1, show_default="no limit", help="Stop an episode after this many steps."
    )
    max_seconds: float | None = option(
        None, show_default="no limit", help="Stop an episode after this many seconds."
    )
    max_tokens: int | None = option(
        None,
        min=1,
        show_default="no limit",
        help="Stop an episode after the policy has written this many tokens.",
    )


@dataclass(frozen=True)
class FailureOptions:
    """Options for failed episodes and for scoring the others."""

    retries: int = option(2, min=0, help="Number of retries after a temporary failure.")
    error_budget: str = option(
        "0.1",
        metavar="NUMBER",
        help="Number of failed rollouts to tolerate: a share (0.1) or a count (10).",
    )
    trajectory_scorer: str | None = option(
        None,
        metavar="SCORER",
        help="Scorer of whole episodes: module:function, an address, or command:PROGRAM. By "
        "default the environment scores.",
    )


@dataclass(frozen=True)
class ModelOptions:
    """The options of a policy that asks a model."""

    base_url: str | None = option(
        None,
        metavar="URL",
        help="Address of the model's server, for the policies openai: and anthropic:.",
    )
    temperature: float | None = option(
        None,
        min=0.0,
        show_default="0 of an API, 1 of transformers:",
        help="Sampling temperature of the model.",
    )
    max_reply_tokens: int | None = option(
        None,
        min=1,
        show_default="4096 of an API, 256 of transformers:",
        help="Maximum number of tokens in a reply of the model.",
    )
    system_prompt: str | None = option(
        None, metavar="TEXT", help="System prompt of the model; by default none."
    )
    act_by: str | None = option(
        None,
        metavar="HOW",
        show_default="auto",
        help="Form of the model's actions: tools, json, text, or auto.",
    )

    def make_policy(self, name: str) -> Any:
        """Create the policy `name`.

        Raises:
            PolicyError: The policy does not exist.
        """
        from openenv.rollouts import policy_named

        given = {**vars(self), "max_tokens": self.max_reply_tokens}
        del given["max_reply_tokens"]
        return policy_named(name, **{key: one for key, one in given.items() if one is not None})


def run_arguments(
    amount: AmountOptions, limits: LimitOptions, failures: FailureOptions
) -> dict[str, Any]:
    """Return the options as arguments of `openenv.rollouts.rollout`."""
    from openenv.rewards.external.names import resolve_scorer
    from openenv.rollouts import RolloutLimits

    scorer = failures.trajectory_scorer
    return {
        "n": amount.samples,
        "num_tasks": amount.num_tasks,
        "concurrency": amount.concurrency,
        "limits": RolloutLimits(limits.max_steps, limits.max_seconds, limits.max_tokens),
        "retries": failures.retries,
        "error_budget": parse_error_budget(failures.error_budget),
        "trajectory_scorer": None if scorer is None else resolve_scorer(scorer),
    }


@takes_options
def rollout(
    *,
    env: str = argument(
        ...,
        metavar="ENV",
        autocompletion=complete_environments,
        help="Environment: the address of a server; docker://IMAGE; or, in this process, an "
        "installed environment or any TARGET of `openenv serve`.",
    ),
    what: TaskOptions,
    sampler: str | None = option(
        None,
        metavar="NAME",
        show_default="sequential",
        help="Order of the tasks: sequential; shuffled, by the seed; weighted:FIELD, by a number "
        "in each task; or curriculum, which prefers tasks with a learning signal.",
    ),
    amount: AmountOptions,
    seed: int | None = option(
        None,
        show_default="a random one, which the file tells",
        help="Seed from which all other seeds derive.",
    ),
    limits: LimitOptions,
    output: Path | None = option(
        None,
        "-o",
        metavar="FILE",
        help="Write the rollouts to this file: JSON lines, or a table for a .parquet file.",
    ),
    resume: bool = option(
        False, help="Resume the file: keep finished rollouts, and repeat failed ones."
    ),
    failures: FailureOptions,
    credit: str = option(
        "terminal",
        metavar="NAME",
        help="How an episode's reward is distributed over its steps: terminal, uniform, or "
        "discounted:0.95.",
    ),
    token_credit: str | None = option(
        None,
        metavar="NAME",
        help="How a step's reward is distributed over its tokens: last, spread, or "
        "module:function. By default tokens have no rewards.",
    ),
    model: ModelOptions,
    as_json: bool = option(False, "--json", help="Print the summary as JSON."),
) -> None:
    """Play episodes of an environment, many at once, and record them.

    The exit code is 0; 1 if nothing could be played, or more rollouts failed than --error-budget
    tolerates; 2 for wrong usage.

    Examples:
        openenv rollout blackjack -n 8 -o episodes.jsonl  # at random, in this process
        openenv rollout http://localhost:8000 --policy openai:gpt-5-mini -n 64
    """
    from openenv import rollouts
    from openenv.rollouts.runs import RolloutOptions

    if resume and output is None:
        raise MisuseError("--resume requires --output", hint="--output FILE")
    sys.path.insert(0, str(Path.cwd()))
    with report_errors(output, env), ExitStack() as stack:
        who = model.make_policy(what.policy)
        tasks: Any = stack.enter_context(tasks_of(env, what.tasks, what.split))
        if sampler is not None:
            seed = RolloutOptions(output=output, resume=resume, seed=seed).drawn_seed()
            tasks = _apply_sampler(sampler, tasks, amount, seed)
        with display() as shown:
            shown.begin("rollouts")
            run = rollouts.rollout(
                env,
                who,
                tasks,
                output=output,
                resume=resume,
                seed=seed,
                credit=credit,
                token_credit=token_credit,
                progress=lambda progress: shown.update(progress.done, describe_progress(progress)),
                **run_arguments(amount, limits, failures),
            )
            summary = run.summary()
            shown.finish(f"{summary.rollouts:,} rollouts")
    if as_json:
        where = None if output is None else str(output)
        emit({**summary.as_data(), "output": where, "seed": run.header.settings.get("seed")})
        return
    say(summarize_run(summary))
    if output is not None:
        say(f"They are in {output}")


@contextmanager
def tasks_of(env: str, source: str | None, split: str | None) -> Iterator[Taskset | None]:
    """Yield the tasks to play, or None for episodes without tasks."""
    from openenv.errors import NotSupported
    from openenv.rollouts.sessions import own_tasks
    from openenv.tasks.load import load_tasks

    if source != "own" and (source is not None or split is None):
        yield None if source is None else load_tasks(source, split=split)
        return
    with ExitStack() as stack:
        try:
            tasks = stack.enter_context(own_tasks(env, split))
        except NotSupported as error:
            raise MisuseError(
                f"{env} has no tasks of its own: {error}", hint="--tasks SOURCE names others"
            ) from error
        yield tasks


def _apply_sampler(name: str, tasks: Taskset | None, amount: AmountOptions, seed: int) -> Any:
    from openenv.rollouts.samplers import sampler_named

    if tasks is None:
        raise MisuseError(
            "--sampler chooses from tasks, and there are none",
            hint="--tasks SOURCE; or --tasks own, those of the environment",
        )
    if amount.num_tasks is None and name.partition(":")[0] in ("weighted", "curriculum"):
        raise MisuseError(f"--sampler {name} never ends", hint="--num-tasks NUMBER")
    return sampler_named(
        name, tasks, group_size=amount.samples, seed=seed, num_tasks=amount.num_tasks
    )


def parse_error_budget(text: str) -> float:
    """Parse a share or a count of failures."""
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise MisuseError(
            f"--error-budget {text!r} is not a number", hint="0.1 is a share, 10 a count"
        ) from None


def _target_hint(target: str) -> str:
    """Suggest the intended target, or a way to list the environments."""
    from openenv.hub.discovery import get_discovery
    from openenv.server.loading import TARGET_SCHEMES

    scheme, colon, rest = target.partition(":")
    if colon:
        meant = did_you_mean(scheme, [*TARGET_SCHEMES, "docker", "http", "https"])
        meant = meant and meant.replace("?", f":{rest}?")
    else:
        found = get_discovery().discover()
        meant = did_you_mean(target, [*found, *(info.module for info in found.values())])
    return meant or "`openenv info` lists the environments that are installed"


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
        raise MisuseError(
            f"{output} already exists",
            hint=f"go on with it: --output {output} --resume; or name another file",
        ) from error
    except RolloutsFailed as error:
        again = None if output is None else f"once that is mended: --output {output} --resume"
        raise CommandError(str(error), hint=again) from error
    except TargetError as error:
        raise MisuseError(str(error), hint=_target_hint(env or "")) from error
    except (PolicyError, RolloutFileError, ScorerNameError, TasksetError) as error:
        raise MisuseError(str(error)) from error
    except (OpenEnvError, OSError) as error:
        raise CommandError(describe_error(error)) from error
    except ValueError as error:  # an invalid value of an option
        raise MisuseError(str(error)) from error


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
