"""A package's image in a container of this machine, by Docker or Podman."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from openenv._internal.packages import MissingPackage
from openenv.errors import ProviderError
from openenv.images import BuildError, build, find_builder
from openenv.providers.docker import INSIDE, LocalDockerProvider
from openenv.providers.engines import about, find_engine
from openenv.validation.manifest import ExecutionDeclaration, NetworkPolicy
from openenv.validation.providers import LaunchSpec, SubjectError, UnmetRequirement
from openenv.validation.providers.served import ServedSubject
from openenv.validation.static.building import BuildSettings, is_means
from openenv.validation.static.package import read_package
from openenv.validation.types import ProviderCapability

__all__ = ["DockerSubject", "DockerValidationProvider", "why_no_engine"]

MIB = 2**20
# Of what a package may write, this much is for Python's own shared memory.
SHARED_MB = 16
PORTS = (443, 80)
# What the provider itself mounts, read-only: the key of the server; and Podman its own init.
OWN_MOUNTS = [INSIDE, "/run/podman-init"]
TAG = "localhost/openenv-validate-{package}:subject"


def why_no_engine() -> str | None:
    """Why no container can be built and run here; None where one can."""
    try:
        find_engine()
        find_builder()
    except (MissingPackage, ProviderError, BuildError) as error:
        return str(error)
    return None


class DockerValidationProvider:
    """Runs packages in containers that are given little, as `openenv.providers.docker` does.

    A subject has no capability of Linux, no new privileges, a root filesystem that cannot be
    written, and the memory, processors and scratch space that its package declares. It inherits
    no variable of this process.

    Args:
        settings: What this machine needs to build images.
        tell: Told of each step of a build.
    """

    name = "docker"
    supported_network_modes = frozenset({"public", "no-network", "allowlist"})

    def __init__(
        self,
        settings: BuildSettings | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._settings = settings or BuildSettings()
        self._tell = tell
        self.capabilities = _capabilities()

    def build(self, root: Path, execution: ExecutionDeclaration) -> str:
        """Build a package's image, as `openenv build` does.

        Raises:
            SubjectError: The package cannot be built.
            UnmetRequirement: No engine is there, or what an image starts from is not to be had.
        """
        how = self._settings
        package = read_package(root, None, base=how.base)
        if package.plan is None:
            raise UnmetRequirement("image_build", package.why_no_plan)
        tag = TAG.format(package=package.plan.package.replace("_", "-").lower())
        try:
            built = build(
                package.plan,
                find_builder(),
                [tag],
                options=how.options,
                locking=how.locking,
                say=self._tell,
            )
        except BuildError as error:
            if is_means(error):
                raise UnmetRequirement("image_build", str(error)) from error
            raise SubjectError("build", str(error), logs=error.log) from error
        return f"sha256:{built.id}"

    def start(self, spec: LaunchSpec) -> DockerSubject:
        """Run an image, and wait until it answers.

        Raises:
            SubjectError: It ended, or did not answer in time.
            UnmetRequirement: It needs GPUs, or there is no engine.
        """
        if spec.resources.gpus:
            raise UnmetRequirement("gpu", f"it declares {spec.resources.gpus} GPUs")
        try:
            provider = LocalDockerProvider(progress=False)
        except (MissingPackage, ProviderError) as error:
            raise UnmetRequirement("engine", str(error)) from error
        launch = functools.partial(
            provider.launch, spec.image_ref, env_vars=spec.env_vars, **_options(spec)
        )
        return DockerSubject.begin(launch, spec)


def _capabilities() -> frozenset[ProviderCapability]:
    """What the engine of this machine can do: some hold no container to any limit."""
    found = {
        ProviderCapability.NETWORK_POLICY,
        ProviderCapability.EXEC,
        ProviderCapability.IMAGE_BUILD,
        ProviderCapability.CONTAINMENT,
    }
    with suppress(MissingPackage, ProviderError):
        if not about(find_engine()).not_held:
            found.add(ProviderCapability.RESOURCE_LIMITS)
    return frozenset(found)


def _options(spec: LaunchSpec) -> dict[str, Any]:
    scratch_mb = max(spec.resources.disk_mb - SHARED_MB, 1)
    return {
        "network": _network(spec.network),
        "memory_bytes": spec.resources.memory_mb * MIB,
        "cpus": spec.resources.cpu,
        "scratch": {"/tmp": scratch_mb * MIB, "/run": SHARED_MB * MIB},  # nosec B108  # its own
        "labels": {"dev.openenv.validation": spec.run_id},
        "pull": "never",
    }


def _network(policy: NetworkPolicy) -> str | list[str]:
    if policy.mode == "public":
        return "bridge"
    if policy.mode == "no-network":
        return "none"
    return [f"{host}:{port}" for host in policy.allowed_hosts for port in PORTS]


class DockerSubject(ServedSubject):
    """A package's image that runs."""

    def inspect(self) -> dict[str, Any]:
        """What is in force."""
        options = _options(self._spec)
        state = find_engine().inspect_container(self._server.name)
        pid = (state.get("State") or {}).get("Pid")
        return {
            "provider": DockerValidationProvider.name,
            "isolation": "container",
            "container": self._server.name,
            "image": self._spec.image_ref,
            "network_mode": options["network"],
            "memory_bytes": options["memory_bytes"],
            "cpus": options["cpus"],
            "scratch": options["scratch"],
            "own_mounts": OWN_MOUNTS,
            "read_only": bool((state.get("HostConfig") or {}).get("ReadonlyRootfs")),
            **({"pid": pid} if pid else {}),
        }
