"""The data of `openenv info`: an environment's files and a server's answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from openenv._internal.net.keys import key_for
from openenv._internal.targets import TargetKind, parse_target
from openenv.cli._console import CommandError
from openenv.cli._readings import MetricsUnreadable, read_metrics
from openenv.client.generic import GenericEnvClient
from openenv.errors import ConnectError, OpenEnvError
from openenv.hub.discovery import EnvironmentInfo, get_discovery
from openenv.manifest import read_manifest
from openenv.providers.process import ProcessProvider
from openenv.tasks import TaskAPIClient
from openenv.validation.evidence import FetchedPage
from openenv.validation.server_criteria import detect_mode
from openenv.validation.wire import fetch_page

# Fields common to all actions and observations, which need no mention.
COMMON = {"metadata", "done", "reward", "truncated", "type"}


def list_installed() -> list[dict[str, Any]]:
    """Return the installed environments."""
    return [_info_data(info) for info in get_discovery().discover().values()]


def _info_data(info: EnvironmentInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "package": info.package_name,
        "version": info.version,
        "description": info.description,
        "directory": None if info.directory is None else str(info.directory),
        "image": info.default_image,
    }


def server_address(target: str) -> str | None:
    """Return the base URL if a target is a server, otherwise None."""
    parsed = parse_target(target, local_files=True)
    return parsed.name if parsed.kind is TargetKind.SERVER else None


def read_files(target: str) -> dict[str, Any]:
    """Return the data in a package's files, without importing; for other targets the name."""
    if Path(target).is_dir():
        directory = Path(target).resolve()
        told: dict[str, Any] = {"name": directory.name, "directory": str(directory)}
    elif Path(target).exists() or ":" in target:
        return {"name": target}
    else:
        discovery = get_discovery()
        info = discovery.require(target)
        told = _info_data(info)
        if info.directory is None:
            return told
        directory = info.directory
    manifest = read_manifest(directory) or {}
    named = {key: manifest.get(key) for key in ("name", "version", "description", "app")}
    told = {**{key: value for key, value in named.items() if value is not None}, **told}
    checked = manifest.get("validation")
    if not isinstance(checked, Mapping):
        return told
    resources, network, types = (checked.get(key) for key in ("resources", "network", "types"))
    limits = dict(resources) if isinstance(resources, Mapping) else {}
    if isinstance(network, Mapping) and network.get("mode"):
        limits["network"] = network["mode"]
    tags = types.get("tags") if isinstance(types, Mapping) else None
    return {**told, "limits": limits, "tags": list(tags or ())}


@contextlib.contextmanager
def serve_temporarily(target: str) -> Iterator[str]:
    """Serve a target from a new process within the block; yield the address."""
    parsed = parse_target(target)
    if parsed.kind is TargetKind.IMAGE:
        with GenericEnvClient.from_docker_image(parsed.name).sync() as client:
            assert client.base_url is not None
            yield client.base_url
        return
    provider = ProcessProvider(target)
    try:
        url = provider.start()
        provider.wait_for_ready()
        yield url
    finally:
        provider.stop()


def query_server(url: str) -> dict[str, Any]:
    """Return a server's description of the environment.

    Raises:
        ConnectError: The server does not answer, or is not an OpenEnv server.
    """
    pages: dict[str, FetchedPage] = {}
    for path in ("/metadata", "/schema", "/health"):
        pages[path] = fetch_page(url, path)
        _check(url, pages[path])  # at once, so that a silent server is asked only once
    metadata, schema = pages["/metadata"].object, pages["/schema"].object
    told = {key: value for key, value in metadata.items() if value is not None}
    told.pop("readme_content", None)
    return {
        **told,
        "health": pages["/health"].object.get("status"),
        "mode": detect_mode(fetch_page(url, "/openapi.json").object.get("paths")),
        "tools": [tool.get("name") for tool in schema.get("tools") or ()],
        "reward": schema.get("reward"),
        "tasks": _count_tasks(url),
        "sessions": _count_sessions(url),
        "schema": {key: schema.get(key) for key in ("action", "observation", "state")},
    }


def _no_answer(url: str, failure: str) -> str:
    return f"no server answers at {url}: {failure.partition(': ')[2]}"


def check_answers(url: str, timeout_s: float) -> None:
    """Check that a server answers."""
    page = fetch_page(url, "/health", timeout_s=timeout_s)
    if page.failure is not None:
        raise CommandError(
            _no_answer(url, page.failure), hint="is it running? start it: openenv serve"
        )


def _check(url: str, page: FetchedPage) -> None:
    if page.failure is not None:
        raise ConnectError(_no_answer(url, page.failure))
    if page.status in (401, 403):
        raise ConnectError(f"{url} requires a key (status {page.status}): set OPENENV_API_KEY")
    if not page.object:
        raise ConnectError(f"{url} is not an OpenEnv server: {page.path} gave {page.status}")


def _count_tasks(url: str) -> dict[str, int]:
    """Return the number of tasks by split; empty for a server without tasks."""
    with contextlib.suppress(OpenEnvError):
        client = TaskAPIClient(url, timeout_s=10.0)
        return {one["name"]: client.num_tasks(one["name"]) for one in client.list_splits()}
    return {}


def _count_sessions(url: str) -> dict[str, int] | None:
    """Return the open and maximum sessions, or None if the server has no metrics."""
    try:
        values = read_metrics(url, key_for(url)).values
    except MetricsUnreadable:
        return None
    return {"open": int(values["openenv_slots_taken"]), "most": int(values["openenv_slots"])}


def outline(schema: Any) -> str:
    """Return a JSON schema's name and fields: ``Move(column: integer, name?: string)``."""
    if not isinstance(schema, Mapping):
        return ""
    members = [
        _resolve_reference(one, schema) for one in schema.get("anyOf") or schema.get("oneOf") or ()
    ]
    return " | ".join(_line(one) for one in members or [schema])


def _resolve_reference(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(part.get("$ref", "")).rpartition("/")[2]
    found: Mapping[str, Any] = schema.get("$defs", {}).get(name, part)
    return found


def _line(schema: Mapping[str, Any]) -> str:
    required = schema.get("required") or ()
    fields = [
        f"{name}{'' if name in required else '?'}: {_kind(part)}"
        for name, part in (schema.get("properties") or {}).items()
        if name not in COMMON
    ]
    return f"{schema.get('title', 'object')}({', '.join(fields)})"


def _kind(part: Mapping[str, Any]) -> str:
    if "enum" in part or "const" in part:
        return " or ".join(map(repr, part.get("enum") or [part.get("const")]))
    if "$ref" in part:
        return str(part["$ref"]).rpartition("/")[2]
    if members := part.get("anyOf") or part.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_kind, members)))
    kind = part.get("type", "any")
    if kind == "array" and isinstance(part.get("items"), Mapping):
        return f"array of {_kind(part['items'])}"
    return str(kind)
