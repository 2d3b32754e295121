"""Discovery of installed environments and of their classes.

An environment is a package that a distribution declares as an entry point of the group
``openenv.environments``; an importable package of a distribution named ``openenv-*``; or a package
with an ``openenv.yaml`` (which covers checkouts on ``sys.path``, and distributions with other
names). Discovery imports nothing; the client module is imported when a class is requested. Results
stay in memory until a directory on ``sys.path`` or a manifest changes.

The name of an entry point is the environment's name, the value is the package or the client class:

    [project.entry-points."openenv.environments"]
    parrot = "my_birds.parrot"
    heron = "my_birds.herons:HeronClient"
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import logging
import os
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import Distribution
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from openenv._internal.quoting import closest, printable
from openenv.errors import OpenEnvError
from openenv.manifest import MANIFEST, ManifestError, image_name, read_manifest
from openenv.manifest.directories import EnvironmentDirectory, is_environment

logger = logging.getLogger(__name__)

GROUP = "openenv.environments"
PREFIX = "openenv-"
NOT_ENVIRONMENTS = frozenset({"openenv-core"})
MANIFESTS_ON_PATH = (f"*/{MANIFEST}", f"envs/*/{MANIFEST}")


class UnknownEnvironmentError(OpenEnvError, ValueError):
    """Raised if no installed environment has the given name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = sorted(known)
        super().__init__(f"there is no environment {name!r}. {self._advice()}")

    def _advice(self) -> str:
        if ":" in self.name:
            return "The address of a server begins with http://, a container image with docker://"
        if not self.known:
            return (
                "No environment is installed: pip install openenv-NAME-env, or name one on the "
                "Hugging Face Hub, as owner/name."
            )
        close = closest(_key(self.name), self.known)
        hint = f"Did you mean {close!r}? " if close else ""
        return f"{hint}Installed are: {', '.join(self.known)}"


class NoEnvironmentError(OpenEnvError, ValueError):
    """Raised if a directory holds no environment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        why = f"has no {MANIFEST}" if directory.is_dir() else "is not a directory"
        beside = directory.parent.glob(f"*/{MANIFEST}") if directory.parent.is_dir() else ()
        close = closest(directory.name, (path.parent.name for path in beside))
        hint = f" Did you mean {directory.with_name(close)}?" if close else ""
        super().__init__(f"{directory} {why}, so there is no environment.{hint}")


@dataclass(frozen=True)
class EnvironmentInfo:
    """An installed environment.

    Attributes:
        env_key: The name without ``_env``, such as ``echo``.
        name: The full name, such as ``echo_env``.
        package_name: Name of the distribution; without a distribution, of the module.
        version: The distribution's version, or else the manifest's.
        description: One-line description.
        client_module_path: The module that defines the client.
        client_class_name: Expected name of the client class, derived without an import.
        action_class_name: Expected name of the action model.
        observation_class_name: Expected name of the observation model.
        default_image: Name of the environment's container image.
        spec_version: Version of the manifest's format; None if not given.
        manifest: Content of the manifest; None if there is none.
        directory: The package's directory.
        target: Target for `openenv serve`, if it differs from the import name.
    """

    env_key: str
    name: str
    package_name: str
    version: str
    description: str
    client_module_path: str
    client_class_name: str
    action_class_name: str
    observation_class_name: str
    default_image: str
    spec_version: int | None = None
    manifest: dict[str, Any] | None = None
    directory: Path | None = None
    target: str | None = None

    @property
    def module(self) -> str:
        """Return the package's import name."""
        return self.client_module_path.rpartition(".")[0] or self.client_module_path

    def answers_to(self, name: str) -> bool:
        """Return whether `name` is a name of this environment."""
        return _key(name) in {self.env_key, _key(self.module), _key(self.package_name)}

    def get_client_class(self) -> type[Any]:
        """Import the client class.

        Raises:
            ImportError: The package cannot be imported, or defines no client class.
        """
        from openenv.client.client import EnvClient

        found = _find_class(self, self.client_class_name)
        has_client = self.directory and EnvironmentDirectory(self.directory).has("client")
        if found is None and self.target is not None and not has_client:
            from openenv.client.generic import GenericEnvClient

            return GenericEnvClient
        if found is None:
            classes = (cls for cls in _classes(next(_modules(self))) if issubclass(cls, EnvClient))
            own = [cls for cls in classes if _is_own(self, cls)]
            found = own[0] if len(own) == 1 else None
        if found is None:
            raise ImportError(_describe_missing(self, "client class", self.client_class_name))
        return found

    def get_action_class(self) -> type[Any]:
        """Import the action model.

        Raises:
            ImportError: The package cannot be imported, or defines no action model.
        """
        return _find_model(self, self.action_class_name, "action")

    def get_observation_class(self) -> type[Any]:
        """Import the observation model.

        Raises:
            ImportError: The package cannot be imported, or defines no observation model.
        """
        return _find_model(self, self.observation_class_name, "observation")


