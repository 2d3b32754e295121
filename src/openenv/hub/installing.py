"""Environments that run elsewhere, and packages from the Hugging Face Hub."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import Distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from openenv._internal.addresses import over_http
from openenv._internal.consent import agrees, is_at_terminal
from openenv._internal.json import read_json
from openenv._internal.net.http import FAILURES, ask
from openenv._internal.net.keys import key_for, key_headers
from openenv._internal.net.peers import is_loopback as is_loopback_host
from openenv._internal.replacing import replace_text
from openenv.client.launch import hf_space_subdomain
from openenv.errors import OpenEnvError
from openenv.hub.discovery import EnvironmentInfo, get_discovery, info_of_distribution
from openenv.hub.names import parse_space_reference
from openenv.settings import hub_endpoint, trusts_remote_code

if TYPE_CHECKING:
    from openenv.hub import SpaceRevision

logger = logging.getLogger(__name__)

SPACE_URL = "https://{subdomain}.hf.space"
PROBE_TIMEOUT_S = 5.0
INSTALL_TIMEOUT_S = 600.0
LOOK_TIMEOUT_S = 3.0

_COMMIT = re.compile(r"[0-9a-f]{40}")


class InstallRefusedError(OpenEnvError, ValueError):
    """Raised if the user did not consent to installing a package from the Hub."""


# ------------------------------------------------------------------ names


def repo_id_of(name: str) -> str:
    """Extract ``owner/name`` from a repository's name or address.

    Raises:
        ValueError: The text is neither a name nor an address.
    """
    return parse_space_reference(name).repo_id


def space_url(repo_id: str) -> str:
    """Return the address of a Space's server."""
    return SPACE_URL.format(subdomain=hf_space_subdomain(repo_id))


def space_image(repo_id: str) -> str:
    """Return the container image of a Space."""
    return f"registry.hf.space/{hf_space_subdomain(repo_id)}:latest"


def source_url(repo_id: str) -> str:
    """Return the git repository of a Space."""
    return f"{hub_endpoint()}/spaces/{repo_id}"


# ------------------------------------------------------------------ servers


def answers(
    base_url: str, headers: Mapping[str, str] | None = None, ca_file: str | None = None
) -> bool:
    """Return whether a server answers at `base_url`, under `/health` or the root."""
    url = over_http(base_url)
    return any(_is_answered(f"{url}{path}", headers, ca_file) for path in ("/health", "/"))


def is_loopback(base_url: str) -> bool:
    """Return whether an address belongs to this machine."""
    host = urlsplit(over_http(base_url)).hostname or ""
    return host in ("0.0.0.0", "::") or is_loopback_host(host)


def _is_answered(url: str, headers: Mapping[str, str] | None, ca_file: str | None) -> bool:
    try:
        return ask(url, headers, timeout_s=PROBE_TIMEOUT_S, ca_file=ca_file).status < 400
    except FAILURES:
        return False


def image_base_name(image: str) -> str:
    """Return an image's name within the registry: ``echo-env`` of ``ghcr.io/me/echo-env:1``."""
    return image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[0]


def fetch_served_name(
    base_url: str, headers: Mapping[str, str], api_key: str | None, ca_file: str | None
) -> str | None:
    """Return the environment's name from a server's ``/metadata``; None if unavailable."""
    url = over_http(base_url)
    sent = {**headers, **key_headers(api_key or key_for(url), headers)}
    try:
        answer = ask(f"{url}/metadata", sent, timeout_s=PROBE_TIMEOUT_S, ca_file=ca_file)
        told = read_json(answer.body) if answer.status == 200 else None
    except FAILURES:
        return None
    name = told.get("name") if isinstance(told, dict) else None
    return name if isinstance(name, str) else None


def is_server_of(served: str, known: str) -> bool:
    """Return whether a served name, often a class name, refers to the environment `known`.

    ``FinRLEnvironment``, ``finrl-env`` and ``finrl_env`` all refer to ``finrl``.
    """
    return _stem(served) == _stem(known)


def _stem(name: str) -> str:
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    return re.sub(r"(?<=.)(environment|env)$", "", letters)


# ------------------------------------------------------------------ packages


def install(
    repo_id: str, revision: str | None = None, *, trust_remote_code: bool = False
) -> EnvironmentInfo:
    """Return the environment of a Space's package; install a missing package first.

    An installation pins a commit, which the user confirms and the package records. Without a
    `revision`, an installed commit is used, with a warning if there is a newer commit.

    Args:
        repo_id: The Space.
        revision: A branch, a tag or a commit; None for the installed commit, or else ``main``.
        trust_remote_code: Install without the user's confirmation.

    Raises:
        InstallRefusedError: The user did not consent to installing code from the Hub.
        HubError: The Hub has no such Space or revision, or does not answer.
        ValueError: The installation failed, or the package holds no environment.
        MissingPackage: huggingface_hub is not installed.
    """
    url = source_url(repo_id)
    before = distribution = _installed_from(url)
    if distribution is None or not _is_wanted(distribution, repo_id, revision):
        _install(repo_id, revision, trust_remote_code)
        distribution = _installed_from(url)
    info = None if distribution is None else info_of_distribution(distribution)
    if info is None:
        raise ValueError(f"the package from {url} holds no environment")
    if before is not None and distribution is not before and info.module in sys.modules:
        logger.warning("%s is imported already: restart Python to use the new version", info.module)
    return info


