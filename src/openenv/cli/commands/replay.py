"""`openenv replay`: a recording played again, with the first difference reported."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openenv._internal.consent import agrees, is_at_terminal
from openenv._internal.quoting import printable
from openenv.cli._console import (
    DEBUG_HINT,
    CommandError,
    MisuseError,
    describe_error,
    emit,
    say,
)
from openenv.cli._failures import describe_user_error
from openenv.cli._options import argument, complete_environments, option, takes_options
from openenv.cli._progress import display
from openenv.cli.commands.serve import package_called

if TYPE_CHECKING:
    from openenv.rollouts.replays import ReplayReport


@takes_options
def replay(
    file: Path = argument(..., metavar="FILE", help="Recording, a .jsonl file."),
    target: str | None = option(
        None,
        metavar="TARGET",
        autocompletion=complete_environments,
        help="Environment to play against, in this process, as for `openenv serve`; or "
        "docker://IMAGE. By default the recorded environment.",
    ),
    url: str | None = option(None, metavar="URL", help="Play against this server."),
    episode: int | None = option(
        None, min=0, help="Play only this episode, counted from 1; 0 is what came before the first."
    ),
    tolerance: float = option(0.0, min=0.0, help="Difference up to which numbers are equal."),
    trust: bool = option(
        False,
        help="Import any environment that the recording names, without asking. By "
        "default only an installed environment is imported.",
    ),
    as_json: bool = option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Play a recording again and report the first difference.

    The exit code is 0 without a difference, 1 with one, 2 if the recording could not be played.

    Examples:
        openenv replay records/session.jsonl
        openenv replay records/session.jsonl --target echo --episode 1
    """
    if target is not None and url is not None:
        raise MisuseError("--target and --url exclude each other")
    from openenv.rollouts.replays.replaying import UntrustedTarget

    sys.path.insert(0, str(Path.cwd()))
    with _report_errors():
        target = None if target is None else package_called(target)
        play = functools.partial(
            _replay, file, target=target, url=url, episode=episode, tolerance=tolerance
        )
        try:
            report = play(trust_recorded=trust)
        except UntrustedTarget as error:
            if not is_at_terminal() or not agrees(str(error), "Import it, and play?"):
                raise
            report = play(trust_recorded=True)
    if as_json:
        emit({"same": report.is_same, **asdict(report)})
    if report.divergence is not None:
        raise CommandError(str(report.divergence), hint=_hint(report))
    skipped = f"; skipped, in whole or in part: {report.skipped:,}" if report.skipped else ""
    say(f"the same: episodes: {report.episodes:,}, events: {report.events:,}{skipped}")


def _replay(file: Path, **how: Any) -> ReplayReport:
    from openenv._internal.logs import silence
    from openenv.rollouts.replays import count_events, replay

    # Recorded errors occur again and need no log lines.
    with silence("openenv.execution"), display() as shown:
        shown.begin("replaying", count_events(file))
        report = replay(file, progress=lambda events: shown.update(events, "events"), **how)
        shown.finish(f"{report.events:,} events")
    return report


@contextmanager
def _report_errors() -> Iterator[None]:
    """Convert errors that prevent a replay to `CommandError`."""
    from openenv.errors import ConnectError, OpenEnvError
    from openenv.manifest import ManifestError
    from openenv.rollouts.replays.replaying import UntrustedTarget
    from openenv.server.loading import TargetError

    try:
        yield
    except UntrustedTarget as error:
        hint = "if you trust it: --trust; or name another: --target TARGET, --url URL"
        raise MisuseError(printable(str(error)), hint=hint) from error
    except TargetError as error:
        raise MisuseError(
            str(error), hint="name what to play it against: --target TARGET, or --url URL"
        ) from error
    except ConnectError as error:
        raise MisuseError(str(error), hint="is it running? start it: openenv serve") from error
    except (OpenEnvError, ManifestError, OSError) as error:
        raise MisuseError(describe_error(error)) from error
    except Exception as error:  # any error of the environment's own code at import
        raise MisuseError(
            f"it could not be played: {describe_user_error(error)}", hint=DEBUG_HINT
        ) from error


def _hint(report: ReplayReport) -> str:
    if report.is_other_schema:
        return "the models of actions and observations have changed since it was recorded"
    if report.unseeded:
        return "episodes were begun without a seed: reset(seed=...) makes them the same again"
    return "--episode N plays one alone; --tolerance 1e-6 lets numbers be a little apart"
