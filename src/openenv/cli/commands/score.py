"""`openenv score`: new scores for stored episodes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openenv.cli._console import (
    DEBUG_HINT,
    CommandError,
    MisuseError,
    describe_error,
    emit,
    say,
)
from openenv.cli._failures import describe_user_error
from openenv.cli._options import argument, option, takes_options
from openenv.cli._progress import display

if TYPE_CHECKING:
    from collections.abc import Callable

    from openenv.rollouts.scoring import ScoringReport
    from openenv.tasks import Task

SHOWN_REASONS = 10
SHOWN_ERRORS = 3
CHUNK_BYTES = 2**20


@takes_options
def score(
    file: Path = argument(..., metavar="FILE", help="File of rollouts, or a server's recording."),
    with_: str = option(
        ...,
        "--with",
        metavar="SCORER",
        help="Scorer or rubric: module:function, file.py:function, http://..., "
        "'command:PROGRAM ARGUMENTS', or reasoning_gym:DATASET.",
    ),
    output: Path | None = option(
        None, "-o", metavar="FILE", help="Write to this file; by default FILE.scored.jsonl."
    ),
    credit: str = option(
        "terminal",
        metavar="terminal|uniform|discounted:GAMMA",
        help="How the reward is distributed over the steps, unless the scorer decides.",
    ),
    token_credit: str | None = option(
        None,
        metavar="last|spread|module:function",
        help="How a step's reward is distributed over its tokens; by default tokens have none.",
    ),
    tasks: str | None = option(
        None,
        metavar="SOURCE",
        help="Tasks of the episodes, with the private scoring data that rollouts do not contain.",
    ),
    split: str | None = option(None, metavar="NAME", help="Split of the tasks, for --tasks."),
    action: str | None = option(
        None,
        metavar="module:class",
        help="Model of actions for the scorer; by default plain fields.",
    ),
    observation: str | None = option(
        None,
        metavar="module:class",
        help="Model of observations for the scorer; by default plain fields.",
    ),
    concurrency: int = option(8, min=1, help="Maximum number of episodes scored at once."),
    timeout: float = option(
        60.0, metavar="SECONDS", min=0.001, help="Maximum seconds per attempt to score."
    ),
    retries: int = option(2, min=0, help="Number of retries after a temporary error."),
    batch: int = option(
        64, min=1, help="Number of episodes per call of a scorer that takes several."
    ),
    cache: Path | None = option(
        None, metavar="DIR", help="Keep scores in this directory, and reuse them."
    ),
    resume: bool = option(False, help="Resume an existing output: score only missing episodes."),
    force: bool = option(False, help="Replace an existing output."),
    allow_unscored: bool = option(
        False, help="Exit with 0 even if some episodes could not be scored."
    ),
    as_json: bool = option(False, "--json", help="Print the summary as JSON."),
) -> None:
    """Rescore stored episodes with any scorer, and write the result to another file.

    The exit code is 0; 1 if some episodes could not be scored (they have no reward and record the
    reason); 2 for wrong usage.

    Examples:
        openenv score episodes.jsonl --with rewards.py:correct -o scored.jsonl
        openenv score episodes.jsonl --with rewards.py:correct --credit uniform --force --json
    """
    sys.path.insert(0, str(Path.cwd()))
    output = output or file.with_name(f"{file.stem}.scored.jsonl")
    with _report_errors(output), _limit_error_log():
        from openenv.rewards.external.names import resolve_scorer, resolve_token_credit
        from openenv.rollouts.scoring import ScoringOptions, score_file

        options = ScoringOptions(
            credit=credit,
            token_credit=None if token_credit is None else resolve_token_credit(token_credit),
            tasks=_tasks(tasks, split),
            action=_model("--action", action),
            observation=_model("--observation", observation),
            timeout_s=timeout,
            retries=retries,
            concurrency=concurrency,
            cache=cache,
            batch=batch,
        )
        scorer = resolve_scorer(with_)
        with display() as shown:
            shown.begin("scoring", _count(file))
            report = score_file(
                file,
                output,
                scorer,
                options,
                scored_by=with_,
                progress=lambda so_far: shown.update(so_far.rollouts, _describe_counts(so_far)),
                resume=resume,
                force=force,
            )
            shown.finish(_describe_counts(report))
    if as_json:
        emit(report.as_data())
    _print_report(report)
    left = report.rollouts - report.scored + sum(report.without_token_rewards.values())
    if left and not allow_unscored:
        raise CommandError(
            f"{left:,} of {report.rollouts:,} could not be scored",
            hint="each says why in the output; --allow-unscored takes that as it is",
        )


def _tasks(source: str | None, split: str | None) -> Callable[[str], Task | None] | None:
    """Return a function that finds a task by id."""
    if source is None:
        if split is not None:
            raise MisuseError(f"--split {split} requires tasks", hint="--tasks SOURCE")
        return None
    from openenv.tasks import load_tasks

    taskset = load_tasks(source, split=split)

    def find(id: str) -> Task | None:
        position = taskset.position_of(id)
        return None if position is None else taskset.at(position)

    return find


def _model(option: str, name: str | None) -> Any:
    if name is None:
        return None
    from pydantic import BaseModel

    from openenv.rewards.external.names import import_named

    found = import_named(name)
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise MisuseError(f"{option} {name}: expected a model of pydantic")
    return found


def _count(file: Path) -> int | None:
    """Return the number of rollouts in a file, if quickly known."""
    from openenv.rollouts.records import FORMAT

    if file.suffix == ".parquet" or not file.is_file():
        return None
    with file.open("rb") as stream:
        is_rollouts = FORMAT.encode() in stream.readline(CHUNK_BYTES)
        chunks = iter(lambda: stream.read(CHUNK_BYTES), b"")
        return sum(chunk.count(b"\n") for chunk in chunks) if is_rollouts else None


def _describe_counts(report: ScoringReport) -> str:
    left = report.rollouts - report.scored
    return f"{report.rollouts:,} rollouts" + (f", {left:,} could not be scored" if left else "")


def _print_report(report: ScoringReport) -> None:
    resumed = f" ({report.resumed:,} were there)" if report.resumed else ""
    say(f"{report.scored:,} of {report.rollouts:,} scored{resumed}, in {report.output}")
    means = ("none" if one is None else f"{one:.4g}" for one in (report.mean, report.mean_before))
    say("mean reward {}, before {}; ".format(*means) + f"{report.changed:,} changed")
    _print_reasons("not scored", report.unscored)
    _print_reasons("no rewards of tokens", report.without_token_rewards)


def _print_reasons(what: str, reasons: dict[str, int]) -> None:
    often = sorted(reasons.items(), key=lambda one: -one[1])
    for why, count in often[:SHOWN_REASONS]:
        say(f"{what}: {count:,} times: {why}")
    if len(often) > SHOWN_REASONS:
        rest = sum(count for _, count in often[SHOWN_REASONS:])
        say(f"{what}: {rest:,} times: for {len(often) - SHOWN_REASONS:,} other reasons")


@contextmanager
def _limit_error_log() -> Iterator[None]:
    """Limit the log of scorer errors, since a failing scorer may fail on each rollout."""
    seen = 0

    def is_shown(record: logging.LogRecord) -> bool:
        nonlocal seen
        seen += 1
        if seen == SHOWN_ERRORS + 1:
            say("further errors of the scorer are not shown; each rollout says which it was")
        return seen <= SHOWN_ERRORS

    names = ("openenv.rewards.delayed", "openenv.rewards.external.limits")
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(is_shown)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_shown)


@contextmanager
def _report_errors(output: Path) -> Iterator[None]:
    """Convert errors that prevent scoring to `CommandError`."""
    from openenv.errors import OpenEnvError

    try:
        yield
    except CommandError:
        raise
    except FileExistsError as error:
        raise MisuseError(
            f"{output} already exists",
            hint="--resume goes on with it, --force replaces it, --output names another one",
        ) from error
    except (OpenEnvError, OSError, ValueError) as error:
        raise MisuseError(describe_error(error)) from error
    except KeyboardInterrupt:
        say(f"what was scored is in {output}; --resume goes on with it")
        raise
    except Exception as error:  # any error of the scorer's own code at import
        raise MisuseError(
            f"nothing could be scored: {describe_user_error(error)}", hint=DEBUG_HINT
        ) from error
