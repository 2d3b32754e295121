"""Environments on the Hugging Face Hub: their names, their Spaces, installing their packages."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib.metadata import Distribution
from urllib.parse import urlsplit

from openenv._peers import is_loopback as is_loopback_host
from openenv._tls import client_context
from openenv.auto._discovery import EnvironmentInfo, get_discovery, info_of_distribution
from openenv.client.launch import hf_space_subdomain
from openenv.errors import OpenEnvError
from openenv.settings import trusts_remote_code

__all__ = [
    "InstallRefusedError",
    "answers",
    "install",
    "is_hub_name",
    "is_loopback",
    "repo_id_of",
    "space_image",
    "space_url",
]

HUB_URL = "https://huggingface.co"
SPACE_URL = "https://{subdomain}.hf.space"
PROBE_TIMEOUT_S = 5.0
INSTALL_TIMEOUT_S = 600.0

_HUB_HOSTS = ("huggingface.co/", "www.huggingface.co/", "hf.co/")
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class InstallRefusedError(OpenEnvError, ValueError):
    """A package from the Hub was not installed, since nobody agreed to it."""


# ------------------------------------------------------------------ names


def is_hub_name(name: str) -> bool:
    """`name` means a repository on the Hub, not an installed package."""
    return "/" in name


def repo_id_of(name: str) -> str:
    """Read ``owner/name`` off a repository's name or address.

    Raises:
        ValueError: It is neither.
    """
    rest = re.sub(r"^https?://", "", name.strip())
    for host in _HUB_HOSTS:
        rest = rest.removeprefix(host)
    repo_id = "/".join(rest.removeprefix("spaces/").split("/")[:2]).removesuffix(".git")
    if "://" in rest or not _REPO_ID.fullmatch(repo_id):
        raise ValueError(f"{name!r} names no Space; expected owner/name or {HUB_URL}/owner/name")
    return repo_id


def space_url(repo_id: str) -> str:
    """Where a Space's server is, if it runs."""
    return SPACE_URL.format(subdomain=hf_space_subdomain(repo_id))


def space_image(repo_id: str) -> str:
    """The container image of a Space."""
    return f"registry.hf.space/{hf_space_subdomain(repo_id)}:latest"


def source_url(repo_id: str) -> str:
    """The git repository of a Space."""
    return f"{HUB_URL}/spaces/{repo_id}"


# ------------------------------------------------------------------ servers


def answers(
    base_url: str, headers: Mapping[str, str] | None = None, ca_file: str | None = None
) -> bool:
    """A server answers at `base_url`: its `/health`, or else its root."""
    url = _http(base_url)
    return any(_get(f"{url}{path}", headers or {}, ca_file) for path in ("/health", "/"))


def is_loopback(base_url: str) -> bool:
    """The address is one of this machine's own."""
    host = urlsplit(_http(base_url)).hostname or ""
    return host in ("0.0.0.0", "::") or is_loopback_host(host)


def _http(base_url: str) -> str:
    url = re.sub(r"^ws(s?)://", r"http\1://", base_url.strip(), flags=re.IGNORECASE).rstrip("/")
    return url if re.match(r"https?://", url, flags=re.IGNORECASE) else f"http://{url}"


def _get(url: str, headers: Mapping[str, str], ca_file: str | None) -> bool:
    proxies: dict[str, str] | None = {} if is_loopback(url) else None
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler(proxies)]
    try:
        if url.lower().startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=client_context(ca_file)))
        opener = urllib.request.build_opener(*handlers)
        request = urllib.request.Request(url, headers=dict(headers))
        with opener.open(request, timeout=PROBE_TIMEOUT_S) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError, ValueError):
        return False


# ------------------------------------------------------------------ packages


def install(repo_id: str, *, trust_remote_code: bool = False) -> EnvironmentInfo:
    """Find the package of a Space among those installed; install it first if it is not there.

    Raises:
        InstallRefusedError: Nobody agreed to have code from the Hub installed.
        ValueError: It could not be installed, or holds no environment.
    """
    url = source_url(repo_id)
    distribution = _installed_from(url)
    if distribution is None:
        if not (trust_remote_code or trusts_remote_code() or _confirmed(url)):
            raise InstallRefusedError(
                f"{url} was not installed: its code would run on this machine. If you trust it, "
                "pass trust_remote_code=True or set OPENENV_TRUST_REMOTE_CODE=1; to use its "
                "server without its code, pass skip_install=True"
            )
        _install_from(url)
        distribution = _installed_from(url)
    info = None if distribution is None else info_of_distribution(distribution)
    if info is None:
        raise ValueError(f"the package that {url} installs is no environment")
    return info


def _confirmed(url: str) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    sys.stderr.write(f"Installing {url} will run its code on this machine.\nInstall it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _installer() -> list[str]:
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install"]


def _install_from(url: str) -> None:
    command = [*_installer(), f"git+{url}"]
    try:
        subprocess.run(  # nosec B603  # no shell, and asked for first
            command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "stderr", None) or error
        raise ValueError(f"{url} could not be installed ({' '.join(command)}): {words}") from error
    importlib.invalidate_caches()
    get_discovery().clear_cache()


def _installed_from(url: str) -> Distribution | None:
    """Find the distribution that was installed from `url`, as PEP 610 records it."""
    for distribution in importlib.metadata.distributions():
        with contextlib.suppress(OSError, ValueError, AttributeError):
            origin = json.loads(distribution.read_text("direct_url.json") or "{}")
            if origin.get("url", "").removesuffix(".git") == url:
                return distribution
    return None
