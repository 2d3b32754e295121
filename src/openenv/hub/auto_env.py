"""Clients by environment name."""

from __future__ import annotations

import inspect
import logging
import os
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from openenv._internal.addresses import over_http
from openenv._internal.targets import IMAGE_PREFIX, TargetKind, parse_target
from openenv.errors import ConnectError
from openenv.hub import installing
from openenv.hub.discovery import EnvironmentInfo, get_discovery, info_of_directory
from openenv.hub.names import SpaceReference, parse_space_reference

if TYPE_CHECKING:
    from openenv.client.client import EnvClient
    from openenv.client.launch import Launch
    from openenv.providers.base import Provider

    Client = EnvClient[Any, Any, Any]

__all__ = ["AutoEnv", "ServerUnreachableError", "find_package"]

logger = logging.getLogger(__name__)


class ServerUnreachableError(ConnectError, ValueError):
    """Raised if no server answers at the given address."""


@dataclass
class _LaunchPlan:
    """The address of a client's server, or the way to start one.

    Attributes:
        base_url: Address of the server.
        image: Container image to start.
        provider: Provider that starts the server.
        ready_timeout_s: Seconds to wait until a started server answers.
        env_vars: Environment variables of a started server.
        options: Other options, of the client or of starting the server.
    """

    base_url: str | None = None
    image: str | None = None
    provider: Provider | None = None
    ready_timeout_s: float = 30.0
    env_vars: dict[str, str] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def has_destination(self) -> bool:
        """Return whether the caller gave an address, an image or a provider."""
        return not (self.base_url is None and self.image is None and self.provider is None)

    def is_answered(self, url: str) -> bool:
        """Return whether a server answers at `url`."""
        return installing.answers(url, self.options.get("headers"), self.options.get("ca_file"))


