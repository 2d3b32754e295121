"""Clients by the name of their environment."""

from __future__ import annotations

import inspect
import logging
import os
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from openenv.auto import _hub
from openenv.auto._discovery import EnvironmentInfo, get_discovery, info_of_directory
from openenv.auto._sources import (
    IMAGE_PREFIX,
    TargetKind,
    classify_target,
    fetch_served_name,
    image_base_name,
    is_server_of,
    resolve_directory,
)
from openenv.errors import ConnectError
from openenv.hub.names import SpaceReference, parse_space_reference

if TYPE_CHECKING:
    from openenv.client.client import EnvClient
    from openenv.client.launch import Launch
    from openenv.providers.base import Provider

    Client = EnvClient[Any, Any, Any]

__all__ = ["AutoEnv", "ServerUnreachableError", "find_package"]

logger = logging.getLogger(__name__)


class ServerUnreachableError(ConnectError, ValueError):
    """No server answers at the address that was given."""


@dataclass
class _LaunchPlan:
    """Where a client's server is, or how to start one.

    Attributes:
        base_url: Where it is.
        image: The container image to start.
        provider: What starts it.
        ready_timeout_s: Seconds to wait until a started server answers.
        env_vars: Environment variables of a started server.
        options: What else was passed: for the client, or else for starting the server.
    """

    base_url: str | None = None
    image: str | None = None
    provider: Provider | None = None
    ready_timeout_s: float = 30.0
    env_vars: dict[str, str] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def says_where(self) -> bool:
        """Somebody said where the server is, or what starts it."""
        return not (self.base_url is None and self.image is None and self.provider is None)


class AutoEnv:
    """Makes clients by the name of their environment.

    with AutoEnv.from_env("echo") as env: ...                       # an installed environment
    with AutoEnv.from_env("./my_env") as env: ...                   # a directory
    client = AutoEnv.from_env("http://localhost:8000")              # a server
    client = AutoEnv.from_env("docker://my-env:latest")             # a container image
    client = AutoEnv.from_env("openenv/echo-env", skip_install=True)  # a Space of the Hub

    What comes is a client that has started nothing yet, and its class as well:

    EchoEnv = AutoEnv.from_env("echo")
    async with EchoEnv(base_url="http://localhost:8000") as env: ...
    """

    def __init__(self) -> None:
        raise TypeError("AutoEnv is not instantiated; call AutoEnv.from_env(name)")

    @classmethod
    def from_env(
        cls,
        name: str | os.PathLike[str],
        base_url: str | None = None,
        docker_image: str | None = None,
        container_provider: Provider | None = None,
        wait_timeout: float = 30.0,
        env_vars: dict[str, str] | None = None,
        trust_remote_code: bool = False,
        skip_install: bool = False,
        *,
        revision: str | None = None,
        **kwargs: Any,
    ) -> Client:
        """Make a client of an environment. It connects when it is first used.

        A server at `base_url` is used; else `docker_image` or `container_provider` starts one;
        else the Space, for an environment on the Hub that runs there; else the installed package
        is served from a process of its own. What the client starts, it stops when it is closed.

        Args:
            name: An installed environment (``echo``, ``echo-env``, ``echo_env``); a directory
                (``./my_env``); a server (``http://...``, ``ws://...``) or an image
                (``docker://image:tag``), of which the client is that of the installed environment
                of the same name, or else a `GenericEnvClient`; or a repository on the Hub:
                ``owner/name``, ``owner/name@revision``, or its address.
            base_url: Where a server is. If none answers at an address of this machine, the
                installed package is served there.
            docker_image: The container image to run.
            container_provider: What runs the image, or the server that it was made for.
            wait_timeout: Seconds to wait until a started server answers.
            env_vars: Environment variables of a started server.
            trust_remote_code: Install a package from the Hub without asking.
            skip_install: Install nothing, and make a `GenericEnvClient`.
            revision: The branch, tag or commit of a package from the Hub. Without one, what is
                installed is used, or else the newest commit is installed.
            **kwargs: Options of the client (`message_timeout_s`, `headers`, ...), and of what
                starts the server (`port`, `limits`, ...).

        Raises:
            UnknownEnvironmentError: (ValueError) No environment of this name is installed.
            NoEnvironmentError: (ValueError) There is none in this directory.
            InstallRefusedError: (ValueError) Nobody agreed to install code from the Hub.
            HubError: The Hub has no such Space or revision, or cannot be asked.
            ServerUnreachableError: (ValueError, ConnectionError) No server answers there.
            ImportError: The environment's package cannot be imported.
            ProviderError: Nothing here can run the image.
        """
        plan = _LaunchPlan(
            base_url, docker_image, container_provider, wait_timeout, env_vars, kwargs
        )
        source = classify_target(name)
        if source is TargetKind.HUB:
            reference = _reference(os.fspath(name), revision)
            return _from_hub(reference, plan, trust_remote_code, skip_install)
        _refuse_revision(name, revision)
        if source is TargetKind.PATH:
            return _from_directory(resolve_directory(name), plan, skip_install)
        name = os.fspath(name)
        if source is TargetKind.SERVER:
            return _from_server(name, plan, skip_install)
        if source is TargetKind.IMAGE:
            return _from_image(name.removeprefix(IMAGE_PREFIX), plan, skip_install)
        if skip_install:
            return _untyped(name, plan)
        info = get_discovery().require(name)
        return _client(info.get_client_class(), plan, info)

    @classmethod
    def from_hub(cls, name: str, *args: Any, **kwargs: Any) -> Client:
        """The same as `from_env`."""
        return cls.from_env(name, *args, **kwargs)

    @classmethod
    def get_env_class(cls, name: str) -> type[Client]:
        """Find the client class of an installed environment.

        Raises:
            UnknownEnvironmentError: (ValueError) No environment of this name is installed.
            ImportError: Its package cannot be imported, or has no client class.
        """
        return get_discovery().require(name).get_client_class()

    @classmethod
    def get_env_info(cls, name: str) -> dict[str, Any]:
        """Describe an installed environment.

        Raises:
            UnknownEnvironmentError: (ValueError) No environment of this name is installed.
        """
        info = get_discovery().require(name)
        return {
            "env_key": info.env_key,
            "name": info.name,
            "package": info.package_name,
            "version": info.version,
            "description": info.description,
            "env_class": resolved_class_name(info.get_client_class, info.client_class_name),
            "action_class": resolved_class_name(info.get_action_class, info.action_class_name),
            "observation_class": resolved_class_name(
                info.get_observation_class, info.observation_class_name
            ),
            "module": info.client_module_path,
            "default_image": info.default_image,
            "spec_version": info.spec_version,
        }

    @classmethod
    def list_environments(cls) -> None:
        """Print which environments are installed."""
        get_discovery().list_environments()


