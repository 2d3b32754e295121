"""Servers in Modal sandboxes: https://modal.com/docs/guide/sandbox"""

from __future__ import annotations

import contextlib
import inspect
import math
import shlex
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from openenv._internal.packages import needs
from openenv._internal.redaction import redact
from openenv.errors import ProviderError
from openenv.providers._dockerfiles import DockerfileProvider, registered
from openenv.providers._hosted import (
    HOSTED,
    PORT,
    HostedSandbox,
    SandboxGone,
    clean_up,
    https_only,
    no_adapter,
    only,
    service_error,
    unique_name,
)
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey
from openenv.providers.options import check_positive_or_none
from openenv.providers.servers import Executed

__all__ = ["ModalProvider"]

TUNNEL_S = 60
WRITE_S = 60.0
MAIN_COMMAND = ("sleep", "infinity")  # the server is started next to it
OWN = {"app", "env", "environment_name", "image", "encrypted_ports"}  # arguments we set ourselves


def sdk() -> Any:
    """Import Modal's SDK, or raise MissingPackage."""
    with needs("ModalProvider", "pip install 'openenv[modal]'"):
        import modal  # pyright: ignore[reportMissingImports]
        import modal.exception  # pyright: ignore[reportMissingImports]
    return modal


class ModalProvider(DockerfileProvider):
    """Serves environments from sandboxes of Modal.

        provider = ModalProvider(image="ghcr.io/me/echo-env:latest", timeout=3600)
        async with EchoEnv(provider=provider) as env: ...

    An image is an image of a registry, or a name that `image_from_dockerfile` returns. The first of
    these commands starts the server: `cmd` of `launch`, `cmd` of the provider, the ``app`` of the
    ``openenv.yaml`` in the sandbox (the file in ``/app/env``, or else the one nearest to ``/app``),
    and the Dockerfile's ``CMD``.

    Args:
        image: The default image of `launch`.
        env_vars: Environment variables of every server, passed as a Modal secret.
        app_name: The app of the sandboxes, created if missing.
        use_sandbox_v2: Use the second generation of Modal sandboxes, which is experimental.
        timeout: Maximum lifetime of a sandbox in seconds.
        cmd: The shell command that starts the server.
        cpu: Minimum number of processors of a sandbox.
        memory: Minimum memory of a sandbox in MiB.
        surface_server_logs: Include the server's last lines of output in errors, without secrets.
            `Server.logs` returns them in any case.
        server_key: Key that each server requires. By default each server gets a fresh key, passed
            in a file, which clients in this process find automatically. None: no key. Servers of
            the public package check no keys.

    `launch` takes `cmd` and the arguments of ``modal.Sandbox.create``, such as ``region``, ``gpu``,
    ``volumes`` and ``secrets``.

    Raises:
        MissingPackage: Modal's SDK is not installed.
        ValueError: An argument is invalid.
    """

    capabilities: ClassVar[Capabilities] = replace(HOSTED, limits=("cpu", "memory"))

    def __init__(
        self,
        *,
        image: str | None = None,
        env_vars: dict[str, str] | None = None,
        app_name: str = "openenv",
        use_sandbox_v2: bool = False,
        timeout: int = 300,
        cmd: str | None = None,
        cpu: float | None = None,
        memory: int | None = None,
        surface_server_logs: bool = False,
        server_key: str | FreshKey | None = FRESH_KEY,
        _adapter: Any = None,
    ) -> None:
        super().__init__(image, env_vars, cmd, server_key, surface_server_logs)
        no_adapter(_adapter)
        check_positive_or_none(timeout=timeout, cpu=cpu, memory=memory)
        self._app_name = app_name
        self._uses_v2 = use_sandbox_v2
        self._timeout, self._cpu, self._memory = timeout, cpu, memory
        self._app: Any = None
        self._turn_of_app = threading.Lock()
        sdk()

    def _make(
        self, image: str, env_vars: Mapping[str, str], options: dict[str, Any]
    ) -> HostedSandbox:
        modal = sdk()
        kind = modal.Sandbox
        create = kind._experimental_create if self._uses_v2 else kind.create
        kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(create).parameters.values()
        only(options, "cmd", *({one.name for one in parameters if one.kind in kinds} - OWN))
        with _failing(f"{image} is no image for Modal"):
            arguments: dict[str, Any] = {
                "timeout": self._timeout,
                "cpu": self._cpu,
                "memory": self._memory,
                "name": unique_name(image),
                **options,
                "image": self._image_for(modal, image),
                "encrypted_ports": [PORT],
            }
            if env_vars:
                told = modal.Secret.from_dict(dict(env_vars))
                arguments["secrets"] = [*(options.get("secrets") or ()), told]
        try:
            with _failing(f"a sandbox for {image} could not be made"):
                with self._turn_of_app:
                    if self._app is None:
                        lookup = modal.App.lookup
                        self._app = lookup(self._app_name, create_if_missing=True)
                arguments["app"] = self._app
                return _ModalSandbox(create(*MAIN_COMMAND, **arguments))
        except BaseException:
            self._terminate_named(modal, arguments["name"])
            raise

    def _image_for(self, modal: Any, image: str) -> Any:
        file = registered(image)
        if file is None:
            made = modal.Image.from_registry(image)
        else:
            made = modal.Image.from_dockerfile(str(file.path), context_dir=str(file.context))
        return made.entrypoint([])  # an image's entrypoint would replace MAIN_COMMAND

    def _terminate_named(self, modal: Any, name: str) -> None:
        """Terminate the sandbox that a failed creation left, if any."""
        if self._app is None:
            return

        kind = modal.Sandbox
        of_name = kind._experimental_from_name if self._uses_v2 else kind.from_name

        def terminate() -> None:
            with contextlib.suppress(SandboxGone), _failing(f"{name} could not be looked for"):
                of_name(self._app_name, name).terminate()

        clean_up(terminate, f"{name} may be left behind until its time is over")


