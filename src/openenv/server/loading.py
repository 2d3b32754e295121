"""Finding the application that a target names.

`openenv._internal.targets` parses targets. These can be served: ``module:attribute``; an
environment package, such as ``echo_env``; an environment's directory, which
`openenv.manifest.directories` imports; a Python file, also as ``file.py:attribute``. The target may
name an ASGI application, or an `Environment` class, which is then served.

A target may also name an environment of another library, such as ``gymnasium:CartPole-v1``: see
`openenv.wrappers.targets`. ``python:module:Class?argument=value`` names a class of one of these
libraries or of OpenEnv, with its arguments.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from openenv._internal.imports import (
    NameNotFound,
    import_attribute,
    import_file,
    import_named,
    look_up,
)
from openenv._internal.packages import MissingPackage
from openenv._internal.targets import LIBRARY_SCHEMES, Target, TargetKind, parse_target
from openenv.environment import Environment
from openenv.errors import OpenEnvError
from openenv.manifest import MANIFEST, read_manifest
from openenv.manifest.directories import EnvironmentDirectory, environment_modules
from openenv.settings import max_concurrent_envs
from openenv.wrappers.classes import AdapterError
from openenv.wrappers.targets import (
    PYTHON,
    LibraryTarget,
    make_environment_class,
    parse_library_target,
)

DEFAULT_APP = "server.app:app"

TARGET_SCHEMES = LIBRARY_SCHEMES
"""The schemes of targets of other libraries."""


class TargetError(OpenEnvError, ValueError):
    """The target cannot be served; the message says what was expected."""


class RunsElsewhere(TargetError):
    """The target names a server, an image or a repository, so there is no code to import here.

    Attributes:
        reason: What the target is.
        hint: How to use it instead.
    """

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(f"{reason}: {hint}")
        self.reason = reason
        self.hint = hint


def load_target(target: str = ".") -> Any:
    """Import the target and return its ASGI application.

    Raises:
        RunsElsewhere: The target names a server, an image or a repository of the Hub.
        TargetError: The target does not exist or cannot be served.
    """
    named = check_runs_here(target)
    if named.kind is TargetKind.LIBRARY:
        return _from_library(_parse_reference(target))
    if named.kind is TargetKind.PATH:
        return _from_path(named)
    if named.kind is TargetKind.ATTRIBUTE:
        return _application(_import(named.name), named.attribute)
    return _from_package(target)


def check_runs_here(text: str) -> Target:
    """Check that a target names code to import, and return the parsed target.

    Raises:
        RunsElsewhere: The target names a server, an image or a repository of the Hub.
    """
    target = parse_target(text, local_files=True)
    if target.kind is TargetKind.SERVER:
        raise RunsElsewhere(
            f"{text} is the address of a server, which runs already",
            f"agents connect to {target.name}/mcp; clients, `openenv rollout`, `eval` and "
            "`validate` take the address as it is",
        )
    if target.kind is TargetKind.IMAGE:
        raise RunsElsewhere(
            f"{text} is an image, and its server runs in a container",
            f"docker run -p 8000:8000 {target.name} serves it at http://127.0.0.1:8000, to agents "
            "at http://127.0.0.1:8000/mcp; `openenv rollout`, `eval`, `validate` and `info` start "
            "it themselves",
        )
    if target.kind is TargetKind.HUB:
        raise RunsElsewhere(
            f"{text!r} is no file, no directory and no installed package",
            f"if it is a repository of the Hub, AutoEnv.from_env({text!r}) makes a client of it",
        )
    return target


def _from_path(target: Target) -> Any:
    path = target.path
    if path.is_dir():
        return _from_directory(path, target.attribute)
    if path.suffix == ".py" and path.exists():
        return _application(import_file(path.stem, path), target.attribute)
    kind = "file" if path.suffix == ".py" else "directory"
    raise TargetError(f"there is no {kind} {target.name}")


def load_recorded(target: str) -> Any:
    """Import the target named in a file, and return an ASGI application that serves an environment.

    The caller must have checked that the code is known, or that the user agreed to run it.

    Raises:
        TargetError: The target does not exist, or is not an environment.
    """
    from openenv.server.workers import managers_of

    if parse_target(target, local_files=True).kind is TargetKind.LIBRARY:
        named = _parse_reference(target)
        if named.scheme == PYTHON and not isinstance(_attribute(named.name), type):
            raise TargetError(
                f"{target!r} is no class; a file may name the class of an environment"
            )
    application = load_target(target)
    if not managers_of(application):
        raise TargetError(f"{target!r} is no environment; a file may name nothing else")
    return application


def _parse_reference(target: str) -> LibraryTarget:
    """Parse a target of another library."""
    try:
        named = parse_library_target(target)
    except AdapterError as error:
        raise TargetError(str(error)) from error
    assert named is not None, "a target of the kind LIBRARY has one of the schemes"
    return named


def _from_library(named: LibraryTarget) -> Any:
    source = _attribute(named.name) if named.scheme == PYTHON else None
    try:
        environment = make_environment_class(named, source)
    except (AdapterError, MissingPackage) as error:
        raise TargetError(str(error)) from error
    return _serve(environment)


def _attribute(name: str) -> Any:
    """Return the object that ``module:attribute`` or ``file.py:attribute`` names."""
    if not name.partition(":")[2]:
        raise TargetError(f"{name!r} says no class; expected {PYTHON}:module:Class")
    try:
        return import_attribute(name, files=True)
    except NameNotFound as error:
        raise TargetError(str(error)) from error


def _from_package(name: str) -> Any:
    parent = name.rpartition(".")[0]
    if parent:
        _import(parent)
    found = importlib.util.find_spec(name)
    if found is None:
        raise TargetError(
            f"{name!r} is no file, no directory and no installed package; expected a path, a "
            "package such as echo_env, or module:attribute"
        )
    if not found.submodule_search_locations:
        return _application(_import(name), "")
    directory = Path(next(iter(found.submodule_search_locations)))
    module, _, attribute = _app(read_manifest(directory)).partition(":")
    if module.split(".")[0] == "server":  # any other module name is absolute
        module = f"{name}.{module}"
    return _application(_import(module), attribute)


def _from_directory(path: Path, attribute: str) -> Any:
    directory = EnvironmentDirectory(path)
    manifest = read_manifest(path)
    module, _, declared = _app(manifest).partition(":")
    own = _own_module(directory, module)
    with _chdir(path):
        if own is not None:
            return _application(directory.load(own), attribute or declared)
        if manifest is not None and "app" in manifest and not module.startswith("server"):
            return _application(_import(module), attribute or declared)
        modules = map(directory.load, environment_modules(directory.path))
        classes = list(dict.fromkeys(cls for one in modules for cls in _own(one)))
    if len(classes) == 1:
        return _serve(classes[0])
    if classes:
        names = ", ".join(cls.__name__ for cls in classes)
        raise TargetError(
            f"{path} has no server/app.py, and several Environment classes: {names}; expected one, "
            "or a server/app.py that says `app = create_app(...)`"
        )
    has = f"no {MANIFEST}" if manifest is None else "no server/app.py and no Environment class"
    raise TargetError(
        f"{path} has {has}; expected an environment's directory (make one with "
        "`openenv init NAME`), a Python file, or module:attribute"
    )


def _own_module(directory: EnvironmentDirectory, module: str) -> str | None:
    """Return the module of a directory's application; None if there is no application.

    The module name in the manifest may begin with the name of the package.
    """
    package, _, rest = module.partition(".")
    candidates = [module, rest] if package == directory.name else [module]
    if module == DEFAULT_APP.partition(":")[0]:
        candidates.append("app")
    return next((one for one in candidates if one and directory.has(one)), None)


@contextlib.contextmanager
def _chdir(path: Path) -> Iterator[None]:
    """Change the directory while importing, since modules may read files beside them."""
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


def _app(manifest: dict[str, Any] | None) -> str:
    return str((manifest or {}).get("app") or DEFAULT_APP)


def _import(name: str) -> ModuleType:
    try:
        return import_named(name)
    except NameNotFound as error:
        raise TargetError(f"{error} to import {name!r} from") from error


def _application(module: ModuleType, attribute: str) -> Any:
    if attribute:
        try:
            found = look_up(module, attribute, module.__name__)
        except NameNotFound as error:
            raise TargetError(f"{error}{error.hint}") from error
    else:
        found = _only_candidate(module)
    if isinstance(found, type) and issubclass(found, Environment):
        return _serve(found)
    if not callable(found):
        raise TargetError(
            f"{module.__name__}:{attribute} is {type(found).__name__}; expected an ASGI "
            "application or an Environment class"
        )
    return found


def _serve(environment: Any) -> Any:
    from openenv.server.app import create_app

    return create_app(environment, max_concurrent_envs=session_limit(environment))


def session_limit(environment: type[Any]) -> int | None:
    """Return the limit that is set for a class's sessions; None is the default of `create_app`.

    A class that allows only one session per process declares that itself.
    """
    is_shared = getattr(environment, "SUPPORTS_CONCURRENT_SESSIONS", False)
    return max_concurrent_envs() if is_shared else None


def _only_candidate(module: ModuleType) -> Any:
    if hasattr(module, "app"):
        return module.app
    own = _own(module)
    if len(own) == 1:
        return own[0]
    names = ", ".join(cls.__name__ for cls in own) or "none"
    raise TargetError(
        f"{module.__name__} has no `app`, and its Environment classes are: {names}; expected "
        f"exactly one, or say which: {module.__name__}:NAME"
    )


def _own(module: ModuleType) -> list[type[Environment[Any, Any, Any]]]:
    """Return the environment classes that are defined in the module itself."""
    return [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Environment)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    ]
