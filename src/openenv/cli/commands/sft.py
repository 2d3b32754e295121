"""`openenv sft`: training data from episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openenv.cli._console import (
    FAILED,
    MISUSED,
    CommandError,
    describe_error,
    did_you_mean,
    emit,
    say,
)

__all__ = ["sft"]


def sft(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE...",
            help="Folders of `openenv collect` or `openenv eval`, or files of rollouts or "
            "episodes.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="A .parquet or .jsonl file.")
    ],
    form: Annotated[
        str,
        typer.Option(
            metavar="FORM",
            help="Form of a row: messages (a conversation) or prompt-completion (a reply).",
        ),
    ] = "messages",
    min_reward: Annotated[
        float | None, typer.Option(help="Minimum reward.", show_default="any")
    ] = None,
    best_of: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Keep the best N episodes of each task.", show_default="all"
        ),
    ] = None,
    max_refused: Annotated[
        int | None,
        typer.Option(
            min=0, help="Maximum number of refused actions in an episode.", show_default="any"
        ),
    ] = None,
    only_done: Annotated[
        bool, typer.Option("--only-done", help="Keep only finished episodes.")
    ] = False,
    duplicates: Annotated[
        bool, typer.Option("--duplicates", help="Keep duplicate conversations.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the counts of used and omitted episodes as JSON.")
    ] = False,
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
        raise CommandError(
            f"--form {form!r} must be one of {', '.join(FORMS)}",
            hint=did_you_mean(form, FORMS),
            exit_code=MISUSED,
        )
    filters = SFTFilters(min_reward, best_of, max_refused, only_done, unique=not duplicates)
    try:
        done = write_sft(*sources, output=output, form=form, filters=filters, replace=force)
    except FileExistsError as error:
        raise CommandError(
            f"{output} already exists", hint="--force replaces it", exit_code=MISUSED
        ) from error
    except (OpenEnvError, OSError) as error:
        raise CommandError(describe_error(error), exit_code=FAILED) from error
    except ValueError as error:
        raise CommandError(str(error), exit_code=MISUSED) from error
    if as_json:
        emit({**done.as_data(), "output": str(output)})
        return
    say(f"{done.rows:,} rows of {done.episodes:,} episodes are in {output}")
    for reason, count in done.left_out.items():
        say(f"left out: {count:,} {reason}")
