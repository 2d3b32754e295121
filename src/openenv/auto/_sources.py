"""What the name of an environment may be: an installed one, a Hub's, a server, an image, a path.

The form alone decides, never what there happens to be:

* ``./my_env``, ``../my_env``, ``/srv/my_env``, ``~/my_env``, a `Path`: a directory with an
  ``openenv.yaml``. ``a/b`` is no path but a repository of the Hub.
* ``docker://image:tag``: a container image.
* ``http``, ``https``, ``ws`` and ``wss`` addresses: a server; those of the Hub: a repository of it.
* Anything else with a ``/`` in it: a repository of the Hub.
* What is left: an installed environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from openenv._internal.addresses import URL, over_http
from openenv._internal.json import read_json
from openenv._internal.net.http import FAILURES, ask
from openenv._internal.net.keys import key_for, key_headers
from openenv.auto._hub import PROBE_TIMEOUT_S
from openenv.hub.names import is_hub_address

__all__ = [
    "IMAGE_PREFIX",
    "TargetKind",
    "resolve_directory",
    "image_base_name",
    "is_server_of",
    "fetch_served_name",
    "classify_target",
]

IMAGE_PREFIX = "docker://"

_PATH = re.compile(r"\.{1,2}([/\\]|$)|[/\\~]|[A-Za-z]:[/\\]")


class TargetKind(Enum):
    """What a name means."""

    INSTALLED = "installed"
    HUB = "hub"
    SERVER = "server"
    IMAGE = "image"
    PATH = "path"


def classify_target(name: str | os.PathLike[str]) -> TargetKind:
    """What the name of an environment means, by its form."""
    if isinstance(name, os.PathLike) or _PATH.match(name):
        return TargetKind.PATH
    if name.startswith(IMAGE_PREFIX):
        return TargetKind.IMAGE
    if URL.match(name):
        return TargetKind.HUB if is_hub_address(name) else TargetKind.SERVER
    return TargetKind.HUB if "/" in name else TargetKind.INSTALLED


def image_base_name(image: str) -> str:
    """The name that an image has in its registry: ``echo-env`` of ``ghcr.io/me/echo-env:1``."""
    return image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[0]


def fetch_served_name(
    base_url: str, headers: Mapping[str, str], api_key: str | None, ca_file: str | None
) -> str | None:
    """What a server calls its environment, by its ``/metadata``; None where it does not tell."""
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
    """Whether what a server calls its environment, often its class, means the one that is known.

    ``FinRLEnvironment``, ``finrl-env`` and ``finrl_env`` are ``finrl``.
    """
    return _stem(served) == _stem(known)


def _stem(name: str) -> str:
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    return re.sub(r"(?<=.)(environment|env)$", "", letters)


def resolve_directory(name: str | os.PathLike[str]) -> Path:
    """The directory that a path means."""
    return Path(name).expanduser().resolve()