# ------------------------------------------------------------------ finding classes


def _find_model(info: EnvironmentInfo, name: str, role: str) -> type[Any]:
    found = (
        _find_class(info, name)
        or _find_own_model(info, role)
        or _typed_model(info.get_client_class(), role)
    )
    if found is None:
        raise ImportError(_describe_missing(info, f"{role} class", name))
    return found


def _find_own_model(info: EnvironmentInfo, role: str) -> type[Any] | None:
    """Return the only model of this kind that the package defines, under any name."""
    from openenv.types import Action, Observation

    base = Action if role == "action" else Observation
    own = {
        cls
        for module in _modules(info)
        for cls in _classes(module)
        if issubclass(cls, base) and _is_own(info, cls)
    }
    return own.pop() if len(own) == 1 else None


def _find_class(info: EnvironmentInfo, name: str) -> type[Any] | None:
    """Find a class by name, or else by name regardless of case and underscores."""
    modules = list(_modules(info))
    for module in modules:
        found = getattr(module, name, None)
        if isinstance(found, type):
            return found
    for module in modules:
        for cls in _classes(module):
            if _letters(cls.__name__) == _letters(name):
                return cls
    return None


def _is_own(info: EnvironmentInfo, cls: type[Any]) -> bool:
    if info.target is None:
        return cls.__module__.startswith(info.module)
    return any(cls.__module__ == module.__name__ for module in _modules(info))


def _modules(info: EnvironmentInfo) -> Iterator[ModuleType]:
    if info.target is not None:
        yield from _modules_in(EnvironmentDirectory(Path(info.target)))
        return
    yield _import(info.client_module_path)
    yield _import(info.module)
    if importlib.util.find_spec(f"{info.module}.models") is not None:
        yield _import(f"{info.module}.models")


def _modules_in(directory: EnvironmentDirectory) -> Iterator[ModuleType]:
    for name in ("client", "models"):
        if directory.has(name):
            module = directory.load(name, stays_in_front=False)
            yield module
            if module.__package__:
                yield sys.modules[module.__package__]


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            raise ImportError(f"{name} cannot be imported: {error}; is it installed?") from error
        raise


def _classes(module: ModuleType) -> list[type[Any]]:
    return [value for value in vars(module).values() if inspect.isclass(value)]


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def _typed_model(client_class: type[Any], role: str) -> type[Any] | None:
    """Return the model in a client class's type arguments; of several actions, the first.

    For an MCP client without a model, return the models for calling tools.
    """
    from typing import get_args

    from openenv.client import codec
    from openenv.client.mcp import MCPClientBase
    from openenv.tools.types import CallToolAction, CallToolObservation

    action, observation, _ = codec.models(client_class)
    chosen = action if role == "action" else observation
    if chosen is None and issubclass(client_class, MCPClientBase):
        return CallToolAction if role == "action" else CallToolObservation
    members = get_args(chosen) or (chosen,)
    return members[0] if isinstance(members[0], type) else None


def _describe_missing(info: EnvironmentInfo, what: str, name: str) -> str:
    seen = sorted({cls.__name__ for module in _modules(info) for cls in _classes(module)})
    return (
        f"{info.package_name} has no {what} {name} in {info.client_module_path}, {info.module} or "
        f"{info.module}.models; say in its {MANIFEST} what it is called. Classes there: "
        f"{', '.join(seen) or 'none'}"
    )


# ------------------------------------------------------------------ finding environments


