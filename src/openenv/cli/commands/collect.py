"""`openenv collect`: datasets of a teacher's episodes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openenv._internal.json import read_json
from openenv.cli._console import (
    CommandError,
    MisuseError,
    describe_error,
    emit,
    say,
    unknown_name,
)
from openenv.cli._options import argument, complete_environments, option, takes_options
from openenv.cli._progress import display
from openenv.cli.commands.rollout import (
    describe_progress,
    parse_error_budget,
    report_errors,
    summarize_run,
    tasks_of,
)

if TYPE_CHECKING:
    from openenv.rollouts.collect import Collected
    from openenv.rollouts.collect.families import Variant

PROVIDERS = ("scripted", "openai", "anthropic")
FAMILY_TURNS = 9


@dataclass(frozen=True)
class Teacher:
    """The options that select the policy."""

    provider: str = option(
        "scripted",
        metavar="NAME",
        help="Policy: scripted (any legal action), or a model behind the API openai or anthropic.",
    )
    model: str | None = option(None, help="Name of the model that plays, for --provider.")
    policy: str | None = option(
        None, metavar="POLICY", help="Any policy of `openenv rollout`, instead of --provider."
    )
    llm_endpoint: str | None = option(
        None,
        metavar="URL",
        help="Address of the model's server; /v1 is added to a URL without a path.",
    )
    llm_port: int | None = option(
        None, help="Port of the model's server, if --llm-endpoint has none."
    )
    temperature: float = option(0.2, min=0.0, help="Sampling temperature of the model.")
    max_tokens: int = option(200, min=1, help="Maximum number of tokens in a reply of the model.")
    system_prompt: str | None = option(
        None, metavar="TEXT", help="System prompt of the model; by default none."
    )

    def make_policy(self) -> Any:
        """Create the policy.

        Raises:
            CommandError: The options contradict each other.
            PolicyError: The policy does not exist.
        """
        from openenv.rewards.llm.anthropic import AnthropicClient
        from openenv.rewards.llm.hosted import create_llm_client
        from openenv.rewards.llm.openai import OpenAIClient
        from openenv.rollouts.policies.models import LLMPolicy
        from openenv.rollouts.policies.named import policy_named
        from openenv.settings import MODEL_KEY_VARIABLES, teacher_key

        if self.provider not in PROVIDERS:
            why = f"--provider {self.provider!r} must be one of {', '.join(PROVIDERS)}"
            raise unknown_name(why, self.provider, PROVIDERS)
        if self.llm_port is not None and self.llm_endpoint is None:
            raise MisuseError("--llm-port requires --llm-endpoint", hint="--llm-endpoint URL")
        if self.policy is not None:
            if self.model is not None or self.llm_endpoint is not None or self.is_model:
                raise MisuseError(
                    "--policy excludes --provider, --model and --llm-endpoint",
                    hint="name one policy",
                )
            return policy_named(self.policy)
        if not self.is_model:
            if self.model is not None:
                raise MisuseError(
                    "--model requires a provider",
                    hint="--provider openai, or anthropic; or --llm-endpoint URL",
                )
            return policy_named("random")
        if self.model is None:
            raise MisuseError("--provider and --llm-endpoint require --model", hint="--model NAME")
        api = "openai" if self.provider == "scripted" else self.provider
        key = teacher_key(api)
        client: Any
        if self.llm_endpoint is not None:
            made = OpenAIClient if api == "openai" else AnthropicClient
            client = made(self.llm_endpoint, self.llm_port, self.model, key)
        elif key is None:
            raise MisuseError(
                f"--provider {api} needs a key",
                hint=f"set {MODEL_KEY_VARIABLES[api]} or API_KEY; or name another server by "
                "--llm-endpoint",
            )
        else:
            client = create_llm_client(api, self.model, key)
        return LLMPolicy(
            client,
            name=f"{api}:{self.model}",
            system_prompt=self.system_prompt,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
        )

    @property
    def is_model(self) -> bool:
        """Return whether a model plays."""
        return self.provider != "scripted" or self.llm_endpoint is not None

    def noted(self) -> dict[str, Any]:
        """Return the teacher's metadata for the dataset."""
        from openenv._internal.version import version

        found: dict[str, Any] = {"provider": self.provider, "openenv": version()}
        names = ["model", "temperature", "max_tokens"] if self.is_model else []
        names += ["system_prompt"] if self.system_prompt is not None else []
        return found | {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class DatasetUpload:
    """The options of the upload to the Hub."""

    push_to_hub: str | None = option(
        None, "-H", metavar="REPO", help="Upload the dataset to the Hugging Face Hub as ORG/NAME."
    )
    private: bool = option(False, help="Create the dataset on the Hub as private.")
    commit_message: str | None = option(
        None, metavar="TEXT", help="Commit message of the upload; by default a generated one."
    )


@takes_options
def collect(
    *,
    env: str = argument(
        ...,
        metavar="ENV",
        autocompletion=complete_environments,
        help="Environment: openspiel:GAME, reasoning_gym:DATASET, or any ENV of `openenv rollout`.",
    ),
    output_dir: Path = option(..., "-o", metavar="DIR", help="Write the dataset to this folder."),
    teacher: Teacher,
    upload: DatasetUpload,
    base_url: str | None = option(
        None,
        metavar="URL",
        help="Server of the environment; by default the environment runs in this process.",
    ),
    num_episodes: int = option(
        10, "-n", min=1, help="Number of episodes to collect, or of tasks to play."
    ),
    tasks: str | None = option(
        None,
        metavar="SOURCE",
        help="Tasks to play, as for `openenv rollout`. By default episodes have no task.",
    ),
    split: str | None = option(
        None, metavar="NAME", help="Split of the tasks; by default all tasks."
    ),
    samples: int = option(1, min=1, help="Number of episodes per task."),
    max_turns: int | None = option(
        None,
        min=1,
        show_default="9 for openspiel: and reasoning_gym:, else no limit",
        help="Stop an episode after this many actions.",
    ),
    episode_id_prefix: str = option("ep", help="Prefix of the episodes' ids."),
    resume: bool = option(
        True, help="Resume the dataset in the folder, or set it aside and start anew."
    ),
    concurrency: int = option(16, min=1, help="Maximum number of episodes that run at once."),
    seed: int | None = option(
        None,
        show_default="a random one, which is noted",
        help="Seed from which all other seeds derive.",
    ),
    keep_losses: bool = option(False, help="Keep episodes with a reward below 0."),
    parquet: bool = option(False, help="Also write results.parquet, a table of the episodes."),
    dataset_config: str | None = option(
        None,
        metavar="JSON",
        help="Configuration of the dataset (reasoning_gym:) or the game (openspiel:).",
    ),
    retries: int = option(2, min=0, help="Number of retries after a temporary failure."),
    error_budget: str = option(
        "0.1",
        metavar="NUMBER",
        help="Number of failed episodes to tolerate: a share (0.1) or a count (10).",
    ),
    dry_run: bool = option(False, help="Check everything, print the plan, and do nothing."),
    as_json: bool = option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Collect a teacher's episodes as a dataset, or resume an unfinished collection.

    The exit code is 0; 1 if more episodes failed than --error-budget tolerates, or the Hub refuses
    the upload; 2 for wrong usage.

    Examples:
        openenv collect blackjack -o episodes  # a script plays, in this process
        openenv collect reasoning_gym:gcd -o gcd --provider openai --model gpt-5-mini -n 100
    """
    from openenv.rollouts import RolloutLimits
    from openenv.rollouts import collect as made
    from openenv.rollouts.collect.environments import preview_collection
    from openenv.rollouts.collect.hub import check_uploads

    sys.path.insert(0, str(Path.cwd()))
    with _report_errors(output_dir, env), ExitStack() as stack:
        variant = _variant(env, base_url, dataset_config)
        played = base_url or (env if variant is None else variant.family.environment)
        who = teacher.make_policy()
        what = stack.enter_context(tasks_of(played, tasks, split))
        max_turns = max_turns or (None if variant is None else FAMILY_TURNS)
        if variant is not None and base_url is not None:
            from openenv.rollouts.collect.families import check_served

            check_served(base_url, variant)
        if upload.push_to_hub is not None:
            check_uploads()
        if dry_run:
            plan = preview_collection(played, who, output_dir, num_episodes, resume=resume)
            _show_plan({**plan, "max_turns": max_turns, "push_to_hub": upload.push_to_hub}, as_json)
            return
        with display() as shown:
            shown.begin("collecting", None if tasks is not None else num_episodes)
            done = made.collect(
                played,
                who,
                output_dir,
                num_episodes=num_episodes,
                tasks=what,
                n=samples,
                prefix=episode_id_prefix,
                reset={} if variant is None else variant.reset,
                prompt=None if variant is None else variant.prompt,
                system_prompt=teacher.system_prompt,
                resume=resume,
                keep_losses=keep_losses,
                table=parquet,
                concurrency=concurrency,
                seed=seed,
                limits=RolloutLimits(steps=max_turns),
                retries=retries,
                error_budget=parse_error_budget(error_budget),
                metadata={"env": env, "num_episodes": num_episodes, **teacher.noted()},
                progress=lambda now: shown.update(now.done, describe_progress(now)),
            )
            shown.finish(f"{done.episodes:,} episodes")
        url = None
        if upload.push_to_hub is not None:
            url = made.push_to_hf_hub(
                output_dir,
                upload.push_to_hub,
                private=upload.private,
                commit_message=upload.commit_message,
            )
    _report(done, url, as_json)


def _variant(env: str, base_url: str | None, config: str | None) -> Variant | None:
    from openenv.rollouts.collect.families import no_family, variant_of

    options = None
    if config is not None:
        try:
            options = read_json(config)
        except ValueError as error:
            raise MisuseError(f"--dataset-config is not valid JSON: {error}") from error
        if not isinstance(options, dict):
            raise MisuseError(f"--dataset-config is {options!r:.100}; expected an object")
    found = variant_of(env, options)
    if found is None and config is not None:
        raise MisuseError("--dataset-config is for openspiel:GAME and reasoning_gym:DATASET only")
    if found is None and base_url is not None:
        raise no_family(env)
    return found


@contextmanager
def _report_errors(output_dir: Path, env: str) -> Iterator[None]:
    """Convert errors to `CommandError`, with an exit code by kind."""
    from openenv.rollouts import RolloutFileError, RolloutsFailed
    from openenv.rollouts.collect.families import FamilyError

    again = f"once that is mended, go on by the same command: what is in {output_dir} stays"
    anew = "--no-resume sets what is there aside, and begins anew"
    try:
        with report_errors(None, env):
            try:
                yield
            except RolloutsFailed as error:
                raise CommandError(str(error), hint=again) from error
            except RolloutFileError as error:
                raise MisuseError(str(error), hint=anew) from error
            except FamilyError as error:
                raise MisuseError(str(error)) from error
            except OSError as error:
                raise CommandError(describe_error(error), hint=again) from error
    except ModuleNotFoundError as error:  # a module that the environment's own code imports
        raise CommandError(
            f"the environment needs {error.name!r}, which is not installed"
        ) from error


def _show_plan(plan: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(plan)
        return
    tools = ", ".join(plan["tools"]) or "none"
    say(f"environment: {plan['environment']}, tools: {tools}")
    say(f"policy: {plan['policy']}")
    say(f"episodes: {plan['there']:,} are in {plan['output_dir']}, {plan['left']:,} are missing")
    if plan["push_to_hub"] is not None:
        say(f"then upload to the Hub: {plan['push_to_hub']}")
    say("nothing was done")


def _report(done: Collected, url: str | None, as_json: bool) -> None:
    if as_json:
        counts = {"episodes": done.episodes, "new": done.new, "dropped": done.dropped}
        where = {"output_dir": str(done.output_dir), "url": url}
        rollouts = {name: one for name, one in done.summary.as_data().items() if name != "pace"}
        emit({**counts, **where, "statistics": done.statistics, "rollouts": rollouts})
        return
    say(summarize_run(done.summary))
    left = f", {done.dropped:,} were dropped for a reward below 0" if done.dropped else ""
    say(f"episodes: {done.episodes:,} in {done.output_dir}, {done.new:,} of them new{left}")
    if done.summary.unscored:
        say(f"without a reward, so not in the dataset: {done.summary.unscored:,}")
    if url is not None:
        say(f"on the Hub: {url}")
