"""Servers in sandboxes of Azure Container Apps.

https://learn.microsoft.com/azure/container-apps/sandboxes-overview
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shlex
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from openenv._internal.packages import needs
from openenv._internal.redaction import redact
from openenv.errors import ProviderError
from openenv.providers._hosted import (
    PORT,
    HostedProvider,
    HostedSandbox,
    SandboxGone,
    as_command,
    clean_up,
    https_only,
    no_adapter,
    only,
    owner_labels,
    owner_of,
    service_error,
)
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey
from openenv.providers.options import check_choice, check_positive
from openenv.providers.servers import MANAGED, Executed

__all__ = ["ACASandboxProvider"]

DISK, DISK_ID = "disk:", "disk-id:"
LAUNCH = "openenv-launch"  # a label with a value for each sandbox
OVER = {"deleting", "failed"}
LATE = (124, 128 + 9)  # exit codes of `timeout`, and of a shell that `timeout` killed
GRACE_S = 2


def sdk() -> Any:
    """Import Azure's SDK for sandboxes, or raise MissingPackage."""
    with needs("ACASandboxProvider", "pip install 'openenv[aca]'"):
        import azure.containerapps.sandbox as sandbox  # pyright: ignore[reportMissingImports]
    return sandbox


class ACASandboxProvider(HostedProvider):
    """Serves environments from sandboxes of Azure Container Apps.

        provider = ACASandboxProvider(image="disk:echo-env", anonymous_port=True,
                                      egress_policy=ACASandboxProvider.deny_all_egress())
        async with EchoEnv(provider=provider) as env: ...

    An image is an Azure disk: the name of a public disk, bare or as ``disk:<name>``, or
    ``disk-id:<id>`` for a disk of the sandbox group. The first of these commands starts the server:
    `cmd` of `launch`, `cmd` of the provider, and the ``app`` of the ``openenv.yaml`` in the sandbox
    (the file in ``/app/env``, or else the one nearest to ``/app``).

    Args:
        subscription_id: The subscription; by default AZURE_SUBSCRIPTION_ID.
        resource_group: The resource group; by default AZURE_RESOURCE_GROUP.
        sandbox_group: The sandbox group; by default AZURE_SANDBOX_GROUP.
        region: The region; by default AZURE_REGION. Not needed with an `endpoint`.
        endpoint: URL of the service; by default the region's.
        credential: A credential of ``azure-identity``; by default ``DefaultAzureCredential()``.
        cpu: Processors of a sandbox, in thousandths, such as ``1000m``.
        memory: Memory of a sandbox, such as ``2048Mi``.
        disk_size: Disk of a sandbox, such as ``20Gi``.
        auto_suspend_seconds: Seconds without requests after which a sandbox is suspended; the next
            request resumes the sandbox.
        auto_suspend_mode: What a suspended sandbox keeps: ``Memory``, or only its ``Disk``.
        labels: Additional labels of each sandbox.
        egress_policy: The hosts that a sandbox may connect to; see `deny_all_egress`. Without a
            policy, a sandbox may connect to everything, and a warning is issued.
        anonymous_port: Must be True, to confirm that everybody who knows a server's address can
            connect to it. Servers require a key, but those of the public package check no keys.
        image: The default image of `launch`.
        env_vars: Environment variables of every server.
        cmd: The shell command that starts the server.
        working_directory: The directory in which `cmd` runs.
        surface_server_logs: Include the server's last lines of output in errors, without secrets.
            `Server.logs` returns them in any case.
        create_timeout: Maximum seconds for a sandbox to start.
        polling_interval: Seconds between two checks of a starting sandbox.
        sdk_kwargs: Additional arguments of ``SandboxGroupClient``.
        server_key: Key that each server requires. By default each server gets a fresh key, passed
            in a file, which clients in this process find automatically. None: no key.

    `launch` takes the options `cmd`, `labels`, `egress_policy` and `anonymous_port`.

    Raises:
        MissingPackage: Azure's SDK is not installed.
        ValueError: An argument is missing or invalid.
    """

    capabilities: ClassVar[Capabilities] = replace(
        MANAGED,
        isolation="virtual machine",
        own_files=True,
        networks=("internet", "as the policy says"),
        limits=("cpu", "memory", "disk"),
        orphans="end at the next start",
    )

    def __init__(
        self,
        *,
        subscription_id: str | None = None,
        resource_group: str | None = None,
        sandbox_group: str | None = None,
        region: str | None = None,
        endpoint: str | None = None,
        credential: Any = None,
        cpu: str = "1000m",
        memory: str = "2048Mi",
        disk_size: str | None = None,
        auto_suspend_seconds: int = 900,
        auto_suspend_mode: Literal["Memory", "Disk"] = "Memory",
        labels: dict[str, str] | None = None,
        egress_policy: Any = None,
        anonymous_port: Literal[True] | None = None,
        image: str | None = None,
        env_vars: dict[str, str] | None = None,
        cmd: str | None = None,
        working_directory: str | None = None,
        surface_server_logs: bool = False,
        create_timeout: int = 300,
        polling_interval: int = 3,
        sdk_kwargs: dict[str, Any] | None = None,
        server_key: str | FreshKey | None = FRESH_KEY,
        _adapter: Any = None,
    ) -> None:
        super().__init__(image, env_vars, cmd, server_key, surface_server_logs)
        no_adapter(_adapter)
        _check_anonymous(anonymous_port)
        check_choice("auto_suspend_mode", auto_suspend_mode, ("Memory", "Disk"))
        check_positive(
            auto_suspend_seconds=auto_suspend_seconds,
            create_timeout=create_timeout,
            polling_interval=polling_interval,
        )
        if image is not None:
            _source(image)
        self._size = {"cpu": cpu, "memory": memory, "disk_size": disk_size}
        self._waits = {"polling_timeout": create_timeout, "polling_interval": polling_interval}
        self._suspends = {
            "auto_suspend_seconds": auto_suspend_seconds,
            "auto_suspend_mode": auto_suspend_mode,
        }
        self._own_labels = dict(labels or {})
        self._egress_policy = egress_policy
        self._working_directory = working_directory
        told = {
            "subscription_id": _told("subscription_id", subscription_id, "AZURE_SUBSCRIPTION_ID"),
            "resource_group": _told("resource_group", resource_group, "AZURE_RESOURCE_GROUP"),
            "sandbox_group": _told("sandbox_group", sandbox_group, "AZURE_SANDBOX_GROUP"),
        }
        if endpoint is None:
            region = _told("region", region, "AZURE_REGION")
            endpoint = sdk().endpoint_for_region(region)
        if not credential:
            with needs("ACASandboxProvider", "pip install 'openenv[aca]'"):
                from azure.identity import (  # pyright: ignore[reportMissingImports]
                    DefaultAzureCredential,
                )
            credential = DefaultAzureCredential()
        self._client = sdk().SandboxGroupClient(endpoint, credential, **told, **(sdk_kwargs or {}))

    @staticmethod
    def deny_all_egress(allow: list[str] | None = None) -> Any:
        """Return a policy that denies all outgoing connections of a sandbox.

        Args:
            allow: Hosts that a sandbox may connect to nevertheless, such as ``*.pypi.org``.
        """
        azure = sdk()
        rules = [azure.EgressHostRule(pattern=name, action="Allow") for name in allow or ()]
        return azure.EgressPolicy(default_action="Deny", host_rules=rules)

    def close(self) -> None:
        super().close()
        self._client.close()

    def _held_by_others(self) -> Iterator[tuple[str, Callable[[], object]]]:
        with _failing("sandboxes could not be listed"):
            for one in self._client.list_sandboxes():
                owner = owner_of(one.labels or {})
                if owner is not None:
                    yield owner, self._sandbox(one.id).delete

    def _sandbox(self, id: str) -> _ACASandbox:
        return _ACASandbox(self._client.get_sandbox_client(id), id)

    def _make(
        self, image: str, env_vars: Mapping[str, str], options: dict[str, Any]
    ) -> HostedSandbox:
        only(options, "cmd", "labels", "egress_policy", "anonymous_port")
        if "anonymous_port" in options:
            _check_anonymous(options["anonymous_port"])
        policy = options.get("egress_policy") or self._egress_policy
        if policy is None:
            warnings.warn(
                "without an egress_policy a sandbox may connect to everything; pass "
                "ACASandboxProvider.deny_all_egress(allow=[...]), or a policy of your own",
                UserWarning,
                stacklevel=2,
            )
        mark = {LAUNCH: secrets.token_hex(8)}
        labels = {**self._own_labels, **(options.get("labels") or {}), **owner_labels(), **mark}
        try:
            with _failing(f"a sandbox for {image} could not be made"):
                made = self._client.begin_create_sandbox(
                    **_source(image),
                    **self._size,
                    **self._suspends,
                    **self._waits,
                    labels=labels,
                    environment=dict(env_vars) or None,
                    egress_policy=policy,
                ).result()
            sandbox = _ACASandbox(made, made.sandbox_id)
            sandbox.open_port()
            return sandbox
        except BaseException:
            self._delete_marked(mark)
            raise

    def _delete_marked(self, mark: dict[str, str]) -> None:
        """Delete the sandbox that a failed creation left, if any."""

        def delete() -> None:
            with _failing("it could not be looked for"):
                found = [one.id for one in self._client.list_sandboxes(labels=mark)]
            for id in found:
                self._sandbox(id).delete()

        clean_up(delete, "a sandbox may be left behind, and cost money")

    def _resolved(self, sandbox: HostedSandbox, image: str, command: str | None) -> str:
        folder = self._working_directory
        resolved = super()._resolved(sandbox, image, command)
        return as_command(resolved, None if folder is None else shlex.quote(folder))