class EnvironmentDiscovery:
    """A cache of the installed environments, valid until something is installed or removed."""

    def __init__(self) -> None:
        self._found: dict[str, EnvironmentInfo] | None = None
        self._found_on: object = None

    def discover(self, use_cache: bool = True) -> dict[str, EnvironmentInfo]:
        """Return all environments by key."""
        if self._found is None or self._found_on != _fingerprint(self._found) or not use_cache:
            self._found = _find_environments()
            self._found_on = _fingerprint(self._found)
        return dict(self._found)

    def get_environment(self, env_key: str) -> EnvironmentInfo | None:
        """Return the environment with this key, such as ``echo``, or None."""
        return self.discover().get(env_key)

    def get_environment_by_name(self, name: str) -> EnvironmentInfo | None:
        """Return the environment with this name (``echo``, ``echo-env``, ``echo_env``), or None."""
        known = self.discover()
        if _key(name) in known:
            return known[_key(name)]
        answering = (info for info in known.values() if info.answers_to(name))
        return next(answering, None) or _from_module(f"{_key(name)}_env")

    def require(self, name: str) -> EnvironmentInfo:
        """Return the environment with this name.

        Raises:
            UnknownEnvironmentError: No environment has the name.
        """
        info = self.get_environment_by_name(name)
        if info is None:
            raise UnknownEnvironmentError(name, self.discover())
        return info

    def list_environments(self) -> None:
        """Print the installed environments."""
        rows = [
            (info.env_key, f"{info.description} (v{info.version})", info.package_name)
            for info in self.discover().values()
        ]
        print_table("Available OpenEnv Environments:", rows, "environments")

    def clear_cache(self) -> None:
        """Discard the cached result."""
        self._found = None


_discovery = EnvironmentDiscovery()


def get_discovery() -> EnvironmentDiscovery:
    """Return the process-wide discovery."""
    return _discovery


def reset_discovery() -> None:
    """Replace the process-wide discovery with an empty cache."""
    global _discovery
    _discovery = EnvironmentDiscovery()


def print_table(title: str, rows: Iterable[tuple[str, str, str]], what: str) -> None:
    """Print a listing with key, text and package per row."""
    rows = sorted(rows)
    rule = "-" * 70
    lines = [title, rule]
    for key, text, package in rows:
        lines += [f"  {key:<15}: {text}", f"{'':<17}  Package: {package}"]
    lines += [rule, f"Total: {len(rows)} {what}"]
    sys.stdout.write(printable("\n".join(lines)) + "\n")


def _fingerprint(found: Mapping[str, EnvironmentInfo]) -> object:
    """Return a value that changes when an environment is installed, upgraded, removed or
    redescribed.
    """
    manifests = [str(info.directory / MANIFEST) for info in found.values() if info.directory]
    folders = [os.path.join(entry, "envs") for entry in sys.path]
    return sys.prefix, tuple((path, _modified(path)) for path in (*sys.path, *folders, *manifests))


def _modified(entry: str) -> int:
    try:
        return os.stat(entry or ".").st_mtime_ns
    except OSError:
        return 0


def _find_environments() -> dict[str, EnvironmentInfo]:
    found = {info.env_key: info for info in _from_entry_points()}
    known = {info.directory for info in found.values() if info.directory is not None}
    for info in chain(_from_distributions(known), _from_manifests(known)):
        if found.setdefault(info.env_key, info) is info and info.directory is not None:
            known.add(info.directory)
    return dict(sorted(found.items()))


def _from_entry_points() -> Iterator[EnvironmentInfo]:
    for point in importlib.metadata.entry_points(group=GROUP):
        module, client = point.module, point.attr
        package = module
        if client:  # one module of a package, which has the models and the server
            package = module.rpartition(".")[0] or module
        info = _info(package, _directory(package), **_describe_distribution(point.dist))
        key = _key(point.name)
        info = replace(info, env_key=key, name=f"{key}_env")
        if client:
            info = replace(info, client_module_path=module, client_class_name=client)
        yield info


def _describe_distribution(distribution: Distribution | None) -> dict[str, str]:
    if distribution is None:
        return {}
    return {
        "package_name": _metadata_field(distribution, "Name"),
        "version": distribution.version,
        "description": _metadata_field(distribution, "Summary"),
    }


def _from_distributions(known: Container[Path]) -> Iterator[EnvironmentInfo]:
    for distribution in importlib.metadata.distributions():
        name = _canonical(_metadata_field(distribution, "Name"))
        if name.startswith(PREFIX) and name not in NOT_ENVIRONMENTS:
            info = info_of_distribution(distribution, known)
            if info is not None:
                yield info


