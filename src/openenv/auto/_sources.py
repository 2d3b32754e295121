"""The names by which images and servers call an environment."""

from __future__ import annotations

import re
from collections.abc import Mapping

from openenv._internal.addresses import over_http
from openenv._internal.json import read_json
from openenv._internal.net.http import FAILURES, ask
from openenv._internal.net.keys import key_for, key_headers
from openenv.auto._hub import PROBE_TIMEOUT_S


def image_base_name(image: str) -> str:
    """Return an image's name within the registry: ``echo-env`` of ``ghcr.io/me/echo-env:1``."""
    return image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[0]


def fetch_served_name(
    base_url: str, headers: Mapping[str, str], api_key: str | None, ca_file: str | None
) -> str | None:
    """Return the environment's name from a server's ``/metadata``; None without an answer."""
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
    """Return whether a served name, often a class name, means the environment `known`.

    ``FinRLEnvironment``, ``finrl-env`` and ``finrl_env`` all mean ``finrl``.
    """
    return _stem(served) == _stem(known)


def _stem(name: str) -> str:
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    return re.sub(r"(?<=.)(environment|env)$", "", letters)
