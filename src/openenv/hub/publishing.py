"""Publishing: uploads a staged copy to a Space, new or existing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from openenv.hub.client import Hub, HubCommit, Progress, SpaceSettings, SpaceStage
from openenv.hub.errors import HubError, RepositoryNotFoundError, SecretsFoundError
from openenv.hub.secrets import SecretFinding, find_secrets, find_secrets_in_text, split_allowed
from openenv.hub.staging import StagedSpace

LOOK_EVERY_S = 2.0
FIRST_LOOKS_S = 0.2


def check_secrets(
    staged: StagedSpace, variables: Mapping[str, str], let_pass: Sequence[str] = ()
) -> list[str]:
    """Check that the public parts of an upload hold no secrets.

    Args:
        staged: The copy to upload.
        variables: Additional public variables.
        let_pass: Places to ignore; see `openenv.hub.secrets.split_allowed`.

    Returns:
        The places in `let_pass` without a finding.

    Raises:
        SecretsFoundError: There is a secret; the message says where.
    """
    found = [_place_in_source(one, staged) for one in find_secrets(staged.folder, staged.files)]
    for name, value in variables.items():
        found += [
            SecretFinding(f"--env-var {name}", 0, one.kind)
            for one in find_secrets_in_text(f"{name}={value}", "variables.env")
        ]
    left, idle = split_allowed(found, let_pass)
    if left:
        raise SecretsFoundError(left)
    return idle


def _place_in_source(finding: SecretFinding, staged: StagedSpace) -> SecretFinding:
    """Map a finding in the copy to its place in the source directory."""
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
    staged: StagedSpace,
    space: str,
    settings: SpaceSettings,
    *,
    message: str,
    create_pr: bool = False,
    delete: Sequence[str] = (),
    on_progress: Progress = lambda done, what: None,
) -> HubCommit:
    """Upload a staged copy to a Space; create the Space if it does not exist.

    The server's configuration is set before the upload, so that the first start sees it.

    Args:
        hub: The client.
        staged: The staged copy to upload.
        space: The Space's name.
        settings: Configuration of the Space.
        message: The commit message.
        create_pr: Propose the upload as a pull request to an existing Space.
        delete: Patterns of files to delete from the Space.
        on_progress: See `Hub.upload`.

    Raises:
        HubError: See its subclasses.
    """
    there = hub.find(space)
    if there is None and create_pr:
        raise RepositoryNotFoundError(
            f"there is no Space {space} for a pull request",
            hint="push without --create-pr first",
        )
    if there is None:
        hub.create(space, settings)
    elif not create_pr:
        if settings.private and not there.private:
            raise HubError(
                f"{space} exists and is public; --private applies to a new Space only",
                hint=f"make it private at {hub.page(space)}/settings, and push again",
            )
        hub.configure(space, settings)
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


def wait_until_running(
    hub: Hub,
    space: str,
    sha: str,
    *,
    timeout_s: float,
    on_stage: Callable[[SpaceStage], None] = lambda stage: None,
) -> SpaceStage:
    """Wait until a Space serves a commit.

    Args:
        hub: The client.
        space: The Space's name.
        sha: The commit; a server of an older commit does not count.
        timeout_s: Maximum waiting time in seconds.
        on_stage: Called with the state after each request.

    Raises:
        HubError: The Space fails to build or to start, or takes too long; if it fails, the message
            has the last lines of the log.
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


def _broken(hub: Hub, space: str, stage: SpaceStage) -> HubError:
    at_its_page, look = "start it at its page", f"look at {hub.page(space)}"
    what, hint = {
        "BUILD_ERROR": ("was not built", "`openenv build` builds the same image here"),
        "RUNTIME_ERROR": (
            "was built, and its server ended",
            "`openenv serve` starts the same server here",
        ),
        "CONFIG_ERROR": ("cannot be built, as its README's front matter is wrong", look),
        "NO_APP_FILE": ("has no Dockerfile", look),
        "PAUSED": ("does not run, it is PAUSED", at_its_page),
        "STOPPED": ("does not run, it is STOPPED", at_its_page),
    }.get(stage.name, (f"does not run, it is {stage.name}", look))
    lines = hub.log(space, build=stage.name != "RUNTIME_ERROR")
    text = f"{space} {what}"
    if stage.error:
        text += f": {stage.error.strip()}"
    if lines:
        text += "; its last lines:\n" + "\n".join(lines)
    return HubError(text, hint=hint)