def find_package(
    name: str | os.PathLike[str], *, revision: str | None = None, trust_remote_code: bool = False
) -> EnvironmentInfo:
    """Find an environment's package; install that of one on the Hub, where it is not there yet.

    Raises:
        UnknownEnvironmentError: (ValueError) No environment of this name is installed.
        NoEnvironmentError: (ValueError) There is none in this directory.
        InstallRefusedError: (ValueError) Nobody agreed to install code from the Hub.
    """
    source = classify_target(name)
    if source is TargetKind.HUB:
        reference = _reference(os.fspath(name), revision)
        return _hub.install(*reference, trust_remote_code=trust_remote_code)
    _refuse_revision(name, revision)
    if source is TargetKind.PATH:
        return info_of_directory(resolve_directory(name))
    name = os.fspath(name)
    return get_discovery().require(name)


def _reference(name: str, revision: str | None) -> SpaceReference:
    found = parse_space_reference(name)
    if revision is None:
        return found
    if found.revision not in (None, revision):
        raise ValueError(f"{name!r} names a revision, and so does revision={revision!r}")
    return found._replace(revision=revision)


def _refuse_revision(name: str | os.PathLike[str], revision: str | None) -> None:
    if revision is not None:
        raise ValueError(
            f"revision={revision!r} is of the Hub, and {os.fspath(name)!r} is not there"
        )


def resolved_class_name(find: Any, expected: str) -> str:
    """The name of the class that `find` finds; the expected one where it cannot be imported."""
    try:
        return str(find().__name__)
    except ImportError:
        return expected


# ------------------------------------------------------------------ servers, images, directories


def _from_server(url: str, plan: _LaunchPlan, skip_install: bool) -> Client:
    from openenv.client.generic import GenericEnvClient

    _refuse_other(url, plan)
    plan.base_url = url
    headers, key, ca_file = _headers(plan), plan.options.get("api_key"), plan.options.get("ca_file")
    served = None
    if not skip_install and _hub.answers(url, headers, ca_file):
        served = fetch_served_name(url, headers, key, ca_file)
    info = None if served is None else _known_as(served)
    return _client(GenericEnvClient if info is None else info.get_client_class(), plan, None)


def _from_image(image: str, plan: _LaunchPlan, skip_install: bool) -> Client:
    from openenv.client.generic import GenericEnvClient

    if plan.base_url is not None or plan.image not in (None, image):
        _refuse_other(f"{IMAGE_PREFIX}{image}", plan)
    plan.image = image
    info = None if skip_install else _known_as(image_base_name(image))
    return _client(GenericEnvClient if info is None else info.get_client_class(), plan, info)


def _from_directory(directory: Path, plan: _LaunchPlan, skip_install: bool) -> Client:
    from openenv.client.generic import GenericEnvClient

    info = info_of_directory(directory, imports=not skip_install)
    return _client(GenericEnvClient if skip_install else info.get_client_class(), plan, info)


def _refuse_other(name: str, plan: _LaunchPlan) -> None:
    if plan.says_where:
        raise ValueError(
            f"{name} says where the environment is already; drop base_url, docker_image and "
            "container_provider, or name the environment instead"
        )