def info_of_distribution(
    distribution: Distribution, known: Container[Path] = ()
) -> EnvironmentInfo | None:
    """Describe a distribution's environment; return None if there is no new environment."""
    module = _module_of(distribution)
    directory = _directory(module)
    if directory is not None and (directory in known or not _looks_like_an_environment(directory)):
        return None
    return _info(module, directory, **_describe_distribution(distribution))


def _metadata_field(distribution: Distribution, field: str) -> str:
    """Return a field of a distribution's metadata; empty if missing."""
    values = distribution.metadata.get_all(field) or [""]
    return str(values[0])


def _module_of(distribution: Distribution) -> str:
    stem = _canonical(_metadata_field(distribution, "Name")).removeprefix(PREFIX).replace("-", "_")
    installed = {file.parts[0] for file in distribution.files or () if len(file.parts) > 1}
    for candidate in (stem, f"{stem}_env", *sorted(name for name in installed if "." not in name)):
        directory = _directory(candidate)
        if directory is not None and _looks_like_an_environment(directory):
            return candidate
    return stem


def _from_manifests(known: Container[Path]) -> Iterator[EnvironmentInfo]:
    roots = [Path(entry or ".") for entry in sys.path]
    for pattern in MANIFESTS_ON_PATH:
        for root in filter(Path.is_dir, roots):
            for manifest in sorted(root.glob(pattern)):
                directory = manifest.parent.resolve()
                module = ".".join(manifest.parent.relative_to(root).parts)
                is_package = any((directory / n).is_file() for n in ("__init__.py", "client.py"))
                if directory not in known and is_package and _directory(module) == directory:
                    yield _info(module, directory)


def _from_module(module: str) -> EnvironmentInfo | None:
    """Describe an importable package that has neither distribution nor manifest."""
    directory = _directory(module)
    found = directory is not None and _looks_like_an_environment(directory)
    return _info(module, directory) if found else None


def info_of_directory(path: Path, *, imports: bool = True) -> EnvironmentInfo:
    """Describe the environment in a directory.

    Args:
        path: A directory that `openenv serve` can serve, usually with an ``openenv.yaml``.
        imports: Import the client module, so that the classes can be found.

    Raises:
        NoEnvironmentError: The directory holds no environment.
        ImportError: Another module of the same name is imported already.
    """
    if not is_environment(path):
        raise NoEnvironmentError(path)
    directory = EnvironmentDirectory(path)
    info = replace(_info(directory.name, path), target=str(path))
    if imports:
        for _ in _modules(info):
            pass
    return info


def _looks_like_an_environment(directory: Path) -> bool:
    return (directory / MANIFEST).is_file() or (directory / "client.py").is_file()


def _directory(module: str) -> Path | None:
    """Return a package's directory without importing the package (a parent is imported)."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(locations[0]).resolve() if locations else None


def _info(
    module: str,
    directory: Path | None,
    *,
    package_name: str | None = None,
    version: str | None = None,
    description: str = "",
) -> EnvironmentInfo:
    manifest = _read_manifest(directory)
    own_name = module.rpartition(".")[2]
    key = _key(str((manifest or {}).get("name") or own_name))
    stated: Mapping[str, Any] = manifest or {}
    spec_version = stated.get("spec_version")
    return EnvironmentInfo(
        env_key=key,
        name=f"{key}_env",
        package_name=package_name or own_name,
        version=version or str(stated.get("version") or "0.0.0"),
        description=str(stated.get("description") or description or f"{key}_env environment"),
        client_module_path=f"{module}.client",
        client_class_name=str(stated.get("client") or f"{_pascal(key)}Env"),
        action_class_name=str(stated.get("action") or f"{_pascal(key)}Action"),
        observation_class_name=str(stated.get("observation") or f"{_pascal(key)}Observation"),
        default_image=image_name(key),
        spec_version=spec_version if isinstance(spec_version, int) else None,
        manifest=manifest,
        directory=directory,
    )


def _read_manifest(directory: Path | None) -> dict[str, Any] | None:
    try:
        return read_manifest(directory) if directory is not None else None
    except ManifestError as error:
        logger.warning("%s", error)
        return None


def _key(name: str) -> str:
    """Convert a name to a key: ``Echo-Env`` and ``openenv-echo`` become ``echo``."""
    return _canonical(name).removeprefix(PREFIX).removesuffix("-env").replace("-", "_")


def _canonical(name: str) -> str:
    """Normalize a distribution's name as PyPI does."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _pascal(key: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in key.split("_"))
