"""Starting the server that a client talks to: a provider's server, or one in this process."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from typing_extensions import TypeIs

from openenv._internal.net.keys import key_headers
from openenv.client.transports.base import Transport
from openenv.errors import ConnectError, ProviderExited, ServerError
from openenv.manifest import ManifestError, image_name, package_name, read_manifest
from openenv.protocol.messages import NON_FINITE_HEADER
from openenv.providers.base import ContainerProvider, Provider
from openenv.settings import api_key


class Launch:
    """A provider's server, started once and stopped once; from any thread.

    Args:
        provider: Starts and stops the server; None if `start` chooses the provider.
        base_url: The server's address, if the provider has already started it.
        start: Starts the server and returns its base URL; by default the provider's method.

    Attributes:
        ready_timeout_s: Seconds to wait for the server to answer; None for the provider's default.
    """

    def __init__(
        self,
        provider: Provider | None,
        base_url: str | None = None,
        start: Callable[[], str] | None = None,
    ) -> None:
        self._provider: Any = provider
        self._base_url = base_url
        self._start = start or _plain_start(cast("Provider", provider), base_url)
        self.ready_timeout_s: float | None = None
        self._turn = threading.Lock()
        self._process = os.getpid()

    @property
    def is_running(self) -> bool:
        """Whether the server has been started and not stopped."""
        return self._base_url is not None

    @property
    def base_url(self) -> str | None:
        """The server's address; None while there is no server."""
        return self._base_url

    async def start(self) -> bool:
        """Make sure that the server runs and answers; return whether this call started it.

        If canceled, it still waits for the server in order to stop it: a thread cannot be canceled.

        Raises:
            ProviderError: The server did not start; nothing is left running.
        """
        if self.is_running:
            return False
        starting = asyncio.ensure_future(asyncio.to_thread(self._start_now))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            if starting.exception() is None and starting.result():
                await asyncio.shield(self.stop())
            raise

    def _start_now(self) -> bool:
        with self._turn:
            started = self._base_url is None
            if started:
                try:
                    url = self._start()
                    limit = () if self.ready_timeout_s is None else (self.ready_timeout_s,)
                    if _runs_images(self._provider):
                        self._provider.wait_for_ready(url, *limit)
                    else:
                        self._provider.wait_for_ready(*limit)
                except BaseException:
                    _stop(self._provider)
                    raise
                self._base_url, self._process = url, os.getpid()
            return started

    def exited(self) -> ProviderExited | None:
        """Return how the server's process has ended; None if it runs or nothing is known."""
        check = getattr(self._provider, "check_running", None)  # may be missing: duck-typed
        try:
            if self.is_running and check is not None:
                check()
        except ProviderExited as exited:
            return exited
        return None

    async def has_another(self) -> bool:
        """Return whether `start` would now start a server other than the lost one."""
        return False

    async def why_gone(self) -> str | None:
        """Return how the server's process has ended, as text. The check runs in a thread, since a
        provider may have to ask a remote service.
        """
        exited = await asyncio.to_thread(self.exited)
        return None if exited is None else str(exited)

    async def explain(self, error: ConnectError) -> None:
        """Raise a clearer error if no server answers because its process has ended."""
        if (exited := await asyncio.to_thread(self.exited)) is not None:
            raise ConnectError(f"{error}: {exited}") from exited

    def locate(self, error: ServerError) -> None:
        """Add the location of the server's log to an error."""
        error.log = getattr(self._provider, "log_path", None)  # may be missing: duck-typed

    async def stop(self) -> None:
        """Stop the server. Safe to repeat; repeating retries a stop that failed."""
        await asyncio.to_thread(self._stop_now)

    def _stop_now(self) -> None:
        with self._turn:
            if self._base_url is not None:
                if self._process == os.getpid():  # in a forked child the server is the parent's
                    _stop(self._provider)
                self._base_url = None


def server_launch(start_server: Callable[[], Any]) -> Launch:
    """Plan to start a server with the `launch` function of a provider that starts many."""

    def start() -> str:
        launch._provider = None
        launch._provider = start_server()
        url: str = launch._provider.url
        return url

    launch = Launch(None, start=start)
    return launch


def choosing_launch(image: str, options: dict[str, Any], package: str | None = None) -> Launch:
    """Plan to run an image with the provider that `openenv.providers.choice` chooses at the start.

    Args:
        image: The image.
        options: Options of the provider's start.
        package: The installed package that can replace the image; by default the one of that name.
    """

    def start() -> str:
        from openenv.providers.choice import provider_for

        launch._provider = provider = provider_for(image, package or image)
        if _runs_images(provider):
            return provider.start_container(image, **options)
        started: str = provider.start(**options)
        return started

    launch = Launch(None, start=start)
    return launch


def _plain_start(provider: Provider, base_url: str | None) -> Callable[[], str]:
    if not _runs_images(provider):
        return provider.start
    needs_image = _required(provider.start_container)
    if base_url is None and needs_image:
        raise ValueError(
            f"{type(provider).__name__} needs an image: use from_docker_image(image, "
            "provider=...), or pass the base_url of a server that it has started"
        )
    return provider.start_container  # type: ignore[return-value]