def _check_anonymous(anonymous_port: Any) -> None:
    if anonymous_port is not True:
        raise ValueError(
            f"anonymous_port is {anonymous_port!r}; it must be True, to confirm that the server's "
            "address is open to everybody who knows it: clients have no other way to the server"
        )


def _told(name: str, value: str | None, variable: str) -> str:
    found = value or os.environ.get(variable)
    if not found:
        raise ValueError(f"{name} is missing: pass it, or set {variable}")
    return found


def _source(image: str) -> dict[str, str | None]:
    name = image.removeprefix(DISK_ID)
    is_id = name != image
    if not is_id:
        name = image.removeprefix(DISK)
    if not name or "/" in name or ":" in name:
        raise ValueError(
            f"{image!r} is not a disk of Azure's: expected the name of a public disk, "
            "'disk:<name>' or 'disk-id:<id>'; an image of a registry must be made a disk first"
        )
    return {"disk": None, "disk_id": name} if is_id else {"disk": name}


class _ACASandbox(HostedSandbox):
    def __init__(self, sandbox: Any, name: str) -> None:
        self._sandbox = sandbox
        self._url = ""
        self.name = str(name)

    def open_port(self) -> None:
        with _failing("its port could not be opened"):
            self._url = str(self._sandbox.add_port(PORT, anonymous=True).url or "")

    def address(self) -> str:
        return https_only(self._url)

    def run(self, script: str, timeout_s: float) -> Executed:
        # The service has no time limit for commands, so `timeout` in the sandbox enforces it.
        limit = math.ceil(timeout_s)
        inner = f"sh -c {shlex.quote(script)}"
        bounded = f"timeout -k {GRACE_S} {limit} {inner}"
        whole = f"if command -v timeout >/dev/null; then {bounded}; else {inner}; fi"
        began = time.monotonic()
        with _failing("a command could not be run"):
            done = self._sandbox.exec(f"sh -c {shlex.quote(whole)}")
        if done.exit_code in LATE and time.monotonic() - began >= limit:
            raise ProviderError(f"a command could not be run: it took longer than {timeout_s:g} s")
        return Executed(int(done.exit_code), done.stdout or "", done.stderr or "")

    def write(self, path: str, data: bytes) -> None:
        with _failing(f"{path} could not be written"):
            self._sandbox.write_file(path, data, mode="0600")

    def why_ended(self) -> str | None:
        try:
            with _failing("nothing is known"):
                seen = self._sandbox.get()
        except SandboxGone as error:
            return str(error)
        state = str(seen.state or "")
        reason = getattr(seen.state_details, "stopped_reason", None)
        if state.lower() in OVER or (state.lower() == "stopped" and reason not in (None, "Idle")):
            return f"Azure calls it {state}" + (f" ({reason})" if reason else "")
        return None  # the next request resumes a suspended sandbox

    def delete(self) -> None:
        with contextlib.suppress(SandboxGone), _failing(f"{self.name} could not be deleted"):
            self._sandbox.delete()


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    sdk()
    from azure.core import exceptions  # pyright: ignore[reportMissingImports]

    try:
        yield
    except exceptions.AzureError as error:
        status = getattr(error, "status_code", None) or 500
        if status == 403 or isinstance(error, exceptions.ClientAuthenticationError):
            status = 401
        hint = "; is the credential the right one, and has it a role in the sandbox group?"
        raise service_error(f"{what}: {error.message or error}", status, hint) from None
    except (RuntimeError, TimeoutError) as error:  # raised by the SDK's pollers
        if isinstance(error, ProviderError):
            raise
        raise ProviderError(redact(f"{what}: {error}")) from None
