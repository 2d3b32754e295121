"""Making an environment's copy a Space, or changing the one that it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from openenv.hub.client import Commit, Hub, Progress, Stage
from openenv.hub.errors import HubError, NotThereError, SecretsFoundError
from openenv.hub.secrets import Finding, allowed, scan, scan_text
from openenv.hub.staging import Staged

__all__ = ["Settings", "check_secrets", "publish", "wait_until_it_runs"]

LOOK_EVERY_S = 2.0
FIRST_LOOKS_S = 0.2


@dataclass(frozen=True)
class Settings:
    """How a Space shall be.

    Attributes:
        private: Only its owner, or its organization, sees it.
        hardware: Such as ``cpu-basic``; None is what it has, or the Hub's default.
        variables: Environment variables that everybody may read.
        secrets: Environment variables that nobody may read but its server.
    """

    private: bool = False
    hardware: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


def check_secrets(
    staged: Staged, variables: Mapping[str, str], let_pass: Sequence[str] = ()
) -> list[str]:
    """See that nothing secret is in what everybody may see.

    Args:
        staged: What would be uploaded.
        variables: The public variables that are told besides.
        let_pass: Places that somebody has looked at; see `openenv.hub.secrets.allowed`.

    Returns:
        The places of `let_pass` where nothing was found.

    Raises:
        SecretsFoundError: There is something; its text says where.
    """
    found = [_place_in_source(one, staged) for one in scan(staged.folder, staged.files)]
    for name, value in variables.items():
        found += [
            Finding(f"--env-var {name}", 0, one.kind)
            for one in scan_text(f"{name}={value}", "variables.env")
        ]
    left, idle = allowed(found, let_pass)
    if left:
        raise SecretsFoundError(left)
    return idle


def _place_in_source(finding: Finding, staged: Staged) -> Finding:
    """Where a line of a changed file stands in the directory that it was copied from."""
    path = finding.path
    if path == "Dockerfile" and not (staged.environment / path).is_file():
        path = "server/Dockerfile"
    lines = (staged.folder / finding.path).read_bytes().splitlines()
    if not finding.line or not (staged.environment / path).is_file():
        return finding
    own = (staged.environment / path).read_bytes().splitlines()
    if own == lines:
        return finding._replace(path=path)
    text = lines[finding.line - 1]
    line = own.index(text) + 1 if text in own else finding.line
    return finding._replace(path=path, line=line)


def publish(
    hub: Hub,
    staged: Staged,
    space: str,
    settings: Settings,
    *,
    message: str,
    create_pr: bool = False,
    delete: Sequence[str] = (),
    on_progress: Progress = lambda done, what: None,
) -> Commit:
    """Upload a copy to a Space, which is made if there is none.

    What its server is started with is set before the upload, so that the first start has it.

    Args:
        hub: As whom.
        staged: What.
        space: Where to.
        settings: How the Space shall be.
        message: Of the commit.
        create_pr: Propose it, to a Space that is there.
        delete: Patterns of files that the Space shall no longer have.
        on_progress: See `Hub.upload`.

    Raises:
        HubError: See its subclasses.
    """
    there = hub.find(space)
    if there is None and create_pr:
        raise NotThereError(
            f"there is no Space {space} that a pull request could be made to",
            hint="push it without --create-pr first",
        )
    if there is None:
        hub.create(
            space,
            private=settings.private,
            hardware=settings.hardware,
            variables=settings.variables,
            secrets=settings.secrets,
        )
    elif not create_pr:
        if settings.private and not there.private:
            raise HubError(
                f"{space} is there, and is public; --private is for one that is made",
                hint=f"make it private at {hub.page(space)}/settings, and push again",
            )
        hub.configure(
            space,
            hardware=settings.hardware,
            variables=settings.variables,
            secrets=settings.secrets,
        )
    commit = hub.upload(
        space,
        staged.folder,
        staged.files,
        message=message,
        create_pr=create_pr,
        delete=delete,
        on_progress=on_progress,
    )
    is_new = there is None or commit.sha != there.sha
    return commit._replace(is_new=is_new)


def wait_until_it_runs(
    hub: Hub,
    space: str,
    sha: str,
    *,
    timeout_s: float,
    on_stage: Callable[[Stage], None] = lambda stage: None,
) -> Stage:
    """Wait until a Space serves a commit.

    Args:
        hub: As whom.
        space: Which.
        sha: The commit; what still runs of an older one does not count.
        timeout_s: How long it may take.
        on_stage: Told of what the Space is doing, each time that it is asked.

    Raises:
        HubError: It does not build, does not start, or takes too long; the text has the last lines
            of the log.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = FIRST_LOOKS_S
    while True:
        stage = hub.stage(space)
        on_stage(stage)
        is_new = stage.sha in ("", sha)
        if stage.name == "RUNNING" and is_new:
            return stage
        if not (stage.is_underway or (stage.runs and not is_new)):
            raise _broken(hub, space, stage)
        if time.monotonic() > deadline:
            raise HubError(
                f"{space} did not run within {timeout_s:g} s; it is {stage.name}",
                hint=f"look at {hub.page(space)}, or wait longer: --timeout {2 * timeout_s:g}",
            )
        time.sleep(pause_s)
        pause_s = min(LOOK_EVERY_S, pause_s * 1.5)


def _broken(hub: Hub, space: str, stage: Stage) -> HubError:
    what = {
        "BUILD_ERROR": "was not built",
        "RUNTIME_ERROR": "was built, and its server ended",
        "CONFIG_ERROR": "cannot be built, as its README's front matter is wrong",
        "NO_APP_FILE": "has no Dockerfile",
    }.get(stage.name, f"does not run, it is {stage.name}")
    lines = hub.log(space, build=stage.name != "RUNTIME_ERROR")
    text = f"{space} {what}"
    if stage.error:
        text += f": {stage.error.strip()}"
    if lines:
        text += "; its last lines:\n" + "\n".join(lines)
    hints = {
        "PAUSED": "start it at its page",
        "STOPPED": "start it at its page",
        "BUILD_ERROR": "`openenv build` builds the same image here",
        "RUNTIME_ERROR": "`openenv serve` starts the same server here",
    }
    return HubError(text, hint=hints.get(stage.name, f"look at {hub.page(space)}"))
