"""Environments in sandboxes of Azure Container Apps.

https://learn.microsoft.com/azure/container-apps/sandboxes-overview
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import shlex
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal

from openenv._internal.packages import needs
from openenv._internal.redaction import redact
from openenv.errors import ProviderError
from openenv.providers._hosted import (
    PORT,
    Gone,
    HostedProvider,
    Refused,
    Sandbox,
    as_command,
    https_only,
    no_adapter,
    only,
    owner_labels,
    owner_of,
    retried,
)
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey
from openenv.providers.servers import Executed

__all__ = ["ACASandboxProvider"]

logger = logging.getLogger(__name__)

DISK, DISK_ID = "disk:", "disk-id:"
LAUNCH = "openenv-launch"  # a label that one sandbox has
OVER = {"deleting", "failed"}
MODES = ("Memory", "Disk")
LATE = (124, 128 + 9)  # what `timeout` ends with, and a shell that it had to kill
GRACE_S = 2


def sdk() -> Any:
    """Azure's SDK of sandboxes.

    Raises:
        MissingPackage: It is not installed.
    """
    with needs("ACASandboxProvider", "pip install 'openenv[aca]'"):
        import azure.containerapps.sandbox as sandbox  # pyright: ignore[reportMissingImports]
    return sandbox


class ACASandboxProvider(HostedProvider):
    """Serves environments from sandboxes of Azure Container Apps.

        provider = ACASandboxProvider(image="disk:echo-env", anonymous_port=True,
                                      egress_policy=ACASandboxProvider.deny_all_egress())
        async with EchoEnv(provider=provider) as env: ...

    An image is a disk of Azure's: the name of a public one, bare or as ``disk:<name>``, or
    ``disk-id:<id>`` for one of the sandbox group. What starts its server is, in this order: `cmd`
    of the start, `cmd` of the provider, and the ``app`` of the ``openenv.yaml`` in the sandbox
    (that of ``/app/env``, or else the one nearest to ``/app``).

    Args:
        subscription_id: By default that of AZURE_SUBSCRIPTION_ID.
        resource_group: By default that of AZURE_RESOURCE_GROUP.
        sandbox_group: By default that of AZURE_SANDBOX_GROUP.
        region: By default that of AZURE_REGION; not needed where there is an `endpoint`.
        endpoint: The address of the service, if it is not that of the region.
        credential: As ``azure-identity`` has them; by default ``DefaultAzureCredential()``.
        cpu: Of a sandbox, in thousandths of a processor: ``1000m``.
        memory: Of a sandbox, such as ``2048Mi``.
        disk_size: Of a sandbox, such as ``20Gi``.
        auto_suspend_seconds: Without requests after which a sandbox is suspended; the next request
            resumes it.
        auto_suspend_mode: What is kept of it then: ``Memory``, or the ``Disk`` alone.
        labels: For whoever looks at the sandbox group.
        egress_policy: Where a sandbox may connect to; see `deny_all_egress`. Without one it may
            connect to everything, and a warning says so.
        anonymous_port: Must be True: the address of a server is open to whoever knows it. It wants
            a key all the same; but a server of the public package lets everybody in.
        image: What `launch` runs where it is not told.
        env_vars: Environment variables of every server.
        cmd: What starts the server, for a shell.
        working_directory: Where `cmd` is run.
        surface_server_logs: Errors carry a server's last lines, without secrets. `Server.logs`
            gives them in any case.
        create_timeout: Seconds that a sandbox may take to run.
        polling_interval: Seconds between two looks at one that is made.
        sdk_kwargs: Passed to ``SandboxGroupClient``.
        server_key: The key that each server wants: by default a fresh one for each, told by a file
            in the sandbox, which clients in this process find by themselves; None is none.

    A start takes `cmd`, `labels`, `egress_policy` and `anonymous_port`.

    Raises:
        MissingPackage: Azure's SDK is not installed.
        ValueError: An argument is missing, or means nothing.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        isolation="virtual machine",
        own_files=True,
        networks=("internet", "as the policy says"),
        limits=("cpu", "memory", "disk"),
        fresh_keys=True,
        many=True,
        detects_exit=True,
        has_logs=True,
        can_execute=True,
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
        _see_anonymous(anonymous_port)
        if auto_suspend_mode not in MODES:
            raise ValueError(
                f"auto_suspend_mode is {auto_suspend_mode!r}; expected one of 'Memory', 'Disk'"
            )
        for name, value in (
            ("auto_suspend_seconds", auto_suspend_seconds),
            ("create_timeout", create_timeout),
            ("polling_interval", polling_interval),
        ):
            if not value > 0:
                raise ValueError(f"{name} is {value!r}; it must be above 0")
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
        self._client = sdk().SandboxGroupClient(
            endpoint, credential or _credential(), **told, **(sdk_kwargs or {})
        )

    @staticmethod
    def deny_all_egress(allow: list[str] | None = None) -> Any:
        """Make a policy by which a sandbox connects to nothing.

        Args:
            allow: Names of hosts, such as ``*.pypi.org``, that it may connect to.
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

    def _sandbox(self, id: str) -> _Sandbox:
        return _Sandbox(self._client.get_sandbox_client(id), id)

    def _make(self, image: str, env_vars: Mapping[str, str], options: dict[str, Any]) -> Sandbox:
        only(options, "cmd", "labels", "egress_policy", "anonymous_port")
        if "anonymous_port" in options:
            _see_anonymous(options["anonymous_port"])
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
            sandbox = _Sandbox(made, made.sandbox_id)
        except BaseException:
            self._delete_marked(mark)
            raise
        try:
            sandbox.open_port()
        except BaseException:
            self._delete_marked(mark)
            raise
        return sandbox

    def _delete_marked(self, mark: dict[str, str]) -> None:
        """Delete what came of a creation that failed, where anything did."""

        def delete() -> None:
            with _failing("it could not be looked for"):
                found = [one.id for one in self._client.list_sandboxes(labels=mark)]
            for id in found:
                self._sandbox(id).delete()

        try:
            retried(delete, is_repeatable=True)
        except ProviderError as error:
            logger.warning("a sandbox may be left behind, and cost money: %s", error)

    def _resolved(self, sandbox: Sandbox, image: str, command: str | None) -> str:
        folder = self._working_directory
        resolved = super()._resolved(sandbox, image, command)
        return as_command(resolved, None if folder is None else shlex.quote(folder))


def _see_anonymous(anonymous_port: Any) -> None:
    if anonymous_port is not True:
        raise ValueError(
            f"anonymous_port is {anonymous_port!r}; it must be True, by which you say that the "
            "server's address is open to whoever knows it: clients have no other way to it"
        )


def _told(name: str, value: str | None, variable: str) -> str:
    found = value or os.environ.get(variable)
    if not found:
        raise ValueError(f"{name} is missing: pass it, or set {variable}")
    return found


def _source(image: str) -> dict[str, str | None]:
    """What a sandbox is made of, as the SDK is told."""
    name = image.removeprefix(DISK_ID)
    is_id = name != image
    if not is_id:
        name = image.removeprefix(DISK)
    if not name or "/" in name or ":" in name:
        raise ValueError(
            f"{image!r} is no disk of Azure's: expected the name of a public disk, 'disk:<name>' "
            "or 'disk-id:<id>'; an image of a registry has to be made a disk first"
        )
    return {"disk": None, "disk_id": name} if is_id else {"disk": name}


def _credential() -> Any:
    with needs("ACASandboxProvider", "pip install 'openenv[aca]'"):
        from azure.identity import DefaultAzureCredential  # pyright: ignore[reportMissingImports]
    return DefaultAzureCredential()


class _Sandbox(Sandbox):
    def __init__(self, sandbox: Any, name: str) -> None:
        self._sandbox = sandbox
        self._url = ""
        self.name = str(name)

    def open_port(self) -> None:
        """Have an address for its port."""
        with _failing("its port could not be opened"):
            self._url = str(self._sandbox.add_port(PORT, anonymous=True).url or "")

    def address(self) -> str:
        return https_only(self._url)

    def run(self, script: str, timeout_s: float) -> Executed:
        # The service knows no limit, so the sandbox has to keep it.
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
        except Gone as error:
            return str(error)
        state = str(seen.state or "")
        reason = getattr(seen.state_details, "stopped_reason", None)
        if state.lower() in OVER or (state.lower() == "stopped" and reason not in (None, "Idle")):
            return f"Azure calls it {state}" + (f" ({reason})" if reason else "")
        return None  # one that is suspended is resumed by the next request

    def delete(self) -> None:
        with contextlib.suppress(Gone), _failing(f"{self.name} could not be deleted"):
            self._sandbox.delete()


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    """Say in our words what Azure's SDK raises in the block."""
    sdk()
    from azure.core import exceptions  # pyright: ignore[reportMissingImports]

    try:
        yield
    except exceptions.AzureError as error:
        words = redact(f"{what}: {error.message or error}")
        status = getattr(error, "status_code", None)
        if status in (404, 410):
            raise Gone(words) from None
        if status in (401, 403) or isinstance(error, exceptions.ClientAuthenticationError):
            words += "; is the credential the right one, and has it a role in the sandbox group?"
            raise ProviderError(words) from None
        if status == 429:
            raise Refused(words, nothing_was_done=True) from None
        if (status or 0) >= 500 or status is None:
            raise Refused(words, nothing_was_done=False) from None
        raise ProviderError(words) from None
    except (RuntimeError, TimeoutError) as error:  # of its pollers
        if isinstance(error, ProviderError):
            raise
        raise ProviderError(redact(f"{what}: {error}")) from None
