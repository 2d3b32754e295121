"""Servers in Daytona sandboxes: https://www.daytona.io/docs"""

from __future__ import annotations

import contextlib
import math
import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from openenv._internal.dockerfile import strip_mounts
from openenv._internal.packages import needs
from openenv._internal.redaction import register_secret
from openenv.errors import ProviderError
from openenv.providers._dockerfiles import DockerfileProvider, RegisteredDockerfile, registered
from openenv.providers._hosted import (
    HOSTED,
    PORT,
    HostedSandbox,
    HostedServer,
    SandboxGone,
    clean_up,
    only,
    owner_labels,
    owner_of,
    retried,
    service_error,
    unique_name,
)
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey
from openenv.providers.options import check_positive
from openenv.providers.servers import Executed

__all__ = ["DaytonaProvider"]

SNAPSHOT = "snapshot:"
LINK_S = 24 * 60 * 60
DELETE_S = 60
ANSWER_S = 30.0  # for the answer to a short request
OVER = {"stopped", "stopping", "destroyed", "destroying", "error", "build_failed", "archived"}
OF_CREATE = ("on_snapshot_create_logs", "timeout")


def sdk() -> Any:
    """Import Daytona's SDK, or raise MissingPackage."""
    with needs("DaytonaProvider", "pip install 'openenv[daytona]'"):
        import daytona  # pyright: ignore[reportMissingImports]
    return daytona


class DaytonaProvider(DockerfileProvider):
    """Serves environments from sandboxes of Daytona.

        provider = DaytonaProvider(image="ghcr.io/me/echo-env:latest")
        async with EchoEnv(provider=provider) as env: ...

    An image is an image of a registry, ``snapshot:<name>`` for a snapshot of the account, or a name
    that `image_from_dockerfile` returns. The first of these commands starts the server: `cmd` of
    `launch`, `cmd` of the provider, the ``app`` of the ``openenv.yaml`` in the sandbox (the file in
    ``/app/env``, or else the one nearest to ``/app``), and the Dockerfile's ``CMD``.

    Args:
        image: The default image of `launch`.
        env_vars: Environment variables of every server.
        api_key: Daytona's key; by default DAYTONA_API_KEY.
        public: Open a sandbox's ports to everybody who knows the sandbox, without a signed link.
            The address of a server is a signed link in any case.
        resources: Resources of a sandbox, such as ``daytona.Resources(cpu=2, memory=4)``. Not for
            snapshots, which have their own.
        auto_stop_interval: Minutes without requests after which Daytona stops a sandbox; 0 for
            never. A stopped sandbox is deleted, unless `launch` gets `auto_delete_interval`.
        target: The region; by default DAYTONA_TARGET, or the account's.
        on_snapshot_create_logs: Function that is called with each line of an image's build log.
        cmd: The shell command that starts the server.
        create_timeout: Maximum seconds to create a sandbox and its image.
        server_key: Key that each server requires. By default each server gets a fresh key, passed
            in a file, which clients in this process find automatically. None: no key. Servers of
            the public package check no keys.

    `launch` takes `cmd` and the options of Daytona's ``create``: the fields of
    ``CreateSandboxFromImageParams``, such as ``labels``, ``volumes`` and ``network_block_all``.

    Raises:
        MissingPackage: Daytona's SDK is not installed.
        ProviderError: No key was given.
        ValueError: An argument is invalid.
    """

    capabilities: ClassVar[Capabilities] = replace(HOSTED, limits=("cpu", "memory", "disk"))

    def __init__(
        self,
        *,
        image: str | None = None,
        env_vars: dict[str, str] | None = None,
        api_key: str | None = None,
        public: bool = False,
        resources: Any = None,
        auto_stop_interval: int = 15,
        target: str | None = None,
        on_snapshot_create_logs: Callable[[str], None] | None = None,
        cmd: str | None = None,
        create_timeout: float = 300.0,
        server_key: str | FreshKey | None = FRESH_KEY,
    ) -> None:
        super().__init__(image, env_vars, cmd, server_key)
        if auto_stop_interval < 0:
            raise ValueError(
                f"auto_stop_interval is {auto_stop_interval!r}; it must not be below 0"
            )
        check_positive(create_timeout=create_timeout)
        self._public = public
        self._resources = resources
        self._auto_stop_interval = auto_stop_interval
        self._on_logs = on_snapshot_create_logs
        self._create_timeout = create_timeout
        register_secret(api_key or "")
        daytona = sdk()
        with _failing("Daytona cannot be used"):
            self._client = daytona.Daytona(
                daytona.DaytonaConfig(api_key=api_key, target=target) if api_key or target else None
            )

    @staticmethod
    def strip_buildkit_syntax(dockerfile_content: str) -> str:
        """Remove the ``--mount`` flags of ``RUN``, which only BuildKit supports."""
        return strip_mounts(dockerfile_content)

    def refresh_preview_url(self) -> str:
        """Renew the address of the held server for 24 hours, and return the address.

        Raises:
            ProviderError: The server is not running, or Daytona returns no address.
        """
        server = self._held()
        assert isinstance(server, HostedServer)
        server.move_to(server._sandbox.address())
        return server.url

    def _held_by_others(self) -> Iterator[tuple[str, Callable[[], object]]]:
        with _failing("sandboxes could not be listed"):
            for one in self._client.list(request_timeout=ANSWER_S):
                owner = owner_of(one.labels or {})
                if owner is not None:
                    yield owner, _DaytonaSandbox(self._client, one).delete

    def _make(
        self, image: str, env_vars: Mapping[str, str], options: dict[str, Any]
    ) -> HostedSandbox:
        params, timeout_s, on_logs = self._params(image, env_vars, options)
        until = time.monotonic() + timeout_s
        more = {} if image.startswith(SNAPSHOT) else {"on_snapshot_create_logs": on_logs}

        def create() -> Any:
            left = max(1.0, until - time.monotonic())
            with _failing(f"a sandbox for {image} could not be made"):
                return self._client.create(params, timeout=math.ceil(left), **more)

        try:
            return _DaytonaSandbox(self._client, retried(create, is_repeatable=False, until=until))
        except BaseException:
            self._delete_named(params.name)
            raise

    def _params(
        self, image: str, env_vars: Mapping[str, str], options: dict[str, Any]
    ) -> tuple[Any, float, Callable[[str], None] | None]:
        daytona = sdk()
        is_snapshot = image.startswith(SNAPSHOT)
        file = registered(image)
        kind = (
            daytona.CreateSandboxFromSnapshotParams
            if is_snapshot
            else daytona.CreateSandboxFromImageParams
        )
        own = {"image", "snapshot", "env_vars"}
        only(options, "cmd", *OF_CREATE, *(set(kind.model_fields) - own))
        timeout_s = float(options.pop("timeout", None) or self._create_timeout)
        on_logs = options.pop("on_snapshot_create_logs", None) or self._on_logs
        fields: dict[str, Any] = {
            "name": unique_name(image),
            "public": self._public,
            "auto_stop_interval": self._auto_stop_interval,
            "auto_delete_interval": 0,
            **options,
            "env_vars": dict(env_vars),
            "labels": {**(options.get("labels") or {}), **owner_labels()},
        }
        if options.get("ephemeral") is not None:  # Daytona's other name for the option
            del fields["auto_delete_interval"]
        if is_snapshot:
            if self._resources is not None:
                raise ValueError("a snapshot has resources of its own: leave `resources` out")
            fields["snapshot"] = image.removeprefix(SNAPSHOT)
        else:
            fields["image"] = image if file is None else _built(daytona, file)
            fields.setdefault("resources", self._resources)
        with _failing("the options mean nothing to Daytona"):
            return kind(**fields), timeout_s, on_logs

    def _delete_named(self, name: str) -> None:
        """Delete the sandbox that a failed creation left, if any."""

        def delete() -> None:
            with contextlib.suppress(SandboxGone), _failing(f"{name} could not be looked for"):
                _DaytonaSandbox(self._client, self._client.get(name, ANSWER_S)).delete()

        clean_up(delete, f"{name} may be left behind, and cost money")