def _is_wanted(distribution: Distribution, repo_id: str, revision: str | None) -> bool:
    sha = commit_of(distribution)
    if revision is None:
        _warn_of_newer(repo_id, sha)
        return True
    if _COMMIT.fullmatch(revision):
        return sha == revision
    return sha is not None and sha == _resolve(repo_id, revision).sha


def _warn_of_newer(repo_id: str, sha: str | None) -> None:
    """Warn if the Hub, if reachable, has a newer commit than the installed one."""
    from openenv.hub import Hub

    if sha is None:
        return
    try:
        newest = Hub(tries=1).revision(repo_id, timeout_s=LOOK_TIMEOUT_S)
    except OpenEnvError:
        return
    if newest.sha != sha:
        logger.warning(
            "%s is at %s now; %s is installed. To have the newer one: revision=%r",
            repo_id,
            newest.sha[:12],
            sha[:12],
            newest.sha,
        )


def _resolve(repo_id: str, revision: str | None) -> SpaceRevision:
    from openenv.hub import Hub

    return Hub().revision(repo_id, revision)


def _install(repo_id: str, revision: str | None, trust_remote_code: bool) -> None:
    url = source_url(repo_id)
    is_trusted = trust_remote_code or trusts_remote_code()
    if not (is_trusted or is_at_terminal()):
        raise InstallRefusedError(_refusal(url, None))
    found = _resolve(repo_id, revision)
    if not (is_trusted or _confirmed(url, found)):
        raise InstallRefusedError(_refusal(url, found.sha))
    logger.info("installing %s at %s", url, found.sha)
    _install_commit(repo_id, found)


def _refusal(url: str, sha: str | None) -> str:
    pin = "" if sha is None else f", and revision={sha!r} to have no other"
    return (
        f"{url} was not installed: its code would run on this machine. If you trust it, "
        f"pass trust_remote_code=True{pin}, or set OPENENV_TRUST_REMOTE_CODE=1; to use its "
        "server without its code, pass skip_install=True"
    )


def _confirmed(url: str, found: SpaceRevision) -> bool:
    when = f", of {found.date}" if found.date else ""
    return agrees(
        f"Installing {url} will run its code on this machine.\n"
        f"It is the commit {found.sha} ({found.name}{when}): {url}/tree/{found.sha}",
        "Install it?",
    )


def _installer() -> list[str]:
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install"]


def _install_commit(repo_id: str, found: SpaceRevision) -> None:
    """Download and install a commit, and record the commit in the package's metadata.

    This works without git, and reads a private Space with the user's token.
    """
    from openenv.hub import Hub

    url = source_url(repo_id)
    with tempfile.TemporaryDirectory(prefix="openenv-hub-") as folder:
        source = Path(folder).resolve() / repo_id.partition("/")[2]
        source.mkdir()
        Hub().download(repo_id, found.sha, source)
        shutil.rmtree(source / ".cache", ignore_errors=True)  # huggingface_hub's own notes
        if not (source / "pyproject.toml").is_file():
            raise ValueError(f"{url} has no pyproject.toml, so it holds no package to install")
        _run_installer(url, source)
        importlib.invalidate_caches()
        distribution = _installed_from(source.as_uri())
        if distribution is not None:
            _note_origin(distribution, url, found)
    get_discovery().clear_cache()


def _run_installer(url: str, source: Path) -> None:
    command = [*_installer(), str(source)]
    try:
        subprocess.run(  # nosec B603  # no shell, and asked for first
            command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "stderr", None) or error
        raise ValueError(f"{url} could not be installed ({' '.join(command)}): {words}") from error


def _note_origin(distribution: Distribution, url: str, found: SpaceRevision) -> None:
    """Record the origin of an installed package as a git installation would (PEP 610).

    So `pip freeze` names the commit, and later processes find the package.
    """
    version = {"vcs": "git", "requested_revision": found.name, "commit_id": found.sha}
    origin = {"url": url, "vcs_info": version}
    for file in distribution.files or ():
        # Both files may be links to an installer's cache, so they are replaced and not written to.
        if file.name == "direct_url.json":
            note = Path(str(distribution.locate_file(file)))
            replace_text(note, json.dumps(origin))
            record = note.with_name("RECORD")
            lines = record.read_text(encoding="utf-8").splitlines()
            kept = [f"{file},," if line.startswith(f"{file},") else line for line in lines]
            replace_text(record, "\n".join(kept) + "\n")  # a digest would be wrong now


def commit_of(distribution: Distribution) -> str | None:
    """Return the commit that a package was installed from, or None if not recorded."""
    recorded = _origin(distribution).get("vcs_info")
    return recorded.get("commit_id") if isinstance(recorded, dict) else None


def _installed_from(url: str) -> Distribution | None:
    """Return the distribution that was installed from `url`, as recorded by PEP 610."""
    for distribution in importlib.metadata.distributions():
        if str(_origin(distribution).get("url")).removesuffix(".git") == url:
            return distribution
    return None


def _origin(distribution: Distribution) -> dict[str, Any]:
    """Return an installer's record of a package's origin; empty if there is none."""
    with contextlib.suppress(OSError, ValueError):
        origin = read_json(distribution.read_text("direct_url.json") or "{}")
        if isinstance(origin, dict):
            return origin
    return {}
