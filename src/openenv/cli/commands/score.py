"""`openenv score`: score stored episodes anew, by any scorer."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openenv.cli._console import DEBUG_HINT, FAILED, MISUSED, CommandError, emit, plain, say
from openenv.cli._failures import in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from openenv.rollouts.scoring import ScoringOptions, ScoringReport
    from openenv.tasks import Task

__all__ = ["score"]

SHOWN_REASONS = 10
SHOWN_ERRORS = 3
CHUNK_BYTES = 2**20

File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="Rollouts, or a recording of a server."),
]
With = Annotated[
    str,
    typer.Option(
        "--with",
        metavar="SCORER",
        help="module:function or file.py:function, a scorer or a rubric; http://...; "
        "'command:PROGRAM ARGUMENTS'; reasoning_gym:DATASET.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="What to write; by default FILE.scored.jsonl.",
        show_default=False,
    ),
]
CreditOption = Annotated[
    str,
    typer.Option(
        metavar="terminal|uniform|discounted:GAMMA",
        help="What each step gets, where the scorer does not say.",
    ),
]
TokenCreditOption = Annotated[
    str | None,
    typer.Option(
        metavar="last|spread|module:function",
        help="What each token gets of the reward of its step.",
        show_default=False,
    ),
]
Tasks = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE",
        help="Where the tasks are, with what they are scored by, which rollouts do not hold.",
        show_default=False,
    ),
]
Split = Annotated[
    str | None, typer.Option(metavar="NAME", help="The split of the tasks.", show_default=False)
]
ModelOption = Annotated[
    str | None,
    typer.Option(metavar="module:class", help="Show it as this model.", show_default=False),
]
Concurrency = Annotated[int, typer.Option(min=1, help="How many are scored at a time.")]
Timeout = Annotated[
    float, typer.Option(min=0.001, metavar="SECONDS", help="What one may take, each time.")
]
Retries = Annotated[
    int, typer.Option(min=0, help="How often it is asked again after an error that passes.")
]
Batch = Annotated[int, typer.Option(min=1, help="How many a scorer of several is given at a time.")]
Cache = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where scores are kept.", show_default=False),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with an output that is there: score what is not.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an output that is there.")]
AllowUnscored = Annotated[
    bool, typer.Option("--allow-unscored", help="Exit 0 also where some could not be scored.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]


def score(
    file: File,
    with_: With,
    output: Output = None,
    credit: CreditOption = "terminal",
    token_credit: TokenCreditOption = None,
    tasks: Tasks = None,
    split: Split = None,
    action: ModelOption = None,
    observation: ModelOption = None,
    concurrency: Concurrency = 8,
    timeout: Timeout = 60.0,
    retries: Retries = 2,
    batch: Batch = 64,
    cache: Cache = None,
    resume: Resume = False,
    force: Force = False,
    allow_unscored: AllowUnscored = False,
    as_json: AsJson = False,
) -> None:
    """Score stored episodes anew, and write them with their new rewards to another file.

    It exits 0; 1 if some could not be scored, which then have no reward and say why; 2 if nothing
    could be done.

    Examples:
        openenv score episodes.jsonl --with rewards.py:correct -o scored.jsonl
    """
    sys.path.insert(0, str(Path.cwd()))
    output = output or file.with_name(f"{file.stem}.scored.jsonl")
    with _misuse(output), _few_errors():
        options = _options(
            credit=credit,
            token_credit=token_credit,
            tasks=_tasks(tasks, split),
            action=_model("--action", action),
            observation=_model("--observation", observation),
            timeout_s=timeout,
            retries=retries,
            concurrency=concurrency,
            cache=cache,
            batch=batch,
        )
        report = _scored(file, output, with_, options, resume=resume, force=force)
    if as_json:
        emit(report.as_data())
    _tell(report)
    left = report.rollouts - report.scored + sum(report.without_token_rewards.values())
    if left and not allow_unscored:
        raise CommandError(
            f"{left:,} of {report.rollouts:,} could not be scored",
            hint="each says why in the output; --allow-unscored takes that as it is",
            exit_code=FAILED,
        )


def _options(*, token_credit: str | None, **options: Any) -> ScoringOptions:
    from openenv.rewards.external.names import token_credit_named
    from openenv.rollouts.scoring import ScoringOptions

    named = None if token_credit is None else token_credit_named(token_credit)
    return ScoringOptions(token_credit=named, **options)


def _tasks(source: str | None, split: str | None) -> Callable[[str], Task | None] | None:
    """What finds a task by its id."""
    if source is None:
        if split is not None:
            why = f"--split {split} means nothing without tasks"
            raise CommandError(why, hint="--tasks SOURCE", exit_code=MISUSED)
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

    from openenv.rewards.external.names import imported

    found = imported(name)
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise CommandError(f"{option} {name}: expected a model of pydantic", exit_code=MISUSED)
    return found


def _scored(
    file: Path, output: Path, scorer: str, options: ScoringOptions, **how: Any
) -> ScoringReport:
    from openenv.cli._progress import display
    from openenv.rewards.external.names import scorer_named
    from openenv.rollouts.scoring import score_file

    named = scorer_named(scorer)
    with display() as shown:
        shown.begin("scoring", _count(file))
        report = score_file(
            file,
            output,
            named,
            options,
            scored_by=scorer,
            progress=lambda so_far: shown.update(so_far.rollouts, _counted(so_far)),
            **how,
        )
        shown.finish(_counted(report))
    return report


def _count(file: Path) -> int | None:
    """How many rollouts there are, as far as that is quickly told."""
    from openenv.rollouts.records import FORMAT

    if file.suffix == ".parquet" or not file.is_file():
        return None
    with file.open("rb") as stream:
        is_rollouts = FORMAT.encode() in stream.readline(CHUNK_BYTES)
        chunks = iter(lambda: stream.read(CHUNK_BYTES), b"")
        return sum(chunk.count(b"\n") for chunk in chunks) if is_rollouts else None


def _counted(report: ScoringReport) -> str:
    left = report.rollouts - report.scored
    return f"{report.rollouts:,} rollouts" + (f", {left:,} could not be scored" if left else "")


def _tell(report: ScoringReport) -> None:
    resumed = f" ({report.resumed:,} were there)" if report.resumed else ""
    say(f"{report.scored:,} of {report.rollouts:,} scored{resumed}, in {report.output}")
    say(
        f"mean reward {_number(report.mean)}, before {_number(report.mean_before)}; "
        f"{report.changed:,} changed"
    )
    _tell_reasons("not scored", report.unscored)
    _tell_reasons("no rewards of tokens", report.without_token_rewards)


def _tell_reasons(what: str, reasons: dict[str, int]) -> None:
    often = sorted(reasons.items(), key=lambda one: -one[1])
    for why, count in often[:SHOWN_REASONS]:
        say(f"{what}: {count:,} times: {why}")
    if len(often) > SHOWN_REASONS:
        rest = sum(count for _, count in often[SHOWN_REASONS:])
        say(f"{what}: {rest:,} times: for {len(often) - SHOWN_REASONS:,} other reasons")


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


class _Few(logging.Filter):
    """Lets the first records through, and one that says that there are more."""

    def __init__(self) -> None:
        super().__init__()
        self._seen = 0

    def filter(self, record: logging.LogRecord) -> bool:
        self._seen += 1
        if self._seen == SHOWN_ERRORS + 1:
            say("further errors of the scorer are not shown; each rollout says which it was")
        return self._seen <= SHOWN_ERRORS


@contextmanager
def _few_errors() -> Iterator[None]:
    """A scorer that fails may fail each time."""
    few = _Few()
    loggers = [
        logging.getLogger(f"openenv.rewards.{name}") for name in ("delayed", "external.limits")
    ]
    for logger in loggers:
        logger.addFilter(few)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(few)


@contextmanager
def _misuse(output: Path) -> Iterator[None]:
    """Say what kept it from being done."""
    from openenv.errors import OpenEnvError

    try:
        yield
    except CommandError:
        raise
    except FileExistsError as error:
        hint = "--resume goes on with it, --force replaces it, --output names another one"
        why = f"{output} is there already"
        raise CommandError(why, hint=hint, exit_code=MISUSED) from error
    except (OpenEnvError, OSError, ValueError) as error:
        raise CommandError(plain(error), exit_code=MISUSED) from error
    except KeyboardInterrupt:
        say(f"what was scored is in {output}; --resume goes on with it")
        raise
    except Exception as error:  # whatever the scorer's own code raises when it is imported
        why = f"nothing could be scored: {in_words(error)}"
        raise CommandError(why, hint=DEBUG_HINT, exit_code=MISUSED) from error
