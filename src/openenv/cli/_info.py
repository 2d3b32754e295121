"""What is known of an environment: what its files say, and what its server tells."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from openenv._internal.net.keys import key_for
from openenv._internal.targets import TargetKind, parse_target
from openenv.auto._discovery import EnvironmentInfo, get_discovery
from openenv.cli._console import CommandError
from openenv.cli._readings import Unreadable, read
from openenv.client.generic import GenericEnvClient
from openenv.errors import ConnectError, OpenEnvError
from openenv.manifest import read_manifest
from openenv.providers.process import ProcessProvider
from openenv.tasks import TaskAPIClient
from openenv.validation.evidence import FetchedPage
from openenv.validation.server_criteria import detect_mode
from openenv.validation.wire import fetch_page

__all__ = ["address_of", "check_answers", "installed", "of_files", "of_server", "outline", "served"]

# What each action and observation has; nobody needs to be told.
COMMON = {"metadata", "done", "reward", "truncated", "type"}


def installed() -> list[dict[str, Any]]:
    """The environments that are installed."""
    return [_of_info(info) for info in get_discovery().discover().values()]


def _of_info(info: EnvironmentInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "package": info.package_name,
        "version": info.version,
        "description": info.description,
        "directory": None if info.directory is None else str(info.directory),
        "image": info.default_image,
    }


def address_of(target: str) -> str | None:
    """The server's address that a target is; None if it is none."""
    parsed = parse_target(target, local_files=True)
    return parsed.name if parsed.kind is TargetKind.SERVER else None


# ------------------------------------------------------------------ its files


def of_files(target: str) -> dict[str, Any]:
    """What a package says of itself; nothing of it is imported. Of another target, its name.

    Raises:
        UnknownEnvironmentError: There is no environment of this name.
        ManifestError: Its manifest cannot be read.
    """
    if Path(target).is_dir():
        directory = Path(target).resolve()
        told: dict[str, Any] = {"name": directory.name, "directory": str(directory)}
    elif Path(target).exists() or ":" in target:
        return {"name": target}
    else:
        discovery = get_discovery()
        info = discovery.require(target)
        told = _of_info(info)
        if info.directory is None:
            return told
        directory = info.directory
    manifest = read_manifest(directory) or {}
    named = {key: manifest.get(key) for key in ("name", "version", "description", "app")}
    told = {**{key: value for key, value in named.items() if value is not None}, **told}
    return {**told, **_of_validation(manifest.get("validation"))}


def _of_validation(told: Any) -> dict[str, Any]:
    """The limits and the tags of a manifest's section `validation`."""
    if not isinstance(told, Mapping):
        return {}
    resources, network, types = (told.get(key) for key in ("resources", "network", "types"))
    limits = dict(resources) if isinstance(resources, Mapping) else {}
    if isinstance(network, Mapping) and network.get("mode"):
        limits["network"] = network["mode"]
    tags = types.get("tags") if isinstance(types, Mapping) else None
    return {"limits": limits, "tags": list(tags or ())}


# ------------------------------------------------------------------ its server


@contextlib.contextmanager
def served(target: str) -> Iterator[str]:
    """Serve a target from a process of its own, for as long as the block runs; gives the address.

    Raises:
        OpenEnvError: It does not start.
    """
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


def of_server(url: str) -> dict[str, Any]:
    """What a server tells of its environment.

    Raises:
        ConnectError: It does not answer, or is none of this kind.
    """
    pages: dict[str, FetchedPage] = {}
    for path in ("/metadata", "/schema", "/health"):
        pages[path] = fetch_page(url, path)
        _check(url, pages[path])  # at once: one that is silent is not asked three times
    metadata, schema = pages["/metadata"].object, pages["/schema"].object
    told = {key: value for key, value in metadata.items() if value is not None}
    told.pop("readme_content", None)
    return {
        **told,
        "health": pages["/health"].object.get("status"),
        "mode": detect_mode(fetch_page(url, "/openapi.json").object.get("paths")),
        "tools": [tool.get("name") for tool in schema.get("tools") or ()],
        "reward": schema.get("reward"),
        "tasks": _tasks(url),
        "sessions": _sessions(url),
        "schema": {key: schema.get(key) for key in ("action", "observation", "state")},
    }


def check_answers(url: str, timeout_s: float) -> None:
    """Ask a server whether it is there.

    Raises:
        CommandError: It is not.
    """
    page = fetch_page(url, "/health", timeout_s=timeout_s)
    if page.failure is not None:
        hint = "is it running? start it: openenv serve"
        raise CommandError(_no_answer(url, page.failure), hint=hint)


def _no_answer(url: str, failure: str) -> str:
    return f"no server answers at {url}: {failure.partition(': ')[2]}"


def _check(url: str, page: FetchedPage) -> None:
    if page.failure is not None:
        raise ConnectError(_no_answer(url, page.failure))
    if page.status in (401, 403):
        raise ConnectError(f"{url} wants a key (status {page.status}): set OPENENV_API_KEY")
    if not page.object:
        raise ConnectError(f"{url} is no server of an environment: {page.path} gave {page.status}")


def _tasks(url: str) -> dict[str, int]:
    """How many tasks each split has; empty where the server has no tasks."""
    with contextlib.suppress(OpenEnvError):
        client = TaskAPIClient(url, timeout_s=10.0)
        return {one["name"]: client.num_tasks(one["name"]) for one in client.list_splits()}
    return {}


def _sessions(url: str) -> dict[str, int] | None:
    """How many sessions there are and may be; None of a server that does not count."""
    try:
        values = read(url, key_for(url)).values
    except Unreadable:
        return None
    return {"open": int(values["openenv_slots_taken"]), "most": int(values["openenv_slots"])}


# ------------------------------------------------------------------ schemas in a line


def outline(schema: Any) -> str:
    """The name of a JSON schema and its fields: ``Move(column: integer, name?: string)``."""
    if not isinstance(schema, Mapping):
        return ""
    members = [_resolved(one, schema) for one in schema.get("anyOf") or schema.get("oneOf") or ()]
    return " | ".join(_line(one) for one in members or [schema])


def _resolved(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
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