class _ModalSandbox(HostedSandbox):
    def __init__(self, sandbox: Any) -> None:
        self._sandbox = sandbox
        self.name = str(sandbox.object_id)

    def run(self, script: str, timeout_s: float) -> Executed:
        return self._run(script, timeout_s, None)

    def _run(self, script: str, timeout_s: float, given: bytes | None) -> Executed:
        late = f"a command could not be run: it took longer than {timeout_s:g} s"
        timed_out = sdk().exception.ExecTimeoutError
        with _failing("a command could not be run"):
            try:
                process = self._sandbox.exec(
                    "sh", "-c", script, timeout=max(1, math.ceil(timeout_s)), text=False
                )
                if given is not None:
                    process.stdin.write(given)
                    process.stdin.write_eof()
                    process.stdin.drain()
                stdout, stderr = process.stdout.read(), process.stderr.read()
                code = int(process.wait())
            except timed_out:
                raise ProviderError(late) from None
        if code == -1:  # Modal's code for a time-out
            raise ProviderError(late)
        return Executed(code, stdout.decode(errors="replace"), stderr.decode(errors="replace"))

    def write(self, path: str, data: bytes) -> None:
        done = self._run(f"umask 077 && cat >{shlex.quote(path)}", WRITE_S, data)
        if done.exit_code != 0:
            raise ProviderError(redact(f"{path} could not be written: {done.stderr.strip()}"))

    def address(self) -> str:
        with _failing("there is no address"):
            tunnels = self._sandbox.tunnels(timeout=TUNNEL_S)
        if PORT not in tunnels:
            raise ProviderError(f"Modal gave no tunnel to port {PORT}")
        return https_only(str(tunnels[PORT].url))

    def why_ended(self) -> str | None:
        try:
            with _failing("nothing is known"):
                code = self._sandbox.poll()
        except SandboxGone as error:
            return str(error)
        return None if code is None else f"Modal has ended it, or its time is over (code {code})"

    def delete(self) -> None:
        with contextlib.suppress(SandboxGone), _failing(f"{self.name} could not be ended"):
            self._sandbox.terminate()


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    errors = sdk().exception
    try:
        yield
    except errors.Error as error:
        status = None
        if isinstance(error, errors.NotFoundError):
            status = 404
        elif isinstance(error, errors.AuthError):
            status = 401
        elif isinstance(error, errors.InternalError | errors.ServiceError | errors.ConnectionError):
            status = 500
        hint = "; are MODAL_TOKEN_ID and MODAL_TOKEN_SECRET the right ones? (or: modal setup)"
        words = f"{what}: {str(error) or type(error).__name__}"
        raise service_error(words, status, hint) from None
