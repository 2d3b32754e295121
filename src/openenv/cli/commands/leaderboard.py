"""`openenv leaderboard`: a ranking of validated environments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from openenv._internal.quoting import printable
from openenv.cli._console import CommandError, MisuseError, emit, say, warn
from openenv.cli._options import argument, option, takes_options
from openenv.cli._progress import display
from openenv.cli.commands.validate import (
    NO_PACKAGE,
    ImageOptions,
    ProviderChoice,
    level_of,
)

if TYPE_CHECKING:
    from openenv.validation.leaderboard import Leaderboard, LeaderboardEntry, LeaderboardSettings


@takes_options
def leaderboard(
    *,
    paths: list[str] = argument(
        ...,
        metavar="PATH...",
        help="Environments: directories, folders of directories, installed environments, "
        "addresses of servers.",
    ),
    output: Path = option(
        Path("leaderboard"), metavar="DIR", help="Write reports and tables here."
    ),
    resume: bool = option(False, help="Keep finished reports of unchanged environments."),
    as_json: bool = option(False, "--json", help="Print the table as JSON."),
    level: str = option(
        "semantic", metavar="static|runtime|semantic", help="Depth of the validation."
    ),
    learn: bool = option(False, help="Train a small learner in each environment."),
    skip_build: bool = option(False, help="Build no images."),
    policy: str | None = option(
        None, metavar="VERSION|FILE", help="Severity policy, as for `openenv validate`."
    ),
    jobs: int = option(
        1,
        min=1,
        help="Number of concurrent validations; more than one distorts speed measurements.",
    ),
    timeout: float = option(
        1800.0, metavar="SECONDS", min=1.0, help="Maximum seconds per environment."
    ),
    provider: ProviderChoice = option(
        ProviderChoice.AUTO, help="Provider that starts environments, as for `openenv validate`."
    ),
    image: ImageOptions,
) -> None:
    """Validate many environments, and rank them by score.

    An environment that fails, crashes or hangs does not stop the others. The exit code is 0 if all
    could be validated, with any verdict, and 1 otherwise.

    Examples:
        openenv leaderboard envs --output board --level static --skip-build
        openenv leaderboard envs --output board --level static --skip-build --resume
    """
    from openenv._internal.packages import MissingPackage
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
        image.base,
        image.network,
        image.ca_file,
    )
    try:
        board = _rank(expand_targets(paths), output, how)
        try:
            (output / "leaderboard.html").write_text(board.html(), encoding="utf-8")
        except MissingPackage as error:
            warn(f"no page was written: {error}")
        say(f"wrote {output}/leaderboard.json and .md")
    except PackageNotFound as error:
        raise CommandError(str(error), exit_code=NO_PACKAGE) from error
    except OpenEnvError as error:
        raise MisuseError(str(error)) from error
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
