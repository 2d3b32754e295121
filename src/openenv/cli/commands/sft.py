"""`openenv sft`: training data from episodes."""

from __future__ import annotations

from pathlib import Path

from openenv.cli._console import (
    CommandError,
    MisuseError,
    describe_error,
    emit,
    say,
    unknown_name,
)
from openenv.cli._options import argument, option, takes_options


@takes_options
def sft(
    sources: list[Path] = argument(
        ...,
        metavar="SOURCE...",
        help="Folders of `openenv collect` or `openenv eval`, or files of rollouts or episodes.",
    ),
    output: Path = option(..., "-o", metavar="FILE", help="Write this .parquet or .jsonl file."),
    form: str = option(
        "messages",
        metavar="FORM",
        help="Form of a row: messages (a conversation) or prompt-completion (a reply).",
    ),
    min_reward: float | None = option(
        None, show_default="any", help="Minimum reward of an episode to keep."
    ),
    best_of: int | None = option(
        None, metavar="N", min=1, show_default="all", help="Keep the best N episodes of each task."
    ),
    max_refused: int | None = option(
        None,
        min=0,
        show_default="any",
        help="Maximum number of refused actions in an episode to keep.",
    ),
    only_done: bool = option(False, help="Keep only finished episodes."),
    duplicates: bool = option(False, help="Keep duplicate conversations."),
    force: bool = option(False, help="Replace an existing file."),
    as_json: bool = option(
        False, "--json", help="Print the counts of used and omitted episodes as JSON."
    ),
) -> None:
    """Convert episodes to training data for TRL's SFTTrainer.

    The exit code is 0; 1 if a source cannot be read or the result has no rows; 2 for wrong usage.

    Examples:
        openenv sft episodes -o train.parquet
        openenv sft episodes -o train.jsonl --form prompt-completion --min-reward 1
    """
    from openenv.errors import OpenEnvError
    from openenv.rollouts.collect.sft import FORMS, SFTFilters, write_sft

    if form not in FORMS:
        raise unknown_name(f"--form {form!r} must be one of {', '.join(FORMS)}", form, FORMS)
    filters = SFTFilters(min_reward, best_of, max_refused, only_done, unique=not duplicates)
    try:
        done = write_sft(*sources, output=output, form=form, filters=filters, replace=force)
    except FileExistsError as error:
        raise MisuseError(f"{output} already exists", hint="--force replaces it") from error
    except (OpenEnvError, OSError) as error:
        raise CommandError(describe_error(error)) from error
    except ValueError as error:
        raise MisuseError(str(error)) from error
    if as_json:
        emit({**done.as_data(), "output": str(output)})
        return
    say(f"{done.rows:,} rows of {done.episodes:,} episodes are in {output}")
    for reason, count in done.left_out.items():
        say(f"left out: {count:,} {reason}")