def _known_as(name: str) -> EnvironmentInfo | None:
    """The installed environment that a server, or an image, calls by `name`."""
    known = get_discovery().discover().values()
    return next(
        (info for info in known if info.answers_to(name) or is_server_of(name, info.env_key)),
        None,
    )


# ------------------------------------------------------------------ which client, which server


def _from_hub(
    reference: SpaceReference, plan: _LaunchPlan, trust_remote_code: bool, skip_install: bool
) -> Client:
    from openenv.client.generic import GenericEnvClient

    repo_id = reference.repo_id
    info = None
    if not skip_install:
        info = _hub.install(*reference, trust_remote_code=trust_remote_code)
    if not plan.says_where:
        space = _hub.space_url(repo_id)
        if _hub.answers(space, _headers(plan), plan.options.get("ca_file")):
            plan.base_url = space
        elif skip_install:
            plan.image = _hub.space_image(repo_id)
    if plan.provider is not None and plan.image is None:
        plan.image = _hub.space_image(repo_id)
    return _client(GenericEnvClient if info is None else info.get_client_class(), plan, info)


def _untyped(name: str, plan: _LaunchPlan) -> Client:
    from openenv.client.generic import GenericEnvClient

    if not plan.says_where:
        raise ValueError(
            f"skip_install=True with {name!r}, which is not on the Hub, leaves nothing to start: "
            "pass base_url, docker_image or container_provider, or drop skip_install"
        )
    return _client(GenericEnvClient, plan, None)


def _client(client_class: type[Client], plan: _LaunchPlan, info: EnvironmentInfo | None) -> Client:
    if plan.base_url is not None:
        if _hub.answers(plan.base_url, _headers(plan), plan.options.get("ca_file")):
            return _connected(client_class, plan)
        if not (_hub.is_loopback(plan.base_url) and (info or plan.image or plan.provider)):
            raise ServerUnreachableError(f"no server answers at {plan.base_url}; does it run?")
        logger.warning("no server answers at %s; one is started there", plan.base_url)
        plan.options.setdefault("port", urlsplit(_with_scheme(plan.base_url)).port)
    client_options = _client_options(client_class, plan.options)
    for name in client_options:
        del plan.options[name]
    return client_class._launched(_launch(plan, info), **client_options)


def _connected(client_class: type[Client], plan: _LaunchPlan) -> Client:
    if plan.env_vars:
        logger.warning("env_vars were ignored: the server at %s runs already", plan.base_url)
    return client_class(base_url=plan.base_url, **plan.options)


def _with_scheme(url: str) -> str:
    return url if "://" in url else f"http://{url}"


def _headers(plan: _LaunchPlan) -> Mapping[str, str]:
    return plan.options.get("headers") or {}


def _client_options(client_class: type[Client], options: dict[str, Any]) -> dict[str, Any]:
    """Of all options, those that the client's constructor takes."""
    taken = {*inspect.signature(client_class).parameters} - {"base_url", "provider"}
    return {name: value for name, value in options.items() if name in taken}


# ------------------------------------------------------------------ starting a server


def _launch(plan: _LaunchPlan, info: EnvironmentInfo | None) -> Launch:
    from openenv.client.launch import Launch, image_launch
    from openenv.providers.base import RuntimeProvider

    options = dict(plan.options)
    if plan.env_vars:
        options["env_vars"] = plan.env_vars
    if isinstance(plan.provider, RuntimeProvider):
        runtime = plan.provider
        launch = Launch(runtime, start=lambda: runtime.start(**options))
    elif plan.image is not None or info is None:
        if plan.image is None:
            raise ValueError("which image shall container_provider run? Pass docker_image")
        launch = image_launch(plan.image, plan.provider, options)
    elif plan.provider is not None:
        launch = image_launch(info.default_image, plan.provider, options)
    else:
        launch = _process_launch(info, options)
    launch.ready_timeout_s = plan.ready_timeout_s
    return launch


def _process_launch(info: EnvironmentInfo, options: dict[str, Any]) -> Launch:
    from openenv.client.launch import Launch
    from openenv.providers.process import ProcessProvider

    port = options.pop("port", None)
    found = {} if info.target else _search_path(info)
    env_vars = {**found, **options.pop("env_vars", {})}
    provider = ProcessProvider(info.target or info.module, env_vars=env_vars, **options)
    return Launch(provider, start=lambda: provider.start(port=port))


def _search_path(info: EnvironmentInfo) -> dict[str, str]:
    """Let another process find a package that this one finds by its own `sys.path` only."""
    if info.directory is None:
        return {}
    root = info.directory.parents[info.module.count(".")]
    if root in {Path(sysconfig.get_path(where)).resolve() for where in ("purelib", "platlib")}:
        return {}
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    paths = [str(root), *(os.path.abspath(entry) for entry in inherited)]  # it runs elsewhere
    return {"PYTHONPATH": os.pathsep.join(paths)}
