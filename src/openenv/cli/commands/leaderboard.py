"""`openenv leaderboard`: a ranking of validated environments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openenv._internal.quoting import printable
from openenv.cli._console import MISUSED, CommandError, emit, say
from openenv.cli._progress import display
from openenv.cli.commands.validate import (
    NO_PACKAGE,
    Base,
    CaFile,
    Network,
    ProviderChoice,
    level_of,
)

if TYPE_CHECKING:
    from openenv.validation.leaderboard import Leaderboard, LeaderboardEntry, LeaderboardSettings

__all__ = ["leaderboard"]

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        help="Environments: directories, folders of directories, installed environments, "
        "addresses of servers.",
    ),
]
Output = Annotated[Path, typer.Option(metavar="DIR", help="Directory for reports and tables.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Keep finished reports of unchanged environments.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]
LevelOption = Annotated[
    str, typer.Option("--level", metavar="static|runtime|semantic", help="Depth of the validation.")
]
Learn = Annotated[bool, typer.Option("--learn", help="Train a small learner in each environment.")]
SkipBuild = Annotated[bool, typer.Option("--skip-build", help="Build no images.")]
Policy = Annotated[
    str | None,
    typer.Option(metavar="VERSION|FILE", help="Severity policy, as for `openenv validate`."),
]
Jobs = Annotated[
    int,
    typer.Option(
        min=1, help="Number of concurrent validations; more than one distorts speed measurements."
    ),
]
Timeout = Annotated[
    float, typer.Option(min=1.0, metavar="SECONDS", help="Maximum seconds per environment.")
]
Provider = Annotated[
    ProviderChoice,
    typer.Option(help="Provider that starts environments, as for `openenv validate`."),
]


def leaderboard(
    paths: Paths,
    output: Output = Path("leaderboard"),
    resume: Resume = False,
    as_json: AsJson = False,
    level: LevelOption = "semantic",
    learn: Learn = False,
    skip_build: SkipBuild = False,
    policy: Policy = None,
    jobs: Jobs = 1,
    timeout: Timeout = 1800.0,
    provider: Provider = ProviderChoice.AUTO,
    base: Base = None,
    network: Network = None,
    ca_file: CaFile = None,
) -> None:
    """Validate many environments, and rank them by score.

    An environment that fails, crashes or hangs does not stop the others. The exit code is 0 if all
    could be validated, whatever the verdicts, and 1 otherwise.

    Examples:
        openenv leaderboard envs --output board
        openenv leaderboard envs --output board --level static --resume
    """
    from openenv.errors import OpenEnvError
    from openenv.validation.leaderboard import LeaderboardSettings, expand_targets
    from openenv.validation.targets import PackageNotFound

    how = LeaderboardSettings(
        level_of(level, learn),
        policy,
        skip_build,
        provider.value,
        resume,
        jobs,
        timeout,
        base,
        network,
        ca_file,
    )
    try:
        board = _rank(expand_targets(paths), output, how)
        _write_page(board, output)
    except PackageNotFound as error:
        raise CommandError(str(error), exit_code=NO_PACKAGE) from error
    except OpenEnvError as error:
        raise CommandError(str(error), exit_code=MISUSED) from error
    except OSError as error:
        hint = "what is finished is kept: --resume goes on" if output.is_dir() else None
        raise CommandError(f"{type(error).__name__}: {error}", hint=hint) from error
    if as_json:
        emit(board.as_data())
    else:
        sys.stdout.write(printable(board.markdown()))
    unranked = [entry.name for entry in board.entries if entry.total is None]
    if unranked:
        raise CommandError(
            f"could not be validated: {', '.join(unranked)}",
            hint=f"{output}/leaderboard.json says why; --resume keeps the others",
        )


def _rank(targets: list[str], output: Path, how: LeaderboardSettings) -> Leaderboard:
    from openenv.validation.leaderboard import rank_environments

    with display() as shown:
        shown.begin("validating", len(targets))

        def finished(entry: LeaderboardEntry, done: int, total: int) -> None:
            shown.update(done, f"{entry.name}: {entry.verdict}")

        board = rank_environments(targets, output, how, finished)
        resumed = sum(entry.is_resumed for entry in board.entries)
        kept = f", {resumed} of them kept" if resumed else ""
        shown.finish(f"{len(targets)} environments{kept}")
    return board


def _write_page(board: Leaderboard, output: Path) -> None:
    """Write the HTML page if the required packages are installed."""
    from openenv._internal.packages import MissingPackage

    try:
        (output / "leaderboard.html").write_text(board.html(), encoding="utf-8")
    except MissingPackage as error:
        say(f"no page was written: {error}", style="yellow")
    say(f"wrote {output}/leaderboard.json and .md")