class AutoEnv:
    """Makes clients by environment name.

    with AutoEnv.from_env("echo") as env: ...                       # an installed environment
    with AutoEnv.from_env("./my_env") as env: ...                   # a directory
    client = AutoEnv.from_env("http://localhost:8000")              # a server
    client = AutoEnv.from_env("docker://my-env:latest")             # a container image
    client = AutoEnv.from_env("openenv/echo-env", skip_install=True)  # a Space of the Hub

    The result is a client that has started nothing yet. It works as a class, too:

    EchoEnv = AutoEnv.from_env("echo")
    async with EchoEnv(base_url="http://localhost:8000") as env: ...

    Example:
        >>> from openenv import AutoAction, AutoEnv
        >>> EchoAction = AutoAction.from_env("echo")
        >>> with AutoEnv.from_env("echo") as env:
        ...     result = env.reset()
        ...     env.step(EchoAction(message="hello")).observation.echoed_message
        'hello'
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
        """Make a client of an environment; the client connects on first use.

        The server is the first of: the one at `base_url`; one that `docker_image` or
        `container_provider` starts; a running Space, for an environment on the Hub; a new process
        that serves the installed package. Closing the client stops what the client started.

        Args:
            name: An installed environment (``echo``, ``echo-env``, ``echo_env``); a directory
                (``./my_env``); a server (``http://...``, ``ws://...``) or an image
                (``docker://image:tag``), whose client class comes from the installed environment of
                the same name, or else is `GenericEnvClient`; or a repository on the Hub:
                ``owner/name``, ``owner/name@revision``, or its URL.
            base_url: Address of a server. If none answers at an address of this machine, the
                installed package is served there.
            docker_image: Container image to run.
            container_provider: Provider that runs the image, or that starts the server.
            wait_timeout: Seconds to wait until a started server answers.
            env_vars: Environment variables of a started server.
            trust_remote_code: Install a package from the Hub without asking.
            skip_install: Install nothing, and make a `GenericEnvClient`.
            revision: Branch, tag or commit of a package from the Hub. Without one, an installed
                package is used, or else the newest commit is installed.
            **kwargs: Options of the client (`message_timeout_s`, `headers`, ...), and of starting
                the server (`port`, `limits`, ...).

        Raises:
            UnknownEnvironmentError: (ValueError) No environment of this name is installed.
            NoEnvironmentError: (ValueError) The directory holds no environment.
            InstallRefusedError: (ValueError) The user did not consent to installing code from the
                Hub.
            HubError: The Hub has no such Space or revision, or does not answer.
            ServerUnreachableError: (ValueError, ConnectionError) No server answers at the address.
            ImportError: The environment's package cannot be imported.
            ProviderError: No provider on this machine can run the image.
        """
        plan = _LaunchPlan(
            base_url, docker_image, container_provider, wait_timeout, env_vars, kwargs
        )
        target = parse_target(name)
        if target.kind is TargetKind.HUB:
            reference = _reference(os.fspath(name), revision)
            return _from_hub(reference, plan, trust_remote_code, skip_install)
        _refuse_revision(name, revision)
        if target.kind is TargetKind.PATH:
            return _from_directory(target.path, plan, skip_install)
        name = target.text
        if target.kind is TargetKind.SERVER:
            return _from_server(name, plan, skip_install)
        if target.kind is TargetKind.IMAGE:
            return _from_image(target.name, plan, skip_install)
        if skip_install and not plan.has_destination:
            raise ValueError(
                f"skip_install=True with {name!r}, which is not on the Hub, leaves nothing to "
                "start: pass base_url, docker_image or container_provider, or drop skip_install"
            )
        if skip_install:
            return _client(_class_of(None), plan, None)
        info = get_discovery().require(name)
        return _client(info.get_client_class(), plan, info)

    @classmethod
    def from_hub(cls, name: str, *args: Any, **kwargs: Any) -> Client:
        """Call `from_env`; kept for compatibility."""
        return cls.from_env(name, *args, **kwargs)

    @classmethod
    def get_env_class(cls, name: str) -> type[Client]:
        """Find the client class of an installed environment.

        Raises:
            UnknownEnvironmentError: (ValueError) No environment of this name is installed.
            ImportError: The package cannot be imported, or defines no client class.
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
        """Print the installed environments."""
        get_discovery().list_environments()


def find_package(
    name: str | os.PathLike[str], *, revision: str | None = None, trust_remote_code: bool = False
) -> EnvironmentInfo:
    """Return an environment's package; install a missing package from the Hub.

    Raises:
        UnknownEnvironmentError: (ValueError) No environment of this name is installed.
        NoEnvironmentError: (ValueError) The directory holds no environment.
        InstallRefusedError: (ValueError) The user did not consent to installing code from the Hub.
    """
    target = parse_target(name)
    if target.kind is TargetKind.HUB:
        reference = _reference(os.fspath(name), revision)
        return installing.install(*reference, trust_remote_code=trust_remote_code)
    _refuse_revision(name, revision)
    if target.kind is TargetKind.PATH:
        return info_of_directory(target.path)
    return get_discovery().require(target.text)


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
            f"revision={revision!r} is for the Hub, and {os.fspath(name)!r} is not on the Hub"
        )


def resolved_class_name(find: Any, expected: str) -> str:
    """Return the name of the class that `find` returns, or `expected` if the import fails."""
    try:
        return str(find().__name__)
    except ImportError:
        return expected


# ------------------------------------------------------------------ servers, images, directories


def _from_server(url: str, plan: _LaunchPlan, skip_install: bool) -> Client:
    _refuse_other(url, plan)
    plan.base_url, info = url, None
    if not skip_install and plan.is_answered(url):
        headers = plan.options.get("headers") or {}
        served = installing.fetch_served_name(
            url, headers, plan.options.get("api_key"), plan.options.get("ca_file")
        )
        info = None if served is None else _known_as(served)
    return _client(_class_of(info), plan, None)


def _from_image(image: str, plan: _LaunchPlan, skip_install: bool) -> Client:
    if plan.base_url is not None or plan.image not in (None, image):
        _refuse_other(f"{IMAGE_PREFIX}{image}", plan)
    plan.image = image
    info = None if skip_install else _known_as(installing.image_base_name(image))
    return _client(_class_of(info), plan, info)


def _from_directory(directory: Path, plan: _LaunchPlan, skip_install: bool) -> Client:
    info = info_of_directory(directory, imports=not skip_install)
    return _client(_class_of(None if skip_install else info), plan, info)


def _refuse_other(name: str, plan: _LaunchPlan) -> None:
    if plan.has_destination:
        raise ValueError(
            f"{name} says where the environment is already; drop base_url, docker_image and "
            "container_provider, or name the environment instead"
        )


def _known_as(name: str) -> EnvironmentInfo | None:
    """Return the installed environment that a server's or image's name refers to, or None."""
    known = get_discovery().discover().values()
    return next(
        (
            info
            for info in known
            if info.answers_to(name) or installing.is_server_of(name, info.env_key)
        ),
        None,
    )


# ------------------------------------------------------------------ clients and launches


def _class_of(info: EnvironmentInfo | None) -> type[Client]:
    if info is not None:
        return info.get_client_class()
    from openenv.client.generic import GenericEnvClient

    return GenericEnvClient


def _from_hub(
    reference: SpaceReference, plan: _LaunchPlan, trust_remote_code: bool, skip_install: bool
) -> Client:
    repo_id = reference.repo_id
    info = None
    if not skip_install:
        info = installing.install(*reference, trust_remote_code=trust_remote_code)
    if not plan.has_destination:
        space = installing.space_url(repo_id)
        if plan.is_answered(space):
            plan.base_url = space
        elif skip_install:
            plan.image = installing.space_image(repo_id)
    if plan.provider is not None and plan.image is None:
        plan.image = installing.space_image(repo_id)
    return _client(_class_of(info), plan, info)


def _client(client_class: type[Client], plan: _LaunchPlan, info: EnvironmentInfo | None) -> Client:
    if plan.base_url is not None:
        if plan.is_answered(plan.base_url):
            if plan.env_vars:
                logger.warning(
                    "env_vars were ignored: the server at %s runs already", plan.base_url
                )
            return client_class(base_url=plan.base_url, **plan.options)
        if not (installing.is_loopback(plan.base_url) and (info or plan.image or plan.provider)):
            raise ServerUnreachableError(f"no server answers at {plan.base_url}; does it run?")
        logger.warning("no server answers at %s; one is started there", plan.base_url)
        plan.options.setdefault("port", urlsplit(over_http(plan.base_url)).port)
    client_options = _client_options(client_class, plan.options)
    for name in client_options:
        del plan.options[name]
    return client_class._launched(_launch(plan, info), **client_options)


def _client_options(client_class: type[Client], options: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(client_class).parameters
    taken = {*parameters}
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):  # they go to `EnvClient`
        from openenv.client.client import EnvClient

        taken |= {*inspect.signature(EnvClient).parameters}
    taken -= {"base_url", "provider"}
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
            raise ValueError("container_provider needs an image: pass docker_image")
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
    """Return a PYTHONPATH with which another process finds the package."""
    if info.directory is None:
        return {}
    root = info.directory.parents[info.module.count(".")]
    if root in {Path(sysconfig.get_path(where)).resolve() for where in ("purelib", "platlib")}:
        return {}
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    paths = [str(root), *(os.path.abspath(entry) for entry in inherited)]  # for another directory
    return {"PYTHONPATH": os.pathsep.join(paths)}
