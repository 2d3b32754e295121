"""Parsers of single-task packages: Harbor's ``task.toml``, and ``task.md`` with front matter.

Neither format declares a reward. Unless the section ``validation`` (``[metadata.validation]`` in
``task.toml``) declares one, the reward is from 0 to 1, and doing nothing must stay at least half of
the range below the highest reward. Verifiers of these formats write 1, 0 or a share of passed
tests.

Source: https://www.harborframework.com/docs/tasks
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from openenv._internal.toml import parse_toml
from openenv._internal.yaml import read_yaml
from openenv.validation.manifest import AnyManifest, DeclarationError
from openenv.validation.parsers.openenv_yaml import normalize_manifest
from openenv.validation.signature import UnsupportedPackageError, read_front_matter
from openenv.validation.types import SignatureKind

__all__ = ["HarborParser", "PostTrainParser"]

SOLUTION, VERIFIER = "solution/solve.sh", "tests/test.sh"
FLOOR_MARGIN = 0.5
_UNITS = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt])(?:i?b)?\s*", re.IGNORECASE)
_CREDENTIAL = re.compile(r"(API_?KEY|TOKEN|SECRET)$", re.IGNORECASE)


class HarborParser:
    """The parser of ``task.toml``."""

    signature = SignatureKind.HARBOR_TASK

    def parse(self, package_root: Path) -> AnyManifest:
        """Read a task's declarations; see `Parser.parse`."""
        file = package_root / self.signature.value
        try:
            content = parse_toml(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DeclarationError([f"{file.name} cannot be read: {error}"]) from error
        section = _table(_table(content, "metadata"), "validation")
        return _task(package_root, content, section, self.signature)


class PostTrainParser:
    """The parser of the front matter of ``task.md``."""

    signature = SignatureKind.POSTTRAIN_TASK

    def parse(self, package_root: Path) -> AnyManifest:
        """Read a task's declarations; see `Parser.parse`."""
        file = package_root / self.signature.value
        what = f"the front matter of {file.name}"
        try:
            content, _ = read_yaml(read_front_matter(file) or "")
        except (OSError, ValueError) as error:
            raise DeclarationError([f"{what}: {error}"]) from error
        if not isinstance(content, Mapping):
            raise DeclarationError([f"{what} holds no mapping"])
        return _task(package_root, content, _table(content, "validation"), self.signature)


def _task(
    root: Path, content: Mapping[str, Any], section: Mapping[str, Any], signature: SignatureKind
) -> AnyManifest:
    _refuse(content)
    task, metadata = _table(content, "task"), _table(content, "metadata")
    version = content.get("task_version", metadata.get("version", task.get("version")))
    name = task.get("name") or content.get("name") or metadata.get("name") or root.resolve().name
    about = {"name": str(name), "version": None if version is None else str(version)}
    capabilities: dict[str, Any] = {"verifier": {"kind": "script", "entry": VERIFIER}}
    if (root / SOLUTION).is_file():
        capabilities["oracle"] = {"form": "script", "location": SOLUTION}
    declared = {
        "reward": {"floor_margin": FLOOR_MARGIN},
        "resources": dict(_resources(content)),
        "network": _network(_table(content, "environment")),
        "capabilities": capabilities,
        "types": {"tags": _tags(content, metadata)},
    }
    for name, value in section.items():
        own = declared.get(name)
        both = isinstance(own, dict) and isinstance(value, Mapping)
        declared[name] = {**own, **value} if both and own else value
    return normalize_manifest(about, declared, signature)


def _resources(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the task's resource fields. Missing fields are reported later."""
    environment, agent = _table(content, "environment"), _table(content, "agent")
    if "cpus" in environment:
        yield "cpu", environment["cpus"]
    for own, current, older in (
        ("memory_mb", "memory_mb", "memory"),
        ("disk_mb", "storage_mb", "storage"),
    ):
        if current in environment:
            yield own, environment[current]
        elif older in environment:
            yield own, _megabytes(environment[older], f"environment.{older}")
    if "timeout_sec" in agent:
        yield "episode_timeout_s", agent["timeout_sec"]
    for name in ("gpus", "gpu_types"):
        if environment.get(name) is not None:
            yield name, environment[name]


def _megabytes(value: Any, path: str) -> int:
    found = _SIZE.fullmatch(str(value))
    if found is None:
        raise DeclarationError([f"{path}: {value!r} is not a size; expected a size such as 2G"])
    return int(float(found[1]) * _UNITS[found[2].lower()])


def _network(environment: Mapping[str, Any]) -> dict[str, Any]:
    hosts = environment.get("allowed_hosts")
    told = environment.get("network_mode")
    if told is None and "allow_internet" in environment:
        told = "public" if environment["allow_internet"] else "no-network"
    mode = told or ("allowlist" if hosts else "public")
    return {"mode": mode, **({"allowed_hosts": hosts} if hosts else {})}


def _tags(content: Mapping[str, Any], metadata: Mapping[str, Any]) -> list[str]:
    told = metadata.get("tags") or content.get("tags") or []
    tags = [str(tag) for tag in told] if isinstance(told, list) else [str(told)]
    category = metadata.get("category") or content.get("category")
    return tags or [str(category or "task")]


def _refuse(content: Mapping[str, Any]) -> None:
    verifier = _table(content, "verifier")
    keys = [name for name in _table(verifier, "env") if _CREDENTIAL.search(str(name))]
    if keys:
        raise UnsupportedPackageError(
            "hosted-verifier", f"verifier.env asks for {keys[0]}, the key of a service elsewhere"
        )
    agents = content.get("agents")
    if isinstance(agents, list) and len(agents) > 1:
        raise UnsupportedPackageError("multi-agent", f"it lists {len(agents)} agents")
    if content.get("user_simulator") or content.get("simulated_user"):
        raise UnsupportedPackageError("simulated-user", "it declares somebody who plays the user")


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name, {})
    if not isinstance(found, Mapping):
        raise DeclarationError([f"{name}: is {type(found).__name__}; expected a table"])
    return found