def _built(daytona: Any, file: RegisteredDockerfile) -> Any:
    """Return Daytona's image of a Dockerfile, which is copied into the build context."""
    beside = file.context / f".openenv-{secrets.token_hex(6)}.Dockerfile"
    try:
        beside.write_text(file.text, "utf-8")
        with _failing(f"{file.path} cannot be used"):
            return daytona.Image.from_dockerfile(str(beside))
    except OSError as error:
        raise ProviderError(f"{file.context} cannot be built from: {error}") from None
    finally:
        Path(beside).unlink(missing_ok=True)


class _DaytonaSandbox(HostedSandbox):
    def __init__(self, client: Any, sandbox: Any) -> None:
        self._client = client
        self._sandbox = sandbox
        self.name = str(sandbox.id)

    def run(self, script: str, timeout_s: float) -> Executed:
        # Daytona returns both streams as one text, so a mark separates standard error.
        mark = f"--{secrets.token_hex(8)}--"
        whole = (
            f't=$(mktemp)\n( {script}\n) 2>"$t" </dev/null\nc=$?\n'
            f'printf "%s" "{mark}"; cat "$t"; rm -f "$t"; exit $c'
        )
        with _failing("a command could not be run"):
            done = self._sandbox.process.exec(
                f"sh -c {shlex.quote(whole)}", timeout=max(1, math.ceil(timeout_s))
            )
        stdout, _, stderr = str(done.result).partition(mark)
        return Executed(int(done.exit_code), stdout, stderr)

    def write(self, path: str, data: bytes) -> None:
        with _failing("a file could not be written"):
            self._sandbox.fs.upload_file(data, path)

    def address(self) -> str:
        with _failing("there is no address"):
            link = self._sandbox.create_signed_preview_url(
                PORT, expires_in_seconds=LINK_S, request_timeout=ANSWER_S
            )
        register_secret(str(link.token))
        return str(link.url).rstrip("/")

    def why_ended(self) -> str | None:
        try:
            with _failing("nothing is known"):
                self._sandbox.refresh_data(ANSWER_S)
        except SandboxGone as error:
            return str(error)
        state = str(getattr(self._sandbox.state, "value", self._sandbox.state))
        if state not in OVER:
            return None
        reason = self._sandbox.error_reason
        return f"Daytona calls it {state}" + (f": {reason}" if reason else "")

    def delete(self) -> None:
        with contextlib.suppress(SandboxGone), _failing(f"{self.name} could not be deleted"):
            self._sandbox.delete(DELETE_S)


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    daytona = sdk()
    try:
        yield
    except daytona.DaytonaError as error:
        status = 500 if isinstance(error, daytona.DaytonaConnectionError) else error.status_code
        hint = "; is DAYTONA_API_KEY, or api_key, the right one?"
        raise service_error(f"{what}: {error}", status, hint) from None