def _required(function: Callable[..., Any]) -> list[str]:
    return [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]


def _stop(provider: Provider | None) -> None:
    if provider is None:  # no provider was chosen yet
        return
    if not _runs_images(provider):
        provider.stop()
        return
    provider.stop_container()
    if hasattr(provider, "close"):
        provider.close()


def _runs_images(provider: Provider) -> TypeIs[ContainerProvider]:
    """Return whether a provider runs images, judged by its methods."""
    return hasattr(provider, "start_container")


def image_launch(image: str, provider: Provider | None, options: dict[str, Any]) -> Launch:
    """Plan to run `image`; without a provider, `openenv.providers.choice` chooses one."""
    if provider is None:
        return choosing_launch(image, options)
    if not _runs_images(provider):
        raise TypeError(
            f"{type(provider).__name__} runs no images; use with_provider(provider) for what it "
            "was made to run"
        )
    container = provider
    return Launch(container, start=lambda: container.start_container(image, **options))


def provider_launch(provider: Provider, client: type) -> Launch:
    """Plan to start a provider's server. A provider that runs images and has none runs the image of
    the client's package, under the name that `openenv build` uses.
    """
    image = image_of_client(client) if _runs_images(provider) else None
    if image is None or getattr(provider, "image", None) is not None:
        return Launch(provider)
    container: Any = provider
    return Launch(provider, start=lambda: container.start_container(image))


def image_of_client(client: type) -> str | None:
    """Return the image name of the package that a client class is in: ``echo-env:latest``.

    Returns:
        The name; None if the class is in no package, or in openenv itself.
    """
    package = client.__module__.rpartition(".")[0]
    if not package or package.partition(".")[0] == "openenv":
        return None
    name = package.rpartition(".")[2]
    file = getattr(sys.modules.get(package), "__file__", None)
    if file is not None:
        with contextlib.suppress(ManifestError):
            name = package_name(read_manifest(Path(file).parent) or {}) or name
    return image_name(name)


def space_launch(
    repo_id: str, use_docker: bool, provider: Provider | None, options: dict[str, Any]
) -> Launch:
    """Plan to run a Hugging Face Space: its image, or its sources with uv."""
    if use_docker:
        tag = options.pop("tag", "latest")
        image = f"registry.hf.space/{hf_space_subdomain(repo_id)}:{tag}"
        if provider is None:
            return choosing_launch(image, options, repo_id.rsplit("/", 1)[-1])
        return image_launch(image, provider, options)
    start_options = {k: options.pop(k) for k in ("port", "env_vars", "workers") if k in options}
    if provider is not None and options:
        raise ValueError(f"a provider instance was given, so {sorted(options)} cannot be applied")
    if provider is None:
        from openenv.providers.uv import UVProvider

        source = f"git+https://huggingface.co/spaces/{repo_id}"
        provider = UVProvider(project_path=options.pop("project_path", source), **options)
    if _runs_images(provider):
        raise TypeError(f"{type(provider).__name__} runs images; pass use_docker=True")
    runtime = provider
    return Launch(runtime, start=lambda: runtime.start(**start_options))


def hf_space_subdomain(repo_id: str) -> str:
    """Return a Space's subdomain: lower case, with dashes for all but ASCII letters and digits."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in repo_id.lower())


def local_transport(
    environment: Any,
    action_cls: Any,
    observation_cls: Any,
    state_cls: Any,
    subprotocols: Sequence[str] = (),
    key: str | None = None,
) -> Callable[[], Transport]:
    """Return a function that opens transports to an environment or ASGI app in this process."""
    if _is_asgi(environment):
        from openenv.client.transports.asgi import ASGITransport

        headers = key_headers(key or api_key(), {})
        if not subprotocols:
            headers[NON_FINITE_HEADER] = "1"
        return lambda: ASGITransport(environment, headers=headers, subprotocols=subprotocols)
    from openenv.client.transports.memory import MemoryTransport
    from openenv.execution.manager import SessionManager
    from openenv.execution.spec import EnvironmentSpec, class_made_by, models_of

    made = class_made_by(environment)
    declared = models_of(made) if made is not None else (None, None, None)
    spec = EnvironmentSpec.of(
        environment,
        declared[0] or action_cls,
        declared[1] or observation_cls,
        state_cls=declared[2] or state_cls,
    )
    manager, process = SessionManager(spec, debug=True), os.getpid()

    def open_transport() -> Transport:
        nonlocal manager, process
        if process != os.getpid():  # a forked child has neither the sessions nor the threads
            manager, process = SessionManager(spec, debug=True), os.getpid()
        return MemoryTransport(manager, next(iter(subprotocols), None))

    return open_transport


def _is_asgi(candidate: Any) -> bool:
    """Return whether a callable is an ASGI app: it takes scope, receive and send."""
    if isinstance(candidate, type):
        return False
    call = candidate if inspect.isfunction(candidate) else getattr(candidate, "__call__", None)  # noqa: B004
    try:
        return len(_required(call)) == 3 if call is not None else False
    except (TypeError, ValueError):
        return False
