"""The description of its environment that a server gives at ``/schema``."""

from __future__ import annotations

from typing import Any

from openenv._internal.addresses import over_http
from openenv._internal.json import read_json
from openenv._internal.net.http import FAILURES, ask
from openenv._internal.net.keys import key_for, key_headers
from openenv.client.transports.websocket import WebSocketOptions
from openenv.errors import ConnectError


def fetch_schema(base_url: str, options: WebSocketOptions, timeout_s: float) -> dict[str, Any]:
    """Return a server's answer at ``/schema``.

    Raises:
        ConnectError: No server answers there, or its answer is not a JSON object.
    """
    url = f"{over_http(base_url)}/schema"
    headers = {**options.headers, **key_headers(options.api_key or key_for(url), options.headers)}
    try:
        answer = ask(url, headers, timeout_s=timeout_s, ca_file=options.ca_file)
    except FAILURES as error:
        raise ConnectError(f"no server answers at {url}: {error}") from error
    if answer.status != 200:
        raise ConnectError(f"{url} answered with status {answer.status}")
    try:
        found = read_json(answer.body)
        if not isinstance(found, dict):
            raise ValueError(f"it answered {found!r:.100}")
        return found
    except ValueError as error:
        raise ConnectError(f"no server describes its environment at {url}: {error}") from error
